"""Which pods and nodes use which claims and inline disks.

Which nodes use which volumes that pods have written out, by the names that CSI drivers know them by.

Only those that a driver stands in for wherever a CSINode is (docs/spec/volumes.md §9.1).

On which nodes the disks are that pods name themselves and cannot share (docs/spec/volumes.md §9.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler.api.core_v1 import Volume
from scheduler.api.csi_translation import MIGRATABLE, InlineDisk, TranslationError, kind_of_inline, translate_inline
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import CSISource, PersistentVolumeClaim
from scheduler.cache.nodes.node_multiset import NodeMultiset
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import EMPTY, NodeSet


class ClaimUsers(ChangeLog[tuple[int, str]]):
    """Claim → node slots → how many of its pods use it. The log has (slot, claim key) where a use began or ended.

    And wherever pods came or left while some had the claim as an ephemeral volume only: whose it is matters then.
    """

    __slots__ = ("_at", "_ephemeral", "_users")

    def __init__(self) -> None:
        super().__init__()
        self._users: NodeMultiset[str] = NodeMultiset()
        self._at: dict[int, dict[str, None]] = {}
        self._ephemeral: dict[tuple[int, str], set[str]] = {}

    def add(self, slot: int, info: PodInfo) -> None:
        """A pod with claims is on the node."""
        for key, is_ephemeral in uses_of(info).items():
            is_first = self._users.add(slot, key)
            if is_ephemeral:
                self._ephemeral.setdefault((slot, key), set()).add(info.uid)
            if is_first:
                self._at.setdefault(slot, {})[key] = None
                self.note((slot, key))
            elif (slot, key) in self._ephemeral:
                self.note((slot, key))

    def remove(self, slot: int, info: PodInfo) -> None:
        """It is not any more."""
        for key, is_ephemeral in uses_of(info).items():
            is_last = self._users.remove(slot, key)
            if (slot, key) in self._ephemeral:
                self.note((slot, key))
                if is_ephemeral:
                    self._disown(slot, key, info.uid)
            if is_last:
                del self._at[slot][key]
                if not self._at[slot]:
                    del self._at[slot]
                self.note((slot, key))

    def slots(self, key: str) -> Mapping[int, int]:
        """Slot → pods there that use the claim. A live view: do not keep it."""
        return self._users.slots(key)

    def rightful(self, slot: int, claim: PersistentVolumeClaim) -> int:
        """Pods there that use the claim, those left out that would have it made for themselves and do not own it."""
        count = self._users.count(slot, claim.key)
        ephemeral = self._ephemeral.get((slot, claim.key)) if self._ephemeral else None
        if ephemeral is None:
            return count
        owners = {owner.uid for owner in claim.metadata.owner_references if owner.controller}
        return count - len(ephemeral - owners)

    def at(self, slot: int) -> Mapping[str, None]:
        """The claims used on a node. A live view."""
        return self._at.get(slot, {})

    def _disown(self, slot: int, key: str, uid: str) -> None:
        uids = self._ephemeral[slot, key]
        uids.discard(uid)
        if not uids:
            del self._ephemeral[slot, key]


def uses_of(info: PodInfo) -> dict[str, bool]:
    """The pod's claims, each once: whether it has them as ephemeral volumes only."""
    uses: dict[str, bool] = {}
    for use in info.claims:
        uses[use.key] = use.is_ephemeral and uses.get(use.key, True)
    return uses


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
