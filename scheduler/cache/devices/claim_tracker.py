"""ResourceClaims as decisions see them: the newest of the watch's and our own, and allocations still being written.

Source: docs/spec/dra.md §1. Unlike the cache of volumes (`cache.assumed`) this one is active: what the API server has
answered to a write of ours stands until the watch shows something newer, by the number of the version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from scheduler.api.core_v1 import Pod
from scheduler.api.resource_v1 import EXTENDED_RESOURCE_CLAIM, AllocationResult, DeviceId, ResourceClaim
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.storage.assume_cache import NotKnown, OutOfSync


class ClaimChange(NamedTuple):
    """What became of a claim, as decisions see it; None is "was not there" or "is gone"."""

    before: ResourceClaim | None
    now: ResourceClaim | None


class PendingAllocation(NamedTuple):
    """An allocation that is decided and not yet written."""

    claim: ResourceClaim
    sharers: int


class ClaimTracker:
    """Single owner: the scheduling loop. `changes` and `given_back` are told on by `scheduler.eventhandlers.devices`, in order.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dra_manager.go claimTracker
    """

    def __init__(self, use: AllocationState) -> None:
        self.changes: list[ClaimChange] = []
        self.given_back: list[ClaimChange] = []
        """What changed nothing of a claim and may help all the same: a claim as it was in flight, and as it is."""
        self._use = use
        self._watched: dict[str, ResourceClaim] = {}
        self._latest: dict[str, ResourceClaim] = {}
        self._keys: dict[str, str] = {}
        """Uid → key, of the latest."""
        self._kept: dict[str, ResourceClaim] = {}
        """Key → what has been seen of a claim that cannot be read and has devices."""
        self._pending: dict[str, PendingAllocation] = {}
        self._made_for: dict[str, dict[str, None]] = {}
        """Uid of a pod → keys of claims that a scheduler made for its extended resources."""

    def __len__(self) -> int:
        return len(self._latest)

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self._latest.values())

    def get(self, key: str) -> ResourceClaim | None:
        """The newest that is known; None if there is no such claim."""
        return self._latest.get(key)

    def by_uid(self, uid: str) -> ResourceClaim | None:
        """As `get`, of this very claim."""
        key = self._keys.get(uid)
        return self._latest[key] if key is not None else None

    def get_api(self, key: str) -> ResourceClaim | None:
        """The newest that the watch has shown."""
        return self._watched.get(key)

    def need(self, key: str) -> ResourceClaim:
        """As `get`; raises NotKnown with the text of upstream's cache."""
        found = self._latest.get(key)
        if found is None:
            raise NotKnown(f'could not find ResourceClaim "{key}"')
        return found

    def made_for(self, pod: Pod) -> ResourceClaim | None:
        """The claim that a scheduler made for the pod's extended resources (§2.4); of several the first by name."""
        return next(iter(self.all_made_for(pod)), None)

    def all_made_for(self, pod: Pod) -> list[ResourceClaim]:
        """Such claims by name: more than one after answers that were lost, or not true."""
        claims = (self._latest[key] for key in sorted(self._made_for.get(pod.metadata.uid, ())))
        return [claim for claim in claims if is_made_for(claim, pod)]

    # -- what the watch shows ------------------------------------------------------------------------------------------

    def set(self, claim: ResourceClaim) -> None:
        """Ignored if older than what is known. One of the same version is the watch's own of what we had assumed."""
        key = claim.key
        latest = self._latest.get(key)
        if latest is not None and latest.uid == claim.uid:
            if claim.version < latest.version:
                return
            if claim.version == latest.version:
                self._watched[key] = claim
                return
        self._watched[key] = claim
        self._show(key, claim)

    def remove(self, key: str) -> None:
        """It is gone."""
        self._watched.pop(key, None)
        self._show(key, None)

    def kept(self, key: str) -> ResourceClaim | None:
        """See `keep`."""
        return self._kept.get(key)

    def keep(self, key: str, claim: ResourceClaim | None) -> None:
        """A claim that cannot be read has these devices, whatever becomes of what is in flight for it; None: no more."""
        before = self._kept.pop(key, None)
        if claim is not None:
            self._kept[key] = claim
        for each in (before, claim):
            if each is not None:
                self._count(each.uid, key=key)

    # -- what we wrote -------------------------------------------------------------------------------------------------

    def assume(self, claim: ResourceClaim) -> None:
        """Let what the API server answered stand. Raises NotKnown, OutOfSync if something newer is known."""
        key = claim.key
        latest = self.need(key)
        if latest.uid != claim.uid or claim.version < latest.version:
            have, given = latest.metadata.resource_version, claim.metadata.resource_version
            raise OutOfSync(f'ResourceClaim "{key}" is out of sync (stored: {have}, assume: {given})')
        self._show(key, claim)

    def restore(self, key: str) -> None:
        """Back to what the watch has shown. Safe to repeat."""
        if key in self._watched and self._latest.get(key) is not self._watched[key]:
            self._show(key, self._watched[key])

    # -- what is about to be written -----------------------------------------------------------------------------------

    def signal(self, uid: str, claim: ResourceClaim) -> None:
        """An allocation is decided: its devices are in use from now on. One more sharer if it was already.

        Nothing if the claim is known with an allocation: somebody was faster. Raises NotKnown if the claim is gone; a
        claim that is still to be created is signalled under a uid of its own (`uid` is not the claim's).
        """
        if uid == claim.uid and self.need(claim.key).is_allocated:
            return
        known = self._pending.get(uid)
        self._pending[uid] = PendingAllocation(claim, 1) if known is None else known._replace(sharers=known.sharers + 1)
        self._count(uid)

    def adopt(self, uid: str, claim: ResourceClaim) -> None:
        """What is in flight under a uid of its own is this claim's, which has been made by now: it is in flight as itself.

        Nothing if nothing is in flight under that uid. Its devices are in use throughout.
        """
        known = self._pending.get(uid)
        if known is None:
            return
        status = msgspec.structs.replace(claim.status, allocation=known.claim.status.allocation)
        self._pending[claim.uid] = known._replace(claim=msgspec.structs.replace(claim, status=status))
        self._count(claim.uid)
        del self._pending[uid]
        self._count(uid, key=known.claim.key)
        self._tell_if_overtaken(claim.uid)

    def pending(self, uid: str) -> AllocationResult | None:
        """The allocation of a claim in flight."""
        known = self._pending.get(uid)
        return known.claim.status.allocation if known is not None else None

    def drop_pending(self, uid: str, *, force: bool = False) -> bool:
        """One sharer less; whether none is left. What has been written is in use by the claim itself by now."""
        known = self._pending.get(uid)
        if known is None:
            return False
        if known.sharers > 1 and not force:
            self._pending[uid] = known._replace(sharers=known.sharers - 1)
            return False
        del self._pending[uid]
        self._count(uid, key=known.claim.key)
        if not self._is_overtaken(known.claim):
            self._tell_given_back(known.claim)
        return True

    def ask_again(self, key: str) -> None:
        """Whoever waits for the claim looks at it once more, though nothing has become of it."""
        if (claim := self._latest.get(key)) is not None:
            self.given_back.append(ClaimChange(None, claim))

    def in_flight(self) -> Iterator[ResourceClaim]:
        """Claims that have an allocation which may not be written yet."""
        return (each.claim for each in self._pending.values())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _show(self, key: str, now: ResourceClaim | None) -> None:
        before = self._latest.get(key)
        if before is now:
            return
        if before is not None:
            self._keys.pop(before.uid, None)
        if now is None:
            del self._latest[key]
        else:
            self._latest[key] = now
            self._keys[now.uid] = key
        if before is not None:
            self._file(key, before, is_there=False)
        if now is not None:
            self._file(key, now, is_there=True)
        if before is not None and (now is None or now.uid != before.uid):
            self._count(before.uid, key=key)
        if now is not None:
            self._count(now.uid, key=key)
        self.changes.append(ClaimChange(before, now))
        if now is not None and not (before is not None and before.uid == now.uid and before.is_allocated):
            self._tell_if_overtaken(now.uid)

    def _tell_if_overtaken(self, uid: str) -> None:
        pending = self._pending.get(uid)
        if pending is not None and self._is_overtaken(pending.claim):
            self._tell_given_back(pending.claim)

    def _tell_given_back(self, planned: ResourceClaim) -> None:
        change = ClaimChange(planned, self._latest.get(planned.key))
        if gives_back(*change):
            self.given_back.append(change)

    def _is_overtaken(self, claim: ResourceClaim) -> bool:
        """Whether this very claim has been allocated by now: what was in flight for it is not in use any more."""
        known = self._latest.get(claim.key)
        return known is not None and known.uid == claim.uid and known.is_allocated

    def _file(self, key: str, claim: ResourceClaim, *, is_there: bool) -> None:
        """By the pod that it was made for, if a scheduler made it."""
        if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
            return
        for owner in claim.metadata.owner_references:
            if not owner.controller:
                continue
            if is_there:
                self._made_for.setdefault(owner.uid, {})[key] = None
            elif (keys := self._made_for.get(owner.uid)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self._made_for[owner.uid]

    def _count(self, uid: str, *, key: str = "") -> None:
        """The claim's own allocation, else the one in flight."""
        pending = self._pending.get(uid)
        key = key or (pending.claim.key if pending is not None else "")
        known = self._latest.get(key) or self._kept.get(key)
        allocation = known.status.allocation if known is not None and known.uid == uid else None
        if allocation is None and pending is not None:
            allocation = pending.claim.status.allocation
        self._use.hold(uid, allocation)


def gives_back(before: ResourceClaim | None, now: ResourceClaim | None) -> bool:
    """Whether it had devices that it has no more, or can be allocated again."""
    had = before.status.allocation if before is not None else None
    if before is None or had is None:
        return False
    has = now.status.allocation if now is not None and now.uid == before.uid else None
    return has is None or not _parts(had) <= _parts(has)


def _parts(allocation: AllocationResult) -> set[tuple[DeviceId, str | None]]:
    return {(result.id, result.share_id) for result in allocation.devices.results}


def is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether a scheduler made the claim for the extended resources of this pod (§2.4)."""
    metadata = claim.metadata
    if metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true" or metadata.namespace != pod.metadata.namespace:
        return False
    return any(
        owner.controller and (owner.name, owner.uid) == (pod.metadata.name, pod.metadata.uid)
        for owner in metadata.owner_references
    )
