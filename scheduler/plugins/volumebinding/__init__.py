"""VolumeBinding: pods and their volumes on nodes that can have both (docs/spec/volumes.md §2–§7)."""

from scheduler.plugins.volumebinding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
