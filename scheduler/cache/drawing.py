"""What the claims of one pod would take from capacity pools, one after the other, for all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet

if TYPE_CHECKING:
    from scheduler.cache.capacities import ClassPools
    from scheduler.cache.sharedpools import Pool

_MOST_STEPS: Final = 2000
"""Of the search for pools that take all claims of a pod. With three pools it tries every way to place seven claims."""


class Drawing:
    """Of one class. Together: each claim finds what those before it left; else each is judged alone against the limit.

    Nothing is drawn for good; `cache.ledger` does that once a node is chosen.
    """

    def __init__(self, pools: ClassPools, *, together: bool) -> None:
        self.pools = pools
        self._together = together
        self.drawn: npt.NDArray[np.int64] | None = None
        self.sizes: dict[int, list[int]] = {}
        self.taken_from: dict[int, list[Pool]] = {}
        """Slot → the pools that the claims of these sizes come from, where nodes are looked at one by one."""
        self.sharing: list[Drawing] = []

    def share(self, other: Drawing) -> None:
        """Draw from the same rooms as the drawing of another class."""
        self.sharing.append(other)
        other.sharing.append(self)

    def next(self, size: int, nodes: NodeSet) -> NodeSet:
        """The nodes that take one more volume of `size` bytes. O(nodes / 64), more where several pools serve a node."""
        pools = self.pools
        crowded = pools.crowded
        for other in self.sharing:
            crowded |= other.pools.crowded
        simple = nodes & ~crowded
        takes = EMPTY
        if simple:
            fits = pools.limit >= size
            if self._together:
                drawn = self._drawn_in_all()
                if drawn is None:
                    fits &= (pools.spare >= size) | ~pools.is_used
                else:
                    fits &= (pools.spare - drawn >= size) | ~(pools.is_used | (drawn > 0))
            takes = nodeset.from_mask(fits) & simple
            if self._together and takes:
                if self.drawn is None:
                    self.drawn = np.zeros(len(pools.limit), dtype=np.int64)
                self.drawn[nodeset.to_mask(takes, len(pools.limit))] += size
        for slot in nodeset.each(nodes & crowded):
            if self.at(slot, size):
                takes |= 1 << slot
        return takes

    def at(self, slot: int, size: int) -> bool:
        """Whether one node takes one more volume: `pools_at` has its pool then, the one with most left if that will do."""
        sizes, taken_from = self.sizes.setdefault(slot, []), self.taken_from.setdefault(slot, [])
        best: Pool | None = None
        most = -1
        for pool in self.pools.at(slot):
            before = self._before(slot, pool)
            takes = pool.takes(size, before=before) if self._together else size <= pool.limit
            left = pool.room - pool.in_flight - before
            if takes and (best is None or left > most):
                best, most = pool, left
        if best is not None:
            taken_from.append(best)
        elif not self._together or not sizes or not self._placed_anew(slot, [*sizes, size]):
            return False
        sizes.append(size)
        return True

    def pools_at(self, slot: int) -> Sequence[Pool]:
        """The pools that the volumes of one node come from, in the order in which `at` was called."""
        return self.taken_from.get(slot, ())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _drawn_in_all(self) -> npt.NDArray[np.int64] | None:
        out = self.drawn
        for other in self.sharing:
            if other.drawn is not None:
                out = other.drawn if out is None else out + other.drawn
        return out

    def _before(self, slot: int, pool: Pool) -> int:
        """What claims of the pod have drawn from the room of this pool."""
        out = 0
        for drawing in (self, *self.sharing):
            taken = list(zip(drawing.sizes.get(slot, ()), drawing.taken_from.get(slot, ())))
            if drawing.drawn is not None:  # by `next`, before it was known that several pools serve the node
                taken += [(int(drawing.drawn[slot]), other) for other in drawing.pools.at(slot)[:1]]
            shares = drawing is not self
            out += sum(size for size, other in taken if other is pool or (shares and other.group is pool.group))
        return out

    def _placed_anew(self, slot: int, sizes: list[int]) -> bool:
        """Place all volumes again, the largest first, where each finding the pool with most left did not place them all."""
        before = self.taken_from.pop(slot)
        pools = list(self.pools.at(slot))
        drawn = [self._before(slot, pool) for pool in pools]
        order = sorted(range(len(sizes)), key=lambda at: -sizes[at])
        found = _Search(pools, drawn, [sizes[at] for at in order]).run()
        if found is None:
            self.taken_from[slot] = before
            return False
        placed = dict(zip(order, found))
        self.taken_from[slot] = [pools[placed[at]] for at in range(len(sizes))]
        return True


class _Search:
    """Depth first: which pool takes which volume, the largest volume first."""

    def __init__(self, pools: list[Pool], drawn: list[int], sizes: list[int]) -> None:
        self._pools = pools
        self._drawn = drawn
        self._sizes = sizes
        self._steps = 0

    def run(self) -> list[int] | None:
        """Return the number of each volume's pool; None if there is no way, or none was found in time."""
        placed: list[int] = []
        return placed if self._place(placed) else None

    def _place(self, placed: list[int]) -> bool:
        at = len(placed)
        if at == len(self._sizes):
            return True
        size = self._sizes[at]
        is_same = at > 0 and self._sizes[at - 1] == size
        for number in range(placed[-1] if is_same else 0, len(self._pools)):
            self._steps += 1
            if self._steps > _MOST_STEPS:
                return False
            if self._pools[number].takes(size, before=self._drawn[number]):
                self._drawn[number] += size
                placed.append(number)
                if self._place(placed):
                    return True
                placed.pop()
                self._drawn[number] -= size
        return False
