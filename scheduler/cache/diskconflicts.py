"""On which nodes the disks are that pods name themselves and cannot share (docs/spec/volumes.md §9.3)."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.inlinedisks import InlineDisk
from scheduler.core.nodeset import EMPTY, NodeSet


class DiskConflicts:
    """Disk, read only or not → slots. Several pods of one node may have the same, and one pod twice: counted."""

    __slots__ = ("_extra", "_nodes")

    def __init__(self) -> None:
        self._nodes: dict[InlineDisk, NodeSet] = {}
        self._extra: dict[tuple[int, InlineDisk], int] = {}

    def add(self, slot: int, disks: Iterable[InlineDisk]) -> None:
        """A pod on `slot` mounts these."""
        bit = 1 << slot
        for disk in disks:
            nodes = self._nodes.get(disk, EMPTY)
            if nodes & bit:
                self._extra[slot, disk] = self._extra.get((slot, disk), 0) + 1
            else:
                self._nodes[disk] = nodes | bit

    def remove(self, slot: int, disks: Iterable[InlineDisk]) -> None:
        """The inverse of `add`."""
        for disk in disks:
            extra = self._extra.pop((slot, disk), 0)
            if extra > 1:
                self._extra[slot, disk] = extra - 1
            elif not extra:
                left = self._nodes[disk] & ~(1 << slot)
                if left:
                    self._nodes[disk] = left
                else:
                    del self._nodes[disk]

    def of(self, wanted: Iterable[InlineDisk]) -> NodeSet:
        """Nodes with a pod that keeps one with these away: a writer, or anybody if it is to write itself."""
        out = EMPTY
        for disk in wanted:
            out |= self._nodes.get(InlineDisk(disk.id, is_read_only=False), EMPTY)
            if not disk.is_read_only:
                out |= self._nodes.get(InlineDisk(disk.id, is_read_only=True), EMPTY)
        return out
