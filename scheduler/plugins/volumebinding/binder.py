"""The binder: sorts, finds, assumes, writes and waits for the volumes of a pod, over the caches.

`UnfinishedPods` limits the plans that are carried out at once. The PV controller and the API server work faster
with some dozens of unfinished bindings than with a thousand: a third faster with 64 than with 1000, on two cores. A
plan that takes longer than a second does not count. So a slow provisioner, a stopped controller and writes that
keep failing delay no other plan.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

import structlog

from scheduler.api.podinfo import PodInfo
from scheduler.core.errors import ApiError, VolumeError
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.plugins.volumebinding.api_updates import BindAPIUpdate, WriteDeadline
from scheduler.plugins.volumebinding.assume import AssumedVolumes
from scheduler.plugins.volumebinding.check_bindings import BindingChecker
from scheduler.plugins.volumebinding.explain import account_of
from scheduler.plugins.volumebinding.find import VolumeFinder
from scheduler.plugins.volumebinding.pod_volumes import (
    BindingPlan,
    Conflicts,
    NotWritten,
    PodVolumeClaims,
    PodVolumes,
    Reasons,
    StorageResource,
    sort_claims,
)

UNFINISHED: Final = 64


class UnfinishedPods:
    """Admits plans in order of arrival. Cancelling while waiting changes nothing."""

    def __init__(self, most: int = UNFINISHED) -> None:
        self._slots = asyncio.Semaphore(most)

    @contextlib.asynccontextmanager
    async def begun(self) -> AsyncIterator[Callable[[], None]]:
        """Count the plan from its admission until the block ends, or until the yielded function is called."""
        await self._slots.acquire()
        with contextlib.ExitStack() as once:
            once.callback(self._slots.release)
            yield once.close


_log = structlog.get_logger(__name__)

T = TypeVar("T")


class VolumeBinder:
    """Synchronous calls on the caches, except for `bind_pod_volumes`. All raise VolumeError.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go volumeBinder, BindPodVolumes
    """

    def __init__(self, handle: Handle, *, bind_timeout_s: float) -> None:
        cluster = handle.cluster
        self._volumes = cluster.volumes
        self._clock = handle.clock
        self._metrics = handle.volume_metrics
        self._bind_timeout_s = bind_timeout_s
        self._follows_bindings = not handle.ours.parity
        self._assumptions = AssumedVolumes(cluster.volumes)
        self._unfinished = handle.kept("VolumeBinding.pace", UnfinishedPods)
        together = handle.ours.storage_capacity_reservation != "none"
        self._finder = VolumeFinder(cluster.nodes, cluster.volumes, together=together)
        self._waiter = BindingChecker(handle, self._assumptions)
        is_led = self._assumptions.is_led if self._follows_bindings else lambda _claim_key, _uid: False
        self._writer = BindAPIUpdate(handle, check=self._waiter.check, is_led=is_led)

    def get_pod_volume_claims(self, pod: PodInfo) -> PodVolumeClaims:
        """Sort the pod's claims. A missing or invalid claim raises nothing: see `unusable`."""
        under_way = self._assumptions.under_way if self._follows_bindings else {}
        return sort_claims(self._volumes, pod, under_way=under_way)

    def eligible_nodes(self, claims: PodVolumeClaims, nodes: NodeSet) -> Conflicts:
        """Return the nodes that cannot serve the claims, with the reasons; for entangled claims only some of them.

        If no node is left, counts go to the debug log (B-20).
        """
        conflicts = self._counted("predicate", lambda: self._finder.conflicts(claims, nodes))
        if nodes and claims.delayed and sum(conflicts.values()) == nodes and _log.is_enabled_for(logging.DEBUG):
            for claim in claims.delayed:
                _log.debug("no node serves all claims of a pod", **account_of(self._volumes, claim))
        return conflicts

    def find_pod_volumes(self, claims: PodVolumeClaims, slot: int) -> PodVolumes | Reasons:
        """Return the volumes that this node would use for the pod, or why it cannot. Exact."""
        return self._counted("predicate", lambda: self._finder.find(claims, slot))

    def storage_resources(self, claims: PodVolumeClaims, nodes: NodeSet) -> tuple[list[StorageResource], NodeSet]:
        """Return the volumes and pools that count in scores for delayed claims, and the nodes that must be tried instead.

        A node must be tried if several claims find a volume there, or if it has several pools. All resources of any other
        node count, each for another storage class. A node that cannot serve the claims has none.
        O(nodes) in NumPy, whatever the number of volumes and capacity objects.
        """
        return self._counted("predicate", lambda: self._finder.storage_resources(claims, nodes))

    def assume_pod_volumes(self, pod: PodInfo, node_name: str, volumes: PodVolumes) -> BindingPlan | None:
        """Assume all writes, or none on error; return None if every claim is bound (§5.2)."""
        return self._counted("assume", lambda: self._assumptions.assume(pod, node_name, volumes))

    def revert_assumed_pod_volumes(self, plan: BindingPlan) -> None:
        """Undo `assume_pod_volumes`, except for written objects and those that other pods assumed.

        Safe to repeat (§5.4).
        """
        self._assumptions.revert(plan)

    async def bind_pod_volumes(self, plan: BindingPlan) -> None:
        """Write the plan, and return when every claim is bound (§6). Cancelling acts between writes.

        The plan shows what is written, also if this raises. The error of a failed write is raised unchanged; an
        error that ends the wait begins with "binding volumes".
        """
        async with self._unfinished.begun() as takes_long:
            began = self._clock.now()
            try:
                self._assumptions.begin(plan)
                while not await self._written_and_waited(plan, WriteDeadline(began + self._bind_timeout_s, takes_long)):
                    pass
            except (VolumeError, ApiError):
                self._metrics.stage_error("bind")
                raise
            finally:
                kind = "mixed" if plan.static and plan.dynamic else "static" if plan.static else "dynamic"
                self._metrics.bind_wait(kind, self._clock.now() - began)
            self._assumptions.finish(plan)

    async def _written_and_waited(self, plan: BindingPlan, limit: WriteDeadline) -> bool:
        """Return False if a claim is left to write, because the plan of another pod that was to write it has ended."""
        await self._writer.write(plan, limit)
        try:
            await self._waiter.wait(plan, limit.deadline, takes_long=limit.takes_long)
        except VolumeError as error:
            raise VolumeError(f"binding volumes: {error}") from error
        except NotWritten:
            return False
        return True

    def _counted(self, operation: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except VolumeError:
            self._metrics.stage_error(operation)
            raise
