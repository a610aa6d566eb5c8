"""Which nodes hold pods of which priority: where a preemptor could find a victim at all."""

from __future__ import annotations

from scheduler.cache.node_multiset import NodeMultiset
from scheduler.core.nodeset import EMPTY, NodeSet


class Priorities(NodeMultiset[int]):
    """The priorities of the pods on each node. Clusters have a handful of priorities, whatever their size."""

    __slots__ = ()

    def below(self, priority: int) -> NodeSet:
        """Nodes with at least one pod of a lower priority. O(distinct priorities)."""
        found = EMPTY
        for held in self:
            if held < priority:
                found |= self.nodes(held)
        return found
