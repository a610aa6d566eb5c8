"""Carrying out a preemption: nominate, evict, let the preemptor try again (docs/spec/core.md §3.10 step 5).

In the background, as upstream; the decision was made by a PostFilter plugin. Two things are done in another order: the
nomination is written before the first victim dies, so that a restart in between knows whose room that is; and before each
eviction the plan is looked at again, so that nobody dies for a pod that has gone, or is bound.

Whatever changes cache or queue goes through the inbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

import structlog

from scheduler.binding import Binder
from scheduler.config.durations import format_duration
from scheduler.core.disruption import DISRUPTION_TARGET, preempted_by
from scheduler.core.errors import ApiError, Conflict, Fenced, NotFound
from scheduler.core.podinfo import PodInfo
from scheduler.failure import Failures
from scheduler.framework.preempting import Preempting
from scheduler.framework.settle import settle
from scheduler.shared import Shared

_log = structlog.get_logger(__name__)

PLUGIN: Final = "DefaultPreemption"
_EVICTIONS_IN_FLIGHT: Final = 16


class _Off(Exception):
    """The plan no longer holds: nobody else is evicted for it."""


class Evictions:
    """Preemptions under way. Single owner: the scheduling loop starts them."""

    def __init__(
        self, shared: Shared, failures: Failures, binder: Binder, preempting: Preempting, *, ours: frozenset[str]
    ) -> None:
        """`ours` are the scheduler names of this process."""
        self._cluster = shared.cluster
        self._queue = shared.queue
        self._inbox = shared.inbox
        self._pending = shared.pending
        self._writer = shared.writer
        self._recorder = shared.recorder
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._failures = failures
        self._binder = binder
        self._preempting = preempting
        self._ours = ours
        self._room = asyncio.Semaphore(_EVICTIONS_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Evict in the background. The preemptor must be back in the queue and nominated to the node by now."""
        left = [victim for victim in victims if victim.pod.metadata.deletion_timestamp is None]
        if not left:
            return  # all are leaving already: their end is what the preemptor waits for
        self._metrics.preempted(len(victims), others=sum(not self._is_ours(victim) for victim in left))
        self._preempting.begin(preemptor.uid)
        self._spawn(self._run(preemptor, node_name, left))

    async def drain(self) -> None:
        """Wait until every preemption under way has ended: half of one would be victims for nothing."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_ours(self, pod: PodInfo) -> bool:
        return pod.pod.spec.scheduler_name in self._ours

    # -- one preemption --------------------------------------------------------------------------------------------------

    async def _run(self, preemptor: PodInfo, node_name: str, victims: list[PodInfo]) -> None:
        began = self._clock.now()
        result = "success"
        try:
            await self._evict_all(preemptor, node_name, victims)
            self._keep_count(preemptor, node_name)
        except _Off as off:
            result = "error"
            _log.info("preemption given up", preemptor=preemptor.key, node=node_name, why=str(off))
        except ApiError as error:
            result = "error"
            if not isinstance(error, Fenced):
                _log.warning("preemption failed", preemptor=preemptor.key, node=node_name, error=error.message)
        except Exception as error:  # noqa: BLE001 (an unforeseen failure costs this preemption, and the pod must not wait for ever)
            result = "error"
            self._failures.unforeseen("preemption failed", preemptor.key, error)
        finally:
            self._metrics.preemption_done(result, self._clock.now() - began)
            self._inbox.put(partial(self._end, preemptor, is_retried=result != "success"))

    def _end(self, preemptor: PodInfo, *, is_retried: bool) -> None:
        self._preempting.end(preemptor.uid)
        if is_retried:  # no event may come that would wake it
            self._queue.activate([preemptor])

    async def _evict_all(self, preemptor: PodInfo, node_name: str, victims: list[PodInfo]) -> None:
        if not await self._failures.written(preemptor.uid):
            raise _Off("the nomination could not be written")
        self._clear_lower_nominations(preemptor, node_name)
        *first, last = victims
        try:
            async with asyncio.TaskGroup() as group:
                for victim in first:
                    group.create_task(self._evict(preemptor, node_name, victim))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        self._preempting.last(preemptor.uid, last.uid)
        await self._evict(preemptor, node_name, last)

    async def _evict(self, preemptor: PodInfo, node_name: str, victim: PodInfo) -> None:
        async with self._room:
            if not self._is_needed(preemptor, node_name, victim):
                return
            note = f"Preempted by pod {preemptor.uid} on node {node_name}"
            if self._binder.preempt(victim.uid, PLUGIN):
                note += " (in kube-scheduler memory)."
            elif not await self._delete(preemptor, victim):
                return
        self._recorder.event(
            victim.pod,
            controller=preemptor.pod.spec.scheduler_name,
            type_="Normal",
            reason="Preempted",
            action="Preempting",
            note=note,
            related=preemptor.pod,
        )
        _log.info("pod preempted", victim=victim.key, node=node_name, preemptor=preemptor.key)

    def _is_needed(self, preemptor: PodInfo, node_name: str, victim: PodInfo) -> bool:
        """False if the victim has gone by itself. Raises _Off if the preemptor does not need the place any more."""
        self._inbox.catch_up()
        newest = self._pending.get(preemptor.key)
        if newest is None or newest.uid != preemptor.uid or newest.pod.metadata.deletion_timestamp is not None:
            raise _Off("the preemptor has gone or is bound")
        if self._cluster.nodes.present_slot(node_name) is None:
            raise _Off("the node has gone")
        if self._queue.nominator.node_of(preemptor.uid) != node_name:
            raise _Off("the preemptor was nominated elsewhere")
        held = self._cluster.get(victim.uid)
        return held is not None and held.node_name == node_name and held.pod.metadata.deletion_timestamp is None

    async def _delete(self, preemptor: PodInfo, victim: PodInfo) -> bool:
        """Say why, then delete with its own grace. False if the pod was gone already."""
        pod = victim.pod
        condition = preempted_by(preemptor.pod.spec.scheduler_name, pod.metadata.generation)
        shown = pod.condition(DISRUPTION_TARGET)
        try:
            if shown is None or (shown.status, shown.reason, shown.message) != (
                condition.status,
                condition.reason,
                condition.message,
            ):
                await settle(self._writer.patch_pod_status(pod, condition=condition, nominated_node_name=None))
            await settle(self._writer.delete_pod(pod))
        except NotFound:
            return False
        except Conflict:
            newest = await self._writer.read_pod(pod.metadata.namespace, pod.metadata.name)
            if newest is None or newest.metadata.uid != victim.uid:
                return False
            raise
        return True

    def _clear_lower_nominations(self, preemptor: PodInfo, node_name: str) -> None:
        """Pods of lower priority that were to come here look for another place at once; only ours are told."""
        for other in self._queue.nominator.for_node(node_name):
            if other.priority < preemptor.priority and self._pending.get(other.key) is not None:
                self._failures.clear_nomination(other)

    def _keep_count(self, preemptor: PodInfo, node_name: str) -> None:
        brake_s = self._preempting.made_room(preemptor.uid, node_name, self._clock.now())
        if not brake_s:
            return
        self._metrics.preemption_lost()
        self._recorder.event(
            preemptor.pod,
            controller=preemptor.pod.spec.scheduler_name,
            type_="Warning",
            reason="PreemptionLost",
            action="Preempting",
            note=f"room made on node {node_name} was taken by other pods again and again; if it is lost once more, "
            f"the node is left out for {format_duration(brake_s)}",
        )
