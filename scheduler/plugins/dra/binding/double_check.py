"""Checks that no other claim had the devices first, once the watch shows the written claim (docs/spec/dra.md §10.5).

No API server prevents two schedulers from giving one device to two claims, or too much of a shared device. The
claim that was allocated first keeps its devices (`Precedence`); the later one frees them before its pod is bound.
When the watch shows the written claim, it has shown every earlier allocation.

A claim is unconfirmed from its allocation until this check is done, and every pod that uses it checks as well. So
the result does not depend on which pod is cancelled. A claim that was allocated before this process began counts as
unconfirmed if it conflicts with another one (`DeviceConflicts`) and no pod runs with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from scheduler.api.resource_v1 import AllocationResult, ResourceClaim
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Unavailable
from scheduler.core.retry import Retry
from scheduler.framework.handle import Handle
from scheduler.framework.wait import settle, wait_until
from scheduler.plugins.dra.binding.claim_writer import ClaimError, ClaimWriter
from scheduler.plugins.dra.binding.device_conflicts import UNKNOWN, DeviceConflicts, Precedence, same_devices

_log = structlog.get_logger(__name__)
WATCH_WITHIN_S: Final = 120.0
"""Longest time in which the watch may show a written claim; an attempt's search (`LONGEST_ATTEMPT_S`) delays it."""


class DeviceDoubleCheck:
    """Checks the claims that a `ClaimWriter` has allocated."""

    def __init__(self, handle: Handle, writer: ClaimWriter, conflicts: DeviceConflicts) -> None:
        self._devices = handle.cluster.devices
        self._writer = writer
        self._precedence = Precedence(handle.writer.device_claims, handle.clock)
        self._conflicts = conflicts
        self._clock = handle.clock
        self._metrics = handle.device_metrics

    async def confirm_all(self, claims: Sequence[ResourceClaim], pod_uid: str) -> None:
        """Confirm each claim, also after one fails: the pod does not run, and its other claims may have to be freed.

        Raises the first ClaimError.
        """
        failed: ClaimError | None = None
        for claim in claims:
            try:
                await self.confirm(claim, pod_uid)
            except ClaimError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    async def confirm(self, claim: ResourceClaim, pod_uid: str) -> None:
        """Wait until the watch shows the claim as written, and check it; return at once if no check is needed.

        Raises ClaimError if the claim is gone, and if the watch does not show it in time. Also if another claim had a
        device first; then the devices are freed, unless other pods use the claim. If cancelled, the claim stays
        unconfirmed.
        """
        # Nearly all claims of a single scheduler need only this line.
        if claim.uid not in self._writer.unconfirmed and not self._is_doubtful(claim):
            return
        seen = await self._shown(claim)
        if seen is None:
            self._forget(claim)
            raise ClaimError(f"claim {claim.key} got deleted in the meantime")
        # The watch is in order. It has shown our write, so it has shown each earlier write, too.
        problem = await self._problem(seen)
        if not problem:
            self._forget(claim)
            return
        self._metrics.collision()
        # A cancelled pod must not keep devices that belong to another claim, so the write is finished first.
        await settle(self._free_devices(claim, pod_uid))
        raise ClaimError(problem)

    def _is_doubtful(self, claim: ResourceClaim) -> bool:
        """Return whether an allocated claim conflicts with another one, and no pod runs with its devices.

        The check may be missing because a daemon died, or its write came late. Without a running pod, yielding costs
        little.
        """
        return not self._conflicts.has_running_user(claim) and self._conflicts.shown(claim) is not None

    def _forget(self, claim: ResourceClaim) -> None:
        self._writer.unconfirmed.pop(claim.uid, None)

    async def _shown(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Return the claim once the watch shows it as written, or newer; None if it is gone.

        Raises ClaimError when it takes too long.
        """
        seen: ResourceClaim | None = None

        def is_shown() -> bool:
            nonlocal seen
            seen = self._devices.claims.get_api(claim.key)
            if seen is not None and seen.uid != claim.uid:
                seen = None
            return seen is None or seen.version >= claim.version

        deadline = self._clock.now() + WATCH_WITHIN_S
        subscribe = partial(self._devices.subscribe, (claim.key,))
        if not await wait_until(is_shown, self._clock, deadline, subscribe=subscribe):
            raise ClaimError(f"claim {claim.key}: the watch is behind")
        return seen

    async def _problem(self, seen: ResourceClaim) -> str:
        """Return what other claims got before this one of its devices; "" if nothing. Later claims do not count."""
        given = self._writer.unconfirmed.get(seen.uid)
        is_it = given is not None and given.allocation == seen.status.allocation
        allocated_at = given.version if given is not None and is_it else UNKNOWN
        later: set[str] = set()
        earlier: dict[str, AllocationResult | None] = {}
        # A claim that came later is passed over, because its own scheduler frees it. What remains decides.
        while (conflict := self._conflicts.shown(seen, but=later)) is not None:
            others = {uid: self._devices.claims.by_uid(uid) for uid in sorted(conflict.others)}
            new = {uid: each for uid, each in others.items() if uid not in earlier or earlier[uid] != _devices_of(each)}
            if not new:
                return conflict.problem
            for uid, other in new.items():
                # An unreadable claim has the devices that it had when last seen. Since when is unknown.
                if other is None or await self._precedence.was_first(other, seen, allocated_at=allocated_at):
                    earlier[uid] = _devices_of(other)
                else:
                    later.add(uid)
        return ""

    async def _free_devices(self, claim: ResourceClaim, pod_uid: str) -> None:
        """Deallocate the claim, unless another pod uses it: that pod checks as well, and the last one deallocates."""
        current, retry = claim, Retry(self._clock, first_s=0.1, factor=5.0, tries=4)
        try:
            while same_devices(current.status.allocation, claim.status.allocation):
                if any(user.uid != pod_uid for user in current.status.reserved_for):
                    return
                try:
                    await self._writer.deallocate(current)
                    break
                except (Conflict, Ambiguous, Unavailable) as error:
                    await retry.pause(error)
                current = await self._writer.reread(claim)
        except ApiError as error:
            _log.warning("devices of another claim are not freed", claim=claim.key, error=str(error))
            return
        except ClaimError:
            pass  # the claim is gone
        self._forget(claim)


def _devices_of(claim: ResourceClaim | None) -> AllocationResult | None:
    return claim.status.allocation if claim is not None else None
