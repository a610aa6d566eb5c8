"""Which nodes use which volumes that pods have written out, by the names that CSI drivers know them by.

Only those that a driver stands in for wherever a CSINode is (docs/spec/volumes.md §9.1).
"""

from __future__ import annotations

from scheduler.cache.change_log import ChangeLog
from scheduler.cache.node_multiset import NodeMultiset
from scheduler.core.intree import MIGRATABLE, TranslationError, kind_of_inline, translate_inline
from scheduler.core.pod import Volume
from scheduler.core.podinfo import PodInfo
from scheduler.core.volumes import CSISource


class DiskUsers(ChangeLog[tuple[int, CSISource]]):
    """Volume → node slots → how many pods there use it. The log has (slot, volume) where a use began or ended."""

    __slots__ = ("_users",)

    def __init__(self) -> None:
        super().__init__()
        self._users: NodeMultiset[CSISource] = NodeMultiset()

    def add(self, slot: int, info: PodInfo) -> None:
        """A pod with such volumes is on the node."""
        for disk in disks_of(info):
            if self._users.add(slot, disk):
                self.note((slot, disk))

    def remove(self, slot: int, info: PodInfo) -> None:
        """It is not any more."""
        for disk in disks_of(info):
            if self._users.remove(slot, disk):
                self.note((slot, disk))

    def count(self, slot: int, disk: CSISource) -> int:
        """Pods on the node that use it."""
        return self._users.count(slot, disk)

    def everywhere(self) -> set[tuple[int, CSISource]]:
        """Every use there is: for followers who have lost the thread of the log."""
        return {(slot, disk) for disk in self._users for slot in self._users.slots(disk)}


def disks_of(info: PodInfo) -> set[CSISource]:
    """The pod's volumes of this sort; one that cannot be translated is left out."""
    found = set()
    for volume in info.disks:
        try:
            disk = disk_of(volume, info.pod.metadata.namespace)
        except TranslationError:
            continue
        if disk is not None:
            found.add(disk)
    return found


def disk_of(volume: Volume, namespace: str) -> CSISource | None:
    """One of them; None if no driver counts it. Raises TranslationError."""
    kind = kind_of_inline(volume)
    return translate_inline(volume, namespace) if kind is not None and kind.plugin in MIGRATABLE else None
