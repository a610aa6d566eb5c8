"""Apply deltas of pods to cache and queue: bound pods, our pending pods, and nominations of other schedulers.

Rules: docs/spec/core.md §4.2–§4.4, §1.12, §1.13. A pod that could not be read keeps its node's resources as far as its
node is known, and gets a condition that says why it is not tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import msgspec
import structlog

from scheduler.api.core_v1 import Pod, PodSpec
from scheduler.api.decode import Broken, Delta, PartlyReadPod
from scheduler.api.meta import PodMetadata
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import claim_uses
from scheduler.context import Shared
from scheduler.core.cluster_events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, UNSCHEDULED_POD_ADD, Action
from scheduler.eventhandlers.deltas import Move, is_new_error
from scheduler.failure import SCHEDULER_ERROR, FailureHandler
from scheduler.framework.wait import WaitingPodsMap
from scheduler.queueing.types import pod_changes

_log = structlog.get_logger(__name__)


class PodHandlers:
    """Apply changes of pods.

    Upstream: pkg/scheduler/eventhandlers.go addPod, updatePod, deletePod
    """

    def __init__(
        self,
        shared: Shared,
        failures: FailureHandler,
        move: Move,
        *,
        is_binding: Callable[[str], bool],
        waiting_pods: WaitingPodsMap,
        derive: Callable[[Pod], PodInfo],
    ) -> None:
        """Create the handlers.

        `is_binding` says of a uid whether a binding runs; `derive` is `podinfo.pod_info` with this daemon's switches.
        """
        self._info = derive
        self._move = move
        self._waiting_pods = waiting_pods
        self._cluster = shared.cluster
        self._queue = shared.queue
        self._pending = shared.pending
        self._clock = shared.clock
        self._failures = failures
        self._is_binding = is_binding

    def apply(self, delta: Delta[Pod]) -> None:
        """Process bound pods, our pending pods, and foreign nominations."""
        if isinstance(delta.old, Broken):
            self._cluster.remove_broken(delta.old.metadata.uid or delta.old.key)
            self._failures.forget(delta.old.metadata.uid)
        old = delta.old if isinstance(delta.old, Pod) else None
        # Before the queue sees the pod: PreEnqueue counts the pods of its group.
        self._cluster.pod_groups.pod_changed(old, delta.new if self._counts_in_group(delta.new) else None)
        match delta.new:
            case Pod() if not delta.new.is_terminal:
                self._pod(old, delta.new)
            case Broken():
                self._broken(delta.old, delta.new)
            case _:
                if old is not None:
                    self._gone(old)
                elif delta.old is not None:
                    self._forget_assumed(delta.old.metadata.uid)
        self._follow_claims(old, delta.new)

    def _counts_in_group(self, pod: Pod | Broken | None) -> TypeGuard[Pod]:
        """Return whether the pod can be one of its group: another scheduler may never place it."""
        return isinstance(pod, Pod) and bool(pod.spec.node_name or self._queue.owns(pod))

    def _follow_claims(self, old: Pod | None, new: Pod | Broken | None) -> None:
        """Record which pods use which claims. A selected node of a claim that no pod uses reserves nothing."""
        reservations = self._cluster.volumes.reservations
        now = new if isinstance(new, Pod) and not new.is_terminal else None
        was = (
            old.spec.node_name if old is not None and now is not None and old.metadata.uid == now.metadata.uid else None
        )
        if now is not None and was == now.spec.node_name:
            return
        if old is not None and old.spec.volumes:
            reservations.users.remove(old.key, (use.key for use in claim_uses(old)))
        if now is not None and now.spec.volumes:
            keys = [use.key for use in claim_uses(now)]
            if not now.spec.node_name:
                reservations.users.add(now.key, keys)
            for key in keys:
                reservations.claim_used(key)

    def _pod(self, old: Pod | None, new: Pod) -> None:
        if new.spec.node_name:
            self._bound(old, new)
            return
        if old is not None and old.spec.node_name:
            self._freed(old.metadata.uid)  # an older state of etcd was restored
        if self._queue.owns(new):
            self._ours(new)
        elif new.status.nominated_node_name or (old is not None and old.status.nominated_node_name):
            self._foreign(old, new)

    def _freed(self, uid: str) -> None:
        """Free the resources of the pod and wake pods, if the pod was on a node."""
        held = self._cluster.remove_pod(uid)
        if held is not None:
            self._move(ASSIGNED_POD_DELETE, held, None)

    def _bound(self, old: Pod | None, new: Pod) -> None:
        if isinstance(new, PartlyReadPod) and (old is None or _unread(old) != new.unread):
            _log.error("pod could not be read in full", pod=new.key, node=new.spec.node_name, error=new.why)
        info = self._info(new)
        before = self._cluster.get(info.uid)
        was_ours = self._pending.pop(info.key)
        if was_ours is not None:
            self._plans(was_ours, begin=False)
            # A pod that Permit holds gives back its reservations.
            self._waiting_pods.reject(info.uid, "", "bound by another scheduler")
        if old is not None and old.spec.node_name and before is not None:
            self._cluster.update_pod(info)
            self._changed(before, info)
            return
        elsewhere = before is not None and before.node_name != info.node_name
        if before is None and old is not None and not self._queue.owns(new):
            # Neither in the first list nor bound by an earlier leader.
            self._cluster.foreign_bindings.bound(info, self._clock.now(), self._cluster.nodes)
        self._cluster.add_pod(info)
        nominated_to = self._queue.nominator.delete(info)
        if was_ours is not None or self._queue.owns(new):
            self._queue.observed_bound(info)
            self._failures.forget(info.uid)
        if elsewhere:
            self._move(ASSIGNED_POD_DELETE, before, None)
        elif before is not None:  # the cache counted the pod as it was when it was assumed
            for event in pod_changes(before, info):
                if event.action != Action.UPDATE_OTHER:
                    self._move(event, before, info)
        if nominated_to is not None and nominated_to != info.node_name:
            self._queue.nomination_ended(info, nominated_to)
        self._move(ASSIGNED_POD_ADD, None, info)

    def _changed(self, before: PodInfo, info: PodInfo) -> None:
        """Raise the events of a bound pod. One with other unreadable fields than before counts as replaced."""
        if _unread(before.pod) != _unread(info.pod):
            self._move(ASSIGNED_POD_DELETE, before, None)
            self._move(ASSIGNED_POD_ADD, None, info)
            return
        for event in pod_changes(before, info):
            self._move(event, before, info)

    def _ours(self, new: Pod) -> None:
        info = self._info(new)
        before = self._pending.get(info.key)
        self._pending.set(info)
        self._failures.seen(new)
        if before is None:
            self._plans(info, begin=True)
            if not self._cluster.is_assumed(info.uid) and not self._is_binding(info.uid):
                self._queue.add(info)
            if self._cluster.pod_groups.of(new) is not None:
                self._move(UNSCHEDULED_POD_ADD, None, info)
            return
        if before.pod.metadata.resource_version == new.metadata.resource_version:
            return
        if self._cluster.is_assumed(info.uid) or self._is_binding(info.uid):
            if new.metadata.deletion_timestamp and not before.pod.metadata.deletion_timestamp:
                self._assumed_deleted(info.uid)
            elif before.pod.status.resource_claim_statuses != new.status.resource_claim_statuses:
                self._cluster.name_claims(info)
            return
        self._queue.update(before, info)

    def _plans(self, info: PodInfo, *, begin: bool) -> None:
        """Plan the claims of a waiting pod together, because all of them must be usable on one node."""
        if len(info.claims) > 1:
            reservations = self._cluster.volumes.reservations
            (reservations.plan if begin else reservations.end_plan)(use.key for use in info.claims)

    def _foreign(self, old: Pod | None, new: Pod) -> None:
        node_name = new.status.nominated_node_name
        if node_name:
            info = self._info(new)
            ended = self._queue.nominator.add_foreign(info, node_name)
            if old is not None and old.status.nominated_node_name == node_name:
                self._queue.nominated_pod_changed(self._info(old), info, node_name)
        else:
            ended = self._queue.nominator.remove_foreign(new.metadata.uid)
        self._nomination_ended(ended)

    def _nomination_ended(self, ended: PodInfo | None) -> None:
        if ended is not None:
            self._queue.nomination_ended(ended)

    def _gone(self, old: Pod, *, is_there: bool = False) -> None:
        """Remove a deleted or finished pod from cache and queue. With `is_there` an assumed pod keeps its node."""
        uid = old.metadata.uid
        self._nomination_ended(self._queue.nominator.remove_foreign(uid))
        self._failures.forget(uid)
        waiting = self._pending.get(old.key)
        if waiting is None or waiting.uid != uid:  # the waiting pod of this name is another pod
            self._freed(uid)
            return
        self._pending.pop(old.key)
        self._plans(waiting, begin=False)
        if not is_there:
            self._forget_assumed(uid)
        self._queue.delete(waiting)

    def _forget_assumed(self, uid: str) -> None:
        if self._cluster.is_assumed(uid):
            self._assumed_deleted(uid)

    def _assumed_deleted(self, uid: str) -> None:
        """Free the node of an assumed pod that is being deleted; its binding will fail without harm (§4.3)."""
        assumed = self._cluster.get(uid)
        if assumed is None:
            return
        if self._waiting_pods.is_held(uid):
            self._waiting_pods.reject(uid, "", "removed")
            return
        self._cluster.forget(assumed)
        self._cluster.volumes.notify("Pod", uid)
        self._move(ASSIGNED_POD_DELETE, assumed, None)

    def _broken(self, old: Pod | Broken | None, new: Broken) -> None:
        uid = new.metadata.uid
        is_leaving = new.metadata.deletion_timestamp is not None or self._waiting_pods.is_held(uid)
        # The pod still reaches its node, although it cannot be read, unless its binding fails.
        is_sent = not new.node_name and not is_leaving and self._cluster.is_assumed(uid)
        if isinstance(old, Pod):
            if not new.node_name or not old.spec.node_name:
                self._gone(old, is_there=is_sent)
            if not is_sent:
                self._freed(old.metadata.uid)
        elif not new.node_name and not is_sent:
            self._forget_assumed(uid)
        self._pending.pop(new.key)
        self._cluster.add_broken(new)
        if is_new_error(old, new):
            _log.error("pod could not be read", pod=new.key, node=new.node_name, error=new.why)
            self.report_broken(new)

    def report_broken(self, pod: Broken) -> None:
        """Write the condition of one of our pods that cannot be read: when it appears, and when we become leader."""
        shown = Pod(
            metadata=PodMetadata(**msgspec.structs.asdict(pod.metadata)),
            spec=PodSpec(scheduler_name=pod.scheduler_name),
        )
        if not pod.node_name and self._queue.owns(shown) and not self._is_binding(pod.metadata.uid):
            self._failures.report(shown, SCHEDULER_ERROR, f"pod cannot be read: {pod.why}", None)


def _unread(pod: Pod) -> tuple[str, ...]:
    return pod.unread if isinstance(pod, PartlyReadPod) else ()
