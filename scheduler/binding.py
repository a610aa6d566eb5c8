"""The background half of an attempt: permit → prebind → second look → bind, or everything undone.

One task per pod (architecture D10). A write that was sent is awaited to its answer; cancellation acts between writes.
Whatever changes cache or queue goes through the inbox. Rules: docs/spec/core.md §3.11, §3.12, §2.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import structlog

from scheduler.cache.cluster import AssumptionError
from scheduler.core.decode import Broken
from scheduler.core.errors import Ambiguous, ApiError, Conflict, NotFound
from scheduler.core.events import ASSIGNED_POD_DELETE
from scheduler.core.fiterror import one_node
from scheduler.core.podinfo import PodInfo
from scheduler.core.records import DecisionRecord
from scheduler.core.verdicts import AttemptError, Code, Rejection, Skip, Wait
from scheduler.failure import Failures
from scheduler.framework.points import PreBindPlugin
from scheduler.framework.profile import Profile
from scheduler.framework.runner import Runner
from scheduler.framework.settle import settle
from scheduler.framework.state import CycleState
from scheduler.queue import QueuedPod
from scheduler.shared import Shared

_log = structlog.get_logger(__name__)

MAX_PERMIT_WAIT_S: Final = 15 * 60.0
_READ_DELAYS_S: Final = (0.1, 0.5, 2.0, 5.0, 10.0)
_BIND_TRIES: Final = 3


@dataclass(slots=True, eq=False)
class Binding:
    """One pod on its way to its node."""

    queued: QueuedPod
    assumed: PodInfo
    state: CycleState
    profile: Profile
    waits: Mapping[str, Wait]
    record: DecisionRecord
    popped_at: float
    node_version: int
    is_done_in_queue: bool = False
    verdict: asyncio.Future[Rejection | None] | None = None
    allowed: set[str] = field(default_factory=set)


class _Refused(Exception):
    """A rejection on the way; carries who said no."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection


class _Dropped(Exception):
    """The pod is gone, or somebody else bound it: release what was held, say nothing."""


