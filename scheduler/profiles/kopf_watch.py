"""kopf, and all that there is of it: it watches our own API objects while everything else goes on without it.

Loaded only where the server has such objects, for that costs a second and some 40 MB; asked again once a minute. When a part of
it ends, whatever the reason, it is started anew after a pause, and the objects are looked at once a minute meanwhile: no
pod waits for the shell. It writes nothing, neither to objects nor Events; it has no say in signals and logging.
Rules: docs/adr/0006.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import structlog

from scheduler.core.clock import Clock
from scheduler.kube.resources import SCHEDULER_PROFILE, Unanswered, discover
from scheduler.kube.transport import SharedSession
from scheduler.kube.wire import Transport
from scheduler.metrics.instruments import ShellInstruments
from scheduler.profiles.objects import ProfileObjects

if TYPE_CHECKING:
    from types import ModuleType

_log = structlog.get_logger(__name__)

ASK_EVERY_S: Final = 60.0
"""Whether the server has our kind by now."""
PAUSE_S: Final = 1.0
"""Before it is started anew, doubling up to a minute; a shell that ran for so long begins with the first again."""
LONGEST_PAUSE_S: Final = 60.0
UNREAD_S: Final = 10.0
"""Before a server is asked again that did not let us read, or did not answer: then after one second, doubling up to this."""
_STOP_S: Final = 10.0
_IDENTITY: Final = "kubestow"
_PREFIX: Final = "kubestow.dev"
_UNTOLD: Final = "credentials retriever"
"""A task that kopf keeps to itself; without it whoever is refused waits for ever."""


class Shell:
    """One per daemon. `run` never fails; cancelled, it takes its tasks with it."""

    def __init__(
        self,
        transport: Transport,
        shared_session: Callable[[], SharedSession],
        objects: ProfileObjects,
        clock: Clock,
        *,
        metrics: ShellInstruments,
        reclaim_signals: Callable[[], None],
    ) -> None:
        """`reclaim_signals` puts the process's own handlers back: kopf takes SIGTERM and SIGINT whenever it starts."""
        self._transport = transport
        self._shared_session = shared_session
        self._objects = objects
        self._clock = clock
        self._metrics = metrics
        self._reclaim_signals = reclaim_signals
        self._pause_s = PAUSE_S
        self._why = ""
        """Why it does not run; "" while it does, and where there is nothing to watch."""

    async def looked_within(self, limit_s: float) -> None:
        """Wait until it is known what is wished for, or that nobody can tell; but no longer than this."""
        await self._objects.looked_within(limit_s)

    def wake(self) -> None:
        """This process leads from now on: what is known is to be told."""
        self._objects.wake()

    def remark(self) -> str:
        """What is wrong, in a line; "" if nothing is. Readiness does not depend on it."""
        down = self._why and f"the shell is down, changes are noticed once a minute: {self._why}"
        return "; ".join(filter(None, (down, self._objects.remark())))

    async def run(self) -> None:
        """Watch as long as there is something to be watched."""
        following: asyncio.Task[None] | None = None
        unanswered_s = PAUSE_S
        try:
            while True:
                is_served = await self._is_served()
                if is_served is None:
                    await self._clock.sleep(unanswered_s)
                    unanswered_s = min(2 * unanswered_s, UNREAD_S)
                    continue
                unanswered_s = PAUSE_S
                if not is_served:
                    self._objects.looked.set()
                    self._why = ""
                    await self._clock.sleep(ASK_EVERY_S)
                    continue
                following = following or asyncio.ensure_future(self._objects.follow())
                await self._objects.looked.wait()
                if self._objects.unread:  # what we may not list kopf may not either, and it would end of that
                    await self._clock.sleep(UNREAD_S)
                    continue
                await self._watch_and_rest()
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _is_served(self) -> bool | None:
        """None: nobody answers."""
        try:
            found = await discover(self._transport, [SCHEDULER_PROFILE])
        except Unanswered:
            return None
        except Exception:  # noqa: BLE001 (whatever it is, scheduling goes on without)
            _log.exception("the shell cannot ask what is served")
            return None
        return found[SCHEDULER_PROFILE.name] is not None

    async def _watch_and_rest(self) -> None:
        began = self._clock.now()
        self._why = await self._watch()
        self._metrics.restarted()
        if self._clock.now() - began > LONGEST_PAUSE_S:
            self._pause_s = PAUSE_S
        _log.warning("the shell ended, it is started anew", why=self._why, in_s=self._pause_s)
        await self._clock.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    async def _watch(self) -> str:
        """Until a part of it ends; why it did."""
        stop, shared_session, settings = asyncio.Event(), self._shared_session(), None
        tasks: Collection[asyncio.Task[Any]] = ()
        try:
            kopf = await asyncio.to_thread(_kopf)  # the loop goes on, if in small steps
            settings = _settings(kopf)
            spawning = asyncio.ensure_future(self._spawn(kopf, settings, shared_session=shared_session, stop=stop))
            try:
                tasks = await asyncio.shield(spawning)
            except asyncio.CancelledError:
                with contextlib.suppress(Exception):
                    tasks = await spawning
                raise
            self._why = ""
            self._metrics.up(True)
            self._objects.listen()
            return await self._ended(tasks)
        except Exception as error:  # noqa: BLE001 (whatever it is, scheduling goes on without)
            return repr(error)
        finally:
            self._metrics.up(False)
            await _stopped(tasks, stop)
            await _stopped(_strays(settings), stop)
            await _closed(shared_session)

    async def _ended(self, tasks: Collection[asyncio.Task[Any]]) -> str:
        """Once one of them has, or none of them will tell of changes (a watch may fall silent, or the kind has gone)."""
        deaf = asyncio.ensure_future(self._objects.deaf.wait())
        try:
            done, _ = await asyncio.wait({*tasks, deaf}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            deaf.cancel()
        return "; ".join(self._objects.why_deaf if task is deaf else _ending(task) for task in done)

    async def _spawn(
        self, kopf: ModuleType, settings: object, *, shared_session: SharedSession, stop: asyncio.Event
    ) -> Collection[asyncio.Task[Any]]:
        """In a task of its own: what kopf notes of itself in the context is of no concern to others."""
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)  # type: ignore[untyped-decorator, unused-ignore]
        async def _login(**_: Any) -> object:
            session = await shared_session.session()
            return (
                None if session is None else kopf.AiohttpSession(server=shared_session.server, aiohttp_session=session)
            )

        @kopf.on.event(*_KIND, registry=registry)  # type: ignore[untyped-decorator, unused-ignore]
        async def _event(event: Any, **_: Any) -> None:
            try:
                self._objects.seen(event["type"], event["object"])
            except Exception:  # noqa: BLE001 (kopf would say it in its own way, which is not heard)
                _log.exception("an event of a scheduler profile could not be taken in")

        before = asyncio.all_tasks()
        tasks: list[asyncio.Task[Any]] = await kopf.spawn_tasks(
            registry=registry,
            settings=settings,
            vault=None,
            identity=_IDENTITY,  # else it asks for the user's name, and in a container there may be none
            standalone=True,
            clusterwide=True,
            stop_flag=stop,
        )
        self._reclaim_signals()  # before the loop can deliver one
        return [*tasks, *(task for task in asyncio.all_tasks() - before if task.get_name() == _UNTOLD)]


