"""VolumeBinding at its extension points (docs/spec/volumes.md §2–§6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from scheduler.api.apps_and_policy import started_at
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import VolumeBindingArgs
from scheduler.core import nodeset
from scheduler.core.cooperative import Work
from scheduler.core.errors import ApiError, VolumeError
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Scores, StateKey
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip
from scheduler.plugins.volumebinding.api_updates import problem_of
from scheduler.plugins.volumebinding.binder import VolumeBinder
from scheduler.plugins.volumebinding.explain import VolumeMismatches, account_of
from scheduler.plugins.volumebinding.hints import VolumeBindingHints
from scheduler.plugins.volumebinding.pod_volumes import (
    CAUSES,
    NOT_ENOUGH_SPACE,
    STORAGE_IN_FLIGHT,
    UNBOUND_IMMEDIATE,
    BindingPlan,
    PodVolumeClaims,
    PodVolumes,
)
from scheduler.plugins.volumebinding.scorer import CapacityScore

PLUGIN: Final = "VolumeBinding"
_YOUNG_S: Final = 2.0
"""The watch of claims may be this far behind the watch of pods."""


@dataclass(slots=True, eq=False)
class VolumeState:
    """One attempt: the claims, and from Reserve on the plan to write."""

    claims: PodVolumeClaims
    all_bound: bool = False
    plan: BindingPlan | None = None
    is_reserved: bool = False


STATE: Final[StateKey[VolumeState]] = StateKey(PLUGIN)


class VolumeBinding:
    """PreFilter, Filter, Verify, Score, Reserve, PreBind.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/volume_binding.go VolumeBinding
    """

    name: Final = PLUGIN
    depends_on_pods: Final = False
    pre_bind_parallel: Final = True
    reads: Final = (
        "PersistentVolumeClaim",
        "PersistentVolume",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "CSIStorageCapacity",
    )

    def __init__(self, args: VolumeBindingArgs | None, handle: Handle) -> None:
        args = args if args is not None else VolumeBindingArgs()
        self._binder = VolumeBinder(handle, bind_timeout_s=args.bind_timeout_s)
        self._nodes = handle.cluster.nodes
        self._volumes = handle.cluster.volumes
        self._clock = handle.clock
        self._writer = handle.writer
        self._checks_live = handle.ours.pre_bind_live_check == "claims"
        self.is_brief = not handle.ours.parity
        self._hints = VolumeBindingHints(handle)
        self._mismatches = VolumeMismatches(handle)
        self._score = CapacityScore(args.shape) if args.shape else None

    # -- deciding ------------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Rejection | Skip | None:
        """Skip a pod without claims; reject a pod with a claim that fits no node (§2)."""
        if not pod.claims:
            state.set(STATE, VolumeState(PodVolumeClaims()))
            return SKIP
        try:
            claims = self._binder.get_pod_volume_claims(pod)
        except VolumeError as error:
            return _failed(error)
        if claims.unusable:
            return Rejection(self.name, Code.UNRESOLVABLE, (claims.unusable,), cause="ClaimUnusable")
        if claims.immediate:
            return Rejection(self.name, Code.UNRESOLVABLE, (UNBOUND_IMMEDIATE,), cause="ClaimNotBound")
        self._mismatches.look(pod, claims)
        state.set(STATE, VolumeState(claims))
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Return the nodes that cannot serve the claims, by their reasons (§3).

        After Reserve only bound claims are checked again, because this pod has assumed all other claims.
        """
        if not state.has(STATE):
            return {Rejection(self.name, Code.ERROR, ("not found",)): nodes}
        volumes_state = state.get(STATE)
        claims = volumes_state.claims
        if volumes_state.is_reserved:
            claims = PodVolumeClaims(bound=claims.bound, followed=claims.followed)
        try:
            conflicts = self._binder.eligible_nodes(claims, nodes)
        except VolumeError as error:
            return {_failed(error): nodes}
        return {
            Rejection(self.name, Code.UNRESOLVABLE, reasons, cause=CAUSES.get(reasons[0], "")): nodes_out
            for reasons, nodes_out in conflicts.items()
        }

    def filter_is_exact(self, state: CycleState, pod: PodInfo) -> bool:
        """Return whether Filter is exact: no two delayed claims of one class have different requirements.

        It is also exact after PreFilter has rejected the pod, and after Reserve.
        """
        volumes_state = state.get(STATE) if state.has(STATE) else None
        return volumes_state is None or not volumes_state.claims.is_entangled or volumes_state.is_reserved

    def verify(self, state: CycleState, pod: PodInfo, slot: int) -> Rejection | None:
        """Try the node for claims of one class with different requirements."""
        if self.filter_is_exact(state, pod):
            return None
        try:
            found = self._binder.find_pod_volumes(state.get(STATE).claims, slot)
        except VolumeError as error:
            return _failed(error)
        return Rejection(self.name, Code.UNRESOLVABLE, found) if isinstance(found, tuple) else None

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip unless StorageCapacityScoring is on (§4)."""
        return SKIP if self._score is None else None

    def explain(self, pod: PodInfo) -> Mapping[str, Any] | None:
        """Count the volumes and capacity that the unbound claims' classes have in the cluster (§12.4 B-20).

        O(volumes).
        """
        try:
            claims = self._binder.get_pod_volume_claims(pod)
        except VolumeError as error:
            return {"problem": str(error)}
        if claims.unusable:
            return {"problem": claims.unusable}
        unbound = (*claims.immediate, *claims.delayed)
        return {"claims": [account_of(self._volumes, claim) for claim in unbound]} if unbound else None

    def reason_code(self, rejection: Rejection, pod: PodInfo, slot: int) -> str:
        """Return StorageInFlight if the published capacity would suffice on this node without claims in flight."""
        if NOT_ENOUGH_SPACE not in rejection.reasons:
            return ""
        try:
            claims = self._binder.get_pod_volume_claims(pod)
        except VolumeError:
            return ""
        for claim in claims.delayed:
            pools = self._volumes.capacities.of(claim.storage_class)
            node_pools = pools.at(slot) if pools is not None else ()
            if any(pool.in_flight for pool in node_pools) and not any(
                pool.takes(claim.size_bytes) for pool in node_pools
            ):
                return (
                    STORAGE_IN_FLIGHT
                    if any(claim.size_bytes <= min(pool.limit, pool.capacity) for pool in node_pools)
                    else ""
                )
        return ""

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Work[Scores]:
        """Score the utilization of each node's volumes and pools, if any claim is delayed.

        O(nodes) in NumPy. A node is tried by itself if several claims find a volume there, or if it has several pools.
        """
        claims = state.get(STATE).claims
        if self._score is None or not claims.delayed:
            return np.zeros(self._nodes.capacity, dtype=np.int64)
        resources, to_try = self._binder.storage_resources(claims, nodes)
        column = self._score.column(resources, self._nodes.capacity)
        for slot in nodeset.each(to_try):
            found = self._binder.find_pod_volumes(claims, slot)
            column[slot] = self._score.of(found) if isinstance(found, PodVolumes) else 0
            yield
        return column

    # -- acting --------------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        """Reserve the volumes and the capacity of this node (§5.1)."""
        volumes_state = state.get(STATE) if state.has(STATE) else None
        if volumes_state is None or not pod.claims:
            if volumes_state is not None:
                volumes_state.all_bound = True
            return None
        slot = self._nodes.present_slot(node_name)
        if slot is None:
            return Rejection(self.name, Code.ERROR, (f'node "{node_name}" not found',))
        try:
            found = self._binder.find_pod_volumes(volumes_state.claims, slot)
            if isinstance(found, tuple):
                return Rejection(self.name, Code.UNRESOLVABLE, found)
            volumes_state.plan = self._binder.assume_pod_volumes(pod, node_name, found)
        except VolumeError as error:
            return _failed(error)
        volumes_state.all_bound = volumes_state.plan is None
        volumes_state.is_reserved = True
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo Reserve; do nothing if it failed or reserved another node (§5.4)."""
        volumes_state = state.get(STATE) if state.has(STATE) else None
        if volumes_state is not None and volumes_state.plan is not None and volumes_state.plan.node_name == node_name:
            self._binder.revert_assumed_pod_volumes(volumes_state.plan)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        """Skip when every claim is bound, unless the watch may not show their newest state yet (§6.1, §12.3 B-18)."""
        if not state.has(STATE):
            return Rejection(self.name, Code.ERROR, ("not found",))
        volumes_state = state.get(STATE)
        if volumes_state.all_bound or not pod.claims:
            return None if self._is_young(pod) else SKIP
        if volumes_state.plan is None or volumes_state.plan.node_name != node_name:
            return Rejection(self.name, Code.ERROR, (f'no pod volume found for node "{node_name}"',))
        return None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        """Write the plan and wait until its claims are bound (§6.2)."""
        volumes_state = state.get(STATE)
        try:
            plan = None if volumes_state.all_bound else volumes_state.plan
            if not volumes_state.all_bound and (plan is None or plan.node_name != node_name):
                return Rejection(self.name, Code.ERROR, (f'no pod volume found for node "{node_name}"',))
            if self._is_young(pod) and (rejection := await self._confirm(pod, volumes_state.claims)) is not None:
                return rejection
            if plan is not None:
                await self._binder.bind_pod_volumes(plan)
        except (VolumeError, ApiError) as error:
            return _failed(error)
        return None

    async def _confirm(self, pod: PodInfo, claims: PodVolumeClaims) -> Rejection | None:
        """Reject the pod if a bound claim was replaced or is being deleted."""
        for claim in claims.bound:
            metadata = claim.metadata
            problem = problem_of(claim, await self._writer.read_claim(metadata.namespace, metadata.name))
            if problem:
                return Rejection(self.name, Code.ERROR, (problem,))
        return None

    def _is_young(self, pod: PodInfo) -> bool:
        if not self._checks_live or not pod.claims:
            return False
        return self._clock.wall() - started_at(pod.pod.metadata.creation_timestamp) < _YOUNG_S

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events that can help a rejected pod (§7.1)."""
        return self._hints.events()


def _failed(error: Exception) -> Rejection:
    return Rejection(PLUGIN, Code.ERROR, (str(error),))
