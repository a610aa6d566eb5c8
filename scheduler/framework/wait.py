"""Waits for a condition of an object, for responses to writes, and for Permit; and writes in the background.

Background writes release what a pod does not need (docs/architecture.md, "Design principles"). A write is retried until
the API server answers definitely, or for some minutes. A failed write is logged. After a pause, waiting pods of the claim
are retried: no event would wake them, and an immediate retry would be rejected again. An unexpected error is logged as
one and retried like an unavailable server. A caller that needs a claim waits for its background writes first. Otherwise a
late write could take something from a pod that is already running.

Pods that Permit holds are assumed and reserved, and wait for every plugin that said Wait (docs/spec/core.md §3.11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import structlog

from scheduler.api.podinfo import PodInfo
from scheduler.config.document import format_duration
from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import Ambiguous, ApiError, NotFound, Unavailable, UnforeseenErrors
from scheduler.core.retry import Retry
from scheduler.framework.status import Code, Rejection, Wait

Subscribe: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes a callback for each event; returns the function that ends the subscription."""


async def wait_until(  # noqa: PLR0913 (the inputs of a wait)
    is_done: Callable[[], bool],
    clock: Clock,
    deadline: float,
    *,
    subscribe: Subscribe | None = None,
    poll_s: Callable[[float], float] | None = None,
    on_poll: Callable[[float], None] | None = None,
    starts_with_poll: bool = False,
) -> bool:
    """Return True once `is_done` returns True, False at the deadline (by `clock.now()`).

    `is_done` is called at once (unless `starts_with_poll`), after each event, after each poll and at the deadline; an
    exception from it ends the wait. `poll_s` gets the seconds since the wait began and returns the seconds until the
    next poll. `on_poll` gets the same seconds at each poll, before `is_done` is called. Cancellation ends the
    subscription.
    """
    event = asyncio.Event()
    unsubscribe = subscribe(event.set) if subscribe is not None else None
    began = clock.now()
    try:
        if not starts_with_poll and is_done():
            return True
        next_poll = began + poll_s(0.0) if poll_s is not None else deadline
        while (now := clock.now()) < deadline:
            await done_within(clock, event.wait(), max(0.0, min(next_poll, deadline) - now))
            event.clear()
            now = clock.now()
            if poll_s is not None and now >= next_poll:
                next_poll = now + poll_s(now - began)
                if on_poll is not None:
                    on_poll(now - began)
            if is_done():
                return True
        return False
    finally:
        if unsubscribe is not None:
            unsubscribe()


T = TypeVar("T")


async def settle(write: Coroutine[Any, Any, T]) -> T:
    """Return the write's result, even if the caller is cancelled; the cancellation is raised again at the next await.

    Raise what the write raises. Each call costs a task, so use it for writes, not for reads.
    """
    sent = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(sent)
    except asyncio.CancelledError:
        if sent.cancelled():
            raise
        await asyncio.wait([sent])
        task = asyncio.current_task()
        if task is not None:
            task.cancel()
        return sent.result()


async def ended_within(tasks: Collection[asyncio.Task[Any]], limit_s: float, clock: Clock) -> None:
    """Return when all tasks have ended or the time is up, whichever comes first. No task is cancelled."""
    if tasks:
        await done_within(clock, asyncio.wait(list(tasks)), limit_s)


_log = structlog.get_logger(__name__)
_TRIES: Final = 10
_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_BEFORE_GIVEN_UP_S: Final = 5.0
_Key: TypeAlias = tuple[str, str]
"""The name of the write, and the uid of the object."""


