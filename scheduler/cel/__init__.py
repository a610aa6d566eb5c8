"""The Common Expression Language of Kubernetes 1.36, independent of its use (docs/spec/cel.md)."""
