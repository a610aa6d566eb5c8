"""Volumes by claim and by class; of each class who is free, where, and how large (docs/spec/volumes.md §1.3, §12.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.cache.assumed import AssumeCache
from scheduler.cache.nodegroups import NodeGroup, NodeGroups, where_affinity
from scheduler.cache.shelves import ClassShelves, Kind
from scheduler.core.volumes import FILESYSTEM, PersistentVolume

if TYPE_CHECKING:
    from scheduler.cache.nodes import Nodes

AVAILABLE: Final = "Available"


class PersistentVolumes(AssumeCache[PersistentVolume]):
    """All volumes as decisions see them: with our own pre-bindings on top."""

    def __init__(self, nodes: Nodes, groups: NodeGroups) -> None:
        super().__init__("persistentvolumes")
        self._nodes = nodes
        self._groups = groups
        self._classes: dict[str, ClassShelves] = {}
        self._places: dict[str, tuple[ClassShelves, int]] = {}
        self._where: dict[str, NodeGroup] = {}
        self._meant_for: dict[str, dict[str, None]] = {}

    def shelves(self, storage_class: str) -> ClassShelves | None:
        """The volumes of a class; None if it has none that were ever free."""
        return self._classes.get(storage_class)

    def where(self, name: str) -> NodeGroup:
        """Where a known volume can be used, by its node affinity. KeyError for an unknown one."""
        self._groups.catch_up()
        return self._where[name]

    def meant_for(self, claim_key: str) -> list[PersistentVolume]:
        """Volumes whose claimRef names this claim, of whatever uid, class and state; by name."""
        names = self._meant_for.get(claim_key)
        return [volume for name in sorted(names) if (volume := self.get(name)) is not None] if names else []

    def _changed(self, before: PersistentVolume | None, now: PersistentVolume | None) -> None:
        if before is not None and before.spec.claim_ref is not None:
            self._unmean(before.spec.claim_ref.key, before.key)
        if now is None:
            assert before is not None
            self._leave(before)
            return
        if now.spec.claim_ref is not None:
            self._meant_for.setdefault(now.spec.claim_ref.key, {})[now.key] = None
        if before is None or not _stays(before, now):
            if before is not None:
                self._leave(before)
            self._where[now.key] = self._groups.acquire(where_affinity(now.required_nodes))
        shelves, row = self._places.get(now.key) or (None, -1)
        if shelves is not None:
            shelves.set_free(row, is_free=is_free(now))
        elif is_free(now):
            self._enter(now)

    def _enter(self, volume: PersistentVolume) -> None:
        """A row of its class, from the first moment that it is free."""
        shelves = self._classes.get(volume.storage_class)
        if shelves is None:
            shelves = self._classes[volume.storage_class] = ClassShelves(self._nodes, self._groups)
        row = shelves.add(
            volume.key,
            self._where[volume.key],
            volume.capacity.nano,
            kind=_kind(volume),
            labels=volume.metadata.labels,
        )
        shelves.set_free(row, is_free=True)
        self._places[volume.key] = shelves, row

    def _leave(self, volume: PersistentVolume) -> None:
        shelves, row = self._places.pop(volume.key, (None, -1))
        if shelves is not None:
            shelves.remove(row)
            if shelves.is_empty:
                del self._classes[volume.storage_class]
        self._groups.release(self._where.pop(volume.key))

    def _unmean(self, claim_key: str, name: str) -> None:
        names = self._meant_for[claim_key]
        del names[name]
        if not names:
            del self._meant_for[claim_key]


def is_free(volume: PersistentVolume) -> bool:
    """Whether any claim may have it: gates 2, 6 and 9 for a claim that nothing was meant for (§3.3.2)."""
    return (
        volume.spec.claim_ref is None
        and volume.status.phase == AVAILABLE
        and volume.metadata.deletion_timestamp is None
    )


def _kind(volume: PersistentVolume) -> Kind:
    spec = volume.spec
    return Kind(spec.volume_mode or FILESYSTEM, spec.volume_attributes_class_name or "", frozenset(spec.access_modes))


def _stays(before: PersistentVolume, now: PersistentVolume) -> bool:
    """Whether its row stands for it as before; everything else is whether it is free."""
    old, new = before.spec, now.spec
    return (
        before.storage_class == now.storage_class
        and before.capacity.nano == now.capacity.nano
        and old.access_modes == new.access_modes
        and old.volume_mode == new.volume_mode
        and old.volume_attributes_class_name == new.volume_attributes_class_name
        and before.metadata.labels == now.metadata.labels
        and old.node_affinity == new.node_affinity
    )
