"""What the claims of one pod would take from capacity pools, one after the other, for all nodes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet

if TYPE_CHECKING:
    from scheduler.cache.capacities import ClassPools, Pool


class Drawing:
    """Of one class. Together: each claim finds what those before it left; else each is judged alone against the limit.

    Nothing is drawn for good; `cache.ledger` does that once a node is chosen.
    """

    def __init__(self, pools: ClassPools, *, together: bool) -> None:
        self._pools = pools
        self._together = together
        self._drawn: npt.NDArray[np.int64] | None = None
        self._drawn_of: dict[int, dict[str, int]] = {}

    def next(self, size: int, nodes: NodeSet) -> NodeSet:
        """The nodes that take one more volume of `size` bytes. O(nodes / 64), more where several pools serve a node."""
        pools = self._pools
        crowded = nodes & pools.crowded
        simple = nodes & ~crowded
        takes = EMPTY
        if simple:
            fits = pools.limit >= size
            if self._together:
                if self._drawn is None:
                    fits &= (pools.spare >= size) | ~pools.is_used
                else:
                    fits &= (pools.spare - self._drawn >= size) | ~(pools.is_used | (self._drawn > 0))
            takes = nodeset.from_mask(fits) & simple
            if self._together and takes:
                if self._drawn is None:
                    self._drawn = np.zeros(len(pools.limit), dtype=np.int64)
                self._drawn[nodeset.to_mask(takes, len(pools.limit))] += size
        for slot in nodeset.each(crowded):
            if self.at(slot, size) is not None:
                takes |= 1 << slot
        return takes

    def at(self, slot: int, size: int) -> Pool | None:
        """The pool of one node that one more volume comes from: of those that take it, the one with most left."""
        drawn = self._drawn_of.setdefault(slot, {})
        best: Pool | None = None
        most = -1
        for pool in self._pools.at(slot):
            before = drawn.get(pool.key, 0)
            takes = pool.takes(size, before=before) if self._together else size <= pool.limit
            left = pool.room - pool.in_flight - before
            if takes and (best is None or left > most):
                best, most = pool, left
        if best is not None:
            drawn[best.key] = drawn.get(best.key, 0) + size
        return best
