"""Batches of deltas → cache and queue, and the cluster events that wake waiting pods.

The tables of docs/spec/core.md §4.2–§4.4 and §1.12, §1.13. Called from the inbox, between attempts. An object that could
not be read is logged once, kept out of decisions, and stops nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from scheduler.api.core_v1 import Node, Pod, PodSpec
from scheduler.api.decode import Broken, Delta, PartlyReadPod
from scheduler.api.meta import Key
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.context import Shared
from scheduler.core.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler.eventhandlers.devices import DeviceHandlers
from scheduler.eventhandlers.storage import StorageHandlers
from scheduler.eventhandlers.workloads import seen, surroundings
from scheduler.failure import SCHEDULER_ERROR, FailureHandler
from scheduler.queueing.types import pod_changes
from scheduler.waiting_pods import WaitingPodsMap

_log = structlog.get_logger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class Bindings(Protocol):
    """The part of the binder that a watch event concerns."""

    def has(self, uid: str) -> bool:
        """Whether a binding of this pod is under way."""


@dataclass(frozen=True, slots=True)
class _Missed:
    """A change that could not be applied: from what was applied last to the newest that is known."""

    delta: Delta[Any]
    pause_s: float
    due: float


class PodAndNodeHandlers:
    """Applies what the reflectors saw.

    The store delivers each change once. One that fails unexpectedly is tried again after a pause that grows from one
    second to a minute, and together with the next change of the same object.

    Upstream: pkg/scheduler/eventhandlers.go addPod, updatePod, deletePod, addNodeToCache, updateNodeInCache
    """

    def __init__(
        self, shared: Shared, failures: FailureHandler, *, bindings: Bindings, permits: WaitingPodsMap
    ) -> None:
        self._permits = permits
        self._cluster = shared.cluster
        self._queue = shared.queue
        self._pending = shared.pending
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._began: float | None = None
        """When the change under way began to be applied; None between changes, and once an event has come of it."""
        self._updating_s = 0.0
        """How long the cache took for the change under way."""
        self._failures = failures
        self._errors = shared.errors
        self._bindings = bindings
        self._missed: dict[tuple[str, Key], _Missed] = {}
        self.storage = StorageHandlers(shared.cluster, self._move)
        self.devices = DeviceHandlers(shared.cluster, self._move)
        self._handlers: dict[str, Callable[[Delta[Any]], None]] = {
            "Pod": self._pod_delta,
            "Node": self._node,
            **surroundings(shared.cluster, self._move),
            **self.storage.handlers(),
            **self.devices.handlers(),
        }

    def apply(self, kind: str, deltas: Iterable[Delta[Any]]) -> None:
        """One batch from the reflector of this kind. Raises KeyError for a kind that nobody here knows."""
        self._each(kind, deltas)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def nodes(self, deltas: Iterable[Delta[Node]]) -> None:
        """One batch from the node reflector."""
        self._each("Node", deltas)

    def _node(self, delta: Delta[Node]) -> None:
        """One that cannot be read takes no pods; what waits on it is left as it is."""
        volumes = self._cluster.volumes
        name, old, new = seen(delta, volumes.broken)
        if new is not None:
            self._cluster.set_node(new)
            volumes.notify("Node", name)
            for event in (NODE_ADD,) if old is None else node_changes(old, new):
                self._move(event, old, new)
        elif old is not None:
            self._move(NODE_DELETE, old, None)
            self._cluster.remove_node(name)
            volumes.notify("Node", name)

    def _each(self, kind: str, deltas: Iterable[Delta[Any]]) -> None:
        """The store has the whole batch and nothing is delivered twice: one bad delta must not cost the rest."""
        apply = self._handlers[kind]
        for delta in deltas:
            change = self._with_missed(kind, delta) if self._missed else delta
            self._began, self._updating_s = self._clock.now(), 0.0
            try:
                apply(change)
            except Exception as error:  # noqa: BLE001 (an unforeseen failure costs this one object)
                self._miss(kind, change, error, _FIRST_PAUSE_S)
        self._began, self._updating_s = None, 0.0

    def tick(self) -> None:
        """Apply again what failed and is due."""
        now = self._clock.now()
        for (kind, _), missed in [item for item in self._missed.items() if item[1].due <= now]:
            del self._missed[kind, _key(missed.delta)]
            try:
                self._handlers[kind](missed.delta)
            except Exception as error:  # noqa: BLE001 (as above)
                self._miss(kind, missed.delta, error, min(2 * missed.pause_s, _LONGEST_PAUSE_S))

    def _with_missed(self, kind: str, delta: Delta[Any]) -> Delta[Any]:
        """The change together with the one before it, if that failed; its note is dropped."""
        missed = self._missed.pop((kind, _key(delta)), None)
        return delta if missed is None else Delta(missed.delta.old, delta.new)

    def _miss(self, kind: str, delta: Delta[Any], error: Exception, pause_s: float) -> None:
        key = _key(delta)
        self._errors.record("event-handler", error, "change could not be applied", kind=kind, key=key)
        self._missed[kind, key] = _Missed(delta, pause_s, self._clock.now() + pause_s)

    # -- pods --------------------------------------------------------------------------------------------------------

    def pods(self, deltas: Iterable[Delta[Pod]]) -> None:
        """One batch from the pod reflector: bound pods of everybody, unbound ones of ours, nominations of others."""
        self._each("Pod", deltas)

    def _pod_delta(self, delta: Delta[Pod]) -> None:
        if isinstance(delta.old, Broken):
            self._cluster.remove_broken(delta.old.metadata.uid or delta.old.key)
            self._failures.forget(delta.old.metadata.uid)
        old = delta.old if isinstance(delta.old, Pod) else None
        match delta.new:
            case Pod() if not delta.new.is_terminal:
                self._pod(old, delta.new)
            case Broken():
                self._broken(delta.old, delta.new)
            case _:
                if old is not None:
                    self._gone(old)
                elif delta.old is not None:
                    self._on_its_way_no_more(delta.old.metadata.uid)

    def _pod(self, old: Pod | None, new: Pod) -> None:
        if new.spec.node_name:
            self._bound(old, new)
            return
        if old is not None and old.spec.node_name:
            self._freed(old.metadata.uid)  # the server's storage was set back
        if self._queue.owns(new):
            self._ours(new)
        elif new.status.nominated_node_name or (old is not None and old.status.nominated_node_name):
            self._foreign(old, new)

    def _freed(self, uid: str) -> None:
        """The pod no longer holds its place; nothing happens if it held none."""
        held = self._cluster.remove_pod(uid)
        if held is not None:
            self._move(ASSIGNED_POD_DELETE, held, None)

    def _bound(self, old: Pod | None, new: Pod) -> None:
        if isinstance(new, PartlyReadPod) and (old is None or _unread(old) != new.unread):
            _log.error("pod could not be read in full", pod=new.key, node=new.spec.node_name, error=new.why)
        info = pod_info(new)
        before = self._cluster.get(info.uid)
        was_ours = self._pending.pop(info.key)
        if was_ours is not None:
            self._plans(was_ours, begin=False)
            # What is reserved for a pod that Permit holds is of no use any more.
            self._permits.reject(info.uid, "", "bound by somebody else")
        if old is not None and old.spec.node_name and before is not None:
            self._cluster.update_pod(info)
            self._changed(before, info)
            return
        elsewhere = before is not None and before.node_name != info.node_name
        self._cluster.add_pod(info)
        if before is None and (slot := self._cluster.nodes.slot(info.node_name)) is not None:
            self._cluster.foreign_bindings.add(slot, self._clock.now())
        nominated_to = self._queue.nominator.delete(info)
        if was_ours is not None or self._queue.owns(new):
            self._queue.observed_bound(info)
            self._failures.forget(info.uid)
        if elsewhere:
            self._move(ASSIGNED_POD_DELETE, before, None)
        elif before is not None:  # what was counted since the assumption was the pod as it was then
            for event in pod_changes(before, info):
                if event.action != Action.UPDATE_OTHER:
                    self._move(event, before, info)
        if nominated_to not in {None, info.node_name}:
            self._nomination_ended(info)
        self._move(ASSIGNED_POD_ADD, None, info)

    def _changed(self, before: PodInfo, info: PodInfo) -> None:
        """A bound pod of which more or less can be read than before: to waiting pods another one has come in its place."""
        if _unread(before.pod) != _unread(info.pod):
            self._move(ASSIGNED_POD_DELETE, before, None)
            self._move(ASSIGNED_POD_ADD, None, info)
            return
        for event in pod_changes(before, info):
            self._move(event, before, info)

    def _ours(self, new: Pod) -> None:
        info = pod_info(new)
        before = self._pending.get(info.key)
        self._pending.set(info)
        self._failures.seen(new)
        if before is None:
            self._plans(info, begin=True)
            if not self._cluster.is_assumed(info.uid) and not self._bindings.has(info.uid):
                self._queue.add(info)
            return
        if before.pod.metadata.resource_version == new.metadata.resource_version:
            return
        if self._cluster.is_assumed(info.uid) or self._bindings.has(info.uid):
            if new.metadata.deletion_timestamp and not before.pod.metadata.deletion_timestamp:
                self._assumed_deleted(info.uid)
            elif before.pod.status.resource_claim_statuses != new.status.resource_claim_statuses:
                self._cluster.name_claims(info)
            return
        self._queue.update(before, info)

    def _plans(self, info: PodInfo, *, begin: bool) -> None:
        """Claims of one pod end up on one node: while it waits, none of them is to be cut off from the others."""
        if len(info.claims) > 1:
            reservations = self._cluster.volumes.reservations
            (reservations.plan if begin else reservations.end_plan)(use.key for use in info.claims)

    def _foreign(self, old: Pod | None, new: Pod) -> None:
        node_name = new.status.nominated_node_name
        if node_name:
            ended = self._queue.nominator.add_foreign(pod_info(new), node_name)
            if ended is None and old is not None and _is_nominated_otherwise(old, new):
                ended = pod_info(old)
        else:
            ended = self._queue.nominator.remove_foreign(new.metadata.uid)
        self._nomination_ended(ended)

    def _nomination_ended(self, ended: PodInfo | None) -> None:
        if ended is not None:
            self._queue.nomination_ended(ended)

    def _gone(self, old: Pod, *, is_there: bool = False) -> None:
        """Deleted, or finished: its place is free, or it need not be tried any more; if it is there it keeps its place."""
        uid = old.metadata.uid
        self._nomination_ended(self._queue.nominator.remove_foreign(uid))
        self._failures.forget(uid)
        waiting = self._pending.get(old.key)
        if waiting is None or waiting.uid != uid:  # a namesake that waits now is another pod
            self._freed(uid)
            return
        self._pending.pop(old.key)
        self._plans(waiting, begin=False)
        if not is_there:
            self._on_its_way_no_more(uid)
        self._queue.delete(waiting)

    def _on_its_way_no_more(self, uid: str) -> None:
        if self._cluster.is_assumed(uid):
            self._assumed_deleted(uid)

    def _assumed_deleted(self, uid: str) -> None:
        """§4.3: a pod that is being deleted gives its assumed place back at once; its binding will fail harmlessly."""
        assumed = self._cluster.get(uid)
        if assumed is None:
            return
        if self._permits.is_held(uid):
            self._permits.reject(uid, "", "removed")
            return
        self._cluster.forget(assumed)
        self._cluster.volumes.notify("Pod", uid)
        self._move(ASSIGNED_POD_DELETE, assumed, None)

    def _broken(self, old: Pod | Broken | None, new: Broken) -> None:
        uid = new.metadata.uid
        is_leaving = new.metadata.deletion_timestamp is not None or self._permits.is_held(uid)
        # Where it is going it will be, whatever is wrong with it, unless its binding fails.
        is_sent = not new.node_name and not is_leaving and self._cluster.is_assumed(uid)
        if isinstance(old, Pod):
            if not new.node_name or not old.spec.node_name:
                self._gone(old, is_there=is_sent)
            if not is_sent:
                self._freed(old.metadata.uid)
        elif not new.node_name and not is_sent:
            self._on_its_way_no_more(uid)
        self._pending.pop(new.key)
        self._cluster.add_broken(new)
        if not _is_news(old, new):
            return
        _log.error("pod could not be read", pod=new.key, node=new.node_name, error=new.why)
        self.report_broken(new)

    def report_broken(self, pod: Broken) -> None:
        """Tell the user of a pod of ours that cannot be read: when it appears, and again when we begin to lead."""
        shown = Pod(metadata=pod.metadata, spec=PodSpec(scheduler_name=pod.scheduler_name))
        if not pod.node_name and self._queue.owns(shown) and not self._bindings.has(pod.metadata.uid):
            self._failures.report(shown, SCHEDULER_ERROR, f"pod cannot be read: {pod.why}", None)

    def _move(self, event: ClusterEvent, old: object, new: object) -> None:
        """Wake pods. The time that the cache took counts for each event of the change."""
        began = self._clock.now()
        if self._began is not None:
            self._updating_s = began - self._began
            self._began = None
        self._queue.move_all(event, old, new)
        self._metrics.event_handled(event.label, self._updating_s + self._clock.now() - began)


def _key(delta: Delta[Any]) -> Key:
    shown = delta.new if delta.new is not None else delta.old
    return shown.key if shown is not None else ""


def _is_nominated_otherwise(old: Pod, new: Pod) -> bool:
    """To the same node with other labels: to selectors the pod that was nominated has left."""
    is_there_still = old.status.nominated_node_name == new.status.nominated_node_name
    return is_there_still and old.metadata.labels != new.metadata.labels


def _unread(pod: Pod) -> tuple[str, ...]:
    return pod.unread if isinstance(pod, PartlyReadPod) else ()


def _is_news(old: object, new: Broken) -> bool:
    return not (isinstance(old, Broken) and old.why == new.why)


def node_changes(old: Node, new: Node) -> list[ClusterEvent]:
    """One event per changed property; a heartbeat changes none (§4.2).

    Upstream: pkg/scheduler/framework/events.go NodeSchedulingPropertiesChange
    """
    actions = []
    if old.spec.taints != new.spec.taints or (old.spec.unschedulable and not new.spec.unschedulable):
        actions.append(Action.UPDATE_NODE_TAINT)
    if old.status.allocatable != new.status.allocatable:
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if old.status.conditions != new.status.conditions:
        actions.append(Action.UPDATE_NODE_CONDITION)
    if old.metadata.annotations != new.metadata.annotations:
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if old.status.declared_features != new.status.declared_features:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return [ClusterEvent(Resource.NODE, action) for action in actions]
