"""Metrics and logs. This package does not know pods, nodes or the API."""
