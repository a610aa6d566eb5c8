"""What operators see of a running daemon: metrics and logs. Knows nothing of pods, nodes or the API."""
