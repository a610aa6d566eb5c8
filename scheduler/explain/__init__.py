"""Answers about pods: why one is pending, which change would help, what would fit. Nothing is written to the cluster."""
