"""Dynamic resource allocation: what this version has of it."""

from scheduler.plugins.dra.plugin import DynamicResources

__all__ = ["DynamicResources"]
