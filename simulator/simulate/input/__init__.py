"""What a simulation reads: manifests, dumps or a cluster, validated, with what an API server would add."""
