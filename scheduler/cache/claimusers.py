"""Which pods on nodes use which claims, counted as pods come and leave, trials included."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.cache.change_log import ChangeLog
from scheduler.cache.node_multiset import NodeMultiset
from scheduler.core.podinfo import PodInfo
from scheduler.core.volumes import PersistentVolumeClaim


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
