"""Which nodes hold pods of which priority: where a preemptor could find a victim at all."""

from __future__ import annotations

from scheduler.core.nodeset import EMPTY, NodeSet


class Priorities:
    """Priority → nodes. Clusters have a handful of priorities, whatever their size."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[int, int]] = {}
        self._nodes: dict[int, NodeSet] = {}

    def below(self, priority: int) -> NodeSet:
        """Nodes with at least one pod of a lower priority. O(distinct priorities)."""
        found = EMPTY
        for held, nodes in self._nodes.items():
            if held < priority:
                found |= nodes
        return found

    def add(self, slot: int, priority: int) -> None:
        """A pod came."""
        counts = self._counts.setdefault(priority, {})
        before = counts.get(slot, 0)
        counts[slot] = before + 1
        if not before:
            self._nodes[priority] = self._nodes.get(priority, EMPTY) | 1 << slot

    def remove(self, slot: int, priority: int) -> None:
        """The inverse of `add`; KeyError if there was none."""
        counts = self._counts[priority]
        left = counts.pop(slot) - 1
        if left:
            counts[slot] = left
            return
        self._nodes[priority] &= ~(1 << slot)
        if not counts:
            del self._counts[priority], self._nodes[priority]
