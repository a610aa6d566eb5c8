"""Carry out preemptions: nominate, evict, and let the preemptor try again (docs/spec/core.md §3.10 step 5).

A worked example. PostFilter has decided that pod p shall run on n1 in place of v0 and v1:

    1. start(p, "n1", [v0, v1])                  p is held back; v0 and v1 count as pods that leave
    2. PATCH status of p: nominated to n1        a restarted scheduler knows whose capacity it is; for a group, of all its pods
    3. PATCH status of v0, DELETE v0             all victims but the last one, concurrently
    4. check: p waits, n1 exists, p is nominated there; otherwise v1 is not evicted
    5. PATCH status of v1, DELETE v1             p may be tried again
    6. the watch shows that v1 is gone           the event wakes p, which fits on n1

Runs in the background, as upstream; a PostFilter plugin made the decision. Steps 2 and 4 differ from upstream. Changes
of cache and queue go through the inbox.
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
from scheduler.api.pod_group import GroupKey
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
    """They are on this node, or on several nodes if the plan is that of a group."""
    group: GroupKey | None = None
    mates: Sequence[tuple[PodInfo, str]] = ()
    """The other pods of the group that fit once the victims have left, each with its node."""
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

    def start(
        self,
        preemptor: PodInfo,
        node_name: str,
        victims: Sequence[PodInfo],
        group: GroupKey | None = None,
        mates: Sequence[tuple[PodInfo, str]] = (),
    ) -> None:
        """Evict the victims in the background. Until then the preemptor is held back, or the group if this is done for it.

        No victim is touched before the preemptor and the mates are nominated to their nodes on the server.

        Call it right before the pods return to the queue with their nominations, in the same attempt: PreEnqueue must
        know of it, and no victim is touched before the attempt ends.
        """
        # A pod that is terminating already needs no eviction. A plan needs at least one victim, because the eviction
        # of the last one ends it.
        remaining = [victim for victim in victims if not self._is_leaving(victim)]
        if not remaining:
            return  # all are terminating already, and their end wakes the preemptor
        others = sum(victim.pod.spec.scheduler_name not in self._profiles for victim in remaining)
        self._metrics.preempted(len(victims), others=others)
        plan = _Plan(preemptor, node_name, remaining, group, mates)
        # The preemptor may have been tried again, for instance after a change of its node. The older task finds in
        # `_check` that its plan was replaced, and evicts no further pod.
        before = self._plans.get(preemptor.uid)
        if before is not None:
            self._preempting.end(preemptor.uid, before.victim_uids)
        self._plans[preemptor.uid] = plan
        self._preempting.begin(preemptor.uid, plan.victim_uids, group)
        task = asyncio.create_task(self._run(plan))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, limit_s: float) -> int:
        """Let preemptions finish, because half of one evicts pods in vain. After `limit_s` no further pod is evicted.

        Returns how many were cut short. Waits for answers to sent writes, some more seconds at most.
        """
        # Half of a preemption has evicted pods without a benefit, so running ones may finish. After the limit
        # `_check` stops each one before its next DELETE.
        await ended_within(self._tasks, limit_s, self._clock)
        self._is_stopping = True
        cut_short = len(self._tasks)
        await ended_within(self._tasks, _ANSWER_S, self._clock)
        return cut_short

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
            # After a loss of the lease, another replica decides, and a warning would mislead. An error that repeats
            # for one preemptor is logged once.
            if not isinstance(error, Fenced) and self._preempting.is_news(plan.preemptor.uid, error.message):
                _log.warning("preemption failed", **names, error=error.message)
        except Exception as error:  # noqa: BLE001 (an unforeseen failure costs this preemption, and the pod must not wait forever)
            self._errors.record("preemption", error, "preemption failed", pod=plan.preemptor.key)
        finally:
            self._metrics.preemption_done("success" if end is _Ending.DONE else "error", self._clock.now() - began)
            # The end goes through the inbox, behind the changes that arrived before it. Applied at once, it could let
            # PreEnqueue pass while an attempt still runs on the old state.
            self._inbox.put(partial(self._ended, plan, end))

    def _ended(self, plan: _Plan, end: _Ending) -> None:
        preemptor = plan.preemptor
        # A newer plan has replaced this one and holds the pod back. Ending its state here would release the pod too
        # early.
        if self._plans.get(preemptor.uid) is not plan:
            return
        del self._plans[preemptor.uid]
        self._preempting.end(preemptor.uid, plan.victim_uids)
        self._reconsider_mates(plan)
        if not self._is_pending(preemptor):
            self._preempting.forget(preemptor.uid)  # again: what was recorded since
            return
        # Three ends, and a way out of the queue for each. The pod was held back during the evictions, and an event
        # that came in that time is not repeated.
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

    def _reconsider_mates(self, plan: _Plan) -> None:
        """Let PreEnqueue decide again about the other pods of the group, which were held back as well."""
        for pod in self._cluster.pod_groups.members(plan.group).values() if plan.group is not None else ():
            mate = self._pending.get(pod.key)
            if mate is not None and mate.uid != plan.preemptor.uid:
                self._queue.reconsider(mate)

    async def _evict_all(self, plan: _Plan) -> _Ending:
        # The nominations are on the server before a victim is touched. If this process ends now, the next one knows for
        # which pods the capacity was freed, and on which nodes devices of victims are still to be deallocated.
        is_written = await self._is_nominated(plan)
        await self._inbox.caught_up()
        self._check(plan)
        if not is_written:
            return _Ending.FAILED  # the reason was logged already
        # Pods of lower priority that were nominated to the node would wait for capacity that the preemptor takes.
        self._inbox.put(partial(self._clear_lower_nominations, plan))
        # The last victim is evicted alone. Its end is the event that wakes the preemptor. If all went concurrently,
        # the first deletion could wake the pod while other victims still run.
        *first, last = plan.victims
        answers = await asyncio.gather(*(self._evict(plan, victim) for victim in first), return_exceptions=True)
        # All answers are awaited, so no eviction is in flight when the plan ends. A failed eviction makes the other
        # ones fail with `_PlanInvalid`, and the log should name the error behind it.
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

    async def _is_nominated(self, plan: _Plan) -> bool:
        """Wait for the patches of the preemptor and its mates; return whether all nominations are written."""
        if plan.mates:
            await self._inbox.caught_up()  # until all of them have returned to the queue
        for pod, node_name in ((plan.preemptor, plan.node_name), *plan.mates):
            if not await self._failures.written(pod, node_name):
                return False
        return True

    def _is_pending(self, preemptor: PodInfo) -> bool:
        newest = self._pending.get(preemptor.key)
        return newest is not None and newest.uid == preemptor.uid and newest.pod.metadata.deletion_timestamp is None

    def _check(self, plan: _Plan) -> None:
        """Raise _Off if the plan is no longer useful, or belongs to another pod."""
        # Each of these means that the preemptor will not use the capacity, so that further pods would be evicted for
        # nothing.
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
        # The cache is as old as the last batch. Changes that wait in the inbox may show that the victim has left, or
        # that the preemptor was bound by another scheduler.
        await self._inbox.caught_up()
        current = self._cluster.get(victim.uid)
        if current is None or current.node_name != victim.node_name or self._is_leaving(current):
            return None
        self._check(plan)
        return current

    # -- one victim ------------------------------------------------------------------------------------------------------

    async def _evict(self, plan: _Plan, victim: PodInfo) -> None:
        async with self._eviction_slots:
            # One failed eviction makes the plan useless. The mark stops the evictions that have not begun, before the
            # exception reaches `gather`.
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
        wanted = self._cluster.pod_groups.get(plan.group) if plan.group is not None else None
        if wanted is not None:
            note = f"Preempted by podgroup {wanted.metadata.uid} on node cluster"
        # The victim is only assumed, and its own binding can be cancelled. Then nothing has to be deleted, as in
        # kube-scheduler.
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
        _log.info("pod preempted", victim=current.key, node=current.node_name, preemptor=preemptor.key)

    async def _report(self, plan: _Plan, victim: PodInfo) -> bool:
        """Write the victim's condition and event. Returns False if it is already gone."""
        pod = victim.pod
        condition = preempted_by(plan.preemptor.pod.spec.scheduler_name, pod.metadata.generation)
        # A condition of an earlier attempt is not written again: each write of the status wakes every watcher of the
        # pod.
        if verdict_of(pod.condition(DISRUPTION_TARGET)) == verdict_of(condition):
            return True
        try:
            await settle(self._writer.patch_pod_status(pod, condition=condition, nominated_node_name=None))
        # A pod of the same name may have replaced the victim. The write carries the uid and fails then, which is no
        # error of the preemption.
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
            # The write throttle may keep this task waiting for seconds. The plan is checked after the wait, not
            # before it, so the DELETE is sent on a current plan.
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
                # The answer was lost, so the DELETE may have been carried out. If the victim is gone at the next
                # look, this task counts as its cause and writes the event.
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
        """Let pods of lower priority with a nomination to one of the nodes look for another node at once."""
        # The preemptor may have been nominated elsewhere since. Then nothing on this node is decided for it.
        if self._queue.nominator.node_of(plan.preemptor.uid) != plan.node_name:
            return
        names = dict.fromkeys((plan.node_name, *(victim.node_name for victim in plan.victims)))
        for other in [each for name in names for each in self._queue.nominator.for_node(name)]:
            if other.priority < plan.preemptor.priority and self._is_pending(other):
                newest = self._pending.get(other.key) or other
                self._failures.clear_nomination(newest)
                self._queue.activate([newest])

    def _count_evictions(self, plan: _Plan) -> None:
        preemptor = plan.preemptor
        # Another scheduler may take the freed capacity each time. Without a limit, the preemptor would evict pod
        # after pod from this node and never run.
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
