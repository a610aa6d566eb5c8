"""Devices that must be ready before the pod is bound: drivers set conditions in the claim (docs/spec/dra.md §3.11).

Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go isClaimReadyForBinding, isClaimTimeout
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from scheduler.api.apps_and_policy import started_at
from scheduler.api.core_v1 import Pod
from scheduler.api.resource_v1 import Condition, DeviceRequestAllocationResult, ResourceClaim
from scheduler.config.args import DynamicResourcesArgs
from scheduler.framework.handle import Handle
from scheduler.framework.wait import wait_until
from scheduler.plugins.dra.binding.claim_writer import ClaimError

POLL_S: Final = 5.0
_TRUE: Final = "True"


class ConditionError(ClaimError):
    """The devices did not become ready. `status` is the label in metrics."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class Readiness(NamedTuple):
    """The state of one claim. `failure` is the condition of a device that will not become ready."""

    is_ready: bool
    failure: Condition | None = None


def readiness(claim: ResourceClaim) -> Readiness:
    """Return whether the claim's devices are ready.

    All devices are checked, so that a late one does not hide a failed one.
    """
    is_ready = True
    for result in waited_for(claim):
        # A failure condition wins over a missing one: waiting longer would not help.
        conditions = _conditions_of(claim, result)
        failure = next(
            (c for c in conditions if c.type in result.binding_failure_conditions and c.status == _TRUE), None
        )
        if failure is not None:
            return Readiness(is_ready=False, failure=failure)
        true = {condition.type for condition in conditions if condition.status == _TRUE}
        is_ready = is_ready and true.issuperset(result.binding_conditions)
    return Readiness(is_ready)


def waited_for(claim: ResourceClaim) -> Iterator[DeviceRequestAllocationResult]:
    """Return the devices with binding conditions; devices with only failure conditions are not waited for."""
    allocation = claim.status.allocation
    return (result for result in (allocation.devices.results if allocation else ()) if result.binding_conditions)


def is_overdue(claim: ResourceClaim, now_s: float, timeout_s: float) -> bool:
    """Return whether the devices were allocated more than `timeout_s` ago. `now_s` is wall time."""
    allocation = claim.status.allocation
    allocated_at = allocation.allocation_timestamp if allocation is not None else None
    return bool(allocated_at) and started_at(allocated_at) + timeout_s < now_s


def is_unavailable(claim: ResourceClaim, now_s: float, timeout_s: float) -> bool:
    """Return whether the next attempt should avoid these devices (§3.4 step 3)."""
    ready = readiness(claim)
    return ready.failure is not None or (not ready.is_ready and is_overdue(claim, now_s, timeout_s))


class ConditionWaiter:
    """Waits for the devices of pods, one call per pod, any number of pods concurrently."""

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._devices = handle.cluster.devices
        self._clock = handle.clock
        self._metrics = handle.device_metrics
        self._recorder = handle.recorder
        self._profile = handle.scheduler_name
        self._timeout_s = args.binding_timeout_s
        self._follows_events = handle.ours.bind_poll == "events"
        """Otherwise it polls like upstream: at once, then every five seconds."""

    async def wait(self, claims: Sequence[ResourceClaim], pod: Pod, node_name: str) -> None:
        """Return when all devices are ready, at once if none has conditions. Raises ConditionError, ClaimError."""
        # Few drivers use binding conditions. All other pods leave here, without an event.
        waited = [claim for claim in claims if any(waited_for(claim))]
        if not waited:
            return
        self._recorder.event(
            pod,
            controller=self._profile,
            type_="Normal",
            reason="BindingConditionsPending",
            action="Scheduling",
            note=f"waiting for binding conditions for device on node {node_name}",
        )
        began, status = self._clock.now(), "error"
        try:
            await self._wait(waited)
            status = "success"
        except ConditionError as error:
            status = error.status
            raise
        finally:
            self._count(claims, status, self._clock.now() - began)

    def _count(self, claims: Sequence[ResourceClaim], status: str, seconds: float) -> None:
        """Count the wait per device of all claims, and the allocation per device with conditions, as upstream."""
        for claim in claims:
            for result in claim.status.allocation.devices.results if claim.status.allocation is not None else ():
                self._metrics.conditions_wait(self._profile, result.driver, status, seconds)
                if result.binding_conditions:
                    self._metrics.conditions_allocation(self._profile, result.driver, status)

    async def _wait(self, claims: Sequence[ResourceClaim]) -> None:
        deadline = self._clock.now() + self._timeout_s
        keys = tuple(claim.key for claim in claims)
        is_ready = await wait_until(
            # checks every claim, so that a late one does not hide a failed one
            lambda: sum(self._is_ready(claim, deadline) for claim in claims) == len(claims),
            self._clock,
            deadline,
            subscribe=partial(self._devices.subscribe, keys) if self._follows_events else None,
            poll_s=lambda _: POLL_S,
        )
        if not is_ready:
            raise ConditionError("device binding timeout: context deadline exceeded", "timeout")

    def _is_ready(self, decided: ResourceClaim, deadline: float) -> bool:
        """Return whether the claim's devices are ready now. Raises ClaimError if they fail or are too late.

        At the end of the wait the error is the deadline of the wait, not the age of the claim.
        """
        name = decided.metadata.name
        claim = self._devices.claims.get(decided.key)
        if claim is None or claim.uid != decided.uid:
            raise ClaimError(f'could not find ResourceClaim "{decided.key}"')
        if claim.status.allocation is None:
            raise ClaimError(f"claim {claim.key} got deallocated elsewhere in the meantime")
        ready = readiness(claim)
        if ready.failure is not None:
            detail = f'claim={name}, reason={ready.failure.reason}, message="{ready.failure.message}"'
            raise ConditionError(f"device binding failed: {detail}", "failure")
        # Upstream measures both times, the wait of this pod and the age of the allocation. At the deadline of the
        # wait its text wins.
        has_time = self._clock.now() < deadline
        if has_time and not ready.is_ready and is_overdue(claim, self._clock.wall(), self._timeout_s):
            raise ConditionError(f"device binding timeout: claim={name}", "timeout")
        return ready.is_ready


def _conditions_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> Sequence[Condition]:
    key = (result.driver, result.pool, result.device, result.share_id)
    found = (s.conditions for s in claim.status.devices if (s.driver, s.pool, s.device, s.share_id) == key)
    return next(found, ())
