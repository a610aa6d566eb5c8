"""Kubestow: a secondary Kubernetes scheduler that stows each pod together with its volumes and devices."""

__version__ = "0.1.0"
DISTRIBUTION = "kubestow"
"""Distinguishes this package from one of another distribution with the same name (kubestow/own_package.py)."""
