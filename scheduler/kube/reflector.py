"""Mirrors one kind: a complete first picture, then every change, whatever the server does with the connection.

A picture is complete or it is not shown: until a new one is, the old one stands, and what vanished meanwhile is then
reported as deleted. One object is decoded at a time, one batch of changes is handed on per network chunk, without a
task or an await per object. `run` never ends by itself and never dies of an answer.

Knows nothing of scheduling, nor which kinds there are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from scheduler.core import apijson
from scheduler.core.clock import Clock
from scheduler.core.decode import Broken, ObjectDecoder
from scheduler.core.deltas import Delta
from scheduler.core.errors import ApiError, Forbidden, Gone, Invalid, NotFound, TooManyRequests, Unauthorized
from scheduler.kube.backoff import Backoff
from scheduler.kube.envelopes import LINES, MARKS, Line, page_of
from scheduler.kube.kinds import KindSpec, Served, Unanswered
from scheduler.kube.stats import ReflectorStats
from scheduler.kube.store import Store, Stored
from scheduler.kube.wire import Transport, in_stream

_log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Stored)

INACTIVITY_S: Final = 80.0
"""Bookmarks come about once a minute: a line that is silent for longer is dead."""
_PAGE: Final = "500"
_TURN: Final = 200
"""Objects of a list decoded before the event loop gets a turn: some 3 ms."""
_ABSENT_S: Final = 60.0
_PATIENCE_S: Final = 1.0
_INCOMPLETE_PICTURES: Final = 2
"""WatchLists that ended properly but without their end mark: a server that ignores what it does not know. Then LIST."""
_LATE_PICTURES: Final = 3
"""WatchLists refused in a row because the server's cache lags behind its storage: LIST is answered from there."""
_STUCK: Final = 3
"""ERRORs in a row with which the server ended streams that had brought nothing: from there it cannot go on."""
_END_OF_PICTURE: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Ended:
    """The stream came to a proper end. `is_idle`: at once, and without having brought anything."""

    is_idle: bool


async def _nowhere_else() -> None:
    """There is only one place for it."""


def _nobody_asks(_is_served: bool) -> None:
    """It is all the same to them."""


