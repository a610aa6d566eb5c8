"""The binding cycle: Permit, PreBind, a second check, and Bind in one background task per pod, or undo.

A write that was sent is awaited until its answer; cancellation acts between writes (docs/architecture.md, "Design
principles"). Changes of cache and queue go through the inbox. Rules: docs/spec/core.md §3.11, §3.12, §2.6.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Final

import structlog

from scheduler.api.decode import Broken
from scheduler.api.pod_group import GroupKey
from scheduler.api.podinfo import PodInfo
from scheduler.barriers import Barriers
from scheduler.binding_state import GONE, Binding, BindingRejected, Dropped, PodWatch, UnknownOutcomes, why_ended
from scheduler.cache.cluster import AssumptionError
from scheduler.context import Shared
from scheduler.controllers.kubelet_rejections import KubeletRejections
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE
from scheduler.core.cooperative import finish
from scheduler.core.errors import Ambiguous, ApiError, Conflict, NotFound, TooManyRequests, Unavailable
from scheduler.core.retry import BusyRetry, Retry
from scheduler.failure import FailureHandler
from scheduler.framework.extender import Extender, ExtenderError
from scheduler.framework.interface import BindPlugin, PreBindPlugin
from scheduler.framework.status import AttemptError, Code, Rejection, Skip, one_node
from scheduler.framework.wait import WaitingPodsMap, ended_within

_log = structlog.get_logger(__name__)

WRITES_IN_FLIGHT: Final = 128
"""Bindings in flight; more would only wait in the API server."""
MAX_DISCONNECTED_S: Final = 10.0
"""No Binding is sent after the watch of pods was disconnected for longer, because bindings of other schedulers are
not seen.

