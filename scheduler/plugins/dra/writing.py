"""The claims of a pod are written: protected, allocated, reserved (docs/spec/dra.md §3.10, §10.5).

A write that was sent is awaited and taken into the cache before anything else happens, cancelled or not: what the server
has committed is in use, and no moment lies between "in flight" and "allocated" in which it is neither. A lost answer is
read. Nothing is forced: what a claim says now must still allow what was decided.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import msgspec

from scheduler.cache.assumed import NotKnown, OutOfSync
from scheduler.cache.devices import Devices
from scheduler.core.clock import Clock
from scheduler.core.decode import Broken
from scheduler.core.devices import DeviceId
from scheduler.core.errors import Ambiguous, ApiError, Conflict, TooManyRequests, Unavailable
from scheduler.core.pod import Pod
from scheduler.core.resourceclaims import FINALIZER, AllocationResult, ResourceClaim
from scheduler.core.timestamps import seconds
from scheduler.framework.ports import DeviceMetrics, Writer
from scheduler.framework.settle import settle
from scheduler.plugins.dra.claims import consumer

_WRITES_IN_FLIGHT: Final = 64
_TRIES: Final = 5
_PAUSE_S: Final = 0.01
_JITTER: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_WATCH_WITHIN_S: Final = 30.0
"""How long our own watch may take to show what we wrote."""


class ClaimError(Exception):
    """The claim cannot be bound to the pod. The message is upstream's where upstream has one."""


