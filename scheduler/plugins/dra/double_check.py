"""Nobody else had the devices first: looked at once more when our own watch shows what we wrote (docs/spec/dra.md §10.5).

No API server keeps two schedulers from giving one device to two claims, or too much of a shared one. Whoever was allocated
first keeps it (`precedence`), and whoever comes later and is too much yields: its devices are given back before its pod is
bound. By the time when our own watch shows what we wrote, it has shown every allocation that came before. A claim is unconfirmed from its allocation on until that look is over, and every pod that comes to use it meanwhile
has to look as well: so it makes no difference which of them is cancelled, or can give the devices back. What was allocated
before we began counts as unconfirmed if something speaks against it (`conflicts`) and no pod runs with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from scheduler.api.resource_v1 import AllocationResult, ResourceClaim
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.core.clock import Clock
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Unavailable
from scheduler.core.retry import Retry
from scheduler.framework.handle import DeviceMetrics
from scheduler.framework.wait import settle, wait_until
from scheduler.plugins.dra.claim_writer import ClaimError, ClaimWriter, same_devices
from scheduler.plugins.dra.device_conflicts import UNKNOWN, DeviceConflicts, Precedence

_log = structlog.get_logger(__name__)
WATCH_WITHIN_S: Final = 120.0
"""How long our own watch may take to show what we wrote: what it shows waits for an attempt that searches (`LONGEST_ATTEMPT_S`)."""


class DeviceDoubleCheck:
    """Looks at what a `ClaimWriter` has allocated."""

    def __init__(
        self,
        devices: SharedDRAManager,
        writer: ClaimWriter,
        precedence: Precedence,
        *,
        conflicts: DeviceConflicts | None,
        clock: Clock,
        metrics: DeviceMetrics,
    ) -> None:
        """`conflicts`: None if nothing is looked at."""
        self._devices = devices
        self._writer = writer
        self._precedence = precedence
        self._conflicts = conflicts
        self._clock = clock
        self._metrics = metrics

    async def confirm_all(self, claims: Sequence[ResourceClaim], pod_uid: str) -> None:
        """Each of them, also behind one that fails: the pod does not run, and what others had first is given back.

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
        """Wait until our own watch shows the claim as it was written. At once if there is nothing to look for.

        Raises ClaimError if somebody else had a device first (then the devices are given back, unless other pods use
        them too), if the claim is gone, and if the watch does not show it in time. Cancelled, the claim stays
        unconfirmed.
        """
        conflicts = self._conflicts
        if conflicts is None or (claim.uid not in self._writer.unconfirmed and not _is_doubtful(claim, conflicts)):
            return
        seen = await self._shown(claim)
        if seen is None:
            self._forget(claim)
            raise ClaimError(f"claim {claim.key} got deleted in the meantime")
        problem = await self._problem(seen, conflicts)
        if not problem:
            self._forget(claim)
            return
        self._metrics.collision()
        await settle(self._give_devices_back(claim, pod_uid))
        raise ClaimError(problem)

    def _forget(self, claim: ResourceClaim) -> None:
        self._writer.unconfirmed.pop(claim.uid, None)

    async def _shown(self, claim: ResourceClaim) -> ResourceClaim | None:
        """The claim as the watch shows it, once that is as it was written, or newer; None if the claim is gone.

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

    async def _problem(self, seen: ResourceClaim, conflicts: DeviceConflicts) -> str:
        """What others have been given before, of what the claim has; "" if nothing. Who came later counts for nothing."""
        given = self._writer.unconfirmed.get(seen.uid)
        is_it = given is not None and given.allocation == seen.status.allocation
        allocated_at = given.version if given is not None and is_it else UNKNOWN
        later: set[str] = set()
        earlier: dict[str, AllocationResult | None] = {}
        while (clash := conflicts.shown(seen, but=later)) is not None:
            others = {uid: self._devices.claims.by_uid(uid) for uid in sorted(clash.others)}
            new = {uid: each for uid, each in others.items() if uid not in earlier or earlier[uid] != _devices_of(each)}
            if not new:
                return clash.problem
            for uid, other in new.items():
                # One that cannot be read has what it was last seen to have: nothing tells since when.
                if other is None or await self._precedence.was_first(other, seen, allocated_at=allocated_at):
                    earlier[uid] = _devices_of(other)
                else:
                    later.add(uid)
        return ""

    async def _give_devices_back(self, claim: ResourceClaim, pod_uid: str) -> None:
        """Unless another pod uses them too: it looks as well, and the last of them gives them back."""
        now, retry = claim, Retry(self._clock, first_s=0.1, factor=5.0, tries=4)
        try:
            while same_devices(now.status.allocation, claim.status.allocation):
                if any(user.uid != pod_uid for user in now.status.reserved_for):
                    return
                try:
                    await self._writer.deallocate(now)
                    break
                except (Conflict, Ambiguous, Unavailable) as error:
                    await retry.pause(error)
                now = await self._writer.reread(claim)
        except ApiError as error:
            _log.warning("devices of somebody else are not given back", claim=claim.key, error=str(error))
            return
        except ClaimError:
            pass  # it is gone
        self._forget(claim)


def _devices_of(claim: ResourceClaim | None) -> AllocationResult | None:
    return claim.status.allocation if claim is not None else None


def _is_doubtful(claim: ResourceClaim, conflicts: DeviceConflicts) -> bool:
    """Nobody has looked, as far as we know: a daemon that died may have been second, or its write may have come late.

    As long as nobody runs with the devices it costs little to yield to whoever was first.
    """
    return not conflicts.somebody_runs(claim) and conflicts.shown(claim) is not None
