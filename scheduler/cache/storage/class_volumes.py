"""The PersistentVolumes of one class as columns (docs/spec/volumes.md §3.3, §12.5).

`ClassVolumes` computes on which nodes a claim finds a free volume of its class, and which one it takes. A volume is a
row of columns: rank of its size, kind, node group, and whether it is free. For each shape of claim, the fitting free
volumes per node are counted once, in NumPy.

Then the count follows the log of changed rows. So the cost of the next claim of a known shape does not grow with
volumes or nodes. The volume for a single node is found in lists sorted by size, one per group and kind. Scores also need
the size of the smallest volume on each node: once a shape was scored, these sizes follow the same changes.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.quantity import INT64_MAX, int64
from scheduler.api.selectors import LabelSelector
from scheduler.api.storage_v1 import FILESYSTEM, PersistentVolumeClaim
from scheduler.cache.nodes.node_groups import NodeGroup, NodeGroups
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache, Interner, Numbers
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import EMPTY, NodeSet

_SHAPES: Final = 1024
_SPARE_GROUPS: Final = 1024
_SPARE_SIZES: Final = 1024
_NOT_COUNTED: Final = -1
_FEW: Final = 6
"""Up to this number of rows, plain integers are faster than arrays."""
_FEW_GROUPS: Final = 64
"""Up to this number of groups, a search in the sorted volumes of each is faster than a look at all rows."""
_NANO: Final = 10**9
_encode: Final = msgspec.msgpack.Encoder().encode


class VolumeKind(NamedTuple):
    """The properties of a volume except size and location."""

    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]


class VolumeRequirements(NamedTuple):
    """The requirements of a claim except its size (gates 4, 5, 10 and 13)."""

    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]
    selector: bytes
    """The encoded selector, so that requirements can be compared; empty without a selector."""

    def admits(self, kind: VolumeKind) -> bool:
        """Return whether a volume of this kind meets them."""
        return (
            self.volume_mode == kind.volume_mode
            and self.attributes_class == kind.attributes_class
            and self.access_modes <= kind.access_modes
        )


def requirements_of(claim: PersistentVolumeClaim) -> VolumeRequirements:
    """Return the requirements in the claim's spec, which never changes."""
    spec = claim.spec
    return VolumeRequirements(
        spec.volume_mode or FILESYSTEM,
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes),
        _encode(spec.selector) if spec.selector is not None else b"",
    )


class Row(NamedTuple):
    """The volume of a row."""

    name: str
    group: NodeGroup
    size: int
    kind: int
    labels: Mapping[str, str]