An ordinary reconnect takes less than a second; the back-off of a failing watch reaches 10 s.
"""
_STREAM_POLL_S: Final = 0.5
_BIND_TRIES: Final = 3
_RETRIED: Final = frozenset({0, 500, 503})
"""Statuses after which kube-scheduler repeats a Binding from 1.37 on; 0 is a failed connection."""
_ANSWER_S: Final = 10.0
"""Time for the answer of a write in flight after cancelling."""


@dataclass(eq=False, repr=False)
class Binder:
    """Start and track binding tasks. `in_flight` counts those that only wait for answers.

    Upstream: pkg/scheduler/schedule_one.go bindingCycle, runBindingCycle, handleBindingCycleError
    """

    shared: InitVar[Shared]
    failures: FailureHandler
    refusals: KubeletRejections
    pod_watch: PodWatch
    waiting_pods: WaitingPodsMap
    """Pods that Permit holds. Plugins allow or reject them; event handlers remove deleted ones."""
    binder_for: Callable[[PodInfo], Extender | None]
    """Returns the extender that binds a pod."""
    retries: bool = False
    """Whether a Binding that the server could not carry out is repeated."""

    def __post_init__(self, shared: Shared) -> None:
        self._cluster = shared.cluster
        self._queue = shared.queue
        self._inbox = shared.inbox
        self._writer = shared.writer
        self._recorder = shared.recorder
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._errors = shared.errors
        self._is_held_back = False
        self._unknown = UnknownOutcomes(shared.clock)
        self._room = asyncio.Semaphore(WRITES_IN_FLIGHT)
        self._tasks: dict[asyncio.Task[None], Binding] = {}
        self._uids: dict[str, int] = {}
        self._preparing = 0
        self.barriers = Barriers(shared, self._tasks, self.waiting_pods, self._changed_node_rejection)

    # -- for the scheduling loop -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def in_flight(self) -> int:
        """Return the number of bindings but those in Permit and PreBind, which may take minutes."""
        return len(self._tasks) - len(self.waiting_pods) - self._preparing

    def groups(self) -> set[GroupKey]:
        """Return the groups that wait at a barrier, or have passed it and are being bound. O(bindings)."""
        return {each.barrier.group for each in self._tasks.values() if each.barrier is not None}

    def oldest_s(self) -> float:
        """Return how long ago the oldest running binding left the queue; 0 if there is none. Constant cost."""
        oldest = next(iter(self._tasks.values()), None)
        return 0.0 if oldest is None else self._clock.now() - oldest.popped_at

    def remark(self) -> str:
        """Return why bindings are not sent or do not end; "" normally."""
        lost_s = self.pod_watch.disconnected_s()
        held_back = f"no Binding is sent: the watch of pods has been disconnected for {lost_s:.0f} s"
        return "; ".join(filter(None, (held_back if lost_s > MAX_DISCONNECTED_S else "", self._unknown.text())))

    def start(self, binding: Binding) -> None:
        """Take over an assumed pod with its reservations; from here on this module undoes them."""
        uid = binding.assumed.uid
        if binding.waits:
            self.waiting_pods.hold(binding.assumed, binding.waits)
        self._uids[uid] = self._uids.get(uid, 0) + 1
        if binding.barrier is not None:
            binding.barrier.join(binding)
        task = asyncio.create_task(self._run(binding))
        self._tasks[task] = binding
        task.add_done_callback(self._ended)

    async def drain(self, limit_s: float) -> int:
        """Let bindings finish; after `limit_s` cancel the rest and wait for answers to sent writes.

        Returns how many were cancelled. Gives up after some more seconds without answers.
        """
        await ended_within(self._tasks, limit_s, self._clock)
        for task, binding in (bindings := list(self._tasks.items())):
            binding.is_cancelled = True
            if not binding.is_sending and not binding.preempted_by:
                task.cancel()
        await ended_within(self._tasks, _ANSWER_S, self._clock)
        return len(bindings)

    def has(self, uid: str) -> bool:
        """Return whether a binding of this pod is running."""
        return uid in self._uids

    def preempt(self, uid: str, plugin: str) -> bool:
        """Cancel the binding of a pod for a preemptor. Returns False if its Binding was sent, or if there is none."""
        if self.waiting_pods.is_held(uid):
            return self.waiting_pods.preempt(uid, plugin)
        for task, binding in self._tasks.items():
            if binding.assumed.uid == uid and binding.is_preparing:
                if not binding.preempted_by:  # only once: then it waits for an answer
                    binding.preempted_by = plugin
                    self.barriers.given_up.add(uid)
                    task.cancel()
                return True
        return False

    def gives_way(self, uid: str) -> bool:
        """Return whether the binding is being cancelled for a preemptor."""
        return uid in self._uids and any(b.preempted_by for b in self._tasks.values() if b.assumed.uid == uid)

    # -- one binding -------------------------------------------------------------------------------------------------

    def _ended(self, task: asyncio.Task[None]) -> None:
        binding = self._tasks.pop(task)
        uid = binding.assumed.uid
        self._unknown.discard(uid)
        self.barriers.given_up.discard(uid)
        self._uids[uid] -= 1
        if not self._uids[uid]:
            del self._uids[uid]
            self.waiting_pods.discard(uid)  # it was cancelled before it ran
        self._inbox.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.record("binding", error, "a binding's end was not handled", pod=binding.assumed.key)

    async def _run(self, binding: Binding) -> None:
        began = self._clock.now()
        try:
            await self._bind_with_group(binding)
        except BindingRejected as refused:
            if refused.is_late:
                self._inbox.put(partial(self._undo_failed, binding, refused.rejection.message, is_refusal=True))
            else:
                self._inbox.put(partial(self._undo_refused, binding, refused.rejection))
        except Dropped:
            self._inbox.put(partial(self._undo_dropped, binding))
        except asyncio.CancelledError as cancelled:
            self._inbox.put(partial(self._undo_failed, binding, why_ended(binding, cancelled)))
            raise
        except (AttemptError, ApiError) as error:
            self._inbox.put(partial(self._undo_failed, binding, why_ended(binding, error)))
        except Exception as error:  # noqa: BLE001 (one of the two places: an unforeseen failure costs this pod one attempt)
            self._errors.record("binding", error, "binding failed", pod=binding.assumed.key)
            self._inbox.put(partial(self._undo_failed, binding, why_ended(binding, error)))
        else:
            self._succeeded(binding)
        finally:
            binding.record.binding_s = self._clock.now() - began

    async def _bind_with_group(self, binding: Binding) -> None:
        """Bind. A failure before the barrier opens counts against the group, and may end it."""
        try:
            await self._bind(binding)
        except BaseException as error:
            self.barriers.leave(binding, why_ended(binding, error))
            raise
        else:
            self.barriers.leave(binding, "")

    async def _no_plan(self) -> None:
        """Block while placements of an unfinished plan are in the cache: they would refuse nodes that they may not keep."""
        while self._cluster.is_planning:
            await self._inbox.caught_up()

    async def _bind(self, binding: Binding) -> None:
        active = self._flight_check(binding)
        barrier = binding.barrier
        if active or binding.waits or barrier is not None:
            is_brief = not binding.waits and all(getattr(plugin, "is_brief", False) for plugin in active)
            self.failures.expect(binding.assumed, is_brief=is_brief)
        if binding.waits:
            await self._wait_on_permit(binding)
        self._inbox.put(partial(self._queue.done, binding.assumed.uid))
        if active or barrier is not None:
            if barrier is not None:
                barrier.raise_failure()
            binding.is_preparing = True
            self._preparing += 1
            try:
                if active:
                    await self._pre_bind(binding, active)
                elif barrier is not None:
                    await self.barriers.halfway(binding, barrier)
                if barrier is not None:
                    await self._no_plan()
                    await self.barriers.wait(binding, barrier)
            finally:
                self._preparing -= 1
            binding.is_preparing = False
        binding.is_prepared = True
        if binding.preempted_by:  # at the end of PreBind, which did not notice it
            raise asyncio.CancelledError
        async with self._room:
            if (patch := self.failures.withdraw(binding.assumed.uid)) is not None:
                await asyncio.wait([patch])
            binding.kept_on = "" if binding.profile.ours.parity else binding.assumed.node_name
            await self._commit(binding)

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
        rejection = await self.waiting_pods.release(binding.assumed.uid)
        self._metrics.permit_wait(
            (Code.SUCCESS if rejection is None else rejection.code).value, self._clock.now() - began
        )
        if rejection is not None and rejection.code.is_rejection:
            raise BindingRejected(rejection)
        if rejection is not None:
            raise AttemptError(f"waiting on permit for pod: {rejection.message}", plugin=rejection.plugin)

    async def _pre_bind(self, binding: Binding, active: list[PreBindPlugin]) -> None:
        """Run PreBind plugins: for a pod of a group those first that leave no trace when they are taken back."""
        with self._timed("PreBind", binding):
            if binding.barrier is not None:
                first = [plugin for plugin in active if getattr(plugin, "is_reversible", False)]
                active = [plugin for plugin in active if plugin not in first]
                await self._in_turn(binding, first)
                await self.barriers.halfway(binding, binding.barrier)
            await self._in_turn(binding, active)

    async def _in_turn(self, binding: Binding, plugins: Iterable[PreBindPlugin]) -> None:
        """Run the plugins. Neighbours that allow it run together; a failure cancels the rest between writes."""
        batch: list[PreBindPlugin] = []
        for plugin in plugins:
            if not getattr(plugin, "pre_bind_parallel", False):
                await self._together(binding, batch)
                batch = []
                await self._together(binding, [plugin])
            else:
                batch.append(plugin)
        await self._together(binding, batch)

    @contextlib.contextmanager
    def _timed(self, point: str, binding: Binding) -> Iterator[None]:
        """Time an extension point. A deleted pod and a cancellation are not recorded."""
        began = self._clock.now()
        code: Code | None = Code.ERROR
        try:
            yield
            code = Code.SUCCESS
        except BindingRejected as refused:
            code = refused.rejection.code
            raise
        except (Dropped, asyncio.CancelledError):
            code = None
            raise
        finally:
            if code is not None and not binding.preempted_by:
                self._metrics.point(point, code.value, binding.profile.name, self._clock.now() - began)

    async def _together(self, binding: Binding, plugins: list[PreBindPlugin]) -> None:
        if len(plugins) == 1:
            await self._pre_bind_one(binding, plugins[0])
        elif plugins:
            try:
                async with asyncio.TaskGroup() as group:
                    for plugin in plugins:
                        group.create_task(self._pre_bind_one(binding, plugin))
            except BaseExceptionGroup as several:
                raise _foremost(several) from None

    async def _pre_bind_one(self, binding: Binding, plugin: PreBindPlugin) -> None:
        try:
            rejection = await plugin.pre_bind(binding.state, binding.assumed, binding.assumed.node_name)
        except asyncio.CancelledError:
            if binding.aborted and not binding.preempted_by:
                raise AttemptError(binding.aborted) from None
            if not binding.preempted_by:
                raise
            why = f'running PreBind plugin "{plugin.name}": preempted by {binding.preempted_by}'
            raise AttemptError(why, plugin=plugin.name) from None
        if rejection is None:
            return
        if rejection.code.is_rejection:
            raise BindingRejected(rejection, is_late=True)
        raise AttemptError(f'running PreBind plugin "{plugin.name}": {rejection.message}', plugin=plugin.name)

    async def _last_check(self, binding: Binding) -> None:
        """Wait for a token and for the watch of pods, then check the node and record that the Binding is sent."""
        await self._writer.turn()
        await self._pods_followed()
        await self._no_plan()
        self._inbox.catch_up()  # what the watch has already delivered
        rejection = self._changed_node_rejection(binding)
        if rejection is not None:
            self._metrics.binding_conflict("node")
            raise BindingRejected(rejection)
        binding.record.seen_resource_version = self.pod_watch.version()
        self.refusals.sent(binding.assumed)

    def _changed_node_rejection(self, binding: Binding) -> Rejection | None:
        """Check the node in the newest cache without the pod itself: another scheduler may have been faster (D7)."""
        node_name = binding.assumed.node_name
        if self._cluster.decision_version(binding.assumed) == binding.decision_version:
            return None
        slot = self._cluster.nodes.present_slot(node_name)
        if slot is None:
            return Rejection("", Code.UNRESOLVABLE, ("node(s) had gone before the pod was bound",))
        itself = self._cluster.get(binding.assumed.uid) or binding.assumed
        with self._cluster.trial(remove=[itself]):
            return finish(binding.runner.check_node(binding.assumed, slot, binding.state))

    async def _commit(self, binding: Binding) -> None:
        extender = self.binder_for(binding.assumed)
        if extender is not None and await self._is_bound_by(extender, binding):
            return
        with self._timed("Bind", binding):
            for plugin in binding.profile.bind:
                try:
                    answer = await self._resolved(binding, plugin)
                except ApiError as error:
                    what = f'running Bind plugin "{plugin.name}": {error.message}'
                    raise AttemptError(what, plugin=plugin.name) from error
                if isinstance(answer, Skip):
                    continue
                if answer is not None and answer.code.is_rejection:
                    raise BindingRejected(answer, is_late=True)
                if answer is not None:
                    raise AttemptError(f'running Bind plugin "{plugin.name}": {answer.message}', plugin=plugin.name)
                return
            raise AttemptError("no Bind plugin took the pod")

    async def _is_bound_by(self, extender: Extender, binding: Binding) -> bool:
        """Let the extender bind the pod. Return False if it failed and is ignorable, so that Bind plugins bind the pod.

        After an error that is no answer of the extender, the pod is read: it may be bound nevertheless.

        Upstream: pkg/scheduler/schedule_one.go extendersBinding
        """
        await self._last_check(binding)
        try:
            binding.is_sending = True
            await extender.bind(binding.assumed, binding.assumed.node_name)
        except ExtenderError as error:
            binding.is_sending = False
            if not error.is_answer and await self._is_ours(binding):
                return True
            if not extender.is_ignorable:
                raise AttemptError(error.message) from error
            _log.info(
                "Skipping extender in bind as it returned error and has ignorable flag set",
                extender=extender.name,
                pod=binding.assumed.key,
                error=error.message,
            )
            return False
        finally:
            binding.is_sending = False
        return True

    async def _resolved(self, binding: Binding, plugin: BindPlugin) -> Rejection | Skip | None:
        """Bind.

        A busy server is waited for, a refusal is read, and a lost answer is read and repeated on the same node. With `retries`
        a failed server is tried again as well: if it had carried out the Binding, it answers with a Conflict.

        Upstream: pkg/scheduler/framework/plugins/defaultbinder/default_binder.go Bind
        """
        lost = 0
        busy = BusyRetry(self._clock)
        failing = Retry(self._clock, first_s=0.01, factor=5.0, tries=4 if self.retries else 1)
        while True:
            await self._last_check(binding)
            try:
                binding.is_sending = True
                return await plugin.bind(binding.state, binding.assumed, binding.assumed.node_name)
            except (Ambiguous, Conflict, NotFound) as error:  # something other than the pod may be missing
                if await self._is_ours(binding):
                    return None
                lost += 1
                if not isinstance(error, Ambiguous) or lost == _BIND_TRIES:
                    raise
            except TooManyRequests as error:
                binding.is_sending = False
                if binding.is_cancelled:
                    raise asyncio.CancelledError from error
                await busy.wait(error)
            except Unavailable as error:
                binding.is_sending = False
                if error.status not in _RETRIED:
                    raise
                if self.retries and binding.is_cancelled:
                    raise asyncio.CancelledError from error
                await failing.pause(error)
            finally:
                binding.is_sending = False

    async def _pods_followed(self) -> None:
        """Wait while the watch of pods is disconnected: the second check could not see bindings of other schedulers."""
        while self.pod_watch.disconnected_s() > MAX_DISCONNECTED_S:
            if not self._is_held_back:
                _log.warning("no binding is sent while the watch of pods is disconnected")
            self._is_held_back = True
            await self._clock.sleep(_STREAM_POLL_S)
        if self._is_held_back:
            _log.info("bindings are sent again")
        self._is_held_back = False

    async def _is_ours(self, binding: Binding) -> bool:
        """Return True if the API server has the pod on our node.

        Raises Dropped if the pod is deleted or on another node.

        Blocks until a read succeeds or the watch shows the pod: while the outcome is unknown, the pod stays assumed.
        """
        assumed = binding.assumed
        binding.is_sending = False
        retry = Retry(self._clock, first_s=0.1, factor=5.0, longest_s=10.0)
        while True:
            if binding.is_cancelled:
                raise asyncio.CancelledError
            try:
                pod = await self._writer.read_pod(assumed.pod.metadata.namespace, assumed.pod.metadata.name)
                if isinstance(pod, Broken) and not pod.metadata.uid:  # such as the page of a proxy
                    raise Unavailable(f"the answer is no pod: {pod.why}")
                break
            except ApiError as error:
                self._unknown.add(binding, error.message)
                await retry.pause(error)
                if self._is_shown(binding):
                    return True
        self._unknown.discard(assumed.uid)
        if pod is None or pod.metadata.uid != assumed.uid:
            raise Dropped
        node_name = pod.node_name if isinstance(pod, Broken) else pod.spec.node_name
        if node_name and node_name != assumed.node_name:
            self._metrics.binding_conflict("pod")
            raise Dropped
        if not node_name and pod.metadata.deletion_timestamp is not None:
            raise Dropped
        return bool(node_name)

    def _is_shown(self, binding: Binding) -> bool:
        """Return whether the watch has the pod on our node. Raises Dropped if it was shown elsewhere, or deleted."""
        assumed = binding.assumed
        self._inbox.catch_up()
        if self._cluster.is_assumed(assumed.uid) or self._cluster.is_broken(assumed.uid):
            return False  # the next read decides about an unreadable pod
        held = self._cluster.get(assumed.uid)
        if held is not None and held.node_name != assumed.node_name:
            self._metrics.binding_conflict("pod")
        if held is None or held.node_name != assumed.node_name:
            raise Dropped
        return True

    # -- outcomes ----------------------------------------------------------------------------------------------------

    def _succeeded(self, binding: Binding) -> None:
        queued, assumed, now = binding.queued, binding.assumed, self._clock.now()
        binding.record.result = "scheduled"
        self._cluster.answered(assumed.uid)
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
            try:
                plugin.post_bind(binding.state, assumed, assumed.node_name)
            except Exception as error:  # noqa: BLE001 (the pod is bound: nothing may undo that any more)
                self._errors.record("binding", error, "PostBind failed", plugin=plugin.name, pod=assumed.key)
        _log.debug("pod bound", pod=assumed.key, node=assumed.node_name, attempts=queued.attempts)

    def _release(self, binding: Binding) -> bool:
        """Undo reservations in reverse order, and the assumption; return False if the watch has confirmed the pod."""
        binding.runner.unreserve(binding.state, binding.assumed)
        try:
            self._cluster.forget(binding.assumed)
        except AssumptionError:
            return False
        return True

    def _undo_failed(self, binding: Binding, message: str, *, is_refusal: bool = False) -> None:
        """Undo after a failure.

        A refusal by PreBind counts as one, as upstream: plain text, no rejecting plugins, error back-off.
        """
        if self._was_carried_out(binding):
            return
        binding.record.result, binding.record.message = "unschedulable" if is_refusal else "error", message
        if self._release(binding):
            self._queue.move_all(ASSIGNED_POD_DELETE, binding.assumed, None)
        handle_error = partial(self.failures.handle_error, kept_on=binding.kept_on)
        fail = self.failures.refused_late if is_refusal else handle_error
        fail(binding.queued, message=message, took_s=self._clock.now() - binding.popped_at)

    def _undo_refused(self, binding: Binding, rejection: Rejection) -> None:
        if self._was_carried_out(binding):
            return
        diagnosis = one_node(rejection)
        binding.record.result, binding.record.message = "unschedulable", diagnosis.message()
        released = self._release(binding)
        took_s = self._clock.now() - binding.popped_at
        self.failures.handle_unschedulable(
            binding.queued, diagnosis, message=diagnosis.message(), nominate="", took_s=took_s
        )
        if released:
            assumed = binding.assumed
            self._queue.move_all(ASSIGNED_POD_DELETE, assumed, None, concerns=lambda pod: pod.uid != assumed.uid)

    def _was_carried_out(self, binding: Binding) -> bool:
        """Report success and return True if the watch shows the pod on our node, so that the failure was none."""
        assumed, held = binding.assumed, self._cluster.get(binding.assumed.uid)
        if held is None or held.node_name != assumed.node_name or self._cluster.is_assumed(assumed.uid):
            return False
        if not binding.is_prepared:  # another component bound it, so the remaining PreBind work is dropped
            binding.runner.unreserve(binding.state, assumed)
        self._queue.done(assumed.uid)
        self._succeeded(binding)
        return True

    def _undo_dropped(self, binding: Binding) -> None:
        if self._was_carried_out(binding):
            return
        binding.record.result, binding.record.message = "error", GONE
        if self._release(binding):
            self._queue.move_all(ASSIGNED_POD_DELETE, binding.assumed, None)
        self._queue.done(binding.assumed.uid)


def _foremost(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the most important error of parallel plugins: about the pod, then a failure, then a defect."""
    rank = {kind: at for at, kind in enumerate((BindingRejected, AttemptError, ApiError))}
    return min(several.exceptions, key=lambda error: rank.get(type(error), len(rank)))
