"""The Common Expression Language as Kubernetes 1.36 has it, and nothing about what it is asked of (docs/spec/cel.md)."""