class ClassVolumes(ChangeLog[int]):
    """The volumes of one class. The log contains the rows that were taken or freed."""

    log_max = 16_384

    def __init__(self, nodes: Nodes, groups: NodeGroups) -> None:
        super().__init__()
        capacity = 64
        self.nodes = nodes
        self.groups = groups
        self.rank = np.zeros(capacity, dtype=np.int32)
        """The rank of the row's size among all sizes."""
        self.kind = np.zeros(capacity, dtype=np.int32)
        self.group = np.zeros(capacity, dtype=np.int32)
        """The row's node group, as a number of `local_groups`."""
        self.size_bytes = np.zeros(capacity, dtype=np.int64)
        """The row's size as `Quantity.value` has it, for scores. Comparisons of sizes need `rank`."""
        self.free = np.zeros(capacity, dtype=np.bool_)
        self.rows: list[Row | None] = []
        self.kinds: Numbers[VolumeKind] = Numbers()
        self.local_groups: Numbers[NodeGroup] = Numbers()
        self._sizes: list[int] = []
        self._vacant: list[int] = []
        self._sorted: dict[tuple[int, int], list[tuple[int, str, int]]] = {}
        self._slots = np.zeros(0, dtype=np.int32)
        self._slots_seen = (-1, -1)
        self._fits: BoundedCache[tuple[VolumeRequirements, int], FittingVolumes] = BoundedCache(_SHAPES)

    # -- changing: PersistentVolumes only ------------------------------------------------------------------------------

    def add(self, name: str, group: NodeGroup, size: int, *, kind: VolumeKind, labels: Mapping[str, str]) -> int:
        """Add a volume of `size` nano-bytes, taken until `set_free`; return its row."""
        # Groups and sizes are numbered, and numbers are never reused. A cluster whose volumes come and go for months
        # would keep a number for each topology and size that it ever had.
        if len(self.local_groups) > 2 * len(self.rows) + _SPARE_GROUPS:
            self._forget_groups()
        if len(self._sizes) > 2 * len(self.rows) + _SPARE_SIZES:
            self._forget_sizes()
        row = self._vacant.pop() if self._vacant else len(self.rows)
        if row == len(self.rows):
            self.rows.append(None)
            if row == len(self.rank):
                self._grow()
        number = self.kinds.of(kind)
        self.rank[row], self.kind[row], self.group[row] = self._rank(size), number, self.local_groups.of(group)
        self.size_bytes[row] = int64(size, _NANO)
        self.rows[row] = Row(name, group, size, number, labels)
        return row

    def remove(self, row: int) -> None:
        """Remove a volume that is gone or replaced."""
        self.set_free(row, is_free=False)
        self.rows[row] = None
        self._vacant.append(row)

    def set_free(self, row: int, *, is_free: bool) -> None:
        """Set whether claims may take the volume."""
        # The watch repeats volumes without a change of state. A row in the log makes every shape of claim count it
        # again.
        if bool(self.free[row]) == is_free:
            return
        self.free[row] = is_free
        volume_row = self.rows[row]
        assert volume_row is not None
        # The columns serve questions about all nodes, these lists those about one node. Both are changed here and
        # nowhere else, so they cannot disagree.
        volumes = self._sorted.setdefault((volume_row.group.number, volume_row.kind), [])
        entry = (volume_row.size, volume_row.name, row)
        at = bisect.bisect_left(volumes, entry)
        if is_free:
            volumes.insert(at, entry)
        else:
            del volumes[at]
            if not volumes:
                del self._sorted[volume_row.group.number, volume_row.kind]
        self.note(row)

    # -- reading -------------------------------------------------------------------------------------------------------

    def entries(self, row: int) -> dict[str, object]:
        """Return what is known of a free row, for comparisons; nothing of a row that is not free."""
        # A row that is not free has no meaning: its columns keep what the last free volume left there.
        volume = self.rows[row] if row < len(self.rows) else None
        if volume is None or not self.free[row]:
            return {"free without a volume": True} if volume is None and self.free[row] else {}
        columns = (self.rank[row], self.kind[row], self.group[row], self.size_bytes[row])
        entry, kind = (volume.size, volume.name, row), self.kinds.contents[volume.kind]
        is_sorted = entry in self._sorted.get((volume.group.number, volume.kind), ())
        numbers = (self.threshold(volume.size), volume.kind, self.local_groups.of(volume.group))
        is_right = columns == (*numbers, int64(volume.size, _NANO))
        fields = {"name": volume.name, "group": volume.group.where, "size": volume.size, "kind": kind}
        return {**fields, "labels": volume.labels, "columns are right": is_right, "sorted by size": is_sorted}

    @property
    def is_empty(self) -> bool:
        """Whether there are no volumes."""
        return len(self._vacant) == len(self.rows)

    def fits(self, requirements: VolumeRequirements, size: int) -> FittingVolumes:
        """Return the free volumes of at least `size` that meet the requirements, per node; valid until the next change."""
        key = (requirements, size)
        # StatefulSets create claims of the same shape again and again. The counts per node are computed for the first
        # of them and then follow the log.
        fitting = self._fits.get(key)
        if fitting is None:
            fitting = self._fits.put(key, FittingVolumes(self, requirements, size))
        fitting.catch_up()
        return fitting

    def recounted(self) -> Iterator[tuple[FittingVolumes, FittingVolumes]]:
        """Yield the counts of each known shape of claim with a recount. Those that differ are counted again at their use."""
        for key, fitting in tuple(self._fits.items()):
            fitting.catch_up()
            fresh = FittingVolumes(self, *key)
            fresh.catch_up()
            # The next attempt with such a claim counts again.
            is_counted = fitting.nodes == fresh.nodes and np.array_equal(fitting.counts, fresh.counts)
            if not (is_counted and fitting.has_equal_sizes(fresh)):
                self._fits.pop(key)
            yield fitting, fresh

    def smallest(
        self, slot: int, claim: PersistentVolumeClaim, requirements: VolumeRequirements, *, excluded: Container[str]
    ) -> str | None:
        """Return the smallest free volume for the claim on this node, except `excluded`; None if there is none.

        Of volumes of equal size that any claim could have in place of each other, a claim always gets the same one, and
        different claims preferably get different ones.
        """
        size = claim.size_nano
        best: tuple[int, str, int] | None = None
        among: list[tuple[int, str, int]] = []
        kinds = [number for number, kind in enumerate(self.kinds.contents) if requirements.admits(kind)]
        for group in self.groups.of(slot):
            for kind in kinds:
                volumes = self._sorted.get((group.number, kind))
                found = self._first(volumes, size, requirements=requirements, excluded=excluded) if volumes else None
                if volumes and found is not None and (best is None or found < best):
                    best, among = found, volumes
        return self._alike(among, best, claim.metadata.uid, excluded) if best is not None else None

    def _alike(
        self, volumes: list[tuple[int, str, int]], found: tuple[int, str, int], uid: str, excluded: Container[str]
    ) -> str:
        """Return one of the free volumes that equal the found one, by the claim's uid.

        Two schedulers that decide at the same time, or two pods of one burst, should not choose the same of several
        equal volumes. A repeated attempt makes the same choice. A volume that only looks equal, with more access modes
        or other labels, may be the only one for the next claim of the pod, so it is no choice.
        """
        size, _, found_row = found
        first = bisect.bisect_left(volumes, (size, "", -1))
        many = bisect.bisect_left(volumes, (size + 1, "", -1), first) - first
        labels, turn = self._labels(found_row), zlib.crc32(uid.encode())
        in_turn = (volumes[first + (turn + step) % many] for step in range(many))
        return next(
            name
            for _, name, row in in_turn
            if name not in excluded and (row == found_row or self._labels(row) == labels)
        )

    def _labels(self, row: int) -> Mapping[str, str] | None:
        volume_row = self.rows[row]
        return None if volume_row is None else volume_row.labels

    def smallest_bytes(self, group: NodeGroup, requirements: VolumeRequirements, size: int) -> int:
        """Return the bytes of the smallest free volume of the group, as `fits` chooses them; INT64_MAX if there is none."""
        least = INT64_MAX
        for number, kind in enumerate(self.kinds.contents):
            volumes = self._sorted.get((group.number, number)) if requirements.admits(kind) else None
            found = self._first(volumes, size, requirements=requirements, excluded=()) if volumes else None
            if found is not None:
                least = min(least, int64(found[0], _NANO))
        return least

    def threshold(self, size: int) -> int:
        """Return the lowest rank of volumes that are large enough."""
        # Ranks follow the order of sizes, so one comparison per row replaces the comparison of quantities.
        return bisect.bisect_left(self._sizes, size)

    def slots_of_groups(self) -> npt.NDArray[np.int32]:
        """Return the only slot of each local group, -1 if there are none or several."""
        now = (self.groups.position, len(self.local_groups))
        if now != self._slots_seen:
            self._slots_seen = now
            self._slots = np.array([group.slot for group in self.local_groups.contents], dtype=np.int32)
        return self._slots

    def _first(
        self,
        volumes: list[tuple[int, str, int]],
        size: int,
        *,
        requirements: VolumeRequirements,
        excluded: Container[str],
    ) -> tuple[int, str, int] | None:
        """Return size, name and row of the first matching volume."""
        for at in range(bisect.bisect_left(volumes, (size, "", -1)), len(volumes)):
            _, name, row = volumes[at]
            if name not in excluded and self.is_selected(requirements, row):
                return volumes[at]
        return None

    def is_selected(self, requirements: VolumeRequirements, row: int) -> bool:
        """Return whether the selector matches (gate 10)."""
        volume_row = self.rows[row]
        return not requirements.selector or (
            volume_row is not None and selector_of(requirements).matches(volume_row.labels)
        )

    def _rank(self, size: int) -> int:
        # Ranks are dense, so that columns can compare int32 instead of exact nano-bytes, which exceed int64. A new
        # size moves all larger ranks by one.
        at = bisect.bisect_left(self._sizes, size)
        if at == len(self._sizes) or self._sizes[at] != size:
            self._sizes.insert(at, size)
            self.rank[self.rank >= at] += 1
        return at

    def _forget_groups(self) -> None:
        """Renumber the groups, without those that have no rows."""
        # The cached fits count by the old numbers, so they are dropped with them. Sizes are different: counts do not
        # depend on ranks.
        self.local_groups = Numbers()
        for row, volume_row in enumerate(self.rows):
            if volume_row is not None:
                self.group[row] = self.local_groups.of(volume_row.group)
        self._fits.clear()
        self._slots_seen = (-1, -1)

    def _forget_sizes(self) -> None:
        """Rank the sizes again, without those that have no rows.

        Counts stay valid, because they do not depend on ranks.
        """
        self._sizes = sorted({volume_row.size for volume_row in self.rows if volume_row is not None})
        for row, volume_row in enumerate(self.rows):
            if volume_row is not None:
                self.rank[row] = self.threshold(volume_row.size)

    def _grow(self) -> None:
        more = len(self.rank)
        self.rank = np.concatenate((self.rank, np.zeros(more, dtype=np.int32)))
        self.kind = np.concatenate((self.kind, np.zeros(more, dtype=np.int32)))
        self.group = np.concatenate((self.group, np.zeros(more, dtype=np.int32)))
        self.size_bytes = np.concatenate((self.size_bytes, np.zeros(more, dtype=np.int64)))
        self.free = np.concatenate((self.free, np.zeros(more, dtype=np.bool_)))


