"""Kubestow: a secondary Kubernetes scheduler that stows each pod together with its volumes and devices."""

__version__ = "0.1.0"