_KIND: Final = (
    SCHEDULER_PROFILE.group,
    SCHEDULER_PROFILE.group_versions[0].rpartition("/")[2],
    SCHEDULER_PROFILE.plural,
)


def _kopf() -> ModuleType:
    """Loaded. It is silent unless libraries are asked to say everything: how it ends is said here, once."""
    import kopf

    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger("kopf").setLevel(logging.CRITICAL)
    return kopf


def _settings(kopf: ModuleType) -> Any:
    """No peering, no Events, no look at other kinds; and nothing that ends the process."""
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = None
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = (0.5, 1, 2, 4)
    settings.persistence.finalizer = (
        f"{_PREFIX}/kopf"  # there are none, and no annotations either: only events are heard
    )
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
    """What its parts begin beside themselves and leave behind when they are cancelled, as questions to discovery.

    Known by the settings that they were given: another daemon in this process may have a shell of its own.
    """
    frames = [(task, getattr(task.get_coro(), "cr_frame", None)) for task in asyncio.all_tasks()]
    return [task for task, frame in frames if frame and settings and frame.f_locals.get("settings") is settings]


async def _closed(shared_session: SharedSession) -> None:
    try:
        await shared_session.close()
    except Exception:  # noqa: BLE001 (what is left open costs a connection, and a part that fails the whole daemon)
        _log.exception("what was lent to the shell cannot be closed")


async def _stopped(tasks: Collection[asyncio.Task[Any]], stop: asyncio.Event) -> None:
    """All of them end; those that do not are left behind after some seconds, and said."""
    stop.set()
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    _, left = await asyncio.wait(tasks, timeout=_STOP_S)
    if left:
        _log.warning("parts of the shell do not end", parts=sorted(task.get_name() for task in left))
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # has been told, or is of no use any more
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # what was told to stop by the flag