class Binder:
    """Starts and tracks binding tasks. `in_flight` counts those that are not waiting on Permit."""

    def __init__(
        self,
        shared: Shared,
        failures: Failures,
        *,
        runners: Mapping[str, Runner],
        on_bound: Callable[[PodInfo], None] = lambda _: None,
        writes_in_flight: int = 64,
    ) -> None:
        self._cluster = shared.cluster
        self._queue = shared.queue
        self._inbox = shared.inbox
        self._writer = shared.writer
        self._recorder = shared.recorder
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._failures = failures
        self._runners = runners
        self._on_bound = on_bound
        self._room = asyncio.Semaphore(writes_in_flight)
        self._tasks: dict[asyncio.Task[None], Binding] = {}
        self._waiting: dict[str, Binding] = {}

    # -- for the scheduling loop -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def in_flight(self) -> int:
        """Bindings that are doing something; pods held by Permit are not counted."""
        return len(self._tasks) - len(self._waiting)

    def start(self, binding: Binding) -> None:
        """Take over an assumed pod with everything reserved; from here on this module undoes it."""
        task = asyncio.create_task(self._run(binding))
        self._tasks[task] = binding
        task.add_done_callback(self._ended)

    async def drain(self, limit_s: float) -> int:
        """Let bindings finish; cancel what is left after `limit_s`. Returns how many were cancelled."""
        if self._tasks:
            waits = asyncio.ensure_future(asyncio.wait(list(self._tasks)))
            limit = asyncio.ensure_future(self._clock.sleep(limit_s))
            await asyncio.wait({waits, limit}, return_when=asyncio.FIRST_COMPLETED)
            limit.cancel()
            waits.cancel()
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        return len(left)

    # -- for plugins and intake: pods held by Permit -----------------------------------------------------------------

    def is_waiting(self, uid: str) -> bool:
        """Whether Permit holds the pod."""
        return uid in self._waiting

    def allow(self, uid: str, plugin: str) -> None:
        """One plugin lets the pod go; the last one releases it. Unknown pods are ignored."""
        binding = self._waiting.get(uid)
        if binding is None or binding.verdict is None:
            return
        binding.allowed.add(plugin)
        if binding.allowed.issuperset(binding.waits) and not binding.verdict.done():
            binding.verdict.set_result(None)

    def reject(self, uid: str, plugin: str, message: str) -> None:
        """The pod will not be bound; the first rejection counts."""
        binding = self._waiting.get(uid)
        if binding is not None and binding.verdict is not None and not binding.verdict.done():
            binding.verdict.set_result(Rejection(plugin, Code.UNSCHEDULABLE, (message,)))

    # -- one binding -------------------------------------------------------------------------------------------------

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._inbox.wake()
        if not task.cancelled() and task.exception() is not None:
            _log.error("a binding ended with an error that was not handled", error=repr(task.exception()))

    async def _run(self, binding: Binding) -> None:
        began = self._clock.now()
        try:
            await self._bind(binding)
        except _Refused as refused:
            self._inbox.put(partial(self._undo_refused, binding, refused.rejection))
        except _Dropped:
            self._inbox.put(partial(self._undo_dropped, binding))
        except asyncio.CancelledError:
            self._inbox.put(partial(self._undo_error, binding, "the scheduler is stopping"))
            raise
        except (AttemptError, ApiError) as error:
            self._inbox.put(partial(self._undo_error, binding, error.message))
        except Exception as error:  # noqa: BLE001 (one of the two places: an unforeseen failure costs this pod one attempt)
            _log.exception("binding failed", pod=binding.assumed.key)
            self._inbox.put(partial(self._undo_error, binding, repr(error)))
        else:
            self._succeeded(binding)
        finally:
            binding.record.binding_s = self._clock.now() - began

    async def _bind(self, binding: Binding) -> None:
        active = self._flight_check(binding)
        if binding.waits:
            await self._wait_on_permit(binding)
        self._done(binding)
        if active:
            await self._pre_bind(binding, active)
        async with self._room:
            self._second_look(binding)
            await settle(self._commit(binding))

    def _done(self, binding: Binding) -> None:
        binding.is_done_in_queue = True
        self._inbox.put(partial(self._queue.done, binding.assumed.uid))

    def _flight_check(self, binding: Binding) -> list[PreBindPlugin]:
        active = []
        for plugin in binding.profile.pre_bind:
            answer = plugin.pre_bind_pre_flight(binding.state, binding.assumed, binding.assumed.node_name)
            if isinstance(answer, Rejection):
                raise AttemptError(f'running PreBindPreFlight "{plugin.name}": {answer.message}', plugin=plugin.name)
            if answer is None:
                active.append(plugin)
        return active

    async def _wait_on_permit(self, binding: Binding) -> None:
        began = self._clock.now()
        binding.verdict = asyncio.get_running_loop().create_future()
        uid = binding.assumed.uid
        self._waiting[uid] = binding
        timers = [asyncio.ensure_future(self._expire(uid, plugin, wait)) for plugin, wait in binding.waits.items()]
        try:
            no = await binding.verdict
        finally:
            del self._waiting[uid]
            for timer in timers:
                timer.cancel()
        self._metrics.permit_wait((Code.SUCCESS if no is None else no.code).value, self._clock.now() - began)
        if no is not None:
            raise _Refused(no)

    async def _expire(self, uid: str, plugin: str, wait: Wait) -> None:
        limit_s = min(wait.timeout_s, MAX_PERMIT_WAIT_S)
        await self._clock.sleep(limit_s)
        self.reject(uid, plugin, f"rejected due to timeout after waiting {limit_s:g}s at plugin {plugin}")

    async def _pre_bind(self, binding: Binding, active: list[PreBindPlugin]) -> None:
        """Neighbours that allow it run beside each other; a failure cancels its siblings between their writes."""
        began = self._clock.now()
        batch: list[PreBindPlugin] = []
        for plugin in active:
            if not getattr(plugin, "pre_bind_parallel", False):
                await self._together(binding, batch)
                batch = []
                await self._together(binding, [plugin])
            else:
                batch.append(plugin)
        await self._together(binding, batch)
        self._metrics.point("PreBind", Code.SUCCESS.value, binding.profile.name, self._clock.now() - began)

    async def _together(self, binding: Binding, plugins: list[PreBindPlugin]) -> None:
        if len(plugins) == 1:
            await self._pre_bind_one(binding, plugins[0])
        elif plugins:
            try:
                async with asyncio.TaskGroup() as group:
                    for plugin in plugins:
                        group.create_task(self._pre_bind_one(binding, plugin))
            except* (_Refused, AttemptError, ApiError) as several:
                raise several.exceptions[0] from None

    async def _pre_bind_one(self, binding: Binding, plugin: PreBindPlugin) -> None:
        no = await plugin.pre_bind(binding.state, binding.assumed, binding.assumed.node_name)
        if no is None:
            return
        if no.code.is_rejection:
            raise _Refused(no)
        raise AttemptError(f'running PreBind plugin "{plugin.name}": {no.message}', plugin=plugin.name)

    def _second_look(self, binding: Binding) -> None:
        """The node as the newest cache has it, without ourselves: another scheduler may have been faster (D7)."""
        node_name = binding.assumed.node_name
        if self._cluster.version(node_name) == binding.node_version:
            return
        slot = self._cluster.nodes.slot(node_name)
        if slot is None or not self._cluster.nodes.present >> slot & 1:
            raise _Refused(Rejection("", Code.UNRESOLVABLE, ("node(s) had gone before the pod was bound",)))
        with self._cluster.trial(remove=[self._cluster.get(binding.assumed.uid) or binding.assumed]):
            no = self._runners[binding.profile.name].check_node(binding.assumed, slot, binding.state)
        if no is not None:
            raise _Refused(no)

    async def _commit(self, binding: Binding) -> None:
        began = self._clock.now()
        for plugin in binding.profile.bind:
            answer = await self._resolved(binding, plugin.name, plugin.bind)
            if isinstance(answer, Skip):
                continue
            if answer is not None:
                raise AttemptError(f'running Bind plugin "{plugin.name}": {answer.message}', plugin=plugin.name)
            self._metrics.point("Bind", Code.SUCCESS.value, binding.profile.name, self._clock.now() - began)
            return
        raise AttemptError("no Bind plugin took the pod")

    async def _resolved(
        self,
        binding: Binding,
        name: str,
        bind: Callable[[CycleState, PodInfo, str], Coroutine[Any, Any, Rejection | Skip | None]],
    ) -> Rejection | Skip | None:
        """Bind; a lost answer or a conflict is settled by reading the pod, and a lost one retried on the same node."""
        for attempt in range(1, _BIND_TRIES + 1):
            try:
                return await bind(binding.state, binding.assumed, binding.assumed.node_name)
            except NotFound as error:
                raise _Dropped from error
            except (Ambiguous, Conflict) as error:
                if await self._is_ours(binding):
                    return None
                if isinstance(error, Conflict) or attempt == _BIND_TRIES:
                    raise AttemptError(f'running Bind plugin "{name}": {error.message}', plugin=name) from error
            except ApiError as error:
                raise AttemptError(f'running Bind plugin "{name}": {error.message}', plugin=name) from error
        raise AssertionError("unreachable")

    async def _is_ours(self, binding: Binding) -> bool:
        """True: the API server has the pod on our node. Raises _Dropped when the pod is out of our hands."""
        assumed = binding.assumed
        for delay_s in (*_READ_DELAYS_S, None):
            try:
                pod = await self._writer.read_pod(assumed.pod.metadata.namespace, assumed.pod.metadata.name)
                break
            except ApiError as error:
                if delay_s is None:
                    raise AttemptError(f"the binding's outcome could not be read: {error.message}") from error
                await self._clock.sleep(delay_s)
        if pod is None or pod.metadata.uid != assumed.uid:
            raise _Dropped
        node_name = pod.node_name if isinstance(pod, Broken) else pod.spec.node_name
        if node_name and node_name != assumed.node_name:
            raise _Dropped
        if not node_name and pod.metadata.deletion_timestamp is not None:
            raise _Dropped
        return bool(node_name)

    # -- outcomes ----------------------------------------------------------------------------------------------------

    def _succeeded(self, binding: Binding) -> None:
        queued, assumed, now = binding.queued, binding.assumed, self._clock.now()
        binding.record.result = "scheduled"
        self._recorder.event(
            assumed.pod,
            controller=binding.profile.name,
            type_="Normal",
            reason="Scheduled",
            action="Binding",
            note=f"Successfully assigned {assumed.key} to {assumed.node_name}",
        )
        self._metrics.attempt("scheduled", binding.profile.name, now - binding.popped_at)
        first = binding.popped_at if queued.initial_attempt_at is None else queued.initial_attempt_at
        self._metrics.scheduled(queued.attempts, now - first)
        if queued.was_flushed:
            self._metrics.after_flush()
        for plugin in binding.profile.post_bind:
            plugin.post_bind(binding.state, assumed, assumed.node_name)
        _log.debug("pod bound", pod=assumed.key, node=assumed.node_name, attempts=queued.attempts)
        self._on_bound(assumed)

    def _release(self, binding: Binding) -> bool:
        """Undo reservations in reverse and the assumption; False if the watch has already taken the pod over."""
        for plugin in reversed(binding.profile.reserve):
            plugin.unreserve(binding.state, binding.assumed, binding.assumed.node_name)
        try:
            self._cluster.forget(binding.assumed)
        except AssumptionError:
            return False
        return True

    def _undo_error(self, binding: Binding, message: str) -> None:
        binding.record.result, binding.record.message = "error", message
        if self._release(binding):
            self._queue.move_all(ASSIGNED_POD_DELETE, binding.assumed, None)
        self._failures.error(binding.queued, message=message, took_s=self._clock.now() - binding.popped_at)

    def _undo_refused(self, binding: Binding, no: Rejection) -> None:
        diagnosis = one_node(no)
        binding.record.result, binding.record.message = "unschedulable", diagnosis.message()
        released = self._release(binding)
        took_s = self._clock.now() - binding.popped_at
        self._failures.unfit(binding.queued, diagnosis, message=diagnosis.message(), nominate="", took_s=took_s)
        if released:
            uid = binding.assumed.uid
            self._queue.move_all(ASSIGNED_POD_DELETE, binding.assumed, None, concerns=lambda pod: pod.uid != uid)

    def _undo_dropped(self, binding: Binding) -> None:
        binding.record.result, binding.record.message = "error", "the pod is gone or was bound by somebody else"
        if self._release(binding):
            self._queue.move_all(ASSIGNED_POD_DELETE, binding.assumed, None)
        self._queue.done(binding.assumed.uid)
