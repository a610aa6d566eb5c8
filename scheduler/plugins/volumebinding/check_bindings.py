"""Waits until every claim of a plan is bound, or the decision is undone (docs/spec/volumes.md §3.1, §3.5, §3.6, §6.4).

The objects are checked once when everything is written, and then whenever one of them changes. A check per second
is the fallback. Only the API server's state counts, because the loop may have assumed the same objects again.

`VolumeReachability` decides where a bound volume can be used, by its node affinity. For volumes of in-tree plugins
it is the affinity that their CSI driver uses.

`SlowBindingReports` records events for pods whose volumes take long to bind, with the reason (docs/spec/volumes.md
§12.2 B-21). The provisioner's last event on the claim is read and quoted. At most a few events are read at once, for a
short time. The report is made without a quote if the read fails, and no binding waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import structlog

from scheduler.api.csi_translation import MIGRATABLE, TranslationError, kind_of, translate_volume
from scheduler.api.storage_v1 import STORAGE_PROVISIONERS, PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.cache.nodes.node_groups import affinity_problem, where_affinity
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.volumes import CLAIM, VOLUME, Volumes
from scheduler.core.clock import done_within
from scheduler.core.errors import ApiError
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.wait import wait_until
from scheduler.plugins.volumebinding.assume import AssumedVolumes
from scheduler.plugins.volumebinding.pod_volumes import BindingPlan, DynamicStep, NotWritten, StaticStep, VolumeError

_log = structlog.get_logger(__name__)

MARKS_S: Final = (30, 60, 300)
"""Seconds of waiting after which there is an event and a count; the last event is a warning."""
ASKING_S: Final = 2.0
AT_ONCE: Final = 4
"""An API server without a cache of events reads all events of the namespace per request; thousands of pods may wait."""


class _Wait(NamedTuple):
    claim: PersistentVolumeClaim
    awaited: str
    provisioner: str
    """Empty for a claim that waits for no provisioner."""


class SlowBindingReports:
    """Reports slow bindings to the pod; the binding continues."""

    def __init__(self, handle: Handle) -> None:
        self._volumes = handle.cluster.volumes
        self._recorder = handle.recorder
        self._metrics = handle.volume_metrics
        self._writer = handle.writer
        self._clock = handle.clock
        self._scheduler_name = handle.scheduler_name
        self._ours = handle.scheduler_names | {handle.scheduler_name}
        """Reporters of this process's own events, which are not quoted."""
        self._reading: set[asyncio.Task[None]] = set()
        self._has_failed = False
        self._errors = handle.errors

    def report(self, plan: BindingPlan, after_s: int) -> asyncio.Task[None] | None:
        """Report that the plan is not bound after this time; do nothing if it is. Raises nothing.

        The report is made at once, or when the returned task ends. If the task is cancelled, the report has only
        the events read until then.
        """
        try:
            return self._report(plan, after_s)
        except Exception as error:  # noqa: BLE001 (only a message is lost, never the binding)
            self._failed(plan, error)
            return None

    def _report(self, plan: BindingPlan, after_s: int) -> asyncio.Task[None] | None:
        waits = list(self._waits(plan))
        if not waits:
            return None
        self._metrics.long_wait(after_s)
        quotes: dict[str, str] = {}
        provisioned = [wait for wait in waits if wait.provisioner]
        if not provisioned or len(self._reading) >= AT_ONCE:
            self._record_event(plan, after_s, waits, quotes=quotes)
            return None
        task = asyncio.ensure_future(self._read_events_within(provisioned, quotes))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
        task.add_done_callback(lambda _: self._record_event_later(plan, after_s, waits, quotes))
        return task

    def _record_event_later(self, plan: BindingPlan, after_s: int, waits: list[_Wait], quotes: dict[str, str]) -> None:
        try:
            self._record_event(plan, after_s, waits, quotes=quotes)
        except Exception as error:  # noqa: BLE001 (in the event loop it would be lost)
            self._failed(plan, error)

    def _failed(self, plan: BindingPlan, error: Exception) -> None:
        what = "the message that volumes are not bound yet failed"
        self._errors.record("binding", error, what, pod=plan.pod.key)

    def _record_event(self, plan: BindingPlan, after_s: int, waits: list[_Wait], *, quotes: dict[str, str]) -> None:
        parts = []
        for wait in waits:
            quote = quotes.get(wait.claim.key)
            last_event = f" (last event: {quote})" if quote else ""
            parts.append(f'claim "{wait.claim.metadata.name}" waits for {wait.awaited}{last_event}')
        self._recorder.event(
            plan.pod.pod,
            controller=self._scheduler_name,
            type_="Warning" if after_s == MARKS_S[-1] else "Normal",
            reason="WaitForVolumeBinding",
            action="Binding",
            note=f"volumes are not bound after {after_s} s: {'; '.join(parts)}",
        )

    # -- what is waited for --------------------------------------------------------------------------------------------

    def _waits(self, plan: BindingPlan) -> Iterator[_Wait]:
        for claim in plan.claims():
            now = self._volumes.claims.get_api(claim.key) or claim
            if not now.is_fully_bound:
                yield self._wait(plan, now)

    def _wait(self, plan: BindingPlan, claim: PersistentVolumeClaim) -> _Wait:
        meant = next((step.volume.key for step in plan.static if step.claim.key == claim.key), claim.spec.volume_name)
        if meant:
            return _Wait(claim, f'the PV controller to bind it to volume "{meant}"', "")
        storage_class = self._volumes.classes.get(claim.storage_class)
        where = f'to provision it for node "{plan.node_name}"'
        if storage_class is None:
            return _Wait(claim, f"a provisioner (its StorageClass does not exist) {where}", "")
        provisioner, annotations = storage_class.obj.provisioner, claim.metadata.annotations
        # The PV controller writes the provisioner on the claim: for an in-tree plugin its CSI driver.
        written = next((name for key in STORAGE_PROVISIONERS if (name := annotations.get(key))), provisioner)
        return _Wait(claim, f"{provisioner} {where}", written)

    # -- events of provisioners ----------------------------------------------------------------------------------------

    async def _read_events_within(self, waits: list[_Wait], quotes: dict[str, str]) -> None:
        await done_within(self._clock, self._read_events(waits, quotes), ASKING_S)

    async def _read_events(self, waits: list[_Wait], quotes: dict[str, str]) -> None:
        """Read the events one after the other; stop at the first failure, because the next read would fail too."""
        for wait in waits:
            try:
                quote = await self._writer.last_event(wait.claim, provisioner=wait.provisioner, besides=self._ours)
            except ApiError as error:
                if not self._has_failed:
                    self._has_failed = True
                    _log.debug("events of claims cannot be read", claim=wait.claim.key, error=error.message)
                return
            if quote:
                quotes[wait.claim.key] = quote


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


def _is_behind(seen: PersistentVolume | PersistentVolumeClaim, written: object) -> bool:
    """Return whether the watch has not yet shown the server's answer; versions that are no numbers cannot be behind."""
    if not isinstance(written, (PersistentVolume, PersistentVolumeClaim)):
        return False
    theirs, ours = seen.metadata.resource_version, written.metadata.resource_version
    return theirs.isdecimal() and ours.isdecimal() and int(theirs) < int(ours)
