"""The claims of a pod are written: protected, allocated, reserved (docs/spec/dra.md §3.10, §10.5).

A write that was sent is awaited and taken into the cache before anything else happens, cancelled or not: what the server
has committed is in use, and no moment lies between "in flight" and "allocated" in which it is neither. A lost answer is
read, and until it has been read the write counts as carried out. Nothing is forced: what a claim says now must still
allow what was decided.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final, NamedTuple

import msgspec

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken
from scheduler.api.meta import seconds
from scheduler.api.resource_v1 import FINALIZER, AllocationResult, DeviceId, ResourceClaim
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.storage.assume_cache import NotKnown, OutOfSync
from scheduler.core.clock import Clock
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, Unauthorized, Unavailable
from scheduler.core.retry import Retry
from scheduler.framework.handle import ClaimWrites, DeviceMetrics
from scheduler.framework.wait import settle
from scheduler.plugins.dra.claims import consumer
from scheduler.plugins.dra.device_conflicts import UNKNOWN, DeviceConflicts

WRITES_IN_FLIGHT: Final = 128
"""Claims that are written at once. With fewer the API server works more for each: its storage and its watches take many
changes together."""
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
    """Devices, and the version of the write that gave them; `precedence.UNKNOWN` if its answer was lost."""

    allocation: AllocationResult | None
    version: int


class ClaimWriter:
    """Writes claims, one at a time per pod, any number of pods beside each other.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go bindClaim
    """

    def __init__(  # noqa: PLR0913 (what it acts through)
        self,
        devices: SharedDRAManager,
        writer: ClaimWrites,
        *,
        clock: Clock,
        chance: random.Random,
        metrics: DeviceMetrics,
        stamps: bool,
        conflicts: DeviceConflicts | None,
    ) -> None:
        """`stamps`: allocations carry their time. `conflicts`: nothing is given away that others have by now."""
        self._devices = devices
        self._writer = writer
        self._clock = clock
        self._chance = chance
        self._metrics = metrics
        self._stamps = stamps
        self._conflicts = conflicts
        self.unconfirmed: dict[str, WrittenAllocation] = {}
        """Uids of claims that got devices, and of which it is not known yet that nobody else had those first."""
        self._room = asyncio.Semaphore(WRITES_IN_FLIGHT)

    async def bind(
        self, pod: Pod, claim: ResourceClaim, allocation: AllocationResult | None, *, is_new: bool = False
    ) -> ResourceClaim:
        """Give the claim its devices, if any were decided on, and the pod its place among the users.

        `is_new`: it was just made, and the cache may not know it yet. Answers the claim as it is written. Raises
        ClaimError, ApiError. May be cancelled between two writes.
        """
        current = self._newest(claim, is_new=is_new)
        retry = Retry(self._clock, first_s=_BUSY_PAUSE_S, longest_s=_LONGEST_PAUSE_S, tries=_TRIES)
        while True:
            await asyncio.sleep(0)
            try:
                self._check(current, allocation)
                if self._is_done(current, pod, allocation):
                    return self._taken(current, allocation, UNKNOWN)
                current = await self._protected(current, allocation)
                await asyncio.sleep(0)  # a cancellation that came while the first was on the wire acts here
                return self._taken(*await settle(self._write(current, pod, allocation)))
            except (Conflict, Ambiguous, Unavailable) as error:
                failed: ApiError = error
            is_busy = isinstance(failed, Unavailable)
            if not is_busy:
                self._metrics.claim_conflict()
            try:
                await retry.pause(failed, pause_s=None if is_busy else _PAUSE_S * (1 + _JITTER * self._chance.random()))
            except ApiError:
                raise ClaimError(f"{self._doing(claim, allocation)}: {failed}") from failed
            current = await self.reread(claim)

    def newest(self, claim: ResourceClaim) -> ResourceClaim:
        """As decisions see it by now. Raises ClaimError if it is gone."""
        return self._newest(claim, is_new=False)

    async def release(self, claim: ResourceClaim, pod_uid: str) -> None:
        """Take the pod's reservation away; the devices stay with the claim (§3.8). Raises ApiError."""
        written = await self._writer.unreserve_claim(claim, pod_uid)
        if isinstance(written, ResourceClaim):
            self._assume(written)

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Take reservations and devices away (§3.5). Raises ApiError."""
        written = await self._writer.deallocate_claim(claim)
        if isinstance(written, ResourceClaim):
            self._assume(written)

    # -- one write -----------------------------------------------------------------------------------------------------

    async def _protected(self, claim: ResourceClaim, allocation: AllocationResult | None) -> ResourceClaim:
        """With the finalizer, which has to be there before devices are."""
        if allocation is None or FINALIZER in claim.metadata.finalizers or claim.is_allocated:
            return claim
        try:
            async with self._room:
                return _readable(await settle(self._writer.protect_claim(claim)), claim)
        except (Conflict, Ambiguous, Unavailable):
            raise
        except ApiError as error:
            raise ClaimError(f"add finalizer to claim {claim.key}: {error}") from error

    async def _write(
        self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None
    ) -> tuple[ResourceClaim, AllocationResult | None, int]:
        """One status write, and what it answered taken into the cache; with the version at which devices were given."""
        user = consumer(pod)
        gives = allocation is not None and not claim.is_allocated
        try:
            async with self._room:
                if allocation is not None and not claim.is_allocated:
                    written = await self._writer.allocate_claim(claim, self._stamped(allocation), user)
                else:
                    written = await self._writer.reserve_claim(claim, user)
        except Ambiguous:
            now = _readable(await self._outcome(claim), claim)
            if now.uid != claim.uid or not self._is_done(now, pod, allocation):
                raise
            self._metrics.claim_conflict()
            written, gives = now, False  # others may have written since
        except (Conflict, Unavailable):
            raise
        except ApiError as error:
            raise ClaimError(f"{self._doing(claim, allocation)}: {error}") from error
        claim = _readable(written, claim)
        self._assume(claim)
        return claim, allocation, claim.version if gives else UNKNOWN

    async def _outcome(self, claim: ResourceClaim) -> ResourceClaim | Broken | None:
        """What has become of a write without an answer, however long the server takes: its devices are in use until then.

        A server that has just begun may know nobody, and nobody's permissions, for some seconds. Raises ApiError when that
        goes on.
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
        """Written, or found to be: what got devices, at this version, has yet to be confirmed."""
        self._assume(claim)
        if self._conflicts is not None and allocation is not None:
            if len(self.unconfirmed) >= _UNCONFIRMED_MAX:
                there = {each.uid for each in self._devices.claims if each.is_allocated}
                self.unconfirmed = {uid: at for uid, at in self.unconfirmed.items() if uid in there}
            self.unconfirmed[claim.uid] = WrittenAllocation(claim.status.allocation, version)
        return claim

    def _stamped(self, allocation: AllocationResult) -> AllocationResult:
        if not self._stamps or allocation.allocation_timestamp is not None:
            return allocation
        return msgspec.structs.replace(allocation, allocation_timestamp=seconds(self._clock.wall()))

    def _assume(self, claim: ResourceClaim) -> None:
        try:
            self._devices.claims.assume(claim)
        except (NotKnown, OutOfSync):
            return  # the watch knows better

    # -- what a claim must be like -------------------------------------------------------------------------------------

    def _newest(self, claim: ResourceClaim, *, is_new: bool) -> ResourceClaim:
        known = self._devices.claims.get(claim.key)
        if known is None and is_new:
            return claim
        if known is None or known.uid != claim.uid:
            raise ClaimError(f"claim {claim.key} got deleted in the meantime")
        return known

    async def reread(self, claim: ResourceClaim) -> ResourceClaim:
        """As the server has it. Raises ClaimError, also if it is gone."""
        try:
            found = await self._writer.read_resource_claim(claim.metadata.namespace, claim.metadata.name)
        except ApiError as error:
            raise ClaimError(f"get updated claim {claim.key} after conflict: {error}") from error
        if found is None or (not isinstance(found, Broken) and found.uid != claim.uid):
            raise ClaimError(f"claim {claim.key} got deleted in the meantime")
        return _readable(found, claim)

    def _check(self, claim: ResourceClaim, allocation: AllocationResult | None) -> None:
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimError(f"claim {claim.key} got deleted in the meantime")
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
        """A write of ours whose answer was lost: it has come to pass."""
        if not claim.is_reserved_for(pod.metadata.uid):
            return False
        return allocation is None or same_devices(claim.status.allocation, allocation)

    def _doing(self, claim: ResourceClaim, allocation: AllocationResult | None) -> str:
        what = "add allocation and reservation" if allocation is not None else "add reservation"
        return f"{what} to claim {claim.key}"


def same_devices(left: AllocationResult | None, right: AllocationResult | None) -> bool:
    """Whether both are the same decision: times do not count, nor what a server adds to tolerations."""
    return _decided(left) == _decided(right)


def _decided(allocation: AllocationResult | None) -> list[tuple[str, DeviceId, str | None]] | None:
    if allocation is None:
        return None
    return [(result.request, result.id, result.share_id) for result in allocation.devices.results]


def _readable(found: ResourceClaim | Broken | None, wanted: ResourceClaim) -> ResourceClaim:
    if isinstance(found, Broken):
        raise ClaimError(f"{found.kind} {found.key} cannot be read: {found.why}")
    if found is None:
        raise ClaimError(f"claim {wanted.key} got deleted in the meantime")
    return found
