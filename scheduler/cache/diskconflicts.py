"""On which nodes the disks are that pods name themselves and cannot share (docs/spec/volumes.md §9.3)."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.cache.node_multiset import NodeMultiset
from scheduler.core.inlinedisks import InlineDisk
from scheduler.core.nodeset import EMPTY, NodeSet


class DiskConflicts:
    """The disks on each node, read only or not. Several pods of one node may have the same, and one pod twice."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used: NodeMultiset[InlineDisk] = NodeMultiset()

    def add(self, slot: int, disks: Iterable[InlineDisk]) -> None:
        """A pod on `slot` mounts these."""
        for disk in disks:
            self.used.add(slot, disk)

    def remove(self, slot: int, disks: Iterable[InlineDisk]) -> None:
        """The inverse of `add`."""
        for disk in disks:
            self.used.remove(slot, disk)

    def of(self, wanted: Iterable[InlineDisk]) -> NodeSet:
        """Nodes with a pod that keeps one with these away: a writer, or anybody if it is to write itself."""
        out = EMPTY
        for disk in wanted:
            out |= self.used.nodes(InlineDisk(disk.id, is_read_only=False))
            if not disk.is_read_only:
                out |= self.used.nodes(InlineDisk(disk.id, is_read_only=True))
        return out
