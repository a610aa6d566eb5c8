"""PersistentVolumes by claim and by class, with nodes and state (docs/spec/volumes.md §1.3, §3.3)."""

from __future__ import annotations

from typing import Final

from scheduler.api.storage_v1 import FILESYSTEM, PersistentVolume
from scheduler.cache.assume_cache import AssumeCache
from scheduler.cache.nodes.node_groups import NodeGroup, NodeGroups, where_affinity
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.class_volumes import ClassVolumes, VolumeKind


def _kind_of(volume: PersistentVolume) -> VolumeKind:
    spec = volume.spec
    modes = frozenset(spec.access_modes)
    return VolumeKind(spec.volume_mode or FILESYSTEM, spec.volume_attributes_class_name or "", modes)


AVAILABLE: Final = "Available"


class PersistentVolumes(AssumeCache[PersistentVolume]):
    """All volumes, with our own pre-bindings.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/assume_cache.go PVAssumeCache, ListPVs
    """

    def __init__(self, nodes: Nodes, groups: NodeGroups) -> None:
        super().__init__("persistentvolumes")
        self._nodes = nodes
        self._groups = groups
        self._classes: dict[str, ClassVolumes] = {}
        self._places: dict[str, tuple[ClassVolumes, int]] = {}
        self._where: dict[str, NodeGroup] = {}
        self.by_claim: dict[str, dict[str, None]] = {}

    def class_volumes(self, storage_class: str) -> ClassVolumes | None:
        """Return the volumes of a class; None if no volume of it was ever free."""
        return self._classes.get(storage_class)

    def classes(self) -> tuple[tuple[str, ClassVolumes], ...]:
        """Return the classes with rows."""
        return tuple(self._classes.items())

    def names(self) -> dict[str, None]:
        """Return the names of all volumes, and of all rows."""
        rows = (row.name for _, class_volumes in self.classes() for row in class_volumes.rows if row is not None)
        return dict.fromkeys((*self.keys(), *self._places, *rows))

    def entries(self, name: str) -> dict[str, object]:
        """Return what is known of a volume, for comparisons."""
        where, place = self._where.get(name), self._places.get(name)
        is_known = where is not None and where in self._groups
        fields: dict[str, object] = {"nodes": where.where if is_known else None} if where is not None else {}
        if place is None:
            return fields
        classes = [name for name, class_volumes in self._classes.items() if class_volumes is place[0]]
        row = place[0].entries(place[1])
        return {**fields, "class": classes, **row} if row else fields

    def expected(self, name: str) -> dict[str, object]:
        """Return `entries` as they follow from the volume alone."""
        alone, volume = PersistentVolumes(self._nodes, self._groups), self.get(name)
        if volume is not None:
            alone.set(volume)
        entries = alone.entries(name)
        alone.remove(name)
        return entries

    def rebuild(self) -> None:
        """Fill the classes again from the volumes, whatever is wrong with them. O(volumes)."""
        self._classes.clear()
        self._places.clear()
        where, self._where = self._where, {}
        for name in self.keys():
            if (volume := self.get(name)) is not None:
                group = self._where[name] = self._groups.acquire(where_affinity(volume.required_nodes))
                if where.get(name) is group:  # a wrong group may be that of another volume, which needs it
                    self._groups.release(group)
                if is_free(volume):
                    self._enter(volume)

    def where(self, name: str) -> NodeGroup:
        """Return the nodes of a known volume by its node affinity; KeyError for an unknown one."""
        self._groups.catch_up()
        return self._where[name]

    def meant_for(self, claim_key: str) -> list[PersistentVolume]:
        """Return the volumes whose claimRef names this claim, by name. Uid, class and state are ignored."""
        # The order by name makes the choice among several such volumes the same in each attempt.
        names = self.by_claim.get(claim_key)
        return [volume for name in sorted(names) if (volume := self.get(name)) is not None] if names else []

    def _changed(self, before: PersistentVolume | None, now: PersistentVolume | None) -> None:
        if before is not None and before.spec.claim_ref is not None:
            names = self.by_claim[before.spec.claim_ref.key]
            del names[before.key]
            if not names:
                del self.by_claim[before.spec.claim_ref.key]
        if now is None:
            assert before is not None
            self._leave(before)
            return
        if now.spec.claim_ref is not None:
            self.by_claim.setdefault(now.spec.claim_ref.key, {})[now.key] = None
        # A volume whose size, class or nodes change gets a new row. Such changes are rare, and a row that may change
        # would complicate every reader of the log.
        if before is None or not _stays(before, now):
            if before is not None:
                self._leave(before)
            self._where[now.key] = self._groups.acquire(where_affinity(now.required_nodes))
        # A volume gets a row when it is free for the first time. In most clusters nearly all volumes are bound, and
        # rows for them would only make the columns longer.
        class_volumes, row = self._places.get(now.key) or (None, -1)
        if class_volumes is not None:
            class_volumes.set_free(row, is_free=is_free(now))
        elif is_free(now):
            self._enter(now)

    def _enter(self, volume: PersistentVolume) -> None:
        """Add a row for a volume that is free for the first time."""
        class_volumes = self._classes.get(volume.storage_class)
        if class_volumes is None:
            class_volumes = self._classes[volume.storage_class] = ClassVolumes(self._nodes, self._groups)
        row = class_volumes.add(
            volume.key,
            self._where[volume.key],
            volume.capacity.nano,
            kind=_kind_of(volume),
            labels=volume.metadata.labels,
        )
        class_volumes.set_free(row, is_free=True)
        self._places[volume.key] = class_volumes, row

    def _leave(self, volume: PersistentVolume) -> None:
        class_volumes, row = self._places.pop(volume.key, (None, -1))
        if class_volumes is not None:
            class_volumes.remove(row)
            if class_volumes.is_empty:
                del self._classes[volume.storage_class]
        self._groups.release(self._where.pop(volume.key))


def is_free(volume: PersistentVolume) -> bool:
    """Return whether any claim may take it: gates 2, 6 and 9 for a claim without a designated volume (§3.3.2)."""
    return (
        volume.spec.claim_ref is None
        and volume.status.phase == AVAILABLE
        and volume.metadata.deletion_timestamp is None
    )


def _stays(before: PersistentVolume, now: PersistentVolume) -> bool:
    """Return whether the volume's row stays valid, whether or not it is free."""
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