class ClaimWriter:
    """Writes claims, one at a time per pod, any number of pods beside each other."""

    def __init__(  # noqa: PLR0913 (what it acts through)
        self,
        devices: Devices,
        writer: Writer,
        *,
        clock: Clock,
        chance: random.Random,
        metrics: DeviceMetrics,
        stamps: bool,
        looks_twice: bool,
    ) -> None:
        """`stamps`: allocations carry their time. `looks_twice`: devices that somebody else has are given back."""
        self._devices = devices
        self._writer = writer
        self._clock = clock
        self._chance = chance
        self._metrics = metrics
        self._stamps = stamps
        self._looks_twice = looks_twice
        self._room = asyncio.Semaphore(_WRITES_IN_FLIGHT)

    async def bind(
        self, pod: Pod, claim: ResourceClaim, allocation: AllocationResult | None, *, is_new: bool = False
    ) -> ResourceClaim:
        """Give the claim its devices, if any were decided on, and the pod its place among the users.

        `is_new`: it was just made, and the cache may not know it yet. Answers the claim as it is written. Raises ClaimError, ApiError. May be cancelled between two writes.
        """
        current, tries, pause_s = self._newest(claim, is_new=is_new), 0, _PAUSE_S
        while True:
            await asyncio.sleep(0)
            try:
                current = await self._protected(current, allocation)
                self._check(current, pod, allocation)
                if self._is_done(current, pod, allocation):
                    return current
                return await settle(self._write(current, pod, allocation))
            except (Conflict, Ambiguous, Unavailable) as error:
                failed: ApiError = error
            tries += 1
            if not isinstance(failed, Unavailable):
                self._metrics.claim_conflict()
            if tries >= _TRIES:
                raise ClaimError(f"{self._doing(claim, allocation)}: {failed}") from failed
            if isinstance(failed, Unavailable):
                await self._clock.sleep(self._told_s(failed, pause_s * 10))
            else:
                await self._clock.sleep(pause_s * (1 + _JITTER * self._chance.random()))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S) if isinstance(failed, Unavailable) else pause_s
            current = await self._reread(claim)

    async def confirm(self, claim: ResourceClaim) -> None:
        """Wait until our own watch shows what we wrote, and nobody who had one of the devices before us.

        Whoever stands in the watch before us was first, and we yield: raises ClaimError, and the devices are given back.
        """
        if not self._looks_twice or claim.status.allocation is None:
            return
        passed = asyncio.get_running_loop().create_future()

        def look() -> None:
            seen = self._devices.claims.get_api(claim.key)
            if passed.done():
                return
            if seen is None or seen.uid != claim.uid:
                passed.set_result(f"claim {claim.key} got deleted in the meantime")
            elif _version(seen) >= _version(claim):
                passed.set_result(self._clash(claim))

        end = self._devices.subscribe((claim.key,), look)
        waiting = asyncio.ensure_future(self._clock.sleep(_WATCH_WITHIN_S))
        try:
            look()
            await asyncio.wait({passed, waiting}, return_when=asyncio.FIRST_COMPLETED)
            problem = passed.result() if passed.done() else f"claim {claim.key}: the watch is behind"
        finally:
            waiting.cancel()
            end()
        if problem:
            self._metrics.collision()
            await settle(self._give_devices_back(claim))
            raise ClaimError(problem)

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
        self._check_there(claim)
        try:
            async with self._room:
                return _readable(await settle(self._writer.protect_claim(claim)))
        except (Conflict, Ambiguous, Unavailable):
            raise
        except ApiError as error:
            raise ClaimError(f"add finalizer to claim {claim.key}: {error}") from error

    async def _write(self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None) -> ResourceClaim:
        """One status write, and what it answered taken into the cache."""
        user = consumer(pod)
        try:
            async with self._room:
                if allocation is not None and not claim.is_allocated:
                    written = await self._writer.allocate_claim(claim, self._stamped(allocation), user)
                else:
                    written = await self._writer.reserve_claim(claim, user)
        except (Conflict, Ambiguous, Unavailable):
            raise
        except ApiError as error:
            raise ClaimError(f"{self._doing(claim, allocation)}: {error}") from error
        claim = _readable(written)
        self._assume(claim)
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

    async def _reread(self, claim: ResourceClaim) -> ResourceClaim:
        try:
            found = await self._writer.read_resource_claim(claim.metadata.namespace, claim.metadata.name)
        except ApiError as error:
            raise ClaimError(f"get updated claim {claim.key} after conflict: {error}") from error
        if found is None or (not isinstance(found, Broken) and found.uid != claim.uid):
            raise ClaimError(f"claim {claim.key} got deleted in the meantime")
        return _readable(found)

    def _check_there(self, claim: ResourceClaim) -> None:
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimError(f"claim {claim.key} got deleted in the meantime")

    def _check(self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None) -> None:
        self._check_there(claim)
        if allocation is None:
            if not claim.is_allocated:
                raise ClaimError(f"claim {claim.key} got deallocated elsewhere in the meantime")
            return
        if claim.status.allocation is not None:
            if not same_devices(claim.status.allocation, allocation):
                raise ClaimError(f"claim {claim.key} got allocated elsewhere in the meantime")
            self._assume(claim)
            return
        if self._looks_twice:
            problem = self._clash(claim, allocation)
            if problem:
                self._metrics.collision()
                raise ClaimError(problem)

    def _is_done(self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None) -> bool:
        """A write of ours whose answer was lost: it has come to pass."""
        if not claim.is_reserved_for(pod.metadata.uid):
            return False
        return allocation is None or claim.status.allocation is not None

    def _clash(self, claim: ResourceClaim, allocation: AllocationResult | None = None) -> str:
        """The first device that another claim has as a whole; "" if there is none."""
        allocation = allocation or claim.status.allocation
        assert allocation is not None
        for result in allocation.devices.results:
            if result.admin_access or result.share_id is not None:
                continue
            other = self._other_holder(result.id, claim.uid)
            if other:
                return f"claim {claim.key}: device {result.id} got allocated to another claim in the meantime"
        return ""

    def _other_holder(self, device: DeviceId, uid: str) -> bool:
        return any(holder != uid for holder in self._devices.use.holders(device))

    async def _give_devices_back(self, claim: ResourceClaim) -> None:
        try:
            await self.deallocate(claim)
        except ApiError:
            return  # the reservation goes with the attempt; PostFilter gives the devices back if they are in the way

    def _doing(self, claim: ResourceClaim, allocation: AllocationResult | None) -> str:
        what = "add allocation and reservation" if allocation is not None else "add reservation"
        return f"{what} to claim {claim.key}"

    def _told_s(self, failed: Unavailable, grown_s: float) -> float:
        told_s = failed.retry_after_s if isinstance(failed, TooManyRequests) else None
        return grown_s if told_s is None else max(told_s, grown_s)


def same_devices(left: AllocationResult, right: AllocationResult) -> bool:
    """Whether both are the same decision: times do not count, nor what a server adds to tolerations."""
    return _decided(left) == _decided(right)


def _decided(allocation: AllocationResult) -> list[tuple[str, DeviceId, str | None]]:
    return [(result.request, result.id, result.share_id) for result in allocation.devices.results]


def _readable(found: ResourceClaim | Broken | None) -> ResourceClaim:
    if isinstance(found, Broken):
        raise ClaimError(f"{found.kind} {found.key} cannot be read: {found.why}")
    if found is None:
        raise ClaimError("the claim got deleted in the meantime")
    return found


def _version(claim: ResourceClaim) -> int:
    version = claim.metadata.resource_version
    return int(version) if version.isdigit() else 0
