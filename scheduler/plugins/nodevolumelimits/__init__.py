"""NodeVolumeLimits: a node attaches a limited number of volumes of a CSI driver (docs/spec/volumes.md §9.1)."""

from scheduler.plugins.nodevolumelimits.plugin import NodeVolumeLimits

__all__ = ["NodeVolumeLimits"]
