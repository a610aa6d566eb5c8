"""Compose everything that decides, and run the scheduling loop.

`Decisions` is created from a configuration and the ports. It runs in the daemon, in tests and in benchmarks, and
knows no socket and no kube (law 1); `app` connects those. The loop applies changes, pops a pod, attempts it and hands
it over. It owns cache and queue. /debug/pod shows the last decisions about a pod and, while it waits, current
numbers. The numbers may be newer than the decision.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import structlog

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.audit.checks import all_checks
from scheduler.audit.self_audit import SelfAudit
from scheduler.audit.stored import ObjectStore
from scheduler.binding import Binder
from scheduler.binding_state import Binding, PodWatch
from scheduler.cache.cluster import Cluster
from scheduler.config.types import RunOptions
from scheduler.consultations import Consultations
from scheduler.context import Inbox, Shared, UnboundPods
from scheduler.controllers.derived_nominations import DerivedNominations
from scheduler.controllers.kubelet_rejections import KubeletRejections
from scheduler.controllers.node_name_pods import NodeNamePods
from scheduler.controllers.stale_volumes import StaleVolumes
from scheduler.core.clock import Clock
from scheduler.core.cluster_events import ALL, ClusterEvent, Resource
from scheduler.core.cooperative import TURN_S
from scheduler.core.decision_record import DecisionRecord, DecisionRecords
from scheduler.core.errors import UnforeseenErrors, shortened
from scheduler.core.feature_gates import BINDING_RETRIES, RESIZE_TOTALS
from scheduler.cycle import Cycle, Outcome, Scheduled, SchedulingFailed, Unschedulable
from scheduler.eventhandlers.pods_and_nodes import PodAndNodeHandlers
from scheduler.explain.explainer import Explainer
from scheduler.explain.questions import Questions
from scheduler.explain.what_if import WhatIf
from scheduler.failure import FailureHandler, PodStatusUpdater
from scheduler.framework.extender import Consultation, Extender, Unanswered
from scheduler.framework.handle import Handle, Recorder, Writer
from scheduler.framework.interface import ExplainPlugin
from scheduler.framework.nominator import Nominator
from scheduler.framework.preemption_state import Preempting
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runner
from scheduler.framework.wait import WaitingPodsMap
from scheduler.metrics.metrics import Metrics
from scheduler.preemption import PreemptionExecutor
from scheduler.profiles.build import build_profiles, profile_builder
from scheduler.profiles.reconciler import ProfileReconciler, ProfileUsers, clearing, pool_sharing, queue_profile
from scheduler.queue import QueuedPodInfo, SchedulingQueue
from scheduler.queueing.active_queue import LONG_S


class Decisions:
    """Everything that decides, created from a configuration and the ports.

    Upstream: pkg/scheduler/scheduler.go New, Scheduler
    """

    def __init__(  # noqa: PLR0913 (each by its name)
        self,
        options: RunOptions,
        *,
        writer: Writer,
        recorder: Recorder,
        clock: Clock,
        metrics: Metrics,
        errors: UnforeseenErrors | None = None,
        pod_watch: PodWatch | None = None,
        extenders: Iterable[Extender] = (),
        stores: Callable[[], Mapping[str, ObjectStore]] = dict,
    ) -> None:
        """Create the parts. Without `pod_watch` bindings wait for no watch.

        `stores` returns the synced stores of the informers by kind, for the self-audit.
        """
        self.chance = random.Random()
        self.cluster = Cluster(clock, options.config.feature_gates)
        self.errors = errors = errors or UnforeseenErrors(clock)
        self.inbox = Inbox(errors)
        permits = WaitingPodsMap(clock)
        pending = UnboundPods()
        nominator = Nominator(pending.get)
        preempting = Preempting(metrics.preemption_attempt, nominator.pods, nominator.is_nominated)
        handle = Handle(
            self.cluster,
            writer,
            recorder,
            clock,
            preempting=preempting,
            chance=self.chance,
            volume_metrics=metrics.volumes,
            device_metrics=metrics.devices,
            errors=errors,
            waiting_pods=permits,
            to_activate=lambda pods: self.inbox.put(partial(self.queue.activate, pods)),
        )
        self.drain_plugins = handle.drain
        self.profiles = build_profiles(options.config, handle)
        """The profiles in force, by scheduler name; `reloading` replaces them between two attempts."""
        self.queue = SchedulingQueue(
            {name: queue_profile(profile) for name, profile in self.profiles.items()},
            clock=clock,
            initial_backoff_s=options.config.pod_initial_backoff_s,
            max_backoff_s=options.config.pod_max_backoff_s,
            max_in_unschedulable_s=options.max_in_unschedulable_s,
            nominator=nominator,
            metrics=metrics,
            on_ready=self.inbox.wake,
            errors=errors,
        )
        self.shared = Shared(self.cluster, self.queue, self.inbox, writer, recorder, clock, metrics, pending, errors)

        def runner(profile: Profile) -> Runner:
            return Runner(profile, self.cluster, nominator, clock=clock, metrics=metrics, errors=errors)

        runners = {name: runner(profile) for name, profile in self.profiles.items()}
        self.patches = PodStatusUpdater(writer)
        self.failures = FailureHandler(self.shared, self.patches, preempting)
        self.consultations = Consultations(extenders, self.shared)
        self.refusals = KubeletRejections(self.cluster, clock=clock, metrics=metrics)
        derive = partial(pod_info, resize_by_totals=RESIZE_TOTALS in options.config.feature_gates)
        self.binder = Binder(
            self.shared,
            self.failures,
            refusals=self.refusals,
            pod_watch=pod_watch or PodWatch(),
            permits=permits,
            binder_for=self.consultations.binder_for,
            retries=BINDING_RETRIES in options.config.feature_gates,
        )
        self.evictions = PreemptionExecutor(self.shared, self.failures, self.binder, preempting, profiles=self.profiles)
        self.intake = PodAndNodeHandlers(
            self.shared,
            self.failures,
            is_binding=self.binder.has,
            permits=self.binder.permits,
            derive=derive,
            preempting=preempting,
        )
        self.questions = Questions(self.inbox, clock, errors)
        self.explainer = Explainer(
            self.cluster,
            pending,
            nominator,
            self.profiles,
            clock,
            derive=derive,
            held_back=self.refusals.held_back,
            trial_s=options.trial_s,
        )
        self.what_if = WhatIf(self.explainer)
        self.audit = SelfAudit(
            all_checks(self.shared, self.intake, self.binder.has, stores),
            clock,
            errors,
            is_current=lambda: not len(self.inbox),
            on_healed=lambda: self.queue.move_all(CACHE_CORRECTED, None, None),
        )
        self.stale = StaleVolumes(self.shared, names=clearing(options.config))
        self.node_name_pods = NodeNamePods(self.shared, profiles=self.profiles)
        self.cluster.volumes.reservations.pools_share(pool_sharing(options.config))
        self.derived = DerivedNominations(self.shared, profiles=self.profiles, runners=runners)
        self.records = DecisionRecords()
        self.cycle = Cycle(
            runners, self.cluster, clock=clock, chance=self.chance, metrics=metrics, held_back=self.refusals.held_back
        )
        self.loop = SchedulingLoop(self)
        self.reloading = ProfileReconciler(
            options.config,
            profile_builder(options.config, handle),
            ProfileUsers(
                self.profiles,
                runners,
                runner,
                self.queue.adopt,
                self.stale.serve,
                self.cluster.volumes.reservations.pools_share,
            ),
            metrics=metrics.shell,
        )

    def shown(self, key: str) -> Mapping[str, Any] | None:
        """Return what /debug/pod shows of a pod."""
        return shown(key, self.records, waiting=self.shared.pending.get, profiles=self.profiles)

    def pending(self) -> dict[str, int]:
        """Return the pending_pods gauge: label → pods. Pods that wait for an extender are active."""
        counts = self.queue.counts()
        counts["active"] += self.consultations.held_count()
        return counts

    def is_idle(self) -> bool:
        """Return whether all changes are applied, no pod can be tried, and no binding and no patch is running."""
        return not self.queue.counts()["backoff"] and self._is_quiet(0)

    def is_at_rest(self, since: float, waiting: int = 0) -> bool:
        """Return whether it is idle, but for pods that back off after an error, and for `waiting` bindings.

        Each of these pods was tried after `since`, the last change (`Clock.now()`), and would have the same error again.
        The bindings wait for volumes that are never made.
        """
        return self._is_quiet(waiting) and (not self.queue.counts()["backoff"] or self.queue.all_failed_since(since))

    def _is_quiet(self, waiting: int) -> bool:
        active = self.queue.counts()["active"] + self.queue.in_flight_events().get("PodPopped", 0)
        return len(self.inbox) + active + len(self.patches) + len(self.evictions) == 0 and len(self.binder) <= waiting


_log = structlog.get_logger(__name__)

CACHE_CORRECTED: Final = ClusterEvent(Resource.WILDCARD, ALL, "CacheCorrected")
"""Our own event: the self-audit corrected the cache, so any pod may have been refused wrongly."""
MAX_BINDINGS: Final = 512
"""Attempts pause while this many bindings are running, because a decision should be recent when it is written."""
_PAST_S: Final = 0.001
"""Keeps a timer that fires a little early from firing before its second."""


class _Periodic(Protocol):
    def tick(self) -> None: ...


class SchedulingLoop:
    """The scheduling loop: `run` until `stop`. Tests call `step`.

    Upstream: pkg/scheduler/schedule_one.go ScheduleOne, scheduleOnePod, skipPodSchedule
    """

    def __init__(self, parts: Decisions) -> None:
        self._parts = parts
        self._inbox = parts.inbox
        self._queue = parts.queue
        self._cluster = parts.cluster
        self._clock = parts.shared.clock
        self._consultations = parts.consultations
        self._is_stopping = False
        self._may_pop: Callable[[], bool] = lambda: True
        self.beat = self._clock.now()
        """Time of the last round; /livez reads it."""

    def stop(self) -> None:
        """Pop no further pod. `run` returns after the running attempt, which ends at its next yield."""
        self._is_stopping = True
        self._inbox.wake()

    async def run(self, may_pop: Callable[[], bool] = lambda: True) -> None:
        """Attempt pods as they become ready; let the event loop run about every 5 ms.

        While `may_pop` returns False, changes are applied and no pod is tried: a standby keeps its cache current.
        Wake the inbox when it begins to return True.
        """
        self._may_pop = may_pop
        ticking = asyncio.ensure_future(self._tick())
        try:
            while not self._is_stopping:
                if not await self.step():
                    await self._inbox.wait()
                else:
                    await asyncio.sleep(0)
        finally:
            ticking.cancel()
            self._parts.questions.close()
        self._inbox.apply()

    async def _tick(self) -> None:
        """Wait. Back-offs and flushes are due on whole seconds; only changes end a wait earlier."""
        while True:
            await self._clock.sleep(1.0 - self._clock.now() % 1.0 + _PAST_S)
            self._inbox.wake()

    async def step(self) -> bool:
        """Apply changes, then attempt pods for one turn; return False if there is nothing to do."""
        self._inbox.apply()
        self.beat = began = self._clock.now()
        self._queue.tick()
        self._look_after()
        worked = False
        while not self._is_stopping and self._may_pop() and self._parts.binder.in_flight < MAX_BINDINGS:
            self._run_periodic(self._parts.derived)  # applied changes may decide which pod is next, and nominations
            queued = self._next()
            if queued is None:
                break
            worked = True
            await self._try(queued)
            self._inbox.apply()
            if self._clock.now() - began > TURN_S:
                break
        if self._parts.questions.may_run(is_busy=worked):
            await self._parts.questions.turn()
            worked = True
        elif not worked and self._is_idle() and self._parts.audit.may_run():
            self._parts.audit.turn()
            worked = True
        return worked or bool(len(self._inbox))

    def _is_idle(self) -> bool:
        """Return whether no pod can be tried now, also because this process does not lead."""
        return not (self._may_pop() and self._queue.counts()["active"])

    def _look_after(self) -> None:
        parts = self._parts
        for part in (parts.failures, parts.intake, parts.intake.storage, parts.intake.devices, parts.derived):
            self._run_periodic(part)
        if self._may_pop():  # a standby writes nothing
            self._run_periodic(parts.evictions)
            self._run_periodic(parts.stale)
            self._run_periodic(parts.node_name_pods)

    def _run_periodic(self, part: _Periodic) -> None:
        """Run one part. A part that fails misses one turn and never ends the loop."""
        try:
            part.tick()
        except Exception as error:  # noqa: BLE001 (whatever it is, all pods depend on the loop)
            self._parts.errors.record("timers", error, "periodic work failed", component=type(part).__name__)

    def _next(self) -> QueuedPodInfo | None:
        """Return the next pod to try. While a pod waits for an extender, no back-off is shortened."""
        if self._consultations.is_off:
            return self._queue.pop()
        queued = self._consultations.next()
        return queued if queued is not None else self._queue.pop(early=not self._consultations.holds_pods())

    async def _try(self, queued: QueuedPodInfo) -> None:
        if self._consultations.is_off:
            if not self._is_skipped(queued.info):
                await self._attempt(queued, None)
        elif self._is_skipped(queued.info):
            self._consultations.end(queued.uid)
        elif not self._consultations.holds(queued):
            try:
                await self._attempt(queued, self._consultations.begin(queued))
            except Unanswered as needed:
                self._consultations.call(queued, needed)
            else:
                self._consultations.end(queued.uid)

    async def _attempt(self, queued: QueuedPodInfo, consultation: Consultation | None) -> None:
        """Try the pod and handle the outcome. Raises Unanswered if an answer of an extender is missing."""
        popped_at = self._clock.now() if consultation is None else consultation.began
        pod = queued.info
        try:
            attempt = self._parts.cycle.attempt(pod, queued.attempts, consultation)
            outcome: Outcome | None = None
            while outcome is None:
                try:
                    next(attempt)
                except StopIteration as done:
                    outcome = done.value
                else:
                    with self._inbox.closed():
                        await asyncio.sleep(0)
                    self.beat = self._clock.now()
                    if self._is_stopping:
                        attempt.close()
                        self._queue.done(pod.uid)
                        return
        except Unanswered:
            raise
        except Exception as error:  # noqa: BLE001 (one of the two places: an unforeseen failure costs this pod one attempt)
            self._parts.errors.record("attempt", error, "attempt failed", pod=pod.key)
            record = DecisionRecord(
                pod.key, pod.uid, pod.pod.spec.scheduler_name, queued.attempts, self._clock.wall(), result="error"
            )
            outcome = SchedulingFailed(shortened(repr(error)), record)
        self._parts.records.add(outcome.record)
        self._settle(queued, outcome, popped_at)

    def _settle(self, queued: QueuedPodInfo, outcome: Outcome, popped_at: float) -> None:
        took_s = self._clock.now() - popped_at
        match outcome:
            case Scheduled():
                self._queue.fair_share.clear(outcome.assumed)
                nominated_to = self._queue.nominator.delete(outcome.assumed)
                if nominated_to not in {None, outcome.assumed.node_name}:
                    self._queue.nomination_ended(outcome.assumed)
                self._parts.binder.start(
                    Binding(
                        queued=queued,
                        assumed=outcome.assumed,
                        state=outcome.state,
                        runner=outcome.runner,
                        waits=outcome.waits,
                        record=outcome.record,
                        popped_at=popped_at,
                        decision_version=self._cluster.decision_version(outcome.assumed),
                    )
                )
            case Unschedulable():
                self._charge(queued.info, outcome, took_s)
                if outcome.victims and outcome.nominate:
                    self._parts.evictions.start(queued.info, outcome.nominate, outcome.victims)
                self._parts.stale.unfit(queued.info, outcome.diagnosis)
                nominate = outcome.nominate
                if nominate and not outcome.victims and nominate == self._queue.nominator.derived_node(queued.uid):
                    nominate = None  # a derived nomination is not written
                self._parts.failures.handle_unschedulable(
                    queued, outcome.diagnosis, message=outcome.message, nominate=nominate, took_s=took_s
                )
            case SchedulingFailed():
                self._charge(queued.info, outcome, took_s)
                self._parts.failures.handle_error(queued, message=outcome.message, took_s=took_s)

    def _charge(self, pod: PodInfo, outcome: Unschedulable | SchedulingFailed, took_s: float) -> None:
        """Charge an attempt in vain to the pod's share: a search for victims, or the whole attempt if it took seconds.

        Attempts with extenders are measured without the search for a node, because they mostly wait.
        """
        if self._parts.profiles[pod.pod.spec.scheduler_name].ours.preemption_fair_share != "on":
            return
        if isinstance(outcome, Unschedulable) and outcome.nominate:
            self._queue.fair_share.clear(pod)
            return
        spent_s = outcome.post_filter_s if isinstance(outcome, Unschedulable) else 0.0
        if took_s >= LONG_S and self._consultations.is_off:
            spent_s = took_s
        self._queue.fair_share.charge(pod, spent_s)

    def _is_skipped(self, pod: PodInfo) -> bool:
        """Return whether to skip the pod without an attempt: deleted, assumed or unknown (§3.1 step 2)."""
        name = pod.pod.spec.scheduler_name
        if pod.pod.metadata.deletion_timestamp is not None:
            self._parts.shared.recorder.event(
                pod.pod,
                controller=name,
                type_="Warning",
                reason="FailedScheduling",
                action="Scheduling",
                note=f"skip schedule deleting pod: {pod.key}",
            )
        elif self._cluster.get(pod.uid) is None and name in self._parts.profiles:
            return False
        elif name not in self._parts.profiles:
            _log.error("no profile for a queued pod", pod=pod.key, scheduler=name)
        self._queue.done(pod.uid)
        return True


def shown(
    key: str, records: DecisionRecords, *, waiting: Callable[[str], PodInfo | None], profiles: Mapping[str, Profile]
) -> Mapping[str, Any] | None:
    """Return the answer for the pod `namespace/name`; None if no attempt is recorded."""
    remembered = records.to_dict(key)
    pod = waiting(key)
    if remembered is None or pod is None or pod.pod.spec.scheduler_name not in profiles:
        return remembered
    asked = (plugin for plugin in profiles[pod.pod.spec.scheduler_name].pre_filter if isinstance(plugin, ExplainPlugin))
    facts = {plugin.name: found for plugin in asked if (found := plugin.explain(pod))}
    return {**remembered, "facts": facts} if facts else remembered
