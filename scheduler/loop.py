"""The scheduling loop: apply what arrived, pop, attempt, hand over. The single owner of cache and queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from scheduler.binding import Binder
from scheduler.core.podinfo import PodInfo
from scheduler.core.records import DecisionRecord
from scheduler.core.text import shortened
from scheduler.core.turns import TURN_S
from scheduler.cycle import Broke, Cycle, Outcome, Placed, Unfit
from scheduler.derived import DerivedNominations
from scheduler.failure import Failures
from scheduler.framework.profile import Profile
from scheduler.insight.records import DecisionRecords
from scheduler.intake import Intake
from scheduler.nodenamepods import NodeNamePods
from scheduler.preemption import Evictions
from scheduler.queue import QueuedPod
from scheduler.shared import Shared
from scheduler.stale import StaleVolumes
from scheduler.underway import Binding

_log = structlog.get_logger(__name__)

MAX_BINDINGS: Final = 512
"""Attempts pause while this many bindings are under way: a decision should be young when it is written."""
_PAST_S: Final = 0.001
"""So that a timer that fires a little early does not come before its second."""


def _always() -> bool:
    return True


class SchedulingLoop:
    """`run` until `stop`. Every collaborator comes by constructor; tests drive `step`."""

    def __init__(  # noqa: PLR0913 (each by its name)
        self,
        shared: Shared,
        cycle: Cycle,
        *,
        binder: Binder,
        failures: Failures,
        evictions: Evictions,
        profiles: Mapping[str, Profile],
        records: DecisionRecords,
        intake: Intake,
        stale: StaleVolumes,
        node_name_pods: NodeNamePods,
        derived: DerivedNominations,
    ) -> None:
        self._intake = intake
        self._stale = stale
        self._node_name_pods = node_name_pods
        self._derived = derived
        self._inbox = shared.inbox
        self._queue = shared.queue
        self._cluster = shared.cluster
        self._recorder = shared.recorder
        self._clock = shared.clock
        self._cycle = cycle
        self._binder = binder
        self._failures = failures
        self._errors = shared.errors
        self._evictions = evictions
        self._profiles = profiles
        self._records = records
        self._is_stopping = False
        self._may_pop: Callable[[], bool] = _always
        self.beat = self._clock.now()
        """When the loop last came around; /livez reads it."""

    def stop(self) -> None:
        """Pop nothing more; `run` returns after the attempt under way, which ends where it gives the next turn."""
        self._is_stopping = True
        self._inbox.wake()

    async def run(self, may_pop: Callable[[], bool] = _always) -> None:
        """Attempt pods as they become ready, giving the event loop a turn at least every 5 ms or so.

        While `may_pop` says no, what arrives is applied as always and no pod is tried: a standby stays warm. Wake the
        inbox when it begins to say yes.
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
        self._inbox.apply()

    async def _tick(self) -> None:
        """Back-offs and flushes fall due on whole seconds; between them only news ends a wait."""
        while True:
            await self._clock.sleep(1.0 - self._clock.now() % 1.0 + _PAST_S)
            self._inbox.wake()

    async def step(self) -> bool:
        """Apply what arrived, then attempt pods for one turn; False when there is nothing to do now."""
        self._inbox.apply()
        self.beat = began = self._clock.now()
        self._queue.tick()
        self._look_after()
        worked = False
        while not self._is_stopping and self._may_pop() and self._binder.in_flight < MAX_BINDINGS:
            self._derive()
            queued = self._queue.pop()
            if queued is None:
                break
            worked = True
            await self._try(queued)
            self._inbox.apply()
            if self._clock.now() - began > TURN_S:
                break
        return worked or bool(len(self._inbox))

    def _look_after(self) -> None:
        """What falls due beside pods. A part that fails costs itself one turn, never the loop."""
        for part in (
            self._failures,
            self._intake,
            self._intake.storage,
            self._intake.devices,
            self._derived,
            self._stale,
            self._node_name_pods,
        ):
            try:
                if part not in {self._stale, self._node_name_pods} or self._may_pop():  # a standby writes nothing
                    part.tick()
            except Exception as error:  # noqa: BLE001 (whatever it is, all pods depend on the loop)
                self._errors.record("timers", error, "periodic work failed", component=type(part).__name__)

    def _derive(self) -> None:
        """What was applied since the last attempt may decide which pod is next, and where others are nominated."""
        try:
            self._derived.tick()
        except Exception as error:  # noqa: BLE001 (as above)
            self._errors.record("timers", error, "periodic work failed", component=type(self._derived).__name__)

    async def _try(self, queued: QueuedPod) -> None:
        popped_at = self._clock.now()
        pod = queued.info
        if self._is_skipped(pod):
            return
        try:
            attempt = self._cycle.attempt(pod, queued.attempts)
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
        except Exception as error:  # noqa: BLE001 (one of the two places: an unforeseen failure costs this pod one attempt)
            self._errors.record("attempt", error, "attempt failed", pod=pod.key)
            record = DecisionRecord(
                pod.key, pod.uid, pod.pod.spec.scheduler_name, queued.attempts, self._clock.wall(), result="error"
            )
            outcome = Broke(shortened(repr(error)), record)
        self._records.add(outcome.record)
        self._settle(queued, outcome, popped_at)

    def _settle(self, queued: QueuedPod, outcome: Outcome, popped_at: float) -> None:
        took_s = self._clock.now() - popped_at
        match outcome:
            case Placed():
                self._queue.fair_share.clear(outcome.assumed)
                nominated_to = self._queue.nominator.delete(outcome.assumed)
                if nominated_to not in {None, outcome.assumed.node_name}:
                    self._queue.nomination_ended(outcome.assumed)
                self._binder.start(
                    Binding(
                        queued=queued,
                        assumed=outcome.assumed,
                        state=outcome.state,
                        runner=outcome.runner,
                        waits=outcome.waits,
                        record=outcome.record,
                        popped_at=popped_at,
                        outlook=self._cluster.outlook(outcome.assumed),
                    )
                )
            case Unfit():
                self._charge(queued.info, outcome)
                if outcome.victims and outcome.nominate:
                    self._evictions.start(queued.info, outcome.nominate, outcome.victims)
                self._stale.unfit(queued.info, outcome.diagnosis)
                nominate = outcome.nominate
                if nominate and not outcome.victims and nominate == self._queue.nominator.derived_node(queued.uid):
                    nominate = None  # a derived nomination is not written
                self._failures.unfit(
                    queued, outcome.diagnosis, message=outcome.message, nominate=nominate, took_s=took_s
                )
            case Broke():
                self._failures.error(queued, message=outcome.message, took_s=took_s)

    def _charge(self, pod: PodInfo, outcome: Unfit) -> None:
        """A search for victims counts against the pod's share only if it found nothing."""
        if self._profiles[pod.pod.spec.scheduler_name].ours.preemption_fair_share != "on":
            return
        if outcome.nominate:
            self._queue.fair_share.clear(pod)
        else:
            self._queue.fair_share.charge(pod, outcome.post_filter_s)

    def _is_skipped(self, pod: PodInfo) -> bool:
        """§3.1 step 2: deleted, assumed or unknown pods are dropped without an attempt."""
        name = pod.pod.spec.scheduler_name
        if pod.pod.metadata.deletion_timestamp is not None:
            self._recorder.event(
                pod.pod,
                controller=name,
                type_="Warning",
                reason="FailedScheduling",
                action="Scheduling",
                note=f"skip schedule deleting pod: {pod.key}",
            )
        elif self._cluster.get(pod.uid) is None and name in self._profiles:
            return False
        elif name not in self._profiles:
            _log.error("no profile for a queued pod", pod=pod.key, scheduler=name)
        self._queue.done(pod.uid)
        return True
