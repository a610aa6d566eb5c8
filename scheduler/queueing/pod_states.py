"""The state of each pod in the queue, the moves between states, and the PreEnqueue gates.

Rules: docs/spec/core.md §1.2, §1.4, §1.8. Invariant: a pod with a record here is in exactly one of active, backing
off, waiting, gated. A pod in flight has no record here, but in `in_flight_events`. This module knows neither events
nor attempts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from scheduler.api.podinfo import PodInfo
from scheduler.core.clock import Clock
from scheduler.core.errors import UnforeseenErrors, shortened
from scheduler.framework.interface import PreEnqueuePlugin
from scheduler.framework.status import Code, Rejection
from scheduler.metrics.metrics import Metrics
from scheduler.queueing.active_queue import ActiveQueue, FairShare
from scheduler.queueing.backoff_queue import BackoffQueue
from scheduler.queueing.queueing_hints import QueueingStrategy
from scheduler.queueing.types import IN_BACKOFF, IN_POOL, Place, QueuedPodInfo, QueueProfile, SortKey
from scheduler.queueing.unschedulable_pods import UnschedulablePods

_POPPED_EARLY = "PopFromBackoffQ"
_BACKOFF_OVER = "BackoffComplete"
_BEFORE_ALL = -1.0
"""A time before every reading of the clock."""


_QUEUE_OF: Final = {
    QueueingStrategy.SKIP: "unschedulable",
    QueueingStrategy.AFTER_BACKOFF: "backoff",
    QueueingStrategy.IMMEDIATELY: "active",
}
"""The queue that a strategy names: queue_incoming_entities_total does not count moves into it."""


class PodStates:
    """The records of all pods that are not in flight, by uid. `label` names the cause of a move in metrics."""

    def __init__(  # noqa: PLR0913 (each by its name)
        self,
        profiles: dict[str, QueueProfile],
        *,
        clock: Clock,
        metrics: Metrics,
        gates: PreEnqueueGates,
        pool: UnschedulablePods,
        backoff: Callable[[Iterator[int]], BackoffQueue],
        fair_share: FairShare,
    ) -> None:
        """Make the back-off queues by `backoff`, from the counter of tickets. `adopt` changes `profiles`."""
        self._profiles = profiles
        self._clock = clock
        self._metrics = metrics
        self._gates = gates
        self.pool = pool
        tickets = itertools.count()
        self._active = ActiveQueue(tickets)
        self._passed_over = ActiveQueue(tickets)
        """Also active: costly pods that were skipped while other pods went first. Both heaps use the same order."""
        self._fair_share = fair_share
        self.backoff = backoff(tickets)
        self._pods: dict[str, QueuedPodInfo] = {}
        self.first: set[str] = set()
        """Uids of pods that sort, until their first attempt, as if they had waited longest."""
        self.followed: set[str] = set()
        """Uids of pods whose moves are recorded in `moved`."""
        self.moved: dict[str, None] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return iter(self._pods.values())

    def get(self, uid: str) -> QueuedPodInfo | None:
        """Return the record of a pod that is not in flight."""
        return self._pods.get(uid)

    def counts(self) -> dict[str, int]:
        """Return the values of the pending_pods gauge, by label."""
        gated = self.pool.gated_count
        waiting = len(self.pool) - gated
        return {
            "active": len(self._active) + len(self._passed_over),
            "backoff": len(self.backoff),
            "unschedulable": waiting,
            "gated": gated,
        }

    def enter_by(self, queued: QueuedPodInfo, strategy: QueueingStrategy, label: str) -> bool:
        """Move the pod to the state of this strategy (§1.8); return whether it is ready now or after its back-off."""
        if strategy is QueueingStrategy.SKIP:
            self._park(queued, Place.WAITING, label, strategy)
            return False
        place = Place.ACTIVE
        if strategy is QueueingStrategy.AFTER_BACKOFF and self.backoff.is_backing_off(queued, self._clock.now()):
            place = Place.BACKOFF if queued.rejecters else Place.ERROR_BACKOFF
        return self.enter(queued, place, label, strategy)

    def enter(self, queued: QueuedPodInfo, place: Place, label: str, strategy: QueueingStrategy | None = None) -> bool:
        """Move the pod to the active or a back-off queue; return False if PreEnqueue rejects it and the pod is gated.

        PreEnqueue has already accepted a pod that comes from a back-off queue, and is not called again. `strategy` is
        the one that led to the move, if there was one.
        """
        if queued.place not in IN_BACKOFF and self._gates.refuse(queued):
            self._park(queued, Place.GATED, label, strategy)
            return False
        self._leave(queued)
        self._pods[queued.uid] = queued
        queued.order = self._order(self._profiles, queued)
        if place is Place.ACTIVE and queued.initial_attempt_at is None:
            queued.initial_attempt_at = self._clock.now()
        self._push(queued, place)
        self._note(queued)
        self._count("active" if place is Place.ACTIVE else "backoff", label, strategy)
        return True

    def complete_backoffs(self, now: float, at_most: int) -> int:
        """Move pods whose back-off has ended to the active queue; return how many."""
        count = 0
        while count < at_most and (queued := self.backoff.first_due(now)) is not None:
            self.enter(queued, Place.ACTIVE, _BACKOFF_OVER)
            count += 1
        return count

    def pop(self, *, early: bool = True) -> QueuedPodInfo | None:
        """Remove and return the next pod: an active one, else with `early` one that backs off after a rejection.

        While the share of costly pods is exhausted, other active pods go before them, and their back-off is not
        shortened. While they are paused, none of them is returned.
        """
        is_exhausted = self._fair_share.is_exhausted
        queued = self._first_active(is_exhausted=is_exhausted)
        if queued is None:
            queued = self.backoff.first_rejected() if early else None
            if queued is None or (is_exhausted and self._fair_share.is_costly(queued.info)):
                return None
            self._count("active", _POPPED_EARLY)
        self.remove(queued.uid)
        return queued

    def _first_active(self, *, is_exhausted: bool) -> QueuedPodInfo | None:
        queued = self._active.first()
        while is_exhausted and queued is not None and self._fair_share.is_costly(queued.info):
            self._active.discard(queued)
            queued.is_passed_over = True
            self._passed_over.push(queued.order, queued)
            queued = self._active.first()
        other = self._passed_over.first() if not self._fair_share.is_paused else None
        if queued is None or (other is not None and not is_exhausted and other.order <= queued.order):
            return other
        return queued

    def remove(self, uid: str) -> None:
        """Remove the pod from its state; unknown pods are ignored."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._leave(queued)
            self.count_rejecters(queued, -1)

    def forget(self, queued: QueuedPodInfo) -> None:
        """Remove a record that is wrong, and `rebuild`."""
        self._pods.pop(queued.uid, None)
        queued.place, queued.ticket = Place.NOWHERE, -1
        self.rebuild()

    def rebuild(self) -> None:
        """Fill the heaps and the pool again from the records, whatever is wrong with them. O(pods)."""
        self.pool.clear()
        for heap in self.heaps:
            heap.clear()
        for queued in self._pods.values():
            queued.is_passed_over = False
            if queued.place in IN_POOL:
                self.pool.add(queued)
            else:
                queued.order = self._order(self._profiles, queued)
                self._push(queued, queued.place)

    @property
    def heaps(self) -> tuple[ActiveQueue, ...]:
        """The active pods, the ones that are passed over, and those that back off after a rejection or an error."""
        return self._active, self._passed_over, *self.backoff.heaps

    def key(self, queued: QueuedPodInfo) -> SortKey:
        """Return the key of a pod in its heap as it follows from the record."""
        order = self._order(self._profiles, queued)
        return self.backoff.key(queued, order) if queued.place in IN_BACKOFF else order

    def replace(self, queued: QueuedPodInfo, info: PodInfo) -> None:
        """Replace the pod's object. The pod keeps its state; its order is that of the new object."""
        if queued.place in IN_POOL:
            self.pool.remove(queued)
            queued.info = info
            self.pool.add(queued)
            return
        queued.info = info
        order = self._order(self._profiles, queued)
        if order != queued.order:
            place = queued.place
            self._leave(queued)
            queued.order = order
            self._push(queued, place)

    def adopt(self, profiles: Mapping[str, QueueProfile], register: Callable[[], None], label: str) -> bool:
        """Replace the plugins of these profiles. `register` is called when no pod is in an index of the old plugins.

        Pods that waited, or were gated, are ready when their back-off is over. Other pods keep their states, in the
        new order. PreEnqueue is called for all of them. Return True if a pod that had waited is ready. Raise what the
        computation of a new order raises; then nothing has changed.
        """
        lifted = [(queued, queued.place) for queued in self._pods.values() if queued.profile in profiles]
        orders = [self._order(profiles, queued) for queued, _ in lifted]
        for queued, _ in lifted:
            self._note(queued)
            self._leave(queued)
            self.count_rejecters(queued, -1)
            queued.unschedulable_plugins.clear()
            queued.pending_plugins.clear()
            queued.gating_plugin = ""
        self._profiles.update(profiles)
        register()
        moved = False
        for (queued, place), order in zip(lifted, orders, strict=True):
            if place in IN_POOL:
                is_late = self.backoff.is_backing_off(queued, self._clock.now())
                moved |= self.enter(queued, Place.BACKOFF if is_late else Place.ACTIVE, label)
            elif self._gates.refuse(queued):
                self._park(queued, Place.GATED, label)
            else:
                queued.order = order
                self._push(queued, place)
        return moved

    def count_rejecters(self, queued: QueuedPodInfo, delta: int) -> None:
        """Update the unschedulable_pods gauge for the record's rejecters."""
        for plugin in queued.rejecters:
            self._metrics.unschedulable(plugin, queued.profile, delta)

    def _count(self, queue: str, label: str, strategy: QueueingStrategy | None = None) -> None:
        self._metrics.incoming(queue, label)
        if strategy is None or queue != _QUEUE_OF[strategy]:
            self._metrics.incoming_entity(queue, label)

    def _park(self, queued: QueuedPodInfo, place: Place, label: str, strategy: QueueingStrategy | None = None) -> None:
        if queued.place not in IN_POOL:
            self._count("unschedulable", label, strategy)
        self._leave(queued)
        self._pods[queued.uid] = queued
        queued.place = place
        queued.order = self._order(self._profiles, queued)  # its group may take it from here
        self.pool.add(queued)
        self._note(queued)

    def _note(self, queued: QueuedPodInfo) -> None:
        if queued.uid in self.followed:
            self.moved[queued.uid] = None

    def _order(self, profiles: Mapping[str, QueueProfile], queued: QueuedPodInfo) -> SortKey:
        is_first = not queued.attempts and queued.uid in self.first
        return profiles[queued.profile].sort_key(queued.info, _BEFORE_ALL if is_first else queued.queued_at)

    def _push(self, queued: QueuedPodInfo, place: Place) -> None:
        queued.place = place
        if place is Place.ACTIVE:
            self._active.push(queued.order, queued)
        else:
            self.backoff.push(queued)

    def _leave(self, queued: QueuedPodInfo) -> None:
        if queued.place is Place.ACTIVE:
            (self._passed_over if queued.is_passed_over else self._active).discard(queued)
            queued.is_passed_over = False
        elif queued.place in IN_BACKOFF:
            self.backoff.discard(queued)
        elif queued.place in IN_POOL:
            self.pool.remove(queued)
        queued.place = Place.NOWHERE


