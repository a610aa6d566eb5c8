"""The VolumeBinding plugin: it chooses nodes where a pod's volumes are, or can be (docs/spec/volumes.md §2–§7)."""

from scheduler.plugins.volumebinding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
