"""Where a bound volume can be used, by its node affinity (docs/spec/volumes.md §3.1).

For volumes of in-tree plugins it is the affinity that their CSI driver uses.
"""

from __future__ import annotations

from scheduler.api.csi_translation import MIGRATABLE, TranslationError, kind_of, translate_volume
from scheduler.api.storage_v1 import PersistentVolume
from scheduler.cache.nodes.node_groups import affinity_problem, where_affinity
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.volumes import Volumes
from scheduler.core.errors import VolumeError
from scheduler.core.nodeset import EMPTY, NodeSet


class VolumeReachability:
    """Checks node affinity for all nodes at once, or for one node with a reason.

    Upstream: staging/src/k8s.io/component-helpers/storage/volume/helpers.go CheckNodeAffinity
    """

    def __init__(self, nodes: Nodes, volumes: Volumes) -> None:
        self._nodes = nodes
        self._volumes = volumes

    def nodes_of(self, volume: PersistentVolume, among: NodeSet) -> NodeSet:
        """Return those of the nodes on which a known volume can be used.

        Raises VolumeError if a node needs the translated volume and it cannot be translated.
        """
        # The answer for the volume as it is stored is kept in the index of volumes.
        raw = self._volumes.volumes.where(volume.key).nodes & among
        kind = kind_of(volume.spec)
        is_migratable = kind is not None and kind.plugin in MIGRATABLE
        # A node whose kubelet has handed the in-tree plugin to its CSI driver knows the driver's topology keys only.
        migrated = self._volumes.migrated(kind.plugin) & among if kind is not None and is_migratable else EMPTY
        if not migrated:
            return raw
        # Both kinds of nodes exist while a cluster is upgraded, so that each is judged by its own form.
        translated = self._volumes.groups.nodes_of(where_affinity(self._translated(volume).required_nodes))
        return (translated & migrated) | (raw & ~migrated)

    def misses(self, volume: PersistentVolume, slot: int) -> str:
        """Return why the volume cannot be used on this node; "" if it can. Raises VolumeError as `nodes_of`."""
        if self.nodes_of(volume, 1 << slot):
            return ""
        return affinity_problem(volume.required_nodes) or "no matching NodeSelectorTerms"

    def _translated(self, volume: PersistentVolume) -> PersistentVolume:
        try:
            return translate_volume(volume)
        except TranslationError as error:
            raise VolumeError(f"could not translate pv: {error}") from error