_selectors: Final[Interner[bytes, LabelSelector]] = Interner(_SHAPES)
_decode: Final = msgspec.msgpack.Decoder(LabelSelector).decode


def selector_of(requirements: VolumeRequirements) -> LabelSelector:
    """Return the selector of the requirements; ValueError if it is invalid."""
    selector = _selectors.get(requirements.selector)
    if selector is None:
        selector = _selectors.share(requirements.selector, _decode(requirements.selector))
    return selector


class FittingVolumes:
    """The fitting volumes of one shape of claim: `counts` per slot, `nodes` with at least one.

    Call `catch_up` before reading.
    """

    def __init__(self, class_volumes: ClassVolumes, requirements: VolumeRequirements, size: int) -> None:
        self._class_volumes = class_volumes
        self._requirements = requirements
        self._size = size
        self._seen = (-1, -1)
        self._position = -1
        self._counted = np.zeros(0, dtype=np.int32)
        self._kinds: list[bool] = []
        self._threshold = 0
        self.counts = np.zeros(0, dtype=np.int32)
        self.nodes: NodeSet = EMPTY
        self._changed_groups: set[int] | None = None
        """The groups whose sizes must be looked up again; None for all, also before the first call of `smallest_bytes`."""
        self._bytes_of_groups = np.zeros(0, dtype=np.int64)
        self._smallest_bytes = np.zeros(0, dtype=np.int64)

    def smallest_bytes(self) -> npt.NDArray[np.int64]:
        """Return for each slot the bytes of its smallest volume, rounded up; INT64_MAX without one. Do not change it.

        After a change: O(groups of the class's volumes) in NumPy, and a search in the sorted volumes of the changed groups.
        """
        changed, class_volumes = self._changed_groups, self._class_volumes
        if changed is not None and not changed - {_NOT_COUNTED}:
            return self._smallest_bytes
        groups = class_volumes.local_groups.contents
        if changed is None or len(changed) > _FEW_GROUPS:
            rows = np.flatnonzero(self._counted != _NOT_COUNTED)
            self._bytes_of_groups = np.full(len(groups), INT64_MAX, dtype=np.int64)
            np.minimum.at(self._bytes_of_groups, self._counted[rows], class_volumes.size_bytes[rows])
        else:
            more = np.full(len(groups) - len(self._bytes_of_groups), INT64_MAX, dtype=np.int64)
            self._bytes_of_groups = np.concatenate((self._bytes_of_groups, more))
            for local in changed - {_NOT_COUNTED}:
                self._bytes_of_groups[local] = class_volumes.smallest_bytes(
                    groups[local], self._requirements, self._size
                )
        self._changed_groups = set()
        self._smallest_bytes = _least_per_slot(class_volumes, self._bytes_of_groups)
        return self._smallest_bytes

    def has_equal_sizes(self, other: FittingVolumes) -> bool:
        """Return whether both have the same smallest sizes; True if these were never computed here."""
        return self._changed_groups is None or np.array_equal(self.smallest_bytes(), other.smallest_bytes())

    def catch_up(self) -> None:
        """Apply the taken and freed volumes; count again if nodes changed or the log is too short."""
        class_volumes = self._class_volumes
        class_volumes.groups.catch_up()
        # Two positions, because two things can change: the nodes of groups, after which every count is wrong, and
        # single rows.
        now = (class_volumes.groups.position, class_volumes.nodes.capacity)
        if now == self._seen and class_volumes.position == self._position:
            return
        changed = class_volumes.changed_since(self._position) if now == self._seen else None
        # A restart of a driver can change most rows. From about an eighth on, counting all rows in NumPy is cheaper
        # than following each one.
        if changed is None or len(changed) > len(class_volumes.rows) // 8 + 8:
            self._count_all()
        else:
            self._recount(list(dict.fromkeys(changed)))
        self._seen, self._position = now, class_volumes.position

    def _count_all(self) -> None:
        class_volumes, size = self._class_volumes, len(self._class_volumes.rows)
        self._threshold = class_volumes.threshold(self._size)
        self._kinds = [self._requirements.admits(kind) for kind in class_volumes.kinds.contents]
        fit = self._which_fit(slice(size))
        self._counted = np.where(fit, class_volumes.group[:size], _NOT_COUNTED).astype(np.int32)
        self.counts = _per_slot(class_volumes, class_volumes.group[:size][fit])
        self.nodes = nodeset.from_mask(self.counts > 0)
        self._changed_groups = None

    def _recount(self, rows: list[int]) -> None:
        class_volumes = self._class_volumes
        self._threshold = class_volumes.threshold(self._size)
        self._kinds += [self._requirements.admits(kind) for kind in class_volumes.kinds.contents[len(self._kinds) :]]
        if max(rows) >= len(self._counted):
            more = np.full(len(class_volumes.rank) - len(self._counted), _NOT_COUNTED, dtype=np.int32)
            self._counted = np.concatenate((self._counted, more))
        if len(rows) > _FEW:
            self._recount_many(np.array(rows, dtype=np.intp))
            return
        for row in rows:
            # The row may have been counted in another group before: it is a row that was reused for another volume.
            # So the old count is taken back where it was made.
            now = int(class_volumes.group[row]) if self._is_fit(row) else _NOT_COUNTED
            before = int(self._counted[row])
            if self._changed_groups is not None:
                self._changed_groups.update((before, now))
            if now == before:
                continue
            self._counted[row] = now
            if before != _NOT_COUNTED:
                self._add(before, -1)
            if now != _NOT_COUNTED:
                self._add(now, 1)

    def _is_fit(self, row: int) -> bool:
        class_volumes = self._class_volumes
        return bool(
            class_volumes.free[row]
            and class_volumes.rank[row] >= self._threshold
            and self._kinds[class_volumes.kind[row]]
            and class_volumes.is_selected(self._requirements, row)
        )

    def _recount_many(self, rows: npt.NDArray[np.intp]) -> None:
        class_volumes = self._class_volumes
        fit = self._which_fit(rows)
        now = np.where(fit, class_volumes.group[rows], _NOT_COUNTED)
        before = self._counted[rows]
        if self._changed_groups is not None:
            self._changed_groups.update(before.tolist(), now.tolist())
        differs = now != before
        self._counted[rows] = now
        # `np.add.at` adds repeated slots one by one, where plain indexing would count them once. Groups of several
        # nodes are rare and are added group by group.
        for locals_, by in ((before[differs], -1), (now[differs], 1)):
            there = locals_[locals_ != _NOT_COUNTED]
            slots = class_volumes.slots_of_groups()[there]
            np.add.at(self.counts, slots[slots >= 0], by)
            for group in there[slots < 0]:
                nodes = class_volumes.local_groups.contents[group].nodes
                if nodes:
                    self.counts[nodeset.to_mask(nodes, len(self.counts))] += by
        self.nodes = nodeset.from_mask(self.counts > 0)

    def _which_fit(self, rows: slice | npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        class_volumes = self._class_volumes
        fit: npt.NDArray[np.bool_] = class_volumes.free[rows] & (class_volumes.rank[rows] >= self._threshold)
        if not all(self._kinds):
            fit &= np.array(self._kinds, dtype=np.bool_)[class_volumes.kind[rows]]
        if self._requirements.selector:
            numbers = np.arange(len(class_volumes.rank))[rows]
            for at in np.flatnonzero(fit):
                fit[at] = class_volumes.is_selected(self._requirements, int(numbers[at]))
        return fit

    def _add(self, local: int, by: int) -> None:
        group = self._class_volumes.local_groups.contents[local]
        # Local volumes have a node each, and a burst of claims takes them one by one. This is the path that must be
        # cheap.
        if group.slot >= 0:
            slot = group.slot
            self.counts[slot] += by
            if self.counts[slot] == 0:
                self.nodes &= ~(1 << slot)
            else:
                self.nodes |= 1 << slot
        elif group.nodes:
            self.counts[nodeset.to_mask(group.nodes, len(self.counts))] += by
            self.nodes = nodeset.from_mask(self.counts > 0)


def together(fits: Sequence[FittingVolumes]) -> npt.NDArray[np.int32]:
    """Return for each slot the number of volumes that fit any of these. O(volumes) in NumPy.

    All must be of one class and up to date.
    """
    class_volumes = fits[0]._class_volumes  # noqa: SLF001 (same class)
    counted = np.full(max(len(one._counted) for one in fits), _NOT_COUNTED, dtype=np.int32)  # noqa: SLF001
    for one in fits:
        # Each row counts in at most one group, -1 elsewhere. The maximum is therefore the union of the fitting rows,
        # and no volume is counted for two shapes.
        np.maximum(counted[: len(one._counted)], one._counted, out=counted[: len(one._counted)])  # noqa: SLF001
    return _per_slot(class_volumes, counted[counted != _NOT_COUNTED])


def _per_slot(class_volumes: ClassVolumes, groups: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the volumes per slot from the local groups of all volumes."""
    per_group = np.bincount(groups, minlength=len(class_volumes.local_groups))
    slots, capacity = class_volumes.slots_of_groups(), class_volumes.nodes.capacity
    single = (slots >= 0) & (per_group > 0)
    counts = np.bincount(slots[single], weights=per_group[single], minlength=capacity).astype(np.int32)
    for group in np.flatnonzero((slots < 0) & (per_group > 0)):
        nodes = class_volumes.local_groups.contents[group].nodes
        if nodes:
            counts[nodeset.to_mask(nodes, capacity)] += per_group[group]
    return counts


def _least_per_slot(class_volumes: ClassVolumes, of_groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return per slot the least of the numbers of its local groups; INT64_MAX for none."""
    slots, capacity = class_volumes.slots_of_groups(), class_volumes.nodes.capacity
    least = np.full(capacity, INT64_MAX, dtype=np.int64)
    single = slots >= 0
    np.minimum.at(least, slots[single], of_groups[single])
    for local in np.flatnonzero(~single & (of_groups < INT64_MAX)):
        nodes = class_volumes.local_groups.contents[local].nodes
        if nodes:
            mask = nodeset.to_mask(nodes, capacity)
            least[mask] = np.minimum(least[mask], of_groups[local])
    return least