class BackgroundWrites:
    """The background writes of one plugin. It needs a running event loop."""

    def __init__(self, clock: Clock, *, given_up: Callable[[str], None], errors: UnforeseenErrors) -> None:
        """Call `given_up` with the claim of each write that failed permanently."""
        self._errors = errors
        self._clock = clock
        self._given_up = given_up
        self._tasks: dict[_Key, asyncio.Task[bool]] = {}
        self._about: dict[str, set[asyncio.Task[bool]]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def run(self, write: Callable[[], Awaitable[None]], what: str, *, about: str, uid: str) -> None:
        """Start the write in the background, unless the same write for the same object is running.

        It must be safe to repeat. `what` names the write in the log; `about` is the claim as `namespace/name`. `uid`
        is the claim's: a claim that was deleted and created again under its name needs another write.
        """
        key = what, uid
        if key in self._tasks:
            return
        task = self._tasks[key] = asyncio.ensure_future(self._run(write, what, about))
        self._about.setdefault(about, set()).add(task)
        task.add_done_callback(lambda _: self._ended(task, key, about))

    async def done(self, about: Iterable[str]) -> None:
        """Return when no write for these claims is running. Cancellation does not cancel the writes."""
        keys = tuple(about)
        while tasks := [task for key in keys for task in self._about.get(key, ())]:
            await asyncio.wait(tasks)

    async def drain(self) -> None:
        """Return when no write is running. The caller limits the wait."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def _ended(self, task: asyncio.Task[bool], key: _Key, about: str) -> None:
        del self._tasks[key]
        writes = self._about[about]
        writes.discard(task)
        if not writes:
            del self._about[about]
        if not task.cancelled() and task.result():
            try:
                self._given_up(about)
            except Exception as error:  # noqa: BLE001 (in a callback of the event loop it would not be reported)
                self._errors.record("background-write", error, what=key[0], claim=about)

    async def _run(self, write: Callable[[], Awaitable[None]], what: str, about: str) -> bool:
        """Write until there is a definite answer; return whether the write was given up."""
        retry = Retry(self._clock, first_s=_PAUSE_S, longest_s=_LONGEST_PAUSE_S, tries=_TRIES)
        try:
            while True:
                try:
                    await write()
                    return False
                except NotFound:
                    return False  # the claim is deleted, so there is nothing to release
                except (Ambiguous, Unavailable) as error:
                    failed: ApiError = error
                except ApiError as error:
                    _log.info("background write not done", what=what, claim=about, error=str(error))
                    break
                except Exception as error:  # noqa: BLE001 (an unexpected error must not lose what is to be released)
                    self._errors.record(
                        "background-write", error, "a write in the background failed", what=what, claim=about
                    )
                    failed = Unavailable(repr(error))
                await retry.pause(failed)
        except ApiError as error:
            _log.warning("background write given up", what=what, claim=about, error=str(error))
        await self._clock.sleep(_BEFORE_GIVEN_UP_S)
        return True


MAX_WAIT_S: Final = 15 * 60.0


@dataclass(slots=True, eq=False)
class WaitingPod:
    """A pod that a Permit plugin holds, with the node that it will be bound to.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go WaitingPod
    """

    pod: PodInfo
    waits: Mapping[str, Wait]
    verdict: asyncio.Future[Rejection | None]
    allowed: set[str] = field(default_factory=set)

    def pending_plugins(self) -> list[str]:
        """Return the plugins that have not allowed the pod yet."""
        return [plugin for plugin in self.waits if plugin not in self.allowed]

    def allow(self, plugin: str) -> None:
        """Allow the pod for one plugin; the last one releases it."""
        self.allowed.add(plugin)
        if self.allowed.issuperset(self.waits) and not self.verdict.done():
            self.verdict.set_result(None)

    def reject(self, plugin: str, message: str) -> None:
        """Reject the pod; the first answer counts."""
        if not self.verdict.done():
            self.verdict.set_result(Rejection(plugin, Code.UNSCHEDULABLE, (message,)))


class WaitingPodsMap:
    """Waiting pods by uid. A pod is held from `hold` on, so an answer before `release` is kept.

    Upstream: pkg/scheduler/framework/runtime/waiting_pods_map.go waitingPodsMap, waitingPod
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, WaitingPod] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(tuple(self._held.values()))

    def get(self, uid: str) -> WaitingPod | None:
        """Return the waiting pod; None if it is not held."""
        return self._held.get(uid)

    def hold(self, pod: PodInfo, waits: Mapping[str, Wait]) -> None:
        """Begin to hold the assumed `pod`. Call `release` next, or `discard` if no caller will wait."""
        self._held[pod.uid] = WaitingPod(pod, waits, asyncio.get_running_loop().create_future())

    async def release(self, uid: str) -> Rejection | None:
        """Wait until all plugins allow it (None), one rejects it, or a time-out expires. Cancelling ends the hold."""
        held = self._held[uid]
        timers = [asyncio.ensure_future(self._expire(uid, plugin, wait)) for plugin, wait in held.waits.items()]
        try:
            return await held.verdict
        finally:
            self.discard(uid)
            for timer in timers:
                timer.cancel()

    def discard(self, uid: str) -> None:
        """Stop holding the pod, without an answer."""
        self._held.pop(uid, None)

    def is_held(self, uid: str) -> bool:
        return uid in self._held

    def reject(self, uid: str, plugin: str, message: str) -> None:
        """Reject the pod, as `WaitingPod.reject`. Unknown pods are ignored."""
        if (held := self._held.get(uid)) is not None:
            held.reject(plugin, message)

    def preempt(self, uid: str, plugin: str) -> bool:
        """Reject the pod for a preemptor, which is no fault of the pod. Returns False if it was already allowed."""
        held = self._held[uid]
        if not held.verdict.done():
            held.verdict.set_result(Rejection(plugin, Code.ERROR, ("preempted",)))
        return held.verdict.result() is not None

    async def _expire(self, uid: str, plugin: str, wait: Wait) -> None:
        limit_s = min(wait.timeout_s, MAX_WAIT_S)
        await self._clock.sleep(limit_s)
        held = self._held.get(uid)
        if held is not None and plugin not in held.allowed:
            waited = format_duration(limit_s)
            self.reject(uid, plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")
