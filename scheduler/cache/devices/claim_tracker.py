"""The newest known ResourceClaims, from the watch and from our own writes, and allocations that are being written.

Source: docs/spec/dra.md §1. Unlike the volume caches (`AssumeCache`), the API server's response to a write stays
valid until the watch shows a newer version, compared by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

import msgspec

from scheduler.api.core_v1 import Pod
from scheduler.api.quantity import text
from scheduler.api.resource_v1 import EXTENDED_RESOURCE_CLAIM, AllocationResult, DeviceId, ResourceClaim
from scheduler.cache.assume_cache import NotKnown, OutOfSync
from scheduler.cache.devices.allocation_state import AllocationState


class ClaimChange(NamedTuple):
    """A claim before and after a change; None if it did not exist or is gone."""

    before: ResourceClaim | None
    now: ResourceClaim | None


class PendingAllocation(NamedTuple):
    """An allocation that is decided and not yet written."""

    claim: ResourceClaim
    sharers: int


class NegativeConsumption:
    """The claims whose allocation has a negative `consumedCapacity`. An update costs the results of one claim.

    Rules: docs/spec/changes-1.38-devices.md §3.1.
    """

    def __init__(self) -> None:
        self._by_uid: dict[str, str] = {}

    @property
    def problem(self) -> str:
        """The first text in their order, and the number of further claims; "" if there is none. O(such claims)."""
        if not self._by_uid:
            return ""
        more = len(self._by_uid) - 1
        # Kubernetes' own words: "1 more claims".
        suffix = f" (and {more} more claims with invalid consumed capacity)" if more else ""
        return min(self._by_uid.values()) + suffix

    def put(self, uid: str, key: str, allocation: AllocationResult | None) -> None:
        """Set the allocation of a claim; None if it has none."""
        if problem := _negative(key, allocation):
            self._by_uid[uid] = problem
        else:
            self._by_uid.pop(uid, None)


def _negative(key: str, allocation: AllocationResult | None) -> str:
    for result in allocation.devices.results if allocation is not None else ():
        if result.consumed_capacity:
            for name, amount in sorted(result.consumed_capacity.items(), key=itemgetter(0)):
                if amount.nano < 0:
                    problem = f'consumed capacity "{name}" must not be negative, got {text(amount)}'
                    return f"claim {key}, device {result.id}: {problem}"
    return ""


class ClaimTracker:
    """The claims.

    Only the scheduling loop uses it; `scheduler.eventhandlers.devices` handles `changes` and `given_back` in order.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dra_manager.go claimTracker
    """

    def __init__(self, use: AllocationState) -> None:
        self.changes: list[ClaimChange] = []
        self.given_back: list[ClaimChange] = []
        """Released devices without a change of a claim: the claim with its pending allocation, and the claim now."""
        self._use = use
        self.negative = NegativeConsumption()
        self.watched: dict[str, ResourceClaim] = {}
        self.latest: dict[str, ResourceClaim] = {}
        self.keys_by_uid: dict[str, str] = {}
        """Uid → key of the latest claims. Read-only."""
        self._kept: dict[str, ResourceClaim] = {}
        """Key → the last readable state of a claim that cannot be decoded and has devices."""
        self._pending: dict[str, PendingAllocation] = {}
        self.keys_by_pod: dict[str, dict[str, None]] = {}
        """Uid of a pod → keys of the claims that a scheduler created for its extended resources. Read-only."""

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self.latest.values())

    def get(self, key: str) -> ResourceClaim | None:
        """Return the newest known claim; None if there is none."""
        return self.latest.get(key)

    def by_uid(self, uid: str) -> ResourceClaim | None:
        """Return the newest known claim with this uid; None if there is none."""
        key = self.keys_by_uid.get(uid)
        return self.latest[key] if key is not None else None

    def get_api(self, key: str) -> ResourceClaim | None:
        """Return the newest claim that the watch has shown."""
        return self.watched.get(key)

    def need(self, key: str) -> ResourceClaim:
        """Return the newest known claim; raise NotKnown with the text of upstream's cache."""
        found = self.latest.get(key)
        if found is None:
            raise NotKnown(f'could not find ResourceClaim "{key}"')
        return found

    def made_for(self, pod: Pod) -> ResourceClaim | None:
        """Return the claim that a scheduler created for the pod's extended resources (§2.4).

        Of several, return the first by name.
        """
        return next(iter(self.all_made_for(pod)), None)

    def all_made_for(self, pod: Pod) -> list[ResourceClaim]:
        """Return all such claims by name. Lost or false responses can lead to more than one."""
        claims = (self.latest[key] for key in sorted(self.keys_by_pod.get(pod.metadata.uid, ())))
        return [claim for claim in claims if is_made_for(claim, pod)]

    # -- what the watch shows ------------------------------------------------------------------------------------------

    def set(self, claim: ResourceClaim) -> None:
        """Store a claim of the watch, unless a newer one is known.

        One of the same version replaces only the watched state.
        """
        key = claim.key
        latest = self.latest.get(key)
        if latest is not None and latest.uid == claim.uid:
            if claim.version < latest.version:
                return
            if claim.version == latest.version:
                self.watched[key] = claim
                return
        self.watched[key] = claim
        self._show(key, claim)

    def remove(self, key: str) -> None:
        self.watched.pop(key, None)
        self._show(key, None)

    def kept(self, key: str) -> ResourceClaim | None:
        """Return the claim that `keep` stored."""
        return self._kept.get(key)

    def keep(self, key: str, claim: ResourceClaim | None) -> None:
        """Store the last readable state of a claim that cannot be decoded, because it has devices; None removes it.

        Its devices count as allocated, independently of a pending allocation.
        """
        before = self._kept.pop(key, None)
        if claim is not None:
            self._kept[key] = claim
        for each in (before, claim):
            if each is not None:
                self._count(each.uid, key=key)

    # -- what we wrote -------------------------------------------------------------------------------------------------

    def assume(self, claim: ResourceClaim) -> None:
        """Store the claim from the API server's response. Raise NotKnown, or OutOfSync if a newer one is known."""
        key = claim.key
        latest = self.need(key)
        if latest.uid != claim.uid or claim.version < latest.version:
            have, given = latest.metadata.resource_version, claim.metadata.resource_version
            raise OutOfSync(f'ResourceClaim "{key}" is out of sync (stored: {have}, assume: {given})')
        self._show(key, claim)

    def restore(self, key: str) -> None:
        """Return to the state that the watch has shown. Idempotent."""
        if key in self.watched and self.latest.get(key) is not self.watched[key]:
            self._show(key, self.watched[key])

    # -- what is about to be written -----------------------------------------------------------------------------------

    def signal(self, uid: str, claim: ResourceClaim) -> None:
        """Record a pending allocation, whose devices count as allocated from now on; if it is known, add a sharer.

        Do nothing if the known claim is allocated, because another scheduler was faster. Raise NotKnown if the claim
        is gone. A claim that has not been created yet is recorded under a temporary uid (`uid` is not the claim's).
        """
        if uid == claim.uid and self.need(claim.key).is_allocated:
            return
        in_flight = self._pending.get(uid)
        self._pending[uid] = (
            PendingAllocation(claim, 1) if in_flight is None else in_flight._replace(sharers=in_flight.sharers + 1)
        )
        self._count(uid)

    def adopt(self, uid: str, claim: ResourceClaim) -> None:
        """Move the pending allocation from a temporary uid to the claim that has been created for it.

        Do nothing if there is none under that uid. Its devices stay allocated throughout.
        """
        in_flight = self._pending.get(uid)
        if in_flight is None:
            return
        status = msgspec.structs.replace(claim.status, allocation=in_flight.claim.status.allocation)
        self._pending[claim.uid] = in_flight._replace(claim=msgspec.structs.replace(claim, status=status))
        self._count(claim.uid)
        del self._pending[uid]
        self._count(uid, key=in_flight.claim.key)
        self._release_if_overtaken(claim.uid)

    def pending(self, uid: str) -> AllocationResult | None:
        in_flight = self._pending.get(uid)
        return in_flight.claim.status.allocation if in_flight is not None else None

    def sharers(self, uid: str) -> int:
        """Return how many pods a pending allocation is for."""
        in_flight = self._pending.get(uid)
        return in_flight.sharers if in_flight is not None else 0

    def drop_pending(self, uid: str, *, force: bool = False) -> bool:
        """Remove a sharer; return whether none is left. A written allocation is already counted for the claim itself."""
        in_flight = self._pending.get(uid)
        if in_flight is None:
            return False
        if in_flight.sharers > 1 and not force:
            self._pending[uid] = in_flight._replace(sharers=in_flight.sharers - 1)
            return False
        del self._pending[uid]
        self._count(uid, key=in_flight.claim.key)
        if not self._is_overtaken(in_flight.claim):
            self._release(in_flight.claim)
        return True

    def retry_waiting(self, key: str) -> None:
        """Retry the pods that wait for the claim, although the claim has not changed."""
        if (claim := self.latest.get(key)) is not None:
            self.given_back.append(ClaimChange(None, claim))

    def uids(self) -> dict[str, str]:
        """Return uid → key of all claims that may have devices, the pending, the unreadable and the latest ones."""
        pending = {uid: each.claim.key for uid, each in self._pending.items()}
        return pending | {claim.uid: key for by_key in (self._kept, self.latest) for key, claim in by_key.items()}

    def in_flight(self) -> Iterator[ResourceClaim]:
        """Return the claims with an allocation that may not be written yet."""
        return (each.claim for each in self._pending.values())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _show(self, key: str, now: ResourceClaim | None) -> None:
        before = self.latest.get(key)
        if before is now:
            return
        if before is not None:
            self.keys_by_uid.pop(before.uid, None)
        if now is None:
            del self.latest[key]
        else:
            self.latest[key] = now
            self.keys_by_uid[now.uid] = key
        if before is not None:
            self._index(key, before, is_there=False)
        if now is not None:
            self._index(key, now, is_there=True)
        if before is not None and (now is None or now.uid != before.uid):
            self._count(before.uid, key=key)
        if now is not None:
            self._count(now.uid, key=key)
        self.changes.append(ClaimChange(before, now))
        if now is not None and not (before is not None and before.uid == now.uid and before.is_allocated):
            self._release_if_overtaken(now.uid)

    def _release_if_overtaken(self, uid: str) -> None:
        pending = self._pending.get(uid)
        if pending is not None and self._is_overtaken(pending.claim):
            self._release(pending.claim)

    def _release(self, planned: ResourceClaim) -> None:
        change = ClaimChange(planned, self.latest.get(planned.key))
        if gives_back(*change):
            self.given_back.append(change)

    def _is_overtaken(self, claim: ResourceClaim) -> bool:
        """Return whether this claim has been allocated, so that its pending allocation no longer counts."""
        latest = self.latest.get(claim.key)
        return latest is not None and latest.uid == claim.uid and latest.is_allocated

    def _index(self, key: str, claim: ResourceClaim, *, is_there: bool) -> None:
        """Update the index by pod for a claim that a scheduler created."""
        for uid in pods_of(claim):
            if is_there:
                self.keys_by_pod.setdefault(uid, {})[key] = None
            elif (keys := self.keys_by_pod.get(uid)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self.keys_by_pod[uid]

    def _count(self, uid: str, *, key: str = "") -> None:
        pending = self._pending.get(uid)
        allocation = self.allocation(uid, key)
        self._use.hold(uid, allocation)
        self.negative.put(uid, key or (pending.claim.key if pending is not None else ""), allocation)

    def allocation(self, uid: str, key: str) -> AllocationResult | None:
        """Return the claim's own allocation, else its pending one."""
        pending = self._pending.get(uid)
        key = key or (pending.claim.key if pending is not None else "")
        claim = self.latest.get(key) or self._kept.get(key)
        allocation = claim.status.allocation if claim is not None and claim.uid == uid else None
        if allocation is None and pending is not None:
            allocation = pending.claim.status.allocation
        return allocation


def pods_of(claim: ResourceClaim) -> list[str]:
    """Return the uids of the pods for whose extended resources a scheduler created the claim."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
        return []
    return [owner.uid for owner in claim.metadata.owner_references if owner.controller]


def gives_back(before: ResourceClaim | None, now: ResourceClaim | None) -> bool:
    """Return whether the claim lost devices, or can be allocated again."""
    had = before.status.allocation if before is not None else None
    if before is None or had is None:
        return False
    has = now.status.allocation if now is not None and now.uid == before.uid else None
    return has is None or not _parts(had) <= _parts(has)


def _parts(allocation: AllocationResult) -> set[tuple[DeviceId, str | None]]:
    return {(result.id, result.share_id) for result in allocation.devices.results}


def is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether a scheduler created the claim for the extended resources of this pod (§2.4)."""
    metadata = claim.metadata
    if metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true" or metadata.namespace != pod.metadata.namespace:
        return False
    return any(
        owner.controller and (owner.name, owner.uid) == (pod.metadata.name, pod.metadata.uid)
        for owner in metadata.owner_references
    )
