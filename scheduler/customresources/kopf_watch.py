"""Watch our own objects with kopf. This is the only module that imports kopf.

kopf is loaded only if the server has one of the kinds, because it costs a second and about 40 MB; that is checked once a
minute. A kind that is missing or cannot be read does not affect the rest. If a part of kopf ends, it restarts after a pause. Until then the objects are listed once a minute. No pod
waits for kopf. It writes nothing, neither objects nor Events, and does not change signal handlers or logging. Rules:
docs/adr/0006.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from scheduler.core.clock import Clock
from scheduler.core.retry import Backoff
from scheduler.customresources.own_objects import OwnObjects
from scheduler.kube.http.shared_session import SharedSession
from scheduler.kube.resources import DiscoveryFailed, discover
from scheduler.kube.wire import Transport
from scheduler.metrics.instruments import OperatorInstruments

if TYPE_CHECKING:
    from types import ModuleType

_log = structlog.get_logger(__name__)

ASK_EVERY_S: Final = 60.0
"""Interval of checks whether the server has the kinds."""
PAUSE_S: Final = 1.0
"""Pause before a restart, doubling up to a minute. A watch that ran for a minute starts with the first pause again."""
LONGEST_PAUSE_S: Final = 60.0
UNREAD_S: Final = 10.0
"""Longest pause after a server that refused or did not answer: one second, doubling up to this."""
_STOP_S: Final = 10.0
_IDENTITY: Final = "kubestow"
_PREFIX: Final = "kubestow.dev"
_UNTOLD: Final = "credentials retriever"
"""Name of a task that kopf does not return. Without it, a refused client waits forever."""


@dataclass(eq=False, repr=False)
class Operator:
    """The watch; one per daemon. `run` never fails; cancelling it also ends its tasks."""

    transport: Transport
    shared_session: Callable[[], SharedSession]
    kinds: Sequence[OwnObjects]
    clock: Clock
    metrics: OperatorInstruments
    reclaim_signals: Callable[[], None]
    """Restores the process's handlers, because kopf takes SIGTERM and SIGINT at each start."""
    _why: str = field(default="", init=False)
    """Why the watch does not run; "" while it does, and if there is nothing to watch."""

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.clock, first_s=PAUSE_S, longest_s=LONGEST_PAUSE_S)

    def remark(self) -> str:
        """Return the problem in one line; "" if there is none. Readiness does not depend on it."""
        down = self._why and f"the shell is down, changes are noticed once a minute: {self._why}"
        return "; ".join(filter(None, (down, *(objects.remark() for objects in self.kinds))))

    def wake(self) -> None:
        """Write statuses again: the leader may have changed."""
        for objects in self.kinds:
            objects.wake()

    async def run(self) -> None:
        """Watch the kinds that the server has."""
        following: dict[str, asyncio.Task[None]] = {}
        unanswered = Backoff(self.clock, first_s=PAUSE_S, longest_s=UNREAD_S)
        try:
            while True:
                served = await self._served()
                if served is None:
                    await unanswered.next()
                    continue
                unanswered.reset()
                for objects in self.kinds:
                    if objects not in served:
                        objects.looked.set()
                if not served:
                    self._why = ""
                    await self.clock.sleep(ASK_EVERY_S)
                    continue
                for objects in served:
                    if objects.spec.name not in following:
                        following[objects.spec.name] = asyncio.ensure_future(objects.follow())
                for objects in served:
                    await objects.looked.wait()
                readable = _readable(served)
                if not readable:  # kopf could not list either, and would end
                    await self.clock.sleep(UNREAD_S)
                    continue
                await self._watch_and_rest(readable)
        finally:
            for task in following.values():
                task.cancel()
            await asyncio.gather(*following.values(), return_exceptions=True)

    async def _served(self) -> Sequence[OwnObjects] | None:
        """Return the kinds that the server has; None without an answer."""
        try:
            found = await discover(self.transport, [objects.spec for objects in self.kinds])
        except DiscoveryFailed:
            return None
        except Exception:  # noqa: BLE001 (whatever it is, scheduling goes on without)
            _log.exception("API discovery for our own objects failed")
            return None
        return [objects for objects in self.kinds if found[objects.spec.name] is not None]

    async def _more_appear(self, watched: Collection[OwnObjects]) -> None:
        """Return once a kind can be watched that is not. Waits permanently if all are."""
        while len(watched) < len(self.kinds):
            await self.clock.sleep(ASK_EVERY_S)
            served = await self._served() or ()
            if any(objects not in watched for objects in _readable(served)):
                return
        await asyncio.Event().wait()

    async def _watch_and_rest(self, watched: Collection[OwnObjects]) -> None:
        began = self.clock.now()
        self._why = await self._watch(watched)
        if not self._why:
            return
        self.metrics.restarted()
        if self.clock.now() - began > LONGEST_PAUSE_S:
            self._backoff.reset()
        pause_s = self._backoff.next_s()
        _log.warning("the watch of our own objects ended and restarts", why=self._why, in_s=pause_s)
        await self.clock.sleep(pause_s)

    async def _watch(self, watched: Collection[OwnObjects]) -> str:
        """Run kopf until one of its parts ends; return the reason, and "" if more kinds can be watched."""
        stop, shared_session, settings = asyncio.Event(), self.shared_session(), None
        tasks: Collection[asyncio.Task[Any]] = ()
        try:
            kopf = await asyncio.to_thread(_kopf)  # the event loop continues in small steps
            settings = _settings(kopf)
            spawning = asyncio.ensure_future(
                self._spawn(kopf, settings, watched, shared_session=shared_session, stop=stop)
            )
            try:
                tasks = await asyncio.shield(spawning)
            except asyncio.CancelledError:
                with contextlib.suppress(Exception):
                    tasks = await spawning
                raise
            self._why = ""
            self.metrics.up(True)
            for objects in watched:
                objects.listen()
            return await self._ended(tasks, watched)
        except Exception as error:  # noqa: BLE001 (whatever it is, scheduling goes on without)
            return repr(error)
        finally:
            self.metrics.up(False)
            await _stopped(tasks, stop)
            await _stopped(_strays(settings), stop)
            try:
                await shared_session.close()
            except Exception:  # noqa: BLE001 (what is left open costs a connection, and a part that fails the daemon)
                _log.exception("what was lent to the shell cannot be closed")

    async def _ended(self, tasks: Collection[asyncio.Task[Any]], watched: Collection[OwnObjects]) -> str:
        """Return the reason once a task has ended, or once no task reports changes (a silent watch, a deleted kind).

        Returns "" once another kind can be watched.
        """
        deaf = {asyncio.ensure_future(objects.deaf.wait()): objects for objects in watched}
        more = asyncio.ensure_future(self._more_appear(watched))
        try:
            done, _ = await asyncio.wait({*tasks, *deaf, more}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in (*deaf, more):
                waiting.cancel()
        whys = (deaf[task].why_deaf if task in deaf else _ending(task) for task in done if task is not more)
        return "; ".join(whys)

    async def _spawn(
        self,
        kopf: ModuleType,
        settings: object,
        watched: Collection[OwnObjects],
        *,
        shared_session: SharedSession,
        stop: asyncio.Event,
    ) -> Collection[asyncio.Task[Any]]:
        """Start kopf in a separate task, because kopf stores data in the context."""
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)  # type: ignore[untyped-decorator, unused-ignore]
        async def _login(**_: Any) -> object:
            session = await shared_session.session()
            return (
                None if session is None else kopf.AiohttpSession(server=shared_session.server, aiohttp_session=session)
            )

        for objects in watched:
            self._listen(kopf, registry, objects)
        before = asyncio.all_tasks()
        tasks: list[asyncio.Task[Any]] = await kopf.spawn_tasks(
            registry=registry,
            settings=settings,
            vault=None,
            identity=_IDENTITY,  # otherwise kopf reads the user's name, which may not exist in a container
            standalone=True,
            clusterwide=True,
            stop_flag=stop,
        )
        self.reclaim_signals()  # before the loop can deliver a signal
        return [*tasks, *(task for task in asyncio.all_tasks() - before if task.get_name() == _UNTOLD)]

    def _listen(self, kopf: ModuleType, registry: object, objects: OwnObjects) -> None:
        """Register a handler for all events of a kind."""
        group, version = objects.spec.group_versions[0].split("/")

        @kopf.on.event(group, version, objects.spec.plural, registry=registry)  # type: ignore[untyped-decorator, unused-ignore]
        async def _event(event: Any, **_: Any) -> None:
            try:
                objects.seen(event["type"], event["object"])
            except Exception:  # noqa: BLE001 (kopf would say it in its own way, which is not heard)
                _log.exception("an event could not be taken in", kind=objects.spec.name)


