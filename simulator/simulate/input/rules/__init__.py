"""Rules of an API server for manifests, beyond the fields and types of the schema."""
