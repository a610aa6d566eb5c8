"""Writes the claims of a pod: finalizer, allocation, reservation (docs/spec/dra.md §3.10, §10.5).

A request that was sent is awaited and taken into the cache before anything else, also after a cancellation. So a
claim goes from "in flight" to "allocated" without a gap. After a lost answer the claim is read; until then the
write counts as done. Each write checks that the current claim still allows the decision.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken
from scheduler.api.meta import seconds
from scheduler.api.resource_v1 import FINALIZER, AllocationResult, ConsumerReference, ResourceClaim
from scheduler.cache.assume_cache import NotKnown, OutOfSync
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, Unauthorized, Unavailable
from scheduler.core.retry import Retry
from scheduler.framework.handle import Handle
from scheduler.framework.wait import settle
from scheduler.plugins.dra.binding.device_conflicts import UNKNOWN, DeviceConflicts, same_devices

WRITES_IN_FLIGHT: Final = 128
"""Claims that are written at once.

With fewer, the API server works more per claim: its storage and watches batch changes.
"""
_TRIES: Final = 5
_PAUSE_S: Final = 0.01
_BUSY_PAUSE_S: Final = 0.1
_READ_AGAIN_S: Final = 0.1
_REFUSALS_MAX: Final = 10
_JITTER: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_UNCONFIRMED_MAX: Final = 4096


class ClaimError(Exception):
    """The claim cannot be bound to the pod. The message is upstream's where upstream has one."""


class WrittenAllocation(NamedTuple):
    """An allocation, and the version of its write; `device_conflicts.UNKNOWN` if the answer was lost."""

    allocation: AllocationResult | None
    version: int