def is_left_by_kopf(task: object) -> bool:
    """Return whether kopf started this task.

    Of several requests at once, kopf reports the first that fails, and the shell names it. The remaining
    errors stay in tasks that no code waits for.
    """
    kopf = sys.modules.get("kopf")
    if kopf is None or not isinstance(task, asyncio.Task):
        return False
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and Path(code.co_filename).is_relative_to(kopf.__path__[0])


def _readable(served: Collection[OwnObjects]) -> Collection[OwnObjects]:
    return [objects for objects in served if objects.looked.is_set() and not objects.unread]


def _kopf() -> ModuleType:
    """Import kopf with its logging off. The reason of its end is logged here, once."""
    import kopf

    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger("kopf").setLevel(logging.CRITICAL)
    return kopf


def _settings(kopf: ModuleType) -> Any:
    """Return settings without peering, Events and other kinds, and without anything that ends the process."""
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = None
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.watching.chunk_size = 100
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = (0.5, 1, 2, 4)
    settings.persistence.finalizer = f"{_PREFIX}/kopf"  # kopf stores nothing, because all handlers are for events
    settings.persistence.progress_storage = kopf.StatusProgressStorage(name=_PREFIX)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=_PREFIX)
    settings.execution.max_workers = 1
    return settings


def _ending(task: asyncio.Task[Any]) -> str:
    if task.cancelled():
        return f"{task.get_name()} was cancelled"
    error = task.exception()
    return f"{task.get_name()}: {error!r}" if error is not None else f"{task.get_name()} ended"


def _strays(settings: object) -> Collection[asyncio.Task[Any]]:
    """Return tasks that kopf's parts start and leave behind when they are cancelled, such as discovery requests.

    They are recognized by their settings: another daemon in this process may run kopf, too.
    """
    frames = [(task, getattr(task.get_coro(), "cr_frame", None)) for task in asyncio.all_tasks()]
    return [task for task, frame in frames if frame and settings and frame.f_locals.get("settings") is settings]


async def _stopped(tasks: Collection[asyncio.Task[Any]], stop: asyncio.Event) -> None:
    """End all tasks. Tasks that do not end within some seconds are abandoned and logged."""
    stop.set()
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    _, unfinished = await asyncio.wait(tasks, timeout=_STOP_S)
    if unfinished:
        _log.warning("parts of the shell do not end", parts=sorted(task.get_name() for task in unfinished))
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # the error was reported, or is irrelevant now
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # tasks that end when the flag is set
