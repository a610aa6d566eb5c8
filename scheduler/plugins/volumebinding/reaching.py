"""Where bound volumes can be used: their node affinity, for volumes of in-tree plugins as their CSI driver reads it.

Rules: docs/spec/volumes.md §3.1, §3.5, §3.6.
"""

from __future__ import annotations

from scheduler.cache.nodegroups import affinity_problem, where_affinity
from scheduler.cache.nodes import Nodes
from scheduler.cache.volumes import Volumes
from scheduler.core.intree import MIGRATABLE, TranslationError, kind_of, translate_volume
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.volumes import PersistentVolume
from scheduler.plugins.volumebinding.binder import VolumeError


class Reach:
    """Answers for all nodes at once, or for one and with words."""

    def __init__(self, nodes: Nodes, volumes: Volumes) -> None:
        self._nodes = nodes
        self._volumes = volumes

    def nodes_of(self, volume: PersistentVolume, among: NodeSet) -> NodeSet:
        """Those of the nodes that a known volume can be used on.

        Raises VolumeError if one of them wants it translated and it cannot be.
        """
        raw = self._volumes.volumes.where(volume.key).nodes & among
        kind = kind_of(volume)
        is_migratable = kind is not None and kind.plugin in MIGRATABLE
        migrated = self._volumes.migrated(kind.plugin) & among if kind is not None and is_migratable else EMPTY
        if not migrated:
            return raw
        translated = self._volumes.groups.nodes_of(where_affinity(self._translated(volume).required_nodes))
        return (translated & migrated) | (raw & ~migrated)

    def misses(self, volume: PersistentVolume, slot: int) -> str:
        """Why the volume cannot be used on this node; "" if it can. Raises VolumeError as `nodes_of`."""
        if self.nodes_of(volume, 1 << slot):
            return ""
        return affinity_problem(volume.required_nodes) or "no matching NodeSelectorTerms"

    def _translated(self, volume: PersistentVolume) -> PersistentVolume:
        try:
            return translate_volume(volume)
        except TranslationError as error:
            raise VolumeError(f"could not translate pv: {error}") from error