@dataclass(eq=False, repr=False)
class PreEnqueueGates:
    """Runs the PreEnqueue plugins of a pod's profile, starting with the one that rejected the pod last.

    Upstream: pkg/scheduler/backend/queue/scheduling_queue.go runPreEnqueuePlugins
    """

    profiles: Mapping[str, QueueProfile]
    """The profiles in force, which `PodStates.adopt` replaces."""
    metrics: Metrics
    clock: Clock
    log: Any
    errors: UnforeseenErrors

    def refuse(self, queued: QueuedPodInfo) -> bool:
        """Return whether a plugin rejects the pod, and store its name in the record. The first rejection ends the run."""
        plugins = self.profiles[queued.profile].pre_enqueue
        if queued.gating_plugin and len(plugins) > 1:
            plugins = tuple(sorted(plugins, key=lambda plugin: plugin.name != queued.gating_plugin))
        began = self.clock.now()
        rejection = next(
            (rejection for plugin in plugins if (rejection := self._run(plugin, queued.info)) is not None), None
        )
        code = Code.SUCCESS if rejection is None else rejection.code
        self.metrics.point("PreEnqueue", code.value, queued.profile, self.clock.now() - began)
        if rejection is None:
            queued.gating_plugin = ""
            return False
        if rejection.code is Code.ERROR:
            self.log.error("pre-enqueue failed", plugin=rejection.plugin, pod=queued.info.key, error=rejection.message)
        self._note(queued, rejection.plugin)
        return True

    def _run(self, plugin: PreEnqueuePlugin, pod: PodInfo) -> Rejection | None:
        try:
            return plugin.pre_enqueue(pod)
        except Exception as error:  # noqa: BLE001 (a plugin's error must not lose the pod: it stays gated)
            self.errors.record("attempt", error, "PreEnqueue failed", plugin=plugin.name, pod=pod.key)
            return Rejection(plugin.name, Code.ERROR, (shortened(repr(error)),))

    def _note(self, queued: QueuedPodInfo, plugin: str) -> None:
        queued.gating_plugin = plugin
        queued.was_flushed = False
        if plugin not in queued.rejecters:
            self.metrics.unschedulable(plugin, queued.profile, 1)
        queued.unschedulable_plugins.add(plugin)