class Reflector(Generic[T]):
    """One kind's mirror. `on_batch` is called synchronously and must not raise.

    Where a collection is not found, `locate` tells where the kind is by now, or None, or raises Unanswered. `on_served` is
    called like `on_batch`: False once the server has the kind no more, True with each complete picture.
    """

    def __init__(  # noqa: PLR0913 (collaborators)
        self,
        spec: KindSpec,
        served: Served,
        *,
        decoder: ObjectDecoder[T],
        transport: Transport,
        on_batch: Callable[[list[Delta[T]]], None],
        clock: Clock,
        chance: random.Random,
        locate: Callable[[], Awaitable[Served | None]] = _nowhere_else,
        on_served: Callable[[bool], None] = _nobody_asks,
    ) -> None:
        self.spec = spec
        self.served = served
        """Where it is read, or was until the server had it no more (`stats.absent`)."""
        self.store: Store[T] = Store()
        self.synced = asyncio.Event()
        """Set from the first complete picture on."""
        self.stats = ReflectorStats(clock, last_byte_at=clock.now())
        self._decoder = decoder
        self._transport = transport
        self._on_batch = on_batch
        self._locate = locate
        self._on_served = on_served
        self._clock = clock
        self._chance = chance
        self._backoff = Backoff(clock, chance)
        self._version = ""
        self._cause = "start"
        self._can_watch_list = True
        self._incomplete = 0
        self._late = 0
        self._errors = 0
        self._picture: dict[str, T | Broken] | None = None
        self._has_progressed = False

    @property
    def version(self) -> str:
        """The newest resourceVersion that the server has shown; "" without a picture, and while a fresh one is fetched."""
        return self._version

    async def run(self) -> None:
        """Mirror until cancelled."""
        while True:
            outcome = await self._follow()
            if isinstance(outcome, Invalid) and self._can_watch_list and self._picture is not None:
                self._can_watch_list = False  # no WatchList here: the next way through begins with a LIST
                continue
            if isinstance(outcome, ApiError):
                self._note(outcome)
            match outcome:
                case Ended(is_idle=False):  # server's time limit, or it just felt like it: resume where we were
                    self._backoff.reset()
                case Ended():
                    await self._backoff.next()
                case Forbidden() | Unauthorized():
                    await self._backoff.longest()
                case NotFound():
                    await self._look_around()
                case TooManyRequests(retry_after_s=float(wait_s)):
                    await self._clock.sleep(wait_s + self._chance.uniform(0.0, 1.0))
                case ApiError():
                    if cause := self._lost_by(outcome):
                        self._start_over(cause)
                    await self._backoff.next()

    async def _look_around(self) -> None:
        """Not found where it was: moved to another version, or gone. What is mirrored stays until there is a new picture."""
        try:
            served = await self._locate()
        except Unanswered as why:
            self.stats.last_error = str(why)
            await self._backoff.next()
            return
        if served is not None:
            if served != self.served:
                _log.warning("kind is served elsewhere now", kind=self.spec.name, was=self.served.path, now=served.path)
                self.served = served
                self._start_over("moved")
            await self._backoff.next()
            return
        if not self.stats.absent:
            _log.warning("kind is not served any more", kind=self.spec.name)
        self.stats.absent = True
        self._start_over("absent")
        self._on_served(False)
        await self._backoff.pause(_ABSENT_S)

    async def _follow(self) -> Ended | ApiError:
        """One way through: a picture if there is none, then the stream until it ends. How it ended is the value."""
        self._has_progressed = False
        self._picture = None
        try:
            if not self._version and self._can_watch_list and self._late < _LATE_PICTURES:
                self._picture = {}
            elif not self._version:
                await self._list()
            return await self._stream()
        except ApiError as error:
            return error

    # -- the first picture -----------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """Page by page; consistent, because it asks for no particular version."""
        query = {"limit": _PAGE} | self._selection()
        objects: list[T | Broken] = []
        while True:
            page = page_of(await self._transport.list(self.served.path, query))
            self._heard()
            for n, raw in enumerate(page.items or (), start=1):
                if (obj := self._decode(raw)) is not None:
                    objects.append(obj)
                if n % _TURN == 0:
                    await asyncio.sleep(0)
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self._replace(objects, page.metadata.resource_version)

    def _replace(self, objects: Iterable[T | Broken], version: str) -> None:
        deltas, vanished = self.store.replace(sorted(objects, key=_age) if self.spec.by_age else objects)
        self._version = version
        self._incomplete = self._late = self._errors = 0
        _count(self.stats.relists, self._cause)
        self.stats.synthesised_deletes += vanished
        self.stats.synced = True
        self._deliver(deltas)
        self._on_served(True)
        self.synced.set()

    def _lost_by(self, outcome: ApiError) -> str:
        """Why only a fresh picture can bring us further; "" if the stream may be resumed. The old one stands until then."""
        if self._picture is not None and _is_from_the_future(outcome):
            self._late += 1
            return ""
        if isinstance(outcome, Gone) or _is_from_the_future(outcome):  # history compacted, or it is another
            return "gone"
        if self._errors < _STUCK:
            return ""
        self._can_watch_list &= self._picture is None
        return "error"

    def _start_over(self, cause: str) -> None:
        self._version = ""
        self._cause = cause
        self._errors = 0

    # -- the stream ------------------------------------------------------------------------------------------------

    async def _stream(self) -> Ended:
        query = self._stream_query()
        started = self._clock.now()
        async with self._transport.watch(self.served.path, query, inactivity_timeout_s=INACTIVITY_S) as chunks:
            self._heard()
            rest = b""
            async for chunk in chunks:
                self._heard()
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                self._read(lines)
        if self._picture is not None:
            self._incomplete += 1
            self._can_watch_list = self._incomplete < _INCOMPLETE_PICTURES
        return Ended(is_idle=not self._has_progressed and self._clock.now() - started < _PATIENCE_S)

    def _stream_query(self) -> dict[str, str]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._chance.randint(300, 600)),
        } | self._selection()
        if self._picture is not None:
            return query | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return query | {"resourceVersion": self._version}

    def _selection(self) -> dict[str, str]:
        return {"fieldSelector": self.spec.field_selector} if self.spec.field_selector else {}

    def _read(self, lines: Iterable[bytes]) -> None:
        """Apply complete lines and hand on what changed, also when an ERROR ends the stream among them."""
        deltas: list[Delta[T]] = []
        try:
            for line in lines:
                if line:
                    self._apply(line, deltas)
        finally:
            self._deliver(deltas)

    def _apply(self, line: bytes, deltas: list[Delta[T]]) -> None:
        try:
            event = apijson.decode(LINES, line)
        except (msgspec.DecodeError, ValueError) as error:
            self._unreadable(str(error), line)
            return
        _count(self.stats.events, event.type)
        match event.type:
            case "ERROR":
                self._errors += 1
                raise in_stream(event.object)
            case "BOOKMARK":
                self._bookmark(event.object)
            case "ADDED" | "MODIFIED" | "DELETED":
                self._object(event, deltas)
            case unknown:
                self._unreadable(f"unknown event type {unknown!r}", line)

    def _object(self, event: Line, deltas: list[Delta[T]]) -> None:
        obj = self._decode(event.object)
        if obj is None:
            return
        if self._picture is not None:
            if event.type == "DELETED":
                self._picture.pop(obj.key, None)
            else:
                self._picture[obj.key] = obj
            return
        if event.type == "DELETED":
            self.store.remove(obj, deltas)
        else:
            self.store.set(obj, deltas)
        self._progress(obj.metadata.resource_version)

    def _bookmark(self, raw: msgspec.Raw) -> None:
        try:
            metadata = apijson.decode(MARKS, raw).metadata
        except (msgspec.DecodeError, ValueError) as error:
            self._unreadable(str(error), bytes(raw))
            return
        if self._picture is None:
            self._progress(metadata.resource_version)
        elif metadata.annotations.get(_END_OF_PICTURE) == "true":
            picture, self._picture = self._picture, None
            self._replace(picture.values(), metadata.resource_version)

    def _progress(self, version: str) -> None:
        """The stream has brought us further: resume from here, and the next trouble is a new one."""
        if version:
            self._version = version
        self._errors = 0
        if not self._has_progressed:
            self._has_progressed = True
            self._backoff.reset()

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _deliver(self, deltas: list[Delta[T]]) -> None:
        self.stats.objects = len(self.store)
        if deltas:
            self._on_batch(deltas)

    def _decode(self, raw: msgspec.Raw) -> T | Broken | None:
        """The object, its broken outline, or None if not even its name can be read."""
        obj = self._decoder.decode(raw, self.served.version)
        if isinstance(obj, Broken):
            if not obj.metadata.name:
                self._unreadable(obj.why, bytes(raw))
                return None
            self.stats.decode_errors += 1
        return obj

    def _unreadable(self, why: str, line: bytes) -> None:
        self.stats.decode_errors += 1
        _log.error("unreadable line from the API server", kind=self.spec.name, error=why, start=repr(line[:120]))

    def _heard(self) -> None:
        self.stats.last_byte_at = self._clock.now()
        self.stats.denied = ""
        self.stats.absent = False
        self.stats.last_error = ""

    def _note(self, error: ApiError) -> None:
        verb = "list" if not (self._version or self._picture is not None) else "watch"
        text = f"{verb} {self.spec.plural}: {error.message}"
        if text != self.stats.last_error:
            # A stream that is cut after it brought something, or compacted history, is everyday; anything else is news.
            say = _log.info if self._has_progressed or isinstance(error, Gone) else _log.warning
            say("watch interrupted", kind=self.spec.name, error=text, status=error.status)
        self.stats.last_error = text
        self.stats.denied = f"cannot {text}" if isinstance(error, (Forbidden, Unauthorized)) else ""


def _is_from_the_future(error: ApiError) -> bool:
    """The server has not reached our version: it was restored from a backup. Its picture counts, not our memory.

    Of a picture, for which we name no version: its cache has not reached its storage.
    """
    return "Too large resource version" in error.message


def _age(obj: Stored | Broken) -> int:
    """Versions of one kind are numbers that grow (KEP-5504); what has none was there before."""
    version = obj.metadata.resource_version
    return int(version) if version.isdecimal() else 0


def _count(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1
