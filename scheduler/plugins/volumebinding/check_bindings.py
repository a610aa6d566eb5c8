"""Waits until every claim of a plan is bound, or the decision is undone (docs/spec/volumes.md §3.1, §3.5, §3.6, §6.4).

The objects are checked once when everything is written, and then whenever one of them changes. A check per second
is the fallback. Only the API server's state counts, because the loop may have assumed the same objects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.cache.storage.reachability import VolumeReachability
from scheduler.cache.storage.volumes import CLAIM, VOLUME
from scheduler.core.errors import VolumeError
from scheduler.framework.handle import Handle
from scheduler.framework.wait import wait_until
from scheduler.plugins.volumebinding.assume import AssumedVolumes
from scheduler.plugins.volumebinding.pod_volumes import BindingPlan, DynamicStep, NotWritten, StaticStep
from scheduler.plugins.volumebinding.slow_bindings import MARKS_S, SlowBindingReports

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)

POLL_S: Final = 1.0
PATIENCE_S: Final = 10.0
SLOW_POLL_S: Final = 5.0
"""The fallback of long waits: thousands of plans may wait for slow provisioners."""


class BindingChecker:
    """Waits for plans, one call per plan, any number of plans concurrently.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go checkBindings, isPVCFullyBound
    """

    def __init__(self, handle: Handle, assumptions: AssumedVolumes) -> None:
        self._cluster = handle.cluster
        self._volumes = handle.cluster.volumes
        self._assumptions = assumptions
        self._reach = VolumeReachability(handle.cluster.nodes, self._volumes)
        self._clock = handle.clock
        self._slow_reports = SlowBindingReports(handle)
        self._follows_events = handle.ours.bind_poll == "events"
        """Otherwise it polls like upstream: once a second, first after a second."""

    async def wait(self, plan: BindingPlan, deadline: float, *, takes_long: Callable[[], None]) -> None:
        """Wait until all claims are bound. Raises VolumeError when that becomes impossible, or at the deadline.

        `takes_long` is called every second.
        """
        if self._clock.now() >= deadline:
            raise VolumeError("context deadline exceeded")
        marks = list(MARKS_S)
        messages: list[asyncio.Task[None]] = []

        def report(waited_s: float) -> None:
            takes_long()
            while marks and waited_s >= marks[0]:
                message = self._slow_reports.report(plan, marks.pop(0))
                if message is not None:
                    messages.append(message)

        try:
            is_bound = await wait_until(
                lambda: self.is_bound(plan),
                self._clock,
                deadline,
                subscribe=partial(self._volumes.subscribe, _topics(plan)) if self._follows_events else None,
                poll_s=lambda waited_s: SLOW_POLL_S if self._follows_events and waited_s >= PATIENCE_S else POLL_S,
                on_poll=report,
                starts_with_poll=not self._follows_events,
            )
        finally:
            for message in messages:
                message.cancel()
        if not is_bound:
            raise VolumeError("context deadline exceeded")

    def is_bound(self, plan: BindingPlan) -> bool:
        """Return whether every claim is bound. Raises VolumeError; fatal problems are looked for first (B-4)."""
        slot = self.check(plan)
        static = [self._static(plan, step, slot) for step in plan.static]
        dynamic = [self._dynamic(plan, step, slot) for step in plan.dynamic]
        return all([*static, *dynamic, *(self._followed(plan, claim, slot) for claim in plan.followed)])

    def check(self, plan: BindingPlan) -> int:
        """Return the node's slot. Raises VolumeError if node or pod is gone, or the pod is bound to another node."""
        slot = self._cluster.nodes.present_slot(plan.node_name)
        if slot is None:
            raise VolumeError(f'failed to get node "{plan.node_name}": node "{plan.node_name}" not found')
        held, name = self._cluster.get(plan.pod.uid), plan.pod.pod.metadata.name
        if held is None:
            raise VolumeError(f'pod does not exist any more: pod "{name}" not found')
        if held.node_name != plan.node_name:
            raise VolumeError(f'pod "{name}" was bound to node "{held.node_name}"')
        return slot

    def _static(self, plan: BindingPlan, step: StaticStep, slot: int) -> bool:
        volume = self._volumes.volumes.get_api(step.volume.key)
        if volume is None:
            raise VolumeError(f"failed to check binding: {self._volumes.volumes.absence(step.volume.key)}")
        claim = self._claim(step.claim, "failed to check binding")
        if _is_behind(volume, step.written):
            return False
        self._check_reach(volume, plan.node_name, slot, untranslated="failed to translate pv to csi: ")
        ref = volume.spec.claim_ref
        if ref is None or not ref.uid or not is_for(volume, claim):
            if self._assumptions.is_led(step.claim.key, plan.pod.uid):
                return False
            if step.is_left:
                raise NotWritten
            raise VolumeError(f'ClaimRef got reset for pv "{volume.key}"')
        step.is_left = False
        # Another scheduler, or a user, may have bound the claim to another volume at the same time.
        return self._is_in_reach(plan, claim, slot) and claim.is_fully_bound

    def _dynamic(self, plan: BindingPlan, step: DynamicStep, slot: int) -> bool:
        claim = self._claim(step.claim, "failed to check provisioning pvc")
        if _is_behind(claim, step.written):
            return False
        if claim.selected_node != plan.node_name:
            if self._assumptions.is_led(claim.key, plan.pod.uid):
                return False
            if step.is_left and claim.selected_node is None:
                raise NotWritten
            if not claim.metadata.annotations:
                raise VolumeError(f'selectedNode annotation reset for PVC "{claim.metadata.name}"')
            raise VolumeError(f'provisioning failed for PVC "{claim.metadata.name}"')
        step.is_left = False
        return self._is_in_reach(plan, claim, slot) and claim.is_fully_bound

    def _followed(self, plan: BindingPlan, claim: PersistentVolumeClaim, slot: int) -> bool:
        now = self._claim(claim, "failed to check binding")
        return self._is_in_reach(plan, now, slot) and now.is_fully_bound

    def _is_in_reach(self, plan: BindingPlan, claim: PersistentVolumeClaim, slot: int) -> bool:
        if not claim.spec.volume_name:
            return True
        volume = self._volumes.volumes.get_api(claim.spec.volume_name)
        if volume is None:
            return False
        self._check_reach(volume, plan.node_name, slot)
        return True

    def _claim(self, decided: PersistentVolumeClaim, context: str) -> PersistentVolumeClaim:
        """Return the claim as the server has it. Raises VolumeError if it is gone or was replaced."""
        now = self._volumes.claims.get_api(decided.key)
        if now is None or now.metadata.uid != decided.metadata.uid:
            raise VolumeError(f"{context}: {self._volumes.claims.absence(decided.key)}")
        return now

    def _check_reach(self, volume: PersistentVolume, node_name: str, slot: int, *, untranslated: str = "") -> None:
        try:
            missed = self._reach.misses(volume, slot)
        except VolumeError as error:
            raise VolumeError(f"{untranslated}{error}") from error
        if missed:
            raise VolumeError(f'pv "{volume.key}" node affinity doesn\'t match node "{node_name}": {missed}')


def _topics(plan: BindingPlan) -> list[tuple[str, str]]:
    topics = [("Pod", plan.pod.uid), ("Node", plan.node_name), ("CSINode", plan.node_name)]
    topics += [(VOLUME, step.volume.key) for step in plan.static]
    topics += [(CLAIM, claim.key) for claim in plan.claims()]
    return topics


def _is_behind(seen: T, written: T | None) -> bool:
    """Return whether the watch has not yet shown the server's answer; versions that are no numbers cannot be behind."""
    return written is not None and 0 < seen.metadata.version < written.metadata.version
