"""Nodes to which another scheduler bound a pod a moment ago (docs/spec/core.md §2.6).

That scheduler may have decided on more pods for such a node than the watch shows yet.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.core.nodeset import Slots

RECENT_S: Final = 1.0


class ForeignBindings:
    """The time of the last one per slot. A slot that is given to another node keeps it for the rest of its second."""

    def __init__(self) -> None:
        self._at: npt.NDArray[np.float64] = np.full(64, -math.inf)
        self._last = -math.inf

    def add(self, slot: int, now: float) -> None:
        """A pod that this scheduler did not bind has appeared on the node. O(1)."""
        if slot >= len(self._at):
            more = np.full(max(slot + 1, 2 * len(self._at)) - len(self._at), -math.inf)
            self._at = np.concatenate((self._at, more))
        self._at[slot] = self._last = now

    def spared(self, slots: Slots, now: float) -> Slots:
        """Return those without a recent one, or all of them where there are none without. O(slots), or O(1) at rest."""
        since = now - RECENT_S
        if self._last <= since:
            return slots
        inside = slots[slots < len(self._at)]
        spared = np.concatenate((inside[self._at[inside] <= since], slots[slots >= len(self._at)]))
        return spared if len(spared) else slots
