"""Claims and inline disks on nodes, and the pods that use them.

`DiskUsers` has the inline in-tree volumes that migrate to CSI, by their CSI names (docs/spec/volumes.md §9.1).
`DiskConflicts` has inline disks that pods cannot share (docs/spec/volumes.md §9.3).
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.api.core_v1 import Volume
from scheduler.api.csi_translation import MIGRATABLE, InlineDisk, TranslationError, kind_of, translate_inline
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import CSISource, PersistentVolumeClaim
from scheduler.cache.nodes.indexes import NodeMultiset
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import EMPTY, NodeSet


class ClaimUsers(ChangeLog[tuple[int, str]]):
    """Claim → node slots → number of pods that use it. The log contains (slot, claim key) where a use began or ended.

    It also contains each change of pods on a slot while some of them have the claim only as an ephemeral volume. Then
    the owner of the claim matters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.users: NodeMultiset[str] = NodeMultiset()
        """Claim → node slots → number of pods that use it. Read-only."""
        self.ephemeral: dict[tuple[int, str], set[str]] = {}
        """Slot and claim → the uids of the pods that have it only as an ephemeral volume. Read-only."""

    def add(self, slot: int, info: PodInfo) -> None:
        for key, is_ephemeral in uses_of(info).items():
            is_first = self.users.add(slot, key)
            if is_ephemeral:
                self.ephemeral.setdefault((slot, key), set()).add(info.uid)
            # The number of users of an ephemeral volume that count depends on the owner of the claim. So each change
            # matters, not only the first and the last user.
            if is_first or (slot, key) in self.ephemeral:
                self.note((slot, key))

    def remove(self, slot: int, info: PodInfo) -> None:
        for key, is_ephemeral in uses_of(info).items():
            is_last = self.users.remove(slot, key)
            if (slot, key) in self.ephemeral:
                self.note((slot, key))
                if is_ephemeral:
                    self._disown(slot, key, info.uid)
            if is_last:
                self.note((slot, key))

    def clear(self) -> None:
        """Remove all claims; every reader of the log computes everything again."""
        self.users.clear()
        self.ephemeral.clear()
        self.restart()

    def everywhere(self) -> set[tuple[int, str]]:
        """Return all uses, for readers whose position the log no longer contains."""
        return {(slot, key) for key in self.users for slot in self.users.slots(key)}

    def rightful(self, slot: int, claim: PersistentVolumeClaim) -> int:
        """Return the number of pods that use the claim and are allowed to.

        A pod that has the claim as an ephemeral volume must own it.
        """
        count = self.users.count(slot, claim.key)
        # An ephemeral volume names its claim after pod and volume. A claim of the same name that another user created
        # does not belong to the pod, and its kubelet would not mount it. So this pod does not attach the volume.
        ephemeral = self.ephemeral.get((slot, claim.key)) if self.ephemeral else None
        if ephemeral is None:
            return count
        owners = {owner.uid for owner in claim.metadata.owner_references if owner.controller}
        return count - len(ephemeral - owners)

    def _disown(self, slot: int, key: str, uid: str) -> None:
        uids = self.ephemeral[slot, key]
        uids.discard(uid)
        if not uids:
            del self.ephemeral[slot, key]


def uses_of(info: PodInfo) -> dict[str, bool]:
    """Return the pod's claims, each once: claim → whether it is only used as an ephemeral volume."""
    uses: dict[str, bool] = {}
    # A pod that also names the claim directly may use it without owning it, so one direct use prevails.
    for use in info.claims:
        uses[use.key] = use.is_ephemeral and uses.get(use.key, True)
    return uses


class DiskUsers(ChangeLog[tuple[int, CSISource]]):
    """Volume → node slots → number of pods that use it. The log contains (slot, volume) where a use began or ended."""

    def __init__(self) -> None:
        super().__init__()
        self.users: NodeMultiset[CSISource] = NodeMultiset()
        """Read-only."""

    def add(self, slot: int, info: PodInfo) -> None:
        """Add the inline volumes of a pod on the node."""
        for disk in disks_of(info):
            if self.users.add(slot, disk):
                self.note((slot, disk))

    def remove(self, slot: int, info: PodInfo) -> None:
        """Remove the inline volumes of a pod on the node."""
        for disk in disks_of(info):
            if self.users.remove(slot, disk):
                self.note((slot, disk))

    def clear(self) -> None:
        """Remove all volumes; every reader of the log computes everything again."""
        self.users.clear()
        self.restart()

    def everywhere(self) -> set[tuple[int, CSISource]]:
        """Return all uses, for readers whose position the log no longer contains."""
        return {(slot, disk) for disk in self.users for slot in self.users.slots(disk)}


def disks_of(info: PodInfo) -> set[CSISource]:
    """Return the CSI names of the pod's inline volumes; a volume that cannot be translated is left out."""
    found = set()
    for volume in info.disks:
        # Upstream fails every pod that is tried on such a node (docs/spec/volumes.md §12.4 Q-13). A pod that runs
        # there must not keep other pods away.
        try:
            disk = disk_of(volume)
        except TranslationError:
            continue
        if disk is not None:
            found.add(disk)
    return found


def disk_of(volume: Volume) -> CSISource | None:
    """Return the CSI name of an inline volume; None if no driver counts it. Raise TranslationError."""
    kind = kind_of(volume)
    return translate_inline(volume) if kind is not None and kind.plugin in MIGRATABLE else None


class DiskConflicts(NodeMultiset[InlineDisk]):
    """The disks on each node, read-only or not. Several pods of one node may have the same disk, and one pod twice."""

    def of(self, wanted: Iterable[InlineDisk]) -> NodeSet:
        """Return the nodes with a conflicting pod: one that writes the disk, or any user if this pod writes."""
        nodes = EMPTY
        # GCE disks may be shared read-only. Disks that can never be shared have `is_read_only` False from the
        # translation, so the same two look-ups serve all kinds.
        for disk in wanted:
            nodes |= self.nodes(InlineDisk(disk.id, is_read_only=False))
            if not disk.is_read_only:
                nodes |= self.nodes(InlineDisk(disk.id, is_read_only=True))
        return nodes
