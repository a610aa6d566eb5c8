"""The scheduling queue: which pod is tried next (docs/spec/core.md §1).

A pod is in exactly one place: active (ready), backing off (a deadline), waiting for an event, gated, or in flight
(being tried). `done` or `requeue` must follow every `pop`. Events that arrive in between are replayed, so no wake-up
is lost.

Plain calls, no await, owned by the scheduling loop. Knows nothing of nodes or of the API; of plugins only the events
that can help the pods they rejected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import structlog

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo, placed
from scheduler.core.clock import Clock
from scheduler.core.cluster_events import (
    ASSIGNED_POD_DELETE,
    FORCE_ACTIVATE,
    PROFILE_CHANGED,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler.core.errors import UnforeseenErrors
from scheduler.framework.nominator import Nominator
from scheduler.metrics.metrics import Metrics
from scheduler.queueing.active_queue import FairShare
from scheduler.queueing.backoff_queue import BackoffQueue, Flush
from scheduler.queueing.in_flight_events import InFlightEvents
from scheduler.queueing.pod_states import PodStates, PreEnqueueGates
from scheduler.queueing.queueing_hints import QueueingHints, QueueingStrategy
from scheduler.queueing.types import IN_BACKOFF, IN_POOL, Place, QueuedPodInfo, QueueEntry, QueueProfile, pod_changes
from scheduler.queueing.unschedulable_pods import UnschedulablePods

__all__ = ["Nominator", "QueueEntry", "QueueProfile", "QueuedPodInfo", "SchedulingQueue", "pod_changes"]

_ADDED: Final = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD).label
_ATTEMPT_FAILED: Final = "ScheduleAttemptFailure"
MOVED_AT_ONCE: Final = 500
"""Pods that one call moves. An event may wake tens of thousands, for example all pods of a large group."""
_LEFT_ALONE: Final = frozenset({Place.GATED, Place.ERROR_BACKOFF})
_GIVES_BACK: Final = frozenset({Action.UPDATE_POD_LABEL, Action.UPDATE_POD_SCALE_DOWN})
"""What may change of a nominated pod so that another pod fits its node."""


class SchedulingQueue:
    """All pods of our profiles without a node. Times are readings of `clock.now()`.

    Upstream: pkg/scheduler/backend/queue/scheduling_queue.go PriorityQueue
    """

    def __init__(  # noqa: PLR0913 (each by its name)
        self,
        profiles: Mapping[str, QueueProfile],
        *,
        clock: Clock,
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        max_in_unschedulable_s: float = 300.0,
        nominator: Nominator,
        metrics: Metrics,
        on_ready: Callable[[], None],
        log: Any = None,
        errors: UnforeseenErrors | None = None,
    ) -> None:
        """Create the queue. `on_ready` is called when a pop may have become possible."""
        errors = errors or UnforeseenErrors()
        self._log = structlog.get_logger(__name__) if log is None else log
        self._profiles = dict(profiles)
        self._clock = clock
        self._on_ready = on_ready
        self.nominator = nominator
        self._wakers = QueueingHints(profiles, metrics=metrics, clock=clock, errors=errors)
        self._pool = UnschedulablePods(self._wakers)
        self.fair_share = FairShare(clock)
        self.places = PodStates(
            self._profiles,
            clock=clock,
            metrics=metrics,
            gates=PreEnqueueGates(self._profiles, metrics=metrics, clock=clock, log=self._log, errors=errors),
            pool=self._pool,
            backoff=lambda tickets: BackoffQueue(initial_backoff_s, max_backoff_s, tickets),
            fair_share=self.fair_share,
        )
        self.in_flight = InFlightEvents()
        self._flush = Flush(self._pool, now=clock.now(), limit_s=max_in_unschedulable_s)
        self._woken: deque[tuple[QueuedPodInfo, QueueingStrategy, str]] = deque()
        """Pods that events have woken and that are not moved yet, with the label of the event."""
        self._is_closed = False

    # -- what the watch saw ------------------------------------------------------------------------------------------

    def owns(self, pod: Pod) -> bool:
        """Return whether one of our profiles has the pod's scheduler name (Q-1)."""
        return pod.spec.scheduler_name in self._profiles

    def add(self, info: PodInfo) -> None:
        """Add a pod without a node; pods of other schedulers are ignored (§1.4)."""
        if info.node_name or not self.owns(info.pod):
            return
        queued = self.get(info.uid)
        if queued is not None:
            self.update(queued.info, info)
            return
        self.nominator.add(info, None)
        if self.places.enter(QueuedPodInfo(info, self._clock.now()), Place.ACTIVE, _ADDED):
            self._on_ready()

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Take a change of a pod without a node (§1.12). The caller filters updates of assumed pods."""
        if old.pod.metadata.resource_version == new.pod.metadata.resource_version:
            return
        queued = self.places.get(new.uid)
        before = (old.pod.status.nominated_node_name, self.nominator.node_of(new.uid))
        if queued is None and new.uid not in self.in_flight:
            self.add(new)
        else:
            self.nominator.update(old, new)
            if queued is None:
                for event in pod_changes(old, new):
                    self.in_flight.record(event, old, new, target=new.uid)
            else:
                self.places.replace(queued, new)
                if queued.place in IN_POOL:
                    self._wake_by_own_change(queued, old, new)
        now = {new.pod.status.nominated_node_name, self.nominator.node_of(new.uid)}
        for node_name in dict.fromkeys(before):
            if node_name and node_name not in now:
                self.nomination_ended(old, node_name)
            elif node_name:
                self.nominated_pod_changed(old, new, node_name)

    def delete(self, info: PodInfo) -> None:
        """Remove a deleted pod without a node (§1.13). If it is in flight, its attempt must still call `done`."""
        nominated_to = self.nominator.delete(info)
        if (
            info.uid in self.places
        ):  # it was released already, and no waiter was woken, because the watch had not shown it
            nominated_to = nominated_to or info.pod.status.nominated_node_name
        self.places.remove(info.uid)
        if nominated_to:
            self.nomination_ended(info, nominated_to)

    def observed_bound(self, info: PodInfo) -> None:
        """Remove a pod that got a node from any scheduler. Wakes no pod."""
        self.nominator.delete(info)
        self.places.remove(info.uid)

    # -- attempts ----------------------------------------------------------------------------------------------------

    def pop(self, *, early: bool = True) -> QueuedPodInfo | None:
        """Return the next pod to try, now in flight; None if none is ready. Never waits (§1.6).

        `early`: also a pod that backs off after a rejection, if no other pod is ready. All woken pods are moved before.
        """
        while self.move_woken():
            pass
        while not self._is_closed:
            queued = self.places.pop(early=early)
            if queued is None:
                return None
            if not self.in_flight.begin(queued):
                self._log.error("pod popped while in flight, discarded", pod=queued.info.key)
                continue
            self._begin(queued)
            return queued
        return None

    def take(self, uids: Iterable[str]) -> list[QueuedPodInfo]:
        """Return those of these pods that could be tried, now in flight (docs/spec/groups.md §4).

        They may be ready, back off or wait for an event: a group is tried with all its pods. Gated pods stay, and pods that back
        off after an error.
        """
        taken = []
        for uid in uids:
            queued = self.places.get(uid)
            if queued is None or queued.place in _LEFT_ALONE or not self.in_flight.begin(queued):
                continue
            self.places.remove(uid)
            self._begin(queued)
            taken.append(queued)
        return taken

    def last_after_error(self, uids: Iterable[str]) -> QueuedPodInfo | None:
        """Return the one of these pods whose back-off after an error ends last; None if none of them has one."""
        found = (queued for uid in uids if (queued := self.places.get(uid)) and queued.place is Place.ERROR_BACKOFF)
        return max(found, key=self.places.backoff.until, default=None)

    def put_back(self, queued: QueuedPodInfo, *, like: QueuedPodInfo | None = None) -> None:
        """Return a pod that was popped and not tried: PreEnqueue decides about it again. Includes `done`.

        With `like` it backs off as long as this pod, else it is ready.
        """
        queued.attempts -= 1
        self.done(queued.uid)
        if like is not None:
            queued.backoff_until = self.places.backoff.until(like)
        if self.places.enter(queued, Place.ACTIVE if like is None else Place.ERROR_BACKOFF, _ADDED):
            self._on_ready()

    def _begin(self, queued: QueuedPodInfo) -> None:
        queued.place = Place.IN_FLIGHT
        queued.attempts += 1
        queued.tried_at = self._clock.now()
        queued.backoff_until = None
        queued.unschedulable_plugins.clear()
        queued.pending_plugins.clear()

    def done(self, uid: str) -> None:
        """Stop recording events for an attempt that failed and was handled, or that begins PreBind. Idempotent."""
        ended = self.in_flight.end(uid)
        if ended is not None and ended.place is Place.IN_FLIGHT:
            ended.place = Place.NOWHERE

    def requeue(self, queued: QueuedPodInfo) -> None:
        """Return a pod after a failed attempt; includes `done` (§1.7).

        The caller has set `info` to the newest object, and the plugins that rejected the pod; none after an error.
        """
        if queued.uid in self.places:
            self._log.error("failed pod is in the queue already", pod=queued.info.key)
            self.done(queued.uid)
            return
        if queued.rejecters:
            queued.unschedulable_count += 1
            queued.consecutive_errors = 0
        else:
            queued.consecutive_errors += 1
        queued.queued_at = self._clock.now()
        queued.backoff_until = queued.flushed_at = None
        queued.was_flushed = False
        self.places.count_rejecters(queued, 1)
        strategy = self._replay(queued)
        self.done(queued.uid)
        if self.places.enter_by(queued, strategy, _ATTEMPT_FAILED):
            self._on_ready()

    # -- what brings pods back ---------------------------------------------------------------------------------------

    def move_all(
        self, event: ClusterEvent, old: object, new: object, *, concerns: Callable[[PodInfo], bool] | None = None
    ) -> None:
        """Wake the pods that an event can help (§1.10).

        O(1) if no plugin registered the event, otherwise O(registrations + topics × plugins that rejected pods +
        hints for the shapes of these topics + woken pods). `concerns` restricts it to some pods, waiting or in
        flight. A wildcard wakes all pods, or the one pod that `new` is. Of thousands, `move_woken` moves the rest.
        """
        if not event.is_wildcard and not self._wakers.of(event):
            return
        woken = self._pool.woken_by(event, old, new, concerns=concerns)
        if woken:
            self._woken.extend((queued, strategy, event.label) for queued, strategy in woken)
            self.move_woken()
        self.in_flight.record(event, old, new, concerns=concerns)

    def move_woken(self) -> bool:
        """Move at most 500 of the pods that events have woken; return whether some are left."""
        moved = False
        for _ in range(min(len(self._woken), MOVED_AT_ONCE)):
            queued, strategy, label = self._woken.popleft()
            if queued.place in IN_POOL and self.places.get(queued.uid) is queued:  # otherwise it has moved or is gone
                moved |= self.places.enter_by(queued, strategy, label)
        if moved:
            self._on_ready()
        return bool(self._woken)

    def activate(self, infos: Iterable[PodInfo]) -> None:
        """Make these pods ready now, for plugins (§1.14). A pod in flight will back off instead of waiting."""
        self._force(infos, Place.ACTIVE)

    def retry(self, info: PodInfo) -> None:
        """Try the pod after its back-off, as after an error: its preemption failed."""
        self._force([info], Place.ERROR_BACKOFF)

    def _force(self, infos: Iterable[PodInfo], place: Place) -> None:
        moved = False
        for info in infos:
            queued = self.places.get(info.uid)
            if queued is None:
                self.in_flight.record(FORCE_ACTIVATE, None, info, target=info.uid)
            elif queued.place is not Place.ACTIVE:
                moved |= self.places.enter(queued, place, FORCE_ACTIVATE.label)
        if moved:
            self._on_ready()

    def reconsider(self, info: PodInfo) -> None:
        """Run PreEnqueue for a pod again. Pods that no PreEnqueue plugin holds are not changed."""
        queued = self.places.get(info.uid)
        if queued is None or queued.place is not Place.GATED:
            return
        if self.places.enter_by(queued, QueueingStrategy.AFTER_BACKOFF, FORCE_ACTIVATE.label):
            self._on_ready()

    def adopt(self, profiles: Mapping[str, QueueProfile]) -> None:
        """Replace the plugins of these profiles: their pods are gated, sorted and woken by the new ones.

        Waiting pods are tried again, and pods in flight after a failure, because the new plugins may accept them. All
        profiles must still sort alike. Raises the errors of sorting, and then nothing has changed. O(pods of these
        profiles).
        """
        unknown = profiles.keys() - self._profiles.keys()
        if unknown:
            raise KeyError(*sorted(unknown))
        if self.places.adopt(profiles, lambda: self._wakers.adopt(profiles), PROFILE_CHANGED.label):
            self._on_ready()
        self.in_flight.record(PROFILE_CHANGED, None, None, concerns=lambda pod: pod.pod.spec.scheduler_name in profiles)

    def tick(self) -> bool:
        """Move pods whose time has come: completed back-offs, and every 30 s pods that waited too long.

        Returns whether some are left, because each call moves a limited number.
        """
        now = self._clock.now()
        completed = self.places.complete_backoffs(now, MOVED_AT_ONCE)
        moved = completed > 0
        for queued in self._flush.late(now):
            moved |= self.places.enter_by(queued, QueueingStrategy.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT.label)
        if moved:
            self._on_ready()
        return completed == MOVED_AT_ONCE

    def close(self) -> None:
        """Pop no further pod; every attempt counts as done."""
        self._is_closed = True
        for queued in list(self.in_flight):
            self.done(queued.uid)

    # -- pods whose claims leave them one node (docs/adr/0012) -------------------------------------------------------

    def record_of(self, uid: str) -> QueuedPodInfo | None:
        """Return the record of a pod that is not in flight. The caller must not change it."""
        return self.places.get(uid)

    def follow(self, uid: str, *, is_followed: bool) -> None:
        """Start or stop recording moves of this pod, for `take_moved`."""
        if is_followed:
            self.places.followed.add(uid)
        else:
            self.places.followed.discard(uid)
            self.put_first(uid, is_first=False)

    def take_moved(self) -> Iterable[str]:
        """Return the followed pods that moved since the last call, also after failed attempts."""
        moved, self.places.moved = self.places.moved, {}
        return moved

    def put_first(self, uid: str, *, is_first: bool) -> None:
        """Sort an untried pod before pods that only differ in time, or stop doing so."""
        if is_first == (uid in self.places.first):
            return
        (self.places.first.add if is_first else self.places.first.discard)(uid)
        queued = self.places.get(uid)
        if queued is not None:
            self.places.replace(queued, queued.info)

    # -- state for other parts ----------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Return the pending_pods gauge: label → pods."""
        return self.places.counts()

    def in_flight_events(self) -> dict[str, int]:
        """Return the inflight_events gauge: label → stored events, `PodPopped` for the pods in flight."""
        return self.in_flight.counts()

    def all_failed_since(self, moment: float) -> bool:
        """Return whether each pod that backs off had an error in an attempt that began after `moment`. O(pods)."""
        return all(
            queued.place is Place.ERROR_BACKOFF and queued.tried_at > moment
            for queued in self.places
            if queued.place in IN_BACKOFF
        )

    def get(self, uid: str) -> QueuedPodInfo | None:
        """Return the record of a pod; None if the queue does not have it."""
        return self.places.get(uid) or self.in_flight.get(uid)

    def entries(self) -> Iterator[QueueEntry]:
        """Yield every pod, in no order: the pods at the first step, each in its current state."""
        for queued in (*self.places, *self.in_flight):
            deadline = None
            if queued.place in IN_BACKOFF:
                deadline = self.places.backoff.until(queued) + 1.0
            elif queued.place in IN_POOL:
                deadline = self._flush.waits_until(queued)
            plugins = tuple(sorted(queued.rejecters))
            source = self.nominator.source(queued.info)
            node_name = (self.nominator.node_of(queued.uid) or "") if source else ""
            yield QueueEntry(
                key=queued.info.key,
                place=queued.place.value,
                attempts=queued.attempts,
                plugins=plugins,
                deadline=deadline,
                nominated_to=node_name,
                nominated_by=source,
                retry_s=None if deadline is None else max(0.0, deadline - self._clock.now()),
                created=queued.info.pod.metadata.creation_timestamp or "",
                order=(float(queued.is_passed_over), *queued.order, queued.ticket),
            )

    def pods(self) -> Iterator[PodInfo]:
        """Yield every pod, in no order."""
        return (queued.info for queued in (*self.places, *self.in_flight))

    # -- events and pods ---------------------------------------------------------------------------------------------

    def _replay(self, queued: QueuedPodInfo) -> QueueingStrategy:
        """Return the best result of the events that arrived during the attempt."""
        rejecters = queued.rejecters
        if not rejecters:
            return QueueingStrategy.AFTER_BACKOFF
        events = self.in_flight.since_pop(queued.uid)
        if events is None:
            self._log.debug("no events were kept for a failed pod, it is retried", pod=queued.info.key)
            return QueueingStrategy.AFTER_BACKOFF
        is_strange = self._wakers.learn(queued.profile, rejecters)  # otherwise not all events that it needs were stored
        best = QueueingStrategy.AFTER_BACKOFF if is_strange else QueueingStrategy.SKIP
        possible = QueueingStrategy.IMMEDIATELY if queued.pending_plugins else QueueingStrategy.AFTER_BACKOFF
        for kept in events:
            if best >= possible:
                break
            if kept.is_for(queued.info):
                answer = self._wakers.evaluate(queued, kept.event, kept.old, kept.new, is_blurred=kept.is_blurred)
                best = max(best, answer)
        return best

    def _wake_by_own_change(self, queued: QueuedPodInfo, old: PodInfo, new: PodInfo) -> None:
        """Call the hints for the pod's own changes; the first one that moves it ends the loop."""
        for event in pod_changes(old, new):
            strategy = self._wakers.evaluate(queued, event, old, new)
            if strategy is not QueueingStrategy.SKIP and self.places.enter_by(queued, strategy, event.label):
                self._on_ready()
                return

    def nominated_pod_changed(self, old: PodInfo, new: PodInfo, node_name: str) -> None:
        """Wake pods as after a nomination if the pod requests less now, or selectors may no longer match it."""
        if any(event.action in _GIVES_BACK for event in pod_changes(old, new)):
            self.nomination_ended(old, node_name, wakes_itself=False)

    def nomination_ended(self, info: PodInfo, node_name: str = "", *, wakes_itself: bool = True) -> None:
        """Wake pods of lower or equal priority after a nomination: for them a pod has left that node.

        `node_name` is the node of a nomination that the pod's status did not show.
        """
        priority = info.priority
        shown = info.node_name or info.pod.status.nominated_node_name
        leaving = info if node_name in {"", shown} else placed(info, node_name)
        self.move_all(
            ASSIGNED_POD_DELETE,
            leaving,
            None,
            concerns=lambda pod: pod.priority <= priority and (wakes_itself or pod.uid != info.uid),
        )
