"""Handle a failed attempt: the pod returns to the queue, with an event and a condition (docs/spec/core.md §3.8).

Used by the scheduling loop and by bindings. Conditions are patched in the background, at most one patch per pod at a
time, newest wins. A slow API server never delays a decision (§3.14).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Final, NamedTuple

import structlog

from scheduler.api.core_v1 import Pod, PodCondition
from scheduler.api.podinfo import PodInfo
from scheduler.context import Shared
from scheduler.core.caching import LogOnce
from scheduler.core.errors import ApiError, Fenced, NotFound
from scheduler.framework.handle import Writer
from scheduler.framework.preemption_state import Preempting
from scheduler.framework.status import Diagnosis
from scheduler.framework.wait import settle
from scheduler.queue import QueuedPodInfo

_log = structlog.get_logger(__name__)

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
_PATCHES_IN_FLIGHT: Final = 16
BRIEF_S: Final = 1.0
UNTOLD_S: Final = 30.0
"""Pods without a False PodScheduled condition do not trigger autoscalers, so the write can wait."""
POD_SCHEDULED: Final = "PodScheduled"


@dataclass(frozen=True, slots=True)
class _Status:
    """One patch; None leaves that part unchanged."""

    pod: Pod
    condition: PodCondition | None
    nominate: str | None


class _StatusValues(NamedTuple):
    """The fields that a patch would change, in comparable form."""

    verdict: tuple[str, ...]
    nominate: str


class _Requested(NamedTuple):
    """Requested values that the watch has not shown yet; None for a value that the watch decides."""

    verdict: tuple[str, ...] | None = None
    nominate: str | None = None

    def remaining(self, shown: _StatusValues) -> _Requested:
        """Return the requested values without those that the watch shows."""
        return _Requested(
            None if self.verdict == shown.verdict else self.verdict,
            None if self.nominate == shown.nominate else self.nominate,
        )

    def over(self, shown: _StatusValues) -> _StatusValues:
        """Return the values after all requested changes."""
        return _StatusValues(
            shown.verdict if self.verdict is None else self.verdict,
            shown.nominate if self.nominate is None else self.nominate,
        )


_NOTHING: Final = _Requested()


class PodStatusUpdater:
    """Write conditions and nominations to the API server. `submit` never blocks."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._wanted: dict[str, _Requested] = {}
        """The last requested values, until the watch shows them."""
        self._pending: dict[str, _Status] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._shown: set[str] = set()
        """Running patches that the watch shows already: it is often faster than the answer."""
        self._urgent: dict[str, None] = {}
        """Pending patches with a nomination, because a preemption waits for them."""
        self._awaited: dict[str, list[asyncio.Future[None]]] = {}
        """Waiters for a pod's patches."""

    def __len__(self) -> int:
        return len(self._pending) + len(self._running)

    def snapshot(self) -> set[str]:
        """Return the uids of the pods of which any state is kept."""
        return {*self._wanted, *self._pending, *self._running, *self._shown, *self._urgent, *self._awaited}

    def submit(self, pod: Pod, condition: PodCondition | None, nominate: str | None) -> None:
        """Write the values that differ from those last requested. Replaces a pending patch of the pod."""
        uid = pod.metadata.uid
        shown = _shown(pod, condition)
        asked = self._wanted.get(uid, _NOTHING).remaining(shown)
        requested = asked.over(shown)
        if condition is not None and (verdict := verdict_of(condition)) != requested.verdict:
            wanted = asked._replace(verdict=verdict)
        else:
            wanted, condition = asked, None
        if nominate == requested.nominate:
            nominate = None
        if nominate is not None:
            wanted = wanted._replace(nominate=nominate)
        self._want(uid, wanted)
        if condition is None and nominate is None:
            return
        waiting = self._pending.get(uid)
        if waiting is not None:
            condition = condition or waiting.condition
            nominate = waiting.nominate if nominate is None else nominate
        self._wait(uid, _Status(pod, condition, nominate))
        self._start()

    def withdraw(self, uid: str) -> asyncio.Task[None] | None:
        """Drop the pending patch of a pod to be bound; return a running one, which the caller awaits (§3.14)."""
        dropped = self._take(uid)
        under_way = self._running.get(uid)
        if dropped is not None and under_way is None:
            self._wanted.pop(uid, None)  # only values that were never sent: the watch may not have shown sent ones yet
            self._over(uid)
        return under_way

    async def answered(self, uid: str) -> None:
        """Wait until all patches of this pod have been answered, or were dropped."""
        if uid in self._pending or uid in self._running:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.setdefault(uid, []).append(over)
            await over

    def nomination(self, pod: Pod) -> str:
        """Return the pod's nomination: the value written last counts until the watch shows it."""
        return self._wanted.get(pod.metadata.uid, _NOTHING).over(_shown(pod, None)).nominate

    def seen(self, pod: Pod) -> None:
        """Take the pod from the watch. Once it shows the requested value, later values of the watch count."""
        uid = pod.metadata.uid
        if uid not in self._wanted or uid in self._pending:
            return
        unshown = self._wanted[uid].remaining(_shown(pod, None))
        if uid not in self._running:
            self._want(uid, unshown)
        elif unshown == _NOTHING:
            self._shown.add(uid)

    def forget(self, uid: str) -> None:
        """Drop everything about a pod that is deleted or bound."""
        self._take(uid)
        self._wanted.pop(uid, None)
        self._over(uid)

    async def drain(self) -> None:
        """Wait until all patches have been answered."""
        while self._running:
            await asyncio.wait(self._running.values())

    def give_up(self) -> None:
        """Drop patches that have not been sent. Running ones end with their answer, or when the connections are closed."""
        for uid in list(self._pending):
            self.withdraw(uid)

    def _want(self, uid: str, wanted: _Requested) -> None:
        if wanted == _NOTHING:
            self._wanted.pop(uid, None)
        else:
            self._wanted[uid] = wanted

    def _wait(self, uid: str, status: _Status) -> None:
        self._pending[uid] = status
        if status.nominate:
            self._urgent[uid] = None
        else:
            self._urgent.pop(uid, None)

    def _take(self, uid: str) -> _Status | None:
        self._urgent.pop(uid, None)
        return self._pending.pop(uid, None)

    def _start(self) -> None:
        room = _PATCHES_IN_FLIGHT - len(self._running)
        if room <= 0:
            return
        # Nominations are first: evictions wait for them, and must not wait for thousands of conditions.
        in_turn = chain(self._urgent, (uid for uid in self._pending if uid not in self._urgent))
        for uid in list(islice((uid for uid in in_turn if uid not in self._running), room)):
            status = self._take(uid)
            assert status is not None
            task = asyncio.ensure_future(self._write(uid, status))
            self._running[uid] = task
            task.add_done_callback(partial(self._ended, uid))

    def _ended(self, uid: str, _: asyncio.Task[None]) -> None:
        del self._running[uid]
        if uid in self._shown:
            self._shown.remove(uid)
            if uid not in self._pending:
                self._wanted.pop(uid, None)
        self._start()
        self._over(uid)

    def _over(self, uid: str) -> None:
        """Clean up after a patch, if no other one is running for the pod."""
        if uid not in self._pending and uid not in self._running:
            for over in self._awaited.pop(uid, ()):
                if not over.done():
                    over.set_result(None)

    async def _write(self, uid: str, status: _Status) -> None:
        try:
            await settle(
                self._writer.patch_pod_status(
                    status.pod, condition=status.condition, nominated_node_name=status.nominate
                )
            )
        except ApiError as error:
            self._not_written(uid, status)
            if not isinstance(error, (NotFound, Fenced)):
                _log.warning("pod status not written", pod=status.pod.key, error=error.message)

    def _not_written(self, uid: str, status: _Status) -> None:
        """Forget the request of a failed patch, so that the next one writes it; unless a pending patch does."""
        waiting = self._pending.get(uid)
        if waiting is None:
            self._wanted.pop(uid, None)
            return
        nominate = status.nominate if waiting.nominate is None else waiting.nominate
        self._wait(uid, _Status(waiting.pod, waiting.condition or status.condition, nominate))


