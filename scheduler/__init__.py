"""Kubestow: a secondary Kubernetes scheduler that stows each pod together with its volumes and devices."""

from scheduler import moved

__version__ = "0.1.0"

moved.install()
