"""Waits until every claim of a plan is bound, or the decision is undone (docs/spec/volumes.md §3.1, §3.5, §3.6, §6.4).

The objects are checked once when everything is written, and then whenever one of them changes. A check per second
is the fallback. Only the API server's state counts, because the loop may have assumed the same objects again.

`VolumeReachability` decides where a bound volume can be used, by its node affinity. For volumes of in-tree plugins
it is the affinity that their CSI driver uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from scheduler.api.csi_translation import MIGRATABLE, TranslationError, kind_of, translate_volume
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.node_groups import affinity_problem, where_affinity
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.volumes import CLAIM, VOLUME, Volumes
from scheduler.core.clock import Clock
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.wait import wait_until
from scheduler.plugins.volumebinding.assume import AssumedVolumes
from scheduler.plugins.volumebinding.diagnostics import MARKS_S, SlowBindingReports
from scheduler.plugins.volumebinding.pod_volumes import BindingPlan, DynamicStep, NotWritten, StaticStep, VolumeError


class VolumeReachability:
    """Checks node affinity for all nodes at once, or for one node with a reason.

    Upstream: staging/src/k8s.io/component-helpers/storage/volume/helpers.go CheckNodeAffinity
    """

    def __init__(self, nodes: Nodes, volumes: Volumes) -> None:
        self._nodes = nodes
        self._volumes = volumes

    def nodes_of(self, volume: PersistentVolume, among: NodeSet) -> NodeSet:
        """Return those of the nodes on which a known volume can be used.

        Raises VolumeError if a node needs the translated volume and it cannot be translated.
        """
        raw = self._volumes.volumes.where(volume.key).nodes & among
        kind = kind_of(volume.spec)
        is_migratable = kind is not None and kind.plugin in MIGRATABLE
        migrated = self._volumes.migrated(kind.plugin) & among if kind is not None and is_migratable else EMPTY
        if not migrated:
            return raw
        translated = self._volumes.groups.nodes_of(where_affinity(self._translated(volume).required_nodes))
        return (translated & migrated) | (raw & ~migrated)

    def misses(self, volume: PersistentVolume, slot: int) -> str:
        """Return why the volume cannot be used on this node; "" if it can. Raises VolumeError as `nodes_of`."""
        if self.nodes_of(volume, 1 << slot):
            return ""
        return affinity_problem(volume.required_nodes) or "no matching NodeSelectorTerms"

    def _translated(self, volume: PersistentVolume) -> PersistentVolume:
        try:
            return translate_volume(volume)
        except TranslationError as error:
            raise VolumeError(f"could not translate pv: {error}") from error


POLL_S: Final = 1.0
PATIENCE_S: Final = 10.0
SLOW_POLL_S: Final = 5.0
"""The fallback of long waits: thousands of plans may wait for slow provisioners."""


class BindingChecker:
    """Waits for plans, one call per plan, any number of plans concurrently.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go checkBindings, isPVCFullyBound
    """

    def __init__(
        self,
        cluster: Cluster,
        assumptions: AssumedVolumes,
        *,
        clock: Clock,
        slowness: SlowBindingReports,
        follows_events: bool,
    ) -> None:
        """Take the caches. Without `follows_events` it polls like upstream: once a second, first after a second."""
        self._cluster = cluster
        self._volumes = cluster.volumes
        self._assumptions = assumptions
        self._reach = VolumeReachability(cluster.nodes, cluster.volumes)
        self._clock = clock
        self._slow_reports = slowness
        self._follows_events = follows_events

    async def wait(self, plan: BindingPlan, deadline: float, *, takes_long: Callable[[], None] | None = None) -> None:
        """Wait until all claims are bound. Raises VolumeError when that becomes impossible, or at the deadline.

        `takes_long` is called every second.
        """
        if self._clock.now() >= deadline:
            raise VolumeError("context deadline exceeded")
        marks = list(MARKS_S)
        messages: list[asyncio.Task[None]] = []

        def report(waited_s: float) -> None:
            if takes_long is not None:
                takes_long()
            while marks and waited_s >= marks[0]:
                message = self._slow_reports.report(plan, marks.pop(0))
                messages.extend([message] if message is not None else [])

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
        return all(list(self._verdicts(plan, self.check(plan))))

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

    def _verdicts(self, plan: BindingPlan, slot: int) -> Iterator[bool]:
        for static in plan.static:
            yield self._static(plan, static, slot)
        for dynamic in plan.dynamic:
            yield self._dynamic(plan, dynamic, slot)
        for claim in plan.followed:
            yield self._followed(plan, claim, slot)

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


def _is_behind(seen: PersistentVolume | PersistentVolumeClaim, written: object) -> bool:
    """Return whether the watch has not yet shown the server's answer; versions that are no numbers cannot be behind."""
    if not isinstance(written, (PersistentVolume, PersistentVolumeClaim)):
        return False
    theirs, ours = seen.metadata.resource_version, written.metadata.resource_version
    return theirs.isdecimal() and ours.isdecimal() and int(theirs) < int(ours)
