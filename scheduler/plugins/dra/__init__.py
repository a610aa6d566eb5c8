"""The DynamicResources plugin: dynamic resource allocation (docs/spec/dra.md)."""

from scheduler.plugins.dra.plugin import DynamicResources

__all__ = ["DynamicResources"]