class ClaimWriter:
    """Writes claims, one at a time per pod and any number of pods concurrently.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go bindClaim
    """

    def __init__(self, handle: Handle, conflicts: DeviceConflicts | None, *, stamps: bool) -> None:
        """`stamps`: allocations have a time. `conflicts`: refuse devices that other claims have."""
        self._claims = handle.cluster.devices.claims
        self._writer = handle.writer.device_claims
        self._clock = handle.clock
        self._rng = handle.rng
        self._metrics = handle.device_metrics
        self._stamps = stamps
        self._conflicts = conflicts
        self.unconfirmed = handle.kept("DynamicResources.unconfirmed", dict[str, WrittenAllocation])
        """Uids of allocated claims for which the double check is not done."""
        self._write_slots = asyncio.Semaphore(WRITES_IN_FLIGHT)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By uid of a claim: its pods write it one after the other."""

    async def bind(
        self, pod: Pod, claim: ResourceClaim, allocation: AllocationResult | None, *, is_new: bool = False
    ) -> ResourceClaim:
        """Write the allocation, if there is one, and the pod's reservation; return the claim as written.

        `is_new`: the claim was just created, and the cache may not have it. Raises ClaimError, ApiError. May be
        cancelled between two writes.
        """
        # The pods of a group may share a claim, and are bound at once. If they wrote it at once, each success would be a
        # conflict for all the rest.
        async with self._turns.setdefault(claim.uid, asyncio.Lock()):
            return await self._bind(pod, claim, allocation, is_new=is_new)

    async def _bind(
        self, pod: Pod, claim: ResourceClaim, allocation: AllocationResult | None, *, is_new: bool
    ) -> ResourceClaim:
        current = claim if is_new and self._claims.get(claim.key) is None else self.newest(claim)
        retry = Retry(self._clock, first_s=_BUSY_PAUSE_S, longest_s=_LONGEST_PAUSE_S, tries=_TRIES)
        while True:
            # A cancellation must take effect before the next write, not between a write and the cache.
            await asyncio.sleep(0)
            try:
                # The claim is read again after each conflict, and may be deleted or allocated by another scheduler by
                # now.
                self._check(current, allocation)
                if self._is_done(current, pod, allocation):
                    return self._taken(current, allocation, UNKNOWN)
                current = await self._protected(current, allocation)
                await asyncio.sleep(0)  # a cancellation during the first request takes effect here
                return await settle(self._write(current, pod, allocation))
            except (Conflict, Ambiguous, Unavailable) as error:
                failed: ApiError = error
            # A conflict means that the claim has changed: a short pause suffices. A busy server needs a longer one
            # that grows.
            is_busy = isinstance(failed, Unavailable)
            if not is_busy:
                self._metrics.claim_conflict()
            try:
                await retry.pause(failed, pause_s=None if is_busy else _PAUSE_S * (1 + _JITTER * self._rng.random()))
            except ApiError:
                raise ClaimError(f"{self._doing(claim, allocation)}: {failed}") from failed
            current = await self.reread(claim)

    def newest(self, claim: ResourceClaim) -> ResourceClaim:
        """Return the claim as the cache has it, with allocations in flight. Raises ClaimError if it is gone."""
        cached = self._claims.get(claim.key)
        if cached is None or cached.uid != claim.uid:
            raise _deleted(claim)
        return cached

    async def release(self, claim: ResourceClaim, pod_uid: str) -> None:
        """Remove the pod's reservation; the claim keeps its devices (§3.8). Raises ApiError."""
        self._assume(await self._writer.unreserve_claim(claim, pod_uid))

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Remove reservations and devices (§3.5). Raises ApiError."""
        self._assume(await self._writer.deallocate_claim(claim))

    # -- one write -----------------------------------------------------------------------------------------------------

    async def _protected(self, claim: ResourceClaim, allocation: AllocationResult | None) -> ResourceClaim:
        """Return the claim with the finalizer, which must be written before an allocation."""
        # Upstream writes the finalizer with a separate update. Status and metadata cannot be changed in one request.
        if allocation is None or FINALIZER in claim.metadata.finalizers or claim.is_allocated:
            return claim
        try:
            async with self._write_slots:
                return _readable(await settle(self._writer.protect_claim(claim)), claim)
        except (Conflict, Ambiguous, Unavailable):
            raise
        except ApiError as error:
            raise ClaimError(f"add finalizer to claim {claim.key}: {error}") from error

    async def _write(self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None) -> ResourceClaim:
        """Write the status once, and cache and return the answer."""
        user = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        gives = allocation is not None and not claim.is_allocated
        try:
            async with self._write_slots:
                if allocation is not None and gives:
                    written = await self._writer.allocate_claim(claim, self._stamped(allocation), user)
                else:
                    written = await self._writer.reserve_claim(claim, user)
        # The request may have been executed. Only the server knows, so the claim is read before anything else is
        # decided: its devices might be given away twice.
        except Ambiguous:
            current = _readable(await self._outcome(claim), claim)
            if current.uid != claim.uid or not self._is_done(current, pod, allocation):
                raise
            self._metrics.claim_conflict()
            written, gives = current, False  # other clients may have written since
        except (Conflict, Unavailable):
            raise
        except ApiError as error:
            raise ClaimError(f"{self._doing(claim, allocation)}: {error}") from error
        claim = _readable(written, claim)
        return self._taken(claim, allocation, claim.version if gives else UNKNOWN)

    async def _outcome(self, claim: ResourceClaim) -> ResourceClaim | Broken | None:
        """Read the claim after a lost answer, for as long as the server takes: until then its devices are in use.

        A server that has just started may reject every client for some seconds. Raises ApiError when that
        continues.
        """
        retry, refusals_left = Retry(self._clock, first_s=_READ_AGAIN_S, longest_s=_LONGEST_PAUSE_S), _REFUSALS_MAX
        while True:
            try:
                return await self._writer.read_resource_claim(claim.metadata.namespace, claim.metadata.name)
            except (Ambiguous, Unavailable, Unauthorized, Forbidden) as error:
                refusals_left -= isinstance(error, (Unauthorized, Forbidden))
                if refusals_left < 0:
                    raise
                await retry.pause(error)

    def _taken(self, claim: ResourceClaim, allocation: AllocationResult | None, version: int) -> ResourceClaim:
        """Cache a claim that is written; mark it as unconfirmed if it got devices at this version."""
        self._assume(claim)
        if self._conflicts is not None and allocation is not None:
            # Entries of claims that were deleted without a check remain. They go when there are many, because each
            # removal scans the claims.
            if len(self.unconfirmed) >= _UNCONFIRMED_MAX:
                for uid in self.unconfirmed.keys() - {each.uid for each in self._claims if each.is_allocated}:
                    del self.unconfirmed[uid]
            self.unconfirmed[claim.uid] = WrittenAllocation(claim.status.allocation, version)
        return claim

    def _stamped(self, allocation: AllocationResult) -> AllocationResult:
        if not self._stamps or allocation.allocation_timestamp is not None:
            return allocation
        return msgspec.structs.replace(allocation, allocation_timestamp=seconds(self._clock.wall()))

    def _assume(self, written: ResourceClaim | Broken) -> None:
        if isinstance(written, ResourceClaim):
            with contextlib.suppress(NotKnown, OutOfSync):  # the watch has a newer version
                self._claims.assume(written)

    # -- checks --------------------------------------------------------------------------------------------------------

    async def reread(self, claim: ResourceClaim) -> ResourceClaim:
        """Return the claim as the server has it. Raises ClaimError, also if it is gone."""
        try:
            found = await self._writer.read_resource_claim(claim.metadata.namespace, claim.metadata.name)
        except ApiError as error:
            raise ClaimError(f"get updated claim {claim.key} after conflict: {error}") from error
        current = _readable(found, claim)
        if current.uid != claim.uid:
            raise _deleted(claim)
        return current

    def _check(self, claim: ResourceClaim, allocation: AllocationResult | None) -> None:
        if claim.metadata.deletion_timestamp is not None:
            raise _deleted(claim)
        if allocation is None:
            if not claim.is_allocated:
                raise ClaimError(f"claim {claim.key} got deallocated elsewhere in the meantime")
            return
        if claim.status.allocation is not None:
            if not same_devices(claim.status.allocation, allocation):
                raise ClaimError(f"claim {claim.key} got allocated elsewhere in the meantime")
            return
        if self._conflicts is not None:
            problem = self._conflicts.ahead(claim, allocation)
            if problem:
                self._metrics.collision()
                raise ClaimError(problem)

    def _is_done(self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None) -> bool:
        """Return whether the claim has allocation and reservation, because a write with a lost answer succeeded."""
        if not claim.is_reserved_for(pod.metadata.uid):
            return False
        return allocation is None or same_devices(claim.status.allocation, allocation)

    def _doing(self, claim: ResourceClaim, allocation: AllocationResult | None) -> str:
        what = "add allocation and reservation" if allocation is not None else "add reservation"
        return f"{what} to claim {claim.key}"


def _deleted(claim: ResourceClaim) -> ClaimError:
    return ClaimError(f"claim {claim.key} got deleted in the meantime")


def _readable(found: ResourceClaim | Broken | None, wanted: ResourceClaim) -> ResourceClaim:
    if isinstance(found, Broken):
        raise ClaimError(f"{found.kind} {found.key} cannot be read: {found.why}")
    if found is None:
        raise _deleted(wanted)
    return found
