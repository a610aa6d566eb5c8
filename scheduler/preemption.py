"""Carry out preemptions: nominate, evict, and let the preemptor try again (docs/spec/core.md §3.10 step 5).

Runs in the background, as upstream; a PostFilter plugin made the decision. Two steps differ. The nomination is
written before the first eviction, so that a restart knows whose capacity it is. Right before each DELETE the plan is
checked again, so that no pod is evicted for a preemptor that is deleted or bound. Changes of cache and queue go
through the inbox.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from scheduler.api.apps_and_policy import DISRUPTION_TARGET, preempted_by
from scheduler.api.podinfo import PodInfo
from scheduler.binding import Binder
from scheduler.config.document import format_duration
from scheduler.context import Shared
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Fenced, Invalid, NotFound, TooManyRequests, Unavailable
from scheduler.core.retry import BusyRetry, Retry
from scheduler.failure import FailureHandler, verdict_of
from scheduler.framework.preemption_state import Preempting
from scheduler.framework.profile import Profile
from scheduler.framework.wait import ended_within, settle

_log = structlog.get_logger(__name__)

PLUGIN: Final = "DefaultPreemption"
EVICTIONS_IN_FLIGHT: Final = 64
_ANSWER_S: Final = 10.0
"""Time for the answer of a write in flight on shutdown."""


class _PlanInvalid(Exception):
    """The plan is no longer valid: no further pod is evicted for it."""


class _Ending(enum.Enum):
    """How a preemption ended, and what the preemptor does."""

    DONE = "success"
    """The end of its victims wakes it."""
    OFF = "given up"
    """It looks for another way at once."""
    FAILED = "error"
    """It tries again after a back-off."""


@dataclass(slots=True, eq=False)
class _Plan:
    """One running preemption."""

    preemptor: PodInfo
    node_name: str
    victims: list[PodInfo]
    has_failed: bool = False
    """Whether an eviction failed: further evictions would be in vain."""
    evicted_count: int = 0
    """Number of evicted pods; the rest left by itself."""

    @property
    def victim_uids(self) -> list[str]:
        return [victim.uid for victim in self.victims]


class PreemptionExecutor:
    """Run preemptions. The scheduling loop starts them.

    Upstream: pkg/scheduler/framework/preemption/executor.go Executor
    """

    def __init__(
        self,
        shared: Shared,
        failures: FailureHandler,
        binder: Binder,
        preempting: Preempting,
        *,
        profiles: Mapping[str, Profile],
    ) -> None:
        """Create the executor. `profiles` are by scheduler name."""
        self._cluster = shared.cluster
        self._queue = shared.queue
        self._inbox = shared.inbox
        self._pending = shared.pending
        self._writer = shared.writer
        self._recorder = shared.recorder
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._failures = failures
        self._errors = shared.errors
        self._binder = binder
        self._preempting = preempting
        self._profiles = profiles
        self._eviction_slots = asyncio.Semaphore(EVICTIONS_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._plans: dict[str, _Plan] = {}
        """The newest plan of each preemptor, by its uid."""
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._tasks)

    def tick(self) -> None:
        """Wake pods for which a node is no longer excluded from preemption: no event of the cluster would."""
        for uid in self._preempting.included_again(self._clock.now()):
            queued = self._queue.record_of(uid)
            if queued is not None:
                self._queue.activate([queued.info])

    def snapshot(self) -> set[str]:
        """Return the uids of preemptors and victims of which any state is kept."""
        return {*self._plans, *self._preempting.snapshot()}

    def start(self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Evict the victims in the background. Until then the preemptor is held back.

        Call it right before the pod returns to the queue with its nomination: PreEnqueue must know of it, and nothing
        happens before the event loop runs again.
        """
        remaining = [victim for victim in victims if not self._is_leaving(victim)]
        if not remaining:
            return  # all are terminating already, and their end wakes the preemptor
        others = sum(victim.pod.spec.scheduler_name not in self._profiles for victim in remaining)
        self._metrics.preempted(len(victims), others=others)
        plan = _Plan(preemptor, node_name, remaining)
        before = self._plans.get(preemptor.uid)
        if before is not None:
            self._preempting.end(preemptor.uid, before.victim_uids)
        self._plans[preemptor.uid] = plan
        self._preempting.begin(preemptor.uid, plan.victim_uids)
        task = asyncio.create_task(self._run(plan))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, limit_s: float) -> int:
        """Let preemptions finish, because half of one evicts pods in vain. After `limit_s` no further pod is evicted.

        Returns how many were cut short. Waits for answers to sent writes, some more seconds at most.
        """
        await ended_within(self._tasks, limit_s, self._clock)
        self._is_stopping = True
        unfinished = len(self._tasks)
        await ended_within(self._tasks, _ANSWER_S, self._clock)
        return unfinished

    def _is_leaving(self, pod: PodInfo) -> bool:
        is_deleted = pod.pod.metadata.deletion_timestamp is not None or self._preempting.is_doomed(pod.uid)
        return is_deleted or self._binder.gives_way(pod.uid)

    # -- one preemption --------------------------------------------------------------------------------------------------

    async def _run(self, plan: _Plan) -> None:
        began = self._clock.now()
        end = _Ending.FAILED
        names = {"preemptor": plan.preemptor.key, "node": plan.node_name}
        try:
            end = await self._evict_all(plan)
        except _PlanInvalid as off:
            end = _Ending.OFF
            _log.info("preemption given up", **names, why=str(off))
        except ApiError as error:
            if not isinstance(error, Fenced) and self._preempting.is_news(plan.preemptor.uid, error.message):
                _log.warning("preemption failed", **names, error=error.message)
        except Exception as error:  # noqa: BLE001 (an unforeseen failure costs this preemption, and the pod must not wait forever)
            self._errors.record("preemption", error, "preemption failed", pod=plan.preemptor.key)
        finally:
            self._metrics.preemption_done("success" if end is _Ending.DONE else "error", self._clock.now() - began)
            self._inbox.put(partial(self._ended, plan, end))

    def _ended(self, plan: _Plan, end: _Ending) -> None:
        preemptor = plan.preemptor
        if self._plans.get(preemptor.uid) is not plan:
            return
        del self._plans[preemptor.uid]
        self._preempting.end(preemptor.uid, plan.victim_uids)
        if not self._is_pending(preemptor):
            self._preempting.forget(preemptor.uid)  # again: what was recorded since
            return
        match end:
            case _Ending.DONE:
                self._preempting.is_news(preemptor.uid, "")
                if plan.evicted_count:
                    self._count_evictions(plan)
                self._queue.reconsider(preemptor)  # it got no events while it was held back
            case _Ending.OFF:  # possibly no event would wake it
                self._queue.activate([preemptor])
            case _Ending.FAILED:
                self._queue.retry(preemptor)

    async def _evict_all(self, plan: _Plan) -> _Ending:
        is_written = await self._failures.written(plan.preemptor, plan.node_name)
        await self._inbox.caught_up()
        self._check(plan)
        if not is_written:
            return _Ending.FAILED  # the reason was logged already
        self._inbox.put(partial(self._clear_lower_nominations, plan))
        *first, last = plan.victims
        answers = await asyncio.gather(*(self._evict(plan, victim) for victim in first), return_exceptions=True)
        errors = [answer for answer in answers if answer is not None]
        if errors:
            raise min(
                errors, key=lambda error: isinstance(error, _PlanInvalid)
            )  # the cause rather than its consequence
        await self._inbox.caught_up()
        self._check(plan)
        self._preempting.last(plan.preemptor.uid, last.uid)
        await self._evict(plan, last)
        return _Ending.DONE

    def _is_pending(self, preemptor: PodInfo) -> bool:
        newest = self._pending.get(preemptor.key)
        return newest is not None and newest.uid == preemptor.uid and newest.pod.metadata.deletion_timestamp is None

    def _check(self, plan: _Plan) -> None:
        """Raise _Off if the plan is no longer useful, or belongs to another pod."""
        why = ""
        if plan.has_failed:
            why = "another victim could not be evicted"
        elif self._is_stopping:
            why = "the scheduler is stopping"
        elif not self._is_pending(plan.preemptor):
            why = "the preemptor has gone or is bound"
        elif self._plans.get(plan.preemptor.uid) is not plan:
            why = "there is a newer plan for the preemptor"
        elif self._cluster.nodes.present_slot(plan.node_name) is None:
            why = "the node has gone"
        elif self._queue.nominator.node_of(plan.preemptor.uid) != plan.node_name:
            why = "the preemptor was nominated elsewhere"
        if why:
            raise _PlanInvalid(why)

    async def _current_victim(self, plan: _Plan, victim: PodInfo) -> PodInfo | None:
        """Return the current state of the victim; None if it is gone or terminating. Raises _Off as `_check` does."""
        await self._inbox.caught_up()
        current = self._cluster.get(victim.uid)
        if current is None or current.node_name != plan.node_name or self._is_leaving(current):
            return None
        self._check(plan)
        return current

    # -- one victim ------------------------------------------------------------------------------------------------------

    async def _evict(self, plan: _Plan, victim: PodInfo) -> None:
        async with self._eviction_slots:
            try:
                await self._evict_one(plan, victim)
            except BaseException:
                plan.has_failed = True
                raise

    async def _evict_one(self, plan: _Plan, victim: PodInfo) -> None:
        current, preemptor = await self._current_victim(plan, victim), plan.preemptor
        if current is None:
            return
        note = f"Preempted by pod {preemptor.uid} on node {plan.node_name}"
        if self._binder.preempt(current.uid, PLUGIN):
            note += " (in kube-scheduler memory)."
        else:
            is_done = await self._report(plan, current) and await self._delete(plan, current)
            self._inbox.catch_up()
            if (
                self._cluster.get(current.uid) is not None
            ):  # otherwise the watch was faster, and nothing would remove the entry
                self._preempting.doom(current.uid)
            if not is_done:
                return
        plan.evicted_count += 1
        self._recorder.event(
            current.pod,
            controller=preemptor.pod.spec.scheduler_name,
            type_="Normal",
            reason="Preempted",
            action="Preempting",
            note=note,
            related=preemptor.pod,
        )
        _log.info("pod preempted", victim=current.key, node=plan.node_name, preemptor=preemptor.key)

    async def _report(self, plan: _Plan, victim: PodInfo) -> bool:
        """Write the victim's condition and event. Returns False if it is already gone."""
        pod = victim.pod
        condition = preempted_by(plan.preemptor.pod.spec.scheduler_name, pod.metadata.generation)
        if verdict_of(pod.condition(DISRUPTION_TARGET)) == verdict_of(condition):
            return True
        try:
            await settle(self._writer.patch_pod_status(pod, condition=condition, nominated_node_name=None))
        except (NotFound, Conflict, Invalid):
            if await self._is_there(victim):
                raise
            return False
        return True

    async def _delete(self, plan: _Plan, victim: PodInfo) -> bool:
        """Delete the victim gracefully, and check the plan after each wait; return False if it is already gone."""
        is_lost, busy = False, BusyRetry(self._clock)
        failing = Retry(self._clock, first_s=0.01, factor=5.0, tries=4)
        while True:
            await self._writer.turn()
            if await self._current_victim(plan, victim) is None:
                return is_lost
            try:
                await settle(self._writer.delete_pod(victim.pod))
            except (NotFound, Conflict):
                if await self._is_there(victim):
                    raise
                return is_lost
            except TooManyRequests as error:
                await busy.wait(error)
            except (Ambiguous, Unavailable) as error:
                is_lost |= isinstance(error, Ambiguous)
                await failing.pause(error)
            else:
                return True

    async def _is_there(self, victim: PodInfo) -> bool:
        """Return whether the API server has this pod, not another one of its name."""
        newest = await self._writer.read_pod(victim.pod.metadata.namespace, victim.pod.metadata.name)
        return newest is not None and newest.metadata.uid == victim.uid

    # -- changes, applied by the inbox -----------------------------------------------------------------------------------

    def _clear_lower_nominations(self, plan: _Plan) -> None:
        """Let pods of lower priority with a nomination to this node look for another node at once."""
        if self._queue.nominator.node_of(plan.preemptor.uid) != plan.node_name:
            return
        for other in self._queue.nominator.for_node(plan.node_name):
            if other.priority < plan.preemptor.priority and self._is_pending(other):
                newest = self._pending.get(other.key) or other
                self._failures.clear_nomination(newest)
                self._queue.activate([newest])

    def _count_evictions(self, plan: _Plan) -> None:
        preemptor = plan.preemptor
        excluded_s = self._preempting.victims_evicted(preemptor.uid, plan.node_name, self._clock.now())
        if not excluded_s:
            return
        self._metrics.preemption_lost()
        if self._profiles[preemptor.pod.spec.scheduler_name].ours.parity:
            return  # no node is excluded
        self._recorder.event(
            preemptor.pod,
            controller=preemptor.pod.spec.scheduler_name,
            type_="Warning",
            reason="PreemptionLost",
            action="Preempting",
            note=f"capacity freed on node {plan.node_name} was taken by other pods repeatedly; after the next loss "
            f"the node is excluded for {format_duration(excluded_s)}",
        )
