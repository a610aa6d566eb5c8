"""The scheduling loop: apply changes, pop a pod, attempt it, hand the outcome over.

It owns cache and queue: nothing else changes them while it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import structlog

from scheduler.api.pod_group import GroupKey, PodGroup
from scheduler.api.podinfo import PodInfo
from scheduler.audit.self_audit import SelfAudit
from scheduler.binding import Binder
from scheduler.binding_state import Binding, GroupBarrier
from scheduler.context import Shared
from scheduler.controllers.derived_nominations import DerivedNominations
from scheduler.controllers.node_name_pods import NodeNamePods
from scheduler.controllers.stale_volumes import StaleVolumes
from scheduler.core.cooperative import TURN_S, Work
from scheduler.core.decision_record import DecisionRecord, DecisionRecords
from scheduler.core.errors import shortened
from scheduler.cycle import Cycle, Outcome, Scheduled, SchedulingFailed, Unschedulable
from scheduler.eventhandlers.event_handlers import EventHandlers
from scheduler.explain.questions import Questions
from scheduler.extenders.consultations import Consultations
from scheduler.failure import FailureHandler
from scheduler.framework.extender import Consultation, Unanswered
from scheduler.framework.profile import Profile
from scheduler.groups.cycle import GroupCycle
from scheduler.groups.domains import DomainError
from scheduler.groups.incomplete import IncompleteGroups
from scheduler.groups.outcome import GroupOutcome, GroupPreemption
from scheduler.groups.status import GroupStatus
from scheduler.groups.verdicts import GroupVerdicts
from scheduler.preemption import PreemptionExecutor
from scheduler.queue import QueuedPodInfo
from scheduler.queueing.active_queue import LONG_S

T = TypeVar("T")

_log = structlog.get_logger(__name__)

MAX_BINDINGS: Final = 512
"""Attempts pause while this many bindings are running, because a decision should be recent when it is written."""
_PLACED_AT_ONCE: Final = 64
"""Nodes whose devices are looked at between two pauses of an idle loop: about 4 ms for pools of one node each."""
_TAKEN_AT_ONCE: Final = 500
"""Pods of a group that leave the queue between two pauses."""
_PAST_S: Final = 0.001
"""Keeps a timer that fires a little early from firing before its second."""


class _Periodic(Protocol):
    def tick(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SchedulingLoopParts:
    """What the loop drives."""

    shared: Shared
    event_handlers: EventHandlers
    cycle: Cycle
    group_cycle: GroupCycle
    group_verdicts: GroupVerdicts
    group_status: GroupStatus
    incomplete_groups: IncompleteGroups
    consultations: Consultations
    binder: Binder
    failures: FailureHandler
    evictions: PreemptionExecutor
    derived: DerivedNominations
    stale: StaleVolumes
    node_name_pods: NodeNamePods
    questions: Questions
    audit: SelfAudit
    records: DecisionRecords
    profiles: Mapping[str, Profile]
    """By scheduler name."""


class SchedulingLoop:
    """The scheduling loop: `run` until `stop`. Tests call `step`.

    Upstream: pkg/scheduler/schedule_one.go ScheduleOne, scheduleOnePod, skipPodSchedule
    """

    def __init__(self, parts: SchedulingLoopParts) -> None:
        self._parts = parts
        self._inbox = parts.shared.inbox
        self._queue = parts.shared.queue
        self._cluster = parts.shared.cluster
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
        # What the watches brought comes first, and then what is due: a decision reads the newest state.
        await self._apply()
        self.beat = began = self._clock.now()
        while self._queue.tick():
            began = await self._pause(began)
        self._look_after()
        worked = False
        while not self._is_stopping and self._may_pop() and self._parts.binder.in_flight < MAX_BINDINGS:
            self._run_periodic(self._parts.derived)  # applied changes may decide which pod is next, and nominations
            queued = self._next()
            if queued is None:
                break
            worked = True
            await self._try(queued)
            # Changes that arrived during the attempt may concern the next pod.
            await self._apply()
            if self._clock.now() - began > TURN_S:
                break
        # Questions get a share of a busy loop's time. The rest runs only in idle time.
        if self._parts.questions.may_run(is_busy=worked):
            await self._parts.questions.turn()
            worked = True
        elif not worked and self._is_idle():
            worked = self._works_ahead() or self._audits()
        return worked or bool(len(self._inbox))

    def _works_ahead(self) -> bool:
        """Do a part of what the next pod with devices would wait for; return whether some is left."""
        on_nodes = self._cluster.devices.on_nodes
        return bool(self._unfailing(on_nodes, lambda: on_nodes.work_ahead(_PLACED_AT_ONCE)))

    def _audits(self) -> bool:
        """Take one turn of the self-audit if it may run; return whether it did."""
        if not self._parts.audit.may_run():
            return False
        self._parts.audit.turn()
        return True

    async def _apply(self) -> None:
        """Apply the changes that have arrived, and move the pods that they wake, also thousands, in turns of some milliseconds."""
        await self._inbox.apply_paced(self._clock)
        began = self._clock.now()
        while self._queue.move_woken():
            began = await self._pause(began)

    def _is_idle(self) -> bool:
        """Return whether no pod can be tried now, also because this process does not lead."""
        return not (self._may_pop() and self._queue.counts()["active"])

    def _look_after(self) -> None:
        parts = self._parts
        parts.incomplete_groups.may_report = self._may_pop()
        for part in (
            parts.failures,
            parts.event_handlers,
            parts.event_handlers.storage,
            parts.event_handlers.devices,
            parts.derived,
            parts.incomplete_groups,
        ):
            self._run_periodic(part)
        if self._may_pop():  # a standby writes nothing
            self._run_periodic(parts.evictions)
            self._run_periodic(parts.stale)
            self._run_periodic(parts.node_name_pods)

    def _run_periodic(self, part: _Periodic) -> None:
        """Run one part. A part that fails misses one turn and never ends the loop."""
        self._unfailing(part, part.tick)

    def _unfailing(self, part: object, work: Callable[[], T]) -> T | None:
        """Return what the work returns; record its failure and return None."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 (whatever it is, all pods depend on the loop)
            self._parts.shared.errors.record("timers", error, "periodic work failed", component=type(part).__name__)
            return None

    def _next(self) -> QueuedPodInfo | None:
        """Return the next pod to try. While a pod waits for an extender, no back-off is shortened."""
        if self._consultations.is_off:
            return self._queue.pop()
        queued = self._consultations.next()
        return queued if queued is not None else self._queue.pop(early=not self._consultations.holds_pods())

    async def _try(self, queued: QueuedPodInfo) -> None:
        group = self._group(queued.info)
        if group is not None and (self._is_skipped(queued.info) or await self._try_group(queued, group)):
            self._consultations.end(queued.uid)
            return
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

    async def _try_group(self, queued: QueuedPodInfo, group: GroupKey) -> bool:
        """Try the pod with the pods of its group. Return False if it is to be tried alone, because the group has started."""
        verdicts, popped_at = self._parts.group_verdicts, self._clock.now()
        if not self._cluster.pod_groups.is_complete(group):
            self._queue.put_back(queued)  # it was complete when the pod entered the queue
            return True
        least, is_start = verdicts.next_attempt(group)
        if not least:
            return False
        others = [
            uid for pod in self._cluster.pod_groups.members(group).values() if (uid := pod.metadata.uid) != queued.uid
        ]
        if is_start and (late := self._queue.last_after_error(others)) is not None:
            # One pod that another event brings back must not shorten the back-off of a group that fails again and again.
            self._queue.put_back(queued, like=late)
            return True
        tried = [queued]
        for at in range(0, len(others), _TAKEN_AT_ONCE):
            tried += (
                mate for mate in self._queue.take(others[at : at + _TAKEN_AT_ONCE]) if not self._is_skipped(mate.info)
            )
            await self._pause(popped_at)
        members = sorted(tried, key=lambda each: each.order)
        await self._pause(popped_at)
        found = verdicts.refusal(group, members) or await self._search(group, members, least)
        if found is None:
            for each in members:
                self._queue.done(each.uid)
            return True
        turn = await self._pause(popped_at)
        self._report(group, members, found, popped_at)
        if found.is_placed and is_start:
            self._parts.binder.barriers.hold(group, least)
        preemption = found.preemption if found.preemption is not None and found.preemption.victims else None
        if preemption is not None:
            self._evict_for(group, members, preemption)
        elif found.result == "unschedulable":
            for plugin in self._parts.profiles[queued.profile].group_reserve:
                plugin.release_group([each.info for each in members])
        spent_s = turn - popped_at
        for each, outcome in verdicts.verdicts(group, members, found):
            self._charge_member(each, found, spent_s)
            self._parts.records.add(outcome.record)
            self._settle(each, outcome, popped_at, evicts=preemption is not None)
            turn = await self._pause(turn)
        return True

    async def _pause(self, since: float) -> float:
        """Let the event loop run if this time is some milliseconds ago, without any change of the cache; return the time then."""
        if self._clock.now() - since <= TURN_S:
            return since
        with self._inbox.closed():
            await asyncio.sleep(0)
        return self._clock.now()

    def _evict_for(self, group: GroupKey, members: Sequence[QueuedPodInfo], found: GroupPreemption) -> None:
        """Begin to evict all victims of the group, in the name of one of its pods; until the end none of them is tried."""
        placed = {each.uid: (each.info, found.nodes[each.uid]) for each in members if each.uid in found.nodes}
        preemptor, node_name = placed.pop(found.preemptor)
        self._parts.evictions.start(preemptor, node_name, found.victims, group, tuple(placed.values()))

    async def _search(self, group: GroupKey, members: Sequence[QueuedPodInfo], least: int) -> GroupOutcome | None:
        """Try to place at least this number of the pods. Return None if the scheduler is stopping."""
        verdicts = self._parts.group_verdicts
        try:
            domains = verdicts.domains(group, members, least)
            if domains == []:
                return verdicts.without_domain(members)
            preferred = verdicts.preferred(group, members, domains)
            return await self._driven(self._parts.group_cycle.attempt(members, least, domains, preferred))
        except DomainError as error:
            return verdicts.failed(members, str(error), group=group)
        except Exception as error:  # noqa: BLE001 (as for one pod: an unforeseen failure costs the group one attempt)
            self._parts.shared.errors.record("attempt", error, "attempt failed", pod=members[0].info.key)
            return verdicts.failed(members, shortened(repr(error)))

    def _report(self, group: GroupKey, members: Sequence[QueuedPodInfo], found: GroupOutcome, popped_at: float) -> None:
        profile, took_s = members[0].profile, self._clock.now() - popped_at
        reason, message = self._parts.group_verdicts.summary(group, members, found)
        self._parts.shared.metrics.group_attempt(found.result, profile, took_s)
        if (shown := self._cluster.pod_groups.get(group)) is not None:
            self._parts.group_status.report(shown, controller=profile, reason=reason, message=message)

    def _report_basic(self, pod: PodInfo, outcome: Outcome) -> None:
        """Write the condition of the pod's group if its pods are placed one by one."""
        group, verdicts, status = self._group(pod), self._parts.group_verdicts, self._parts.group_status
        wanted = self._cluster.pod_groups.get(group) if group is not None else None
        if group is None or not isinstance(wanted, PodGroup) or wanted.is_gang:
            return
        reason, message = verdicts.of_basic(outcome)
        # A refused pod says nothing about a group that has started; the watch may not show yet that it has.
        is_refused = not isinstance(outcome, Scheduled)
        if status.is_news(wanted, reason, message) and not (is_refused and verdicts.has_started(group)):
            status.submit(wanted, reason, message)

    async def _driven(self, work: Work[T]) -> T | None:
        """Run an attempt to its end, and return its result; None if the scheduler stops before."""
        while True:
            try:
                next(work)
            except StopIteration as done:
                found: T = done.value
                return found
            # The event loop runs now: watches and Bindings go on, and their changes wait until the attempt ends.
            with self._inbox.closed():
                await asyncio.sleep(0)
            self.beat = self._clock.now()
            if self._is_stopping:
                work.close()
                return None

    async def _attempt(self, queued: QueuedPodInfo, consultation: Consultation | None) -> None:
        """Try the pod and handle the outcome. Raises Unanswered if an answer of an extender is missing."""
        popped_at = self._clock.now() if consultation is None else consultation.began
        pod = queued.info
        try:
            outcome: Outcome | None = await self._driven(self._parts.cycle.attempt(pod, queued.attempts, consultation))
            if outcome is None:
                self._queue.done(pod.uid)
                return
        except Unanswered:
            raise  # no failure: the extenders are called, and the attempt starts again with their answers
        except Exception as error:  # noqa: BLE001 (one of the two places: an unforeseen failure costs this pod one attempt)
            self._parts.shared.errors.record("attempt", error, "attempt failed", pod=pod.key)
            record = DecisionRecord(
                pod.key, pod.uid, pod.pod.spec.scheduler_name, queued.attempts, self._clock.wall(), result="error"
            )
            outcome = SchedulingFailed(shortened(repr(error)), record)
        self._parts.records.add(outcome.record)
        self._report_basic(pod, outcome)
        if not isinstance(outcome, Scheduled):
            self._charge(pod, outcome, self._clock.now() - popped_at)
        self._settle(queued, outcome, popped_at)

    def _settle(self, queued: QueuedPodInfo, outcome: Outcome, popped_at: float, *, evicts: bool = False) -> None:
        """Carry out the outcome of an attempt. `evicts`: pods are being evicted for the group of the pod."""
        took_s = self._clock.now() - popped_at
        match outcome:
            case Scheduled():
                self._queue.fair_share.clear(outcome.assumed)
                # The pod holds its node by assumption now. A nomination to another node ends, and that node is free for other pods.
                nominated_to = self._queue.nominator.delete(outcome.assumed)
                if nominated_to is not None and nominated_to != outcome.assumed.node_name:
                    self._queue.nomination_ended(outcome.assumed, nominated_to)
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
                        barrier=self._barrier(outcome.assumed),
                    )
                )
            case Unschedulable():
                # Evictions are written in the background. The nomination reserves the freed resources for this pod until then.
                if outcome.victims and outcome.nominate:
                    self._parts.evictions.start(queued.info, outcome.nominate, outcome.victims)
                if outcome.diagnosis.node_count:  # otherwise no node has refused the pod
                    self._parts.stale.unfit(queued.info, outcome.diagnosis)
                nominate, evicts = outcome.nominate, evicts or bool(outcome.victims)
                if nominate and not evicts and nominate == self._queue.nominator.derived_node(queued.uid):
                    nominate = None  # a derived nomination is not written, unless evictions wait for it
                self._parts.failures.handle_unschedulable(
                    queued, outcome.diagnosis, message=outcome.message, nominate=nominate, took_s=took_s
                )
            case SchedulingFailed():
                self._parts.failures.handle_error(queued, message=outcome.message, took_s=took_s)

    def _barrier(self, pod: PodInfo) -> GroupBarrier | None:
        """Return what the pods of the pod's group wait for on their way to their nodes; None for a pod without such mates."""
        group = self._group(pod)
        return self._parts.binder.barriers.closed(group) if group is not None else None

    def _group(self, pod: PodInfo) -> GroupKey | None:
        """Return the group with which the pod is placed; None if it is placed alone."""
        group = self._cluster.pod_groups.of(pod.pod)
        profile = self._parts.profiles.get(pod.pod.spec.scheduler_name) if group is not None else None
        return group if profile is not None and profile.starts_groups else None

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

    def _charge_member(self, queued: QueuedPodInfo, found: GroupOutcome, spent_s: float) -> None:
        """Charge an attempt of a group to the share of one of its pods, unless the group starts or has victims."""
        if found.is_placed or (found.preemption is not None and found.preemption.nodes):
            self._queue.fair_share.clear(queued.info)
        elif self._parts.profiles[queued.profile].ours.preemption_fair_share == "on":
            self._queue.fair_share.charge(queued.info, spent_s)

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