def verdict_of(condition: PodCondition | None) -> tuple[str, ...]:
    """Return status, reason and message; empty without a condition."""
    return (condition.status, condition.reason, condition.message) if condition is not None else ()


def _shown(pod: Pod, condition: PodCondition | None) -> _StatusValues:
    """Return the pod's values in the watch."""
    now = pod.condition(condition.type if condition is not None else POD_SCHEDULED)
    return _StatusValues(verdict_of(now), pod.status.nominated_node_name)


class FailureHandler:
    """Handle every failed attempt, after its reservations are released.

    Upstream: pkg/scheduler/schedule_one.go handleSchedulingFailure
    """

    def __init__(self, shared: Shared, patches: PodStatusUpdater, preempting: Preempting | None = None) -> None:
        self._queue = shared.queue
        self._pending = shared.pending
        self._recorder = shared.recorder
        self._metrics = shared.metrics
        self._patches = patches
        self._preempting = preempting or Preempting()
        self._clock = shared.clock
        self._expected: dict[str, tuple[float, PodInfo]] = {}
        """By uid, with the time at which the nomination is due."""
        self._next_check = 0.0
        self._verdicts = LogOnce()

    def handle_unschedulable(
        self, queued: QueuedPodInfo, diagnosis: Diagnosis, *, message: str, nominate: str | None, took_s: float
    ) -> None:
        """Handle a pod that no node, Reserve or Permit accepted.

        It waits for an event, or for its back-off if no event can help.
        """
        queued.unschedulable_plugins = set(diagnosis.unschedulable_plugins)
        queued.pending_plugins = set(diagnosis.pending_plugins)
        self._finish(queued, UNSCHEDULABLE, message, nominate, took_s)

    def handle_error(self, queued: QueuedPodInfo, *, message: str, took_s: float, kept_on: str = "") -> None:
        """Handle an error of the scheduler or the API server: retry after the error back-off.

        A nomination to `kept_on` stays. Upstream clears it, so that other pods get the capacity that victims left.
        """
        queued.unschedulable_plugins, queued.pending_plugins = set(), set()
        is_kept = kept_on and queued.info.pod.status.nominated_node_name == kept_on
        self._finish(queued, SCHEDULER_ERROR, message, None if is_kept else "", took_s)

    def refused_late(self, queued: QueuedPodInfo, *, message: str, took_s: float) -> None:
        """Handle a rejection by PreBind: no event can help, so the error back-off retries the pod (§3.8)."""
        queued.unschedulable_plugins, queued.pending_plugins = set(), set()
        self._finish(queued, UNSCHEDULABLE, message, "", took_s)

    def expect(self, assumed: PodInfo, *, is_brief: bool = False) -> None:
        """Announce the node of a pod that is about to be bound.

        PreBind may take long, and autoscalers read the nomination (§3.12). If PreBind is usually short, the
        announcement waits, unless the pod names another node now. Mostly it is then not needed.
        """
        if is_brief and self._patches.nomination(assumed.pod) in {"", assumed.node_name}:
            condition = assumed.pod.condition(POD_SCHEDULED)
            wait_s = BRIEF_S if condition is not None and condition.status == "False" else UNTOLD_S
            self._expected[assumed.uid] = (self._clock.now() + wait_s, assumed)
        else:
            self._patches.submit(assumed.pod, None, assumed.node_name)

    def tick(self) -> None:
        """Write announcements that are due."""
        now = self._clock.now()
        if not self._expected or now < self._next_check:
            return
        self._next_check = now + 0.5
        for _, assumed in [one for one in self._expected.values() if one[0] <= now]:
            del self._expected[assumed.uid]
            self._patches.submit(assumed.pod, None, assumed.node_name)

    def withdraw(self, uid: str) -> asyncio.Task[None] | None:
        """Drop pending patches, as `PodStatusUpdater.withdraw`."""
        self._expected.pop(uid, None)
        return self._patches.withdraw(uid)

    def clear_nomination(self, info: PodInfo) -> None:
        """Clear the nomination of a pod whose node a more important pod takes."""
        node_name = self._queue.nominator.delete(info)
        self._queue.nomination_ended(info, node_name or "")
        self._patches.submit(info.pod, None, "")

    def seen(self, pod: Pod) -> None:
        """Take the pod from the watch, as `PodStatusUpdater.seen`."""
        self._patches.seen(pod)

    async def written(self, info: PodInfo, node_name: str) -> bool:
        """Wait for the patches of this pod; return whether it is nominated to that node."""
        await self._patches.answered(info.uid)
        newest = self._pending.get(info.key)
        return newest is not None and newest.uid == info.uid and self._patches.nomination(newest.pod) == node_name

    def report(self, pod: Pod, reason: str, message: str, nominate: str | None) -> None:
        """Write the event and the condition without touching the queue."""
        self._recorder.event(
            pod,
            controller=pod.spec.scheduler_name,
            type_="Warning",
            reason="FailedScheduling",
            action="Scheduling",
            note=message,
        )
        condition = PodCondition(
            type=POD_SCHEDULED,
            status="False",
            reason=reason,
            message=message,
            observed_generation=pod.metadata.generation,
        )
        self._patches.submit(pod, condition, nominate)

    def _nominate(self, info: PodInfo, node_name: str | None) -> None:
        """Update the queue's nomination. No watch event ends a nomination that no status showed, so it ends here."""
        nominator = self._queue.nominator
        before = nominator.node_of(info.uid)
        if not node_name and nominator.derived_node(info.uid):
            return  # it follows from the claims: `derived` checks it again, because the pod has moved
        nominator.add(info, node_name)
        if before and before not in {info.pod.status.nominated_node_name, nominator.node_of(info.uid)}:
            self._queue.nomination_ended(info, before, wakes_itself=False)

    def forget(self, uid: str) -> None:
        """Drop everything about a pod that is deleted or bound."""
        self._expected.pop(uid, None)
        self._verdicts.forget(uid)
        self._patches.forget(uid)
        self._preempting.forget(uid)

    def _finish(self, queued: QueuedPodInfo, reason: str, message: str, nominate: str | None, took_s: float) -> None:
        result = "unschedulable" if reason == UNSCHEDULABLE else "error"
        self._metrics.attempt(result, queued.info.pod.spec.scheduler_name, took_s)
        self._expected.pop(queued.info.uid, None)
        newest = self._pending.get(queued.info.key)
        if newest is None or newest.uid != queued.info.uid or newest.node_name:
            self._queue.done(queued.info.uid)
            return
        queued.info = newest
        self._queue.requeue(queued)
        self._nominate(newest, nominate)
        if self._verdicts.is_new(newest.uid, message):
            _log.info("pod not scheduled", pod=newest.key, reason=reason, message=message, attempts=queued.attempts)
        self.report(newest.pod, reason, message, nominate)
