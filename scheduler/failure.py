"""What a failed attempt leaves behind: the pod back in the queue, an event, a condition (docs/spec/core.md §3.8).

Used by the cycle's owner and by bindings alike. The condition is patched in the background, at most one patch per pod in
flight, newest wins: a slow API server never holds up a decision (§3.14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
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
"""Of a pod that never was told to fit nowhere no autoscaler thinks that it does."""
POD_SCHEDULED: Final = "PodScheduled"


@dataclass(frozen=True, slots=True)
class _Status:
    """One patch: None leaves that part alone."""

    pod: Pod
    condition: PodCondition | None
    nominate: str | None


class _Known(NamedTuple):
    """What a patch would change, in comparable form."""

    verdict: tuple[str, ...]
    nominate: str


class _Asked(NamedTuple):
    """What was asked for and the watch has not shown yet; None for nothing: of that the watch is to be believed."""

    verdict: tuple[str, ...] | None = None
    nominate: str | None = None

    def left(self, shown: _Known) -> _Asked:
        """Without what is the case."""
        return _Asked(
            None if self.verdict == shown.verdict else self.verdict,
            None if self.nominate == shown.nominate else self.nominate,
        )

    def over(self, shown: _Known) -> _Known:
        """As it will be once all has been done."""
        return _Known(
            shown.verdict if self.verdict is None else self.verdict,
            shown.nominate if self.nominate is None else self.nominate,
        )


_NOTHING: Final = _Asked()


class PodStatusUpdater:
    """Conditions and nominations on their way to the API server. `submit` never blocks."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._wanted: dict[str, _Asked] = {}
        """What was last asked for, until the watch shows it."""
        self._pending: dict[str, _Status] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._shown: set[str] = set()
        """Of the running those that the watch shows already: it is often faster than the answer."""
        self._urgent: dict[str, None] = {}
        """Of the pending those that nominate: somebody waits for them."""
        self._awaited: dict[str, list[asyncio.Future[None]]] = {}
        """Who waits for a pod's patches."""

    def __len__(self) -> int:
        return len(self._pending) + len(self._running)

    def submit(self, pod: Pod, condition: PodCondition | None, nominate: str | None) -> None:
        """Write what differs from what was last asked for; replaces what still waits for the same pod."""
        uid = pod.metadata.uid
        shown = _shown(pod, condition)
        asked = self._wanted.get(uid, _NOTHING).left(shown)
        known = asked.over(shown)
        if condition is not None and (verdict := _verdict(condition)) != known.verdict:
            wanted = asked._replace(verdict=verdict)
        else:
            wanted, condition = asked, None
        if nominate == known.nominate:
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
        """The pod is about to be bound: drop what waits. A write under way is returned, to be waited for (§3.14)."""
        dropped = self._take(uid)
        under_way = self._running.get(uid)
        if dropped is not None and under_way is None:
            self._wanted.pop(uid, None)  # only what was never sent: what was, the watch may not have shown yet
            self._over(uid)
        return under_way

    async def answered(self, uid: str) -> None:
        """Wait until all that was submitted for this pod has been answered, or is wanted no more."""
        if uid in self._pending or uid in self._running:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.setdefault(uid, []).append(over)
            await over

    def nomination(self, pod: Pod) -> str:
        """Where the pod is nominated for all to see: what was written last counts until the watch shows it."""
        return self._wanted.get(pod.metadata.uid, _NOTHING).over(_shown(pod, None)).nominate

    def seen(self, pod: Pod) -> None:
        """The watch shows the pod. Once it shows what was asked for, it is to be believed if it shows something else."""
        uid = pod.metadata.uid
        if uid not in self._wanted or uid in self._pending:
            return
        left = self._wanted[uid].left(_shown(pod, None))
        if uid not in self._running:
            self._want(uid, left)
        elif left == _NOTHING:
            self._shown.add(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone or bound: nothing more is written for it."""
        self._take(uid)
        self._wanted.pop(uid, None)
        self._over(uid)

    async def drain(self) -> None:
        """Wait until everything submitted has been answered."""
        while self._running:
            await asyncio.wait(self._running.values())

    def give_up(self) -> None:
        """Drop what has not been begun; what is under way ends with its answer."""
        for uid in list(self._pending):
            self.withdraw(uid)

    def _want(self, uid: str, wanted: _Asked) -> None:
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
        for uid in list(islice((uid for uid in self._in_turn() if uid not in self._running), room)):
            status = self._take(uid)
            assert status is not None
            task = asyncio.ensure_future(self._write(uid, status))
            self._running[uid] = task
            task.add_done_callback(partial(self._ended, uid))

    def _in_turn(self) -> Iterator[str]:
        """Nominations first: what is to be done once they are written does not wait for thousands of verdicts."""
        yield from self._urgent
        yield from (uid for uid in self._pending if uid not in self._urgent)

    def _ended(self, uid: str, _: asyncio.Task[None]) -> None:
        del self._running[uid]
        if uid in self._shown:
            self._shown.remove(uid)
            if uid not in self._pending:
                self._wanted.pop(uid, None)
        self._start()
        self._over(uid)

    def _over(self, uid: str) -> None:
        """Nothing is under way for the pod any more, perhaps."""
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
        """Forget that it was asked for, so that the next time it is written; or leave it to the patch that waits."""
        waiting = self._pending.get(uid)
        if waiting is None:
            self._wanted.pop(uid, None)
            return
        nominate = status.nominate if waiting.nominate is None else waiting.nominate
        self._wait(uid, _Status(waiting.pod, waiting.condition or status.condition, nominate))


def _verdict(condition: PodCondition | None) -> tuple[str, ...]:
    return (condition.status, condition.reason, condition.message) if condition is not None else ()


def _shown(pod: Pod, condition: PodCondition | None) -> _Known:
    """The pod as the watch shows it."""
    now = pod.condition(condition.type if condition is not None else POD_SCHEDULED)
    return _Known(_verdict(now), pod.status.nominated_node_name)


class FailureHandler:
    """Handles every way an attempt can fail, after everything it held has been released.

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
        """By uid, with when it falls due."""
        self._look_at = 0.0
        self._verdicts = LogOnce()

    def handle_unschedulable(
        self, queued: QueuedPodInfo, diagnosis: Diagnosis, *, message: str, nominate: str | None, took_s: float
    ) -> None:
        """No node, Reserve or Permit said no: wait for an event that helps, or for the back-off if none can be named."""
        queued.unschedulable_plugins = set(diagnosis.unschedulable_plugins)
        queued.pending_plugins = set(diagnosis.pending_plugins)
        self._metrics.attempt("unschedulable", queued.info.pod.spec.scheduler_name, took_s)
        self._finish(queued, UNSCHEDULABLE, message, nominate)

    def handle_error(self, queued: QueuedPodInfo, *, message: str, took_s: float, kept_on: str = "") -> None:
        """Something of ours or of the API server failed: retry after the error back-off.

        A nomination to `kept_on` stays, where upstream clears it and gives others the room that victims left.
        """
        queued.unschedulable_plugins = set()
        queued.pending_plugins = set()
        self._metrics.attempt("error", queued.info.pod.spec.scheduler_name, took_s)
        is_kept = kept_on and queued.info.pod.status.nominated_node_name == kept_on
        self._finish(queued, SCHEDULER_ERROR, message, None if is_kept else "")

    def refused_late(self, queued: QueuedPodInfo, *, message: str, took_s: float) -> None:
        """PreBind said no: no event can be named that helps, so the error back-off retries it (§3.8)."""
        queued.unschedulable_plugins = set()
        queued.pending_plugins = set()
        self._metrics.attempt("unschedulable", queued.info.pod.spec.scheduler_name, took_s)
        self._finish(queued, UNSCHEDULABLE, message, "")

    def expect(self, assumed: PodInfo, *, is_brief: bool = False) -> None:
        """Say where the pod is about to be bound, for what comes before may take long: autoscalers listen (§3.12).

        What is brief as a rule is given some time first, unless the pod says another node now: mostly there is nothing
        to be said any more then.
        """
        if is_brief and self._patches.nomination(assumed.pod) in {"", assumed.node_name}:
            told = assumed.pod.condition(POD_SCHEDULED)
            wait_s = BRIEF_S if told is not None and told.status == "False" else UNTOLD_S
            self._expected[assumed.uid] = (self._clock.now() + wait_s, assumed)
        else:
            self._patches.submit(assumed.pod, None, assumed.node_name)

    def tick(self) -> None:
        """Say what was not as brief as expected."""
        now = self._clock.now()
        if not self._expected or now < self._look_at:
            return
        self._look_at = now + 0.5
        for _, assumed in [one for one in self._expected.values() if one[0] <= now]:
            del self._expected[assumed.uid]
            self._patches.submit(assumed.pod, None, assumed.node_name)

    def withdraw(self, uid: str) -> asyncio.Task[None] | None:
        """As `PodStatusUpdater.withdraw`."""
        self._expected.pop(uid, None)
        return self._patches.withdraw(uid)

    def clear_nomination(self, info: PodInfo) -> None:
        """Somebody more important takes the place that this pod was to have."""
        left = self._queue.nominator.delete(info)
        self._queue.nomination_ended(info, left or "")
        self._patches.submit(info.pod, None, "")

    def seen(self, pod: Pod) -> None:
        """As `PodStatusUpdater.seen`."""
        self._patches.seen(pod)

    async def written(self, info: PodInfo, node_name: str) -> bool:
        """Wait for what was submitted for this pod; whether it is nominated to that node then, for all to see."""
        await self._patches.answered(info.uid)
        newest = self._pending.get(info.key)
        return newest is not None and newest.uid == info.uid and self._patches.nomination(newest.pod) == node_name

    def report(self, pod: Pod, reason: str, message: str, nominate: str | None) -> None:
        """The event and the condition, without touching the queue."""
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
        """A nomination that no status shows ends here, and no watch event says so."""
        nominator = self._queue.nominator
        before = nominator.node_of(info.uid)
        if not node_name and nominator.derived_node(info.uid):
            return  # it follows from the claims: `derived` looks at it again, as the pod has moved
        nominator.add(info, node_name)
        if before and before not in {info.pod.status.nominated_node_name, nominator.node_of(info.uid)}:
            self._queue.nomination_ended(info, before, wakes_itself=False)

    def forget(self, uid: str) -> None:
        """The pod is gone or bound."""
        self._expected.pop(uid, None)
        self._verdicts.forget(uid)
        self._patches.forget(uid)
        self._preempting.forget(uid)

    def _finish(self, queued: QueuedPodInfo, reason: str, message: str, nominate: str | None) -> None:
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
