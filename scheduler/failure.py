"""What a failed attempt leaves behind: the pod back in the queue, an event, a condition (docs/spec/core.md §3.8).

Used by the cycle's owner and by bindings alike. The condition is patched in the background, at most one patch per pod in
flight, newest wins: a slow API server never holds up a decision (§3.14).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from scheduler.core.errors import ApiError, NotFound
from scheduler.core.fiterror import Diagnosis
from scheduler.core.pod import Pod, PodCondition
from scheduler.framework.ports import Writer
from scheduler.framework.settle import settle
from scheduler.queue import QueuedPod
from scheduler.shared import Shared

_log = structlog.get_logger(__name__)

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
_PATCHES_IN_FLIGHT: Final = 16
_REMEMBERED: Final = 20_000


@dataclass(frozen=True, slots=True)
class _Status:
    pod: Pod
    condition: PodCondition | None
    nominate: str | None


class StatusPatches:
    """Conditions and nominations on their way to the API server. `submit` never blocks."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._pending: dict[str, _Status] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._written: dict[str, tuple[str, str, str]] = {}

    def __len__(self) -> int:
        return len(self._pending) + len(self._running)

    def submit(self, pod: Pod, condition: PodCondition | None, nominate: str | None) -> None:
        """Write if it would change anything; replaces what still waits for the same pod."""
        uid = pod.metadata.uid
        if nominate == pod.status.nominated_node_name:
            nominate = None
        if condition is not None and self._is_known(pod, condition):
            condition = None
        waiting = self._pending.get(uid)
        if waiting is not None:
            condition = condition or waiting.condition
            nominate = waiting.nominate if nominate is None else nominate
        if condition is None and nominate is None:
            return
        self._pending[uid] = _Status(pod, condition, nominate)
        self._start()

    def forget(self, uid: str) -> None:
        """The pod is gone or bound: what still waits for it need not be written."""
        self._pending.pop(uid, None)
        self._written.pop(uid, None)

    async def drain(self) -> None:
        """Wait until everything submitted has been answered."""
        while self._running:
            await asyncio.wait(self._running.values())

    def _is_known(self, pod: Pod, condition: PodCondition) -> bool:
        """The server has it, as far as the watch or our own last write tells."""
        now = pod.condition(condition.type)
        wanted = (condition.status, condition.reason, condition.message)
        seen = (now.status, now.reason, now.message) if now is not None else None
        return self._written.get(pod.metadata.uid, seen) == wanted

    def _start(self) -> None:
        for uid in list(self._pending):
            if len(self._running) >= _PATCHES_IN_FLIGHT:
                return
            if uid not in self._running:
                status = self._pending.pop(uid)
                task = asyncio.ensure_future(self._write(status))
                self._running[uid] = task
                task.add_done_callback(partial(self._ended, uid))

    def _ended(self, uid: str, _: asyncio.Task[None]) -> None:
        del self._running[uid]
        self._start()

    async def _write(self, status: _Status) -> None:
        uid = status.pod.metadata.uid
        try:
            await settle(
                self._writer.patch_pod_status(
                    status.pod, condition=status.condition, nominated_node_name=status.nominate
                )
            )
        except NotFound:
            self._written.pop(uid, None)
        except ApiError as error:
            self._written.pop(uid, None)
            _log.warning("pod status not written", pod=status.pod.key, error=error.message)
        else:
            if status.condition is not None:
                if len(self._written) >= _REMEMBERED:
                    del self._written[next(iter(self._written))]
                self._written[uid] = (status.condition.status, status.condition.reason, status.condition.message)


class Failures:
    """Handles every way an attempt can fail, after everything it held has been released."""

    def __init__(self, shared: Shared, patches: StatusPatches) -> None:
        self._queue = shared.queue
        self._pending = shared.pending
        self._recorder = shared.recorder
        self._metrics = shared.metrics
        self._patches = patches
        self._verdicts: dict[str, str] = {}

    def unfit(
        self, queued: QueuedPod, diagnosis: Diagnosis, *, message: str, nominate: str | None, took_s: float
    ) -> None:
        """No node, Reserve or Permit said no: wait for an event that helps, or for the back-off if none can be named."""
        queued.unschedulable_plugins = set(diagnosis.unschedulable_plugins)
        queued.pending_plugins = set(diagnosis.pending_plugins)
        self._metrics.attempt("unschedulable", queued.info.pod.spec.scheduler_name, took_s)
        self._finish(queued, UNSCHEDULABLE, message, nominate)

    def error(self, queued: QueuedPod, *, message: str, took_s: float) -> None:
        """Something of ours or of the API server failed: retry after the error back-off."""
        queued.unschedulable_plugins = set()
        queued.pending_plugins = set()
        self._metrics.attempt("error", queued.info.pod.spec.scheduler_name, took_s)
        self._finish(queued, SCHEDULER_ERROR, message, "")

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
            type="PodScheduled",
            status="False",
            reason=reason,
            message=message,
            observed_generation=pod.metadata.generation,
        )
        self._patches.submit(pod, condition, nominate)

    def forget(self, uid: str) -> None:
        """The pod is gone or bound."""
        self._verdicts.pop(uid, None)
        self._patches.forget(uid)

    def _finish(self, queued: QueuedPod, reason: str, message: str, nominate: str | None) -> None:
        newest = self._pending.get(queued.info.key)
        if newest is None or newest.uid != queued.info.uid or newest.node_name:
            self._queue.done(queued.info.uid)
            return
        queued.info = newest
        self._queue.requeue(queued)
        self._queue.nominator.add(newest, nominate)
        if self._verdicts.get(newest.uid) != message:
            if len(self._verdicts) >= _REMEMBERED:
                del self._verdicts[next(iter(self._verdicts))]
            self._verdicts[newest.uid] = message
            _log.info("pod not scheduled", pod=newest.key, reason=reason, message=message, attempts=queued.attempts)
        self.report(newest.pod, reason, message, nominate)
