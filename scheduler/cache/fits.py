"""How many free volumes of a class each node has for one shape of claim, kept from change to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet

if TYPE_CHECKING:
    from scheduler.cache.shelves import ClassShelves, Wish

_NOT_COUNTED: Final = -1
_FEW: Final = 6
"""Up to so many rows plain integers are faster than arrays."""


class Fits:
    """`counts` has a number per slot, `nodes` those that have any. For reading, after `catch_up`."""

    __slots__ = (
        "_counted",
        "_kinds",
        "_position",
        "_seen",
        "_shelves",
        "_size",
        "_threshold",
        "_wish",
        "counts",
        "nodes",
    )

    def __init__(self, shelves: ClassShelves, wish: Wish, size: int) -> None:
        self._shelves = shelves
        self._wish = wish
        self._size = size
        self._seen = (-1, -1)
        self._position = -1
        self._counted = np.zeros(0, dtype=np.int32)
        self._kinds: list[bool] = []
        self._threshold = 0
        self.counts = np.zeros(0, dtype=np.int32)
        self.nodes: NodeSet = EMPTY

    def catch_up(self) -> None:
        """Take in what was taken and freed since; everything anew if nodes changed or too much happened."""
        shelves = self._shelves
        shelves.groups.catch_up()
        now = (shelves.groups.position, shelves.nodes.capacity)
        if now == self._seen and shelves.position == self._position:
            return
        changed = shelves.changed_since(self._position) if now == self._seen else None
        if changed is None or len(changed) > len(shelves.rows) // 8 + 8:
            self._count_all()
        else:
            self._recount(list(dict.fromkeys(changed)))
        self._seen, self._position = now, shelves.position

    def _count_all(self) -> None:
        shelves, size = self._shelves, len(self._shelves.rows)
        self._threshold = shelves.threshold(self._size)
        self._kinds = [self._wish.admits(kind) for kind in shelves.kinds.contents]
        fit = shelves.free[:size] & (shelves.rank[:size] >= self._threshold)
        if not all(self._kinds):
            fit &= np.array(self._kinds, dtype=np.bool_)[shelves.kind[:size]]
        if self._wish.selector:
            for row in np.flatnonzero(fit):
                fit[row] = shelves.is_selected(self._wish, int(row))
        self._counted = np.where(fit, shelves.group[:size], _NOT_COUNTED).astype(np.int32)
        self.counts = _per_slot(shelves, shelves.group[:size][fit])
        self.nodes = nodeset.from_mask(self.counts > 0)

    def _recount(self, rows: list[int]) -> None:
        shelves = self._shelves
        self._threshold = shelves.threshold(self._size)
        self._kinds += [self._wish.admits(kind) for kind in shelves.kinds.contents[len(self._kinds) :]]
        if max(rows) >= len(self._counted):
            more = np.full(len(shelves.rank) - len(self._counted), _NOT_COUNTED, dtype=np.int32)
            self._counted = np.concatenate((self._counted, more))
        if len(rows) > _FEW:
            self._recount_many(np.array(rows, dtype=np.intp))
            return
        for row in rows:
            now = int(shelves.group[row]) if self._is_fit(row) else _NOT_COUNTED
            before = int(self._counted[row])
            if now == before:
                continue
            self._counted[row] = now
            if before != _NOT_COUNTED:
                self._add(before, -1)
            if now != _NOT_COUNTED:
                self._add(now, 1)

    def _is_fit(self, row: int) -> bool:
        shelves = self._shelves
        return bool(
            shelves.free[row]
            and shelves.rank[row] >= self._threshold
            and self._kinds[shelves.kind[row]]
            and shelves.is_selected(self._wish, row)
        )

    def _recount_many(self, rows: npt.NDArray[np.intp]) -> None:
        shelves = self._shelves
        fit = shelves.free[rows] & (shelves.rank[rows] >= self._threshold)
        fit &= np.array(self._kinds, dtype=np.bool_)[shelves.kind[rows]]
        if self._wish.selector:
            for at in np.flatnonzero(fit):
                fit[at] = shelves.is_selected(self._wish, int(rows[at]))
        now = np.where(fit, shelves.group[rows], _NOT_COUNTED)
        before = self._counted[rows]
        differs = now != before
        self._counted[rows] = now
        for locals_, by in ((before[differs], -1), (now[differs], 1)):
            there = locals_[locals_ != _NOT_COUNTED]
            slots = shelves.slots_of_groups()[there]
            np.add.at(self.counts, slots[slots >= 0], by)
            for group in there[slots < 0]:
                nodes = shelves.local_groups.contents[group].nodes
                if nodes:
                    self.counts[nodeset.to_mask(nodes, len(self.counts))] += by
        self.nodes = nodeset.from_mask(self.counts > 0)

    def _add(self, local: int, by: int) -> None:
        group = self._shelves.local_groups.contents[local]
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


def together(fits: Sequence[Fits]) -> npt.NDArray[np.int32]:
    """Per slot how many volumes there are that fit any of these; all of one class, and caught up. O(volumes) in NumPy."""
    shelves = fits[0]._shelves  # noqa: SLF001 (it is one of its kind)
    counted = np.full(max(len(one._counted) for one in fits), _NOT_COUNTED, dtype=np.int32)  # noqa: SLF001
    for one in fits:
        np.maximum(counted[: len(one._counted)], one._counted, out=counted[: len(one._counted)])  # noqa: SLF001
    return _per_slot(shelves, counted[counted != _NOT_COUNTED])


def _per_slot(shelves: ClassShelves, groups: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """One entry per volume, its local group → how many volumes per slot."""
    per_group = np.bincount(groups, minlength=len(shelves.local_groups))
    slots, capacity = shelves.slots_of_groups(), shelves.nodes.capacity
    single = (slots >= 0) & (per_group > 0)
    counts = np.bincount(slots[single], weights=per_group[single], minlength=capacity).astype(np.int32)
    for group in np.flatnonzero((slots < 0) & (per_group > 0)):
        nodes = shelves.local_groups.contents[group].nodes
        if nodes:
            counts[nodeset.to_mask(nodes, capacity)] += per_group[group]
    return counts
