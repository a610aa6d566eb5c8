"""HTTP endpoints: health, metrics, configuration and debugging."""
