"""Keep the objects of one kind: a complete first list, then every change, whatever happens to the connection.

A worked example, with two pods and versions in parentheses:

    1. watch with sendInitialEvents: ADDED a (3), ADDED b (5)   nothing is shown, because the list is not complete
    2. BOOKMARK (7) with initial-events-end                     one batch shows a and b; the kind is synced
    3. MODIFIED b (9), BOOKMARK (12)                            b is shown; the version is 12
    4. the connection is cut                                    the next watch resumes from 12 and repeats nothing
    5. ERROR 410                                                history is compacted; a and b stay stored
    6. watch with sendInitialEvents: ADDED b (9)                nothing is shown, because b is unchanged
    7. BOOKMARK (20) with initial-events-end                    a is missing, so it is shown as deleted

During a later list, newer objects are shown at once. After a WatchList that was cut, the kind is listed page by page
for some minutes: pages are short requests, and the WatchList of a large kind may never complete.

Objects are decoded one by one. Each network chunk is passed on as one batch, without a task or an await per object.
`run` never returns, and no answer ends it. Knows nothing of scheduling or of the set of kinds.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from scheduler.api.decode import Broken, Delta, ObjectDecoder, PartlyReadPod
from scheduler.core import api_json as apijson
from scheduler.core.clock import Clock
from scheduler.core.errors import (
    ApiError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ResourceVersionTooLarge,
    TooManyRequests,
    Unauthorized,
)
from scheduler.core.retry import Backoff
from scheduler.kube.resources import DiscoveryFailed, KindSpec, ServedKind
from scheduler.kube.store import Store, Stored
from scheduler.kube.wire import LINES, MARKS, Transport, WatchLine, failure, page_of

DOWN_S: Final = 15.0
"""A kind without a complete list and without a watch for this time is reported."""


@dataclass(slots=True)
class ReflectorStats:
    """Counters for /metrics and /readyz. `events` by watch type, `relists` by cause."""

    clock: Clock
    objects: int = 0
    events: dict[str, int] = field(default_factory=dict)
    relists: dict[str, int] = field(default_factory=dict)
    synthesised_deletes: int = 0
    decode_errors: int = 0
    last_byte_at: float = 0.0
    complete_at: float = 0.0
    """When the objects were last known to be complete: at a complete list, or at the end of a watch."""
    is_watching: bool = False
    """Whether a watch after a complete list is open."""
    failures: int = 0
    """Failed lists and watches since the last open watch."""
    failures_total: int = 0
    synced: bool = False
    denied: str = ""
    """Kind and verb while a permission is missing or credentials are refused."""
    absent: bool = False
    """Whether the server answered that it does not serve the kind."""
    last_error: str = ""

    @property
    def silent_s(self) -> float:
        """Return the seconds since the server last sent a byte."""
        return self.clock.now() - self.last_byte_at

    @property
    def down_s(self) -> float:
        """Return the seconds without a complete list and without a watch; 0 while a watch is open."""
        return 0.0 if self.is_watching else self.clock.now() - self.complete_at

    @property
    def is_down(self) -> bool:
        """Return whether operators should know that the kind does not advance."""
        return self.down_s >= DOWN_S

    @property
    def why_down(self) -> str:
        """Return text for /readyz: how long, how often it failed, and the last error."""
        why = f", last: {self.last_error}" if self.last_error else ""
        return f"no complete list and no watch for {self.down_s:.0f} s; failures: {self.failures}{why}"

    def completed(self, *, is_watching: bool) -> None:
        """Record a complete list, or the watch after it."""
        self.complete_at = self.clock.now()
        self.is_watching = is_watching
        if is_watching:
            self.failures = 0

    def watch_ended(self) -> None:
        if self.is_watching:
            self.completed(is_watching=False)

    def failed(self) -> None:
        """Record a failed list or watch, or a watch that was cut."""
        self.failures += 1
        self.failures_total += 1


_log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Stored)

INACTIVITY_S: Final = 80.0
"""Bookmarks come about once a minute: a longer silence means a dead connection."""
_SILENT_S: Final = 0.9 * INACTIVITY_S
"""A watch that failed after this time without a byte counts as silent; the transport measures the exact time."""
_PAGE: Final = "500"
_DECODED_PER_TURN: Final = 200
"""Objects of a list that are decoded before the event loop runs: about 3 ms."""
_ABSENT_S: Final = 60.0
_LIVED_S: Final = 1.0
_INCOMPLETE_LISTS_MAX: Final = 2
"""WatchLists in a row without their end mark: the server ignores the request for it."""
_LIST_S: Final = 300.0
"""How long a kind is listed after its WatchList was cut."""
_LOG_EVERY_S: Final = 60.0
"""Interval of log lines about a kind that is down."""
_ERRORS_MAX: Final = 3
"""ERRORs in a row on streams without any event: the version cannot be resumed."""
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Ended:
    """A proper end of a stream. `is_idle`: at once, and without any event."""

    is_idle: bool


@dataclass(eq=False, repr=False)
class Reflector(Generic[T]):
    """The informer of one kind. `on_batch` is called synchronously and must not raise.

    If a collection is not found, `locate` returns the kind's new place, or None, or raises DiscoveryFailed. `on_served` is
    called like `on_batch`: with False once the server lacks the kind, with True at each complete list.

    Upstream: staging/src/k8s.io/client-go/tools/cache/reflector.go Reflector
    """

    spec: KindSpec
    served: ServedKind
    """The place of the kind, or the last one (`stats.absent`)."""
    decoder: ObjectDecoder[T]
    transport: Transport
    on_batch: Callable[[list[Delta[T]]], None]
    clock: Clock
    rng: random.Random
    locate: Callable[[], Awaitable[ServedKind | None]]
    on_served: Callable[[bool], object] = bool

    def __post_init__(self) -> None:
        self.store: Store[T] = Store()
        self.synced = asyncio.Event()
        """Set at the first complete list."""
        self.stats = ReflectorStats(self.clock, last_byte_at=self.clock.now(), complete_at=self.clock.now())
        self._backoff = Backoff(self.clock, self.rng)
        self._version = ""
        self._cause = "start"
        self._can_watch_list = True
        self._list_until = -math.inf
        self._incomplete = 0
        self._errors = 0
        self._initial_list: dict[str, T | Broken] | None = None
        self._newer: list[tuple[str, T | Broken]] = []
        """Events of the chunk that is being read during a list."""
        self._is_open = False
        self._was_silent = False
        self._is_unreachable = False
        """Whether the last failure was no answer of the server."""
        self._has_progressed = False
        self._logged_down_at = -math.inf
        self._relist_cause = ""
        """Why a new list was requested; "" if none was."""
        self._cut: asyncio.Timeout | None = None
        """Ends the open stream."""

    @property
    def version(self) -> str:
        """Return the newest resourceVersion; "" without a list, and while a new one is read."""
        return self._version

    def relist(self, cause: str) -> None:
        """Read all objects again: end the open stream, and begin with a list. The store is wrong."""
        self._relist_cause = cause
        if self._cut is not None:
            self._cut.reschedule(-math.inf)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            # One iteration is one stream, and a list before it if the version is unknown. Each way in which it can
            # end has one case below, so no error can leave the loop. Objects stay visible in every case: a scheduler
            # with old objects is better than one without nodes.
            outcome = await self._follow()
            if self._falls_back(outcome):
                continue  # the next round begins with a LIST
            if isinstance(outcome, ApiError):
                self._record_failure(outcome)
            match outcome:
                case Ended(is_idle=False):  # a time limit of the server: resume from the last version
                    self._backoff.reset()
                case Ended():
                    await self._backoff.next()
                case Forbidden() | Unauthorized():
                    await self._backoff.pause(self._backoff.longest_s)  # only an operator changes this
                case NotFound():
                    await self._locate_again()
                case TooManyRequests(retry_after_s=float(wait_s)):
                    await self.clock.sleep(wait_s + self.rng.uniform(0.0, 1.0))
                case ApiError():
                    if cause := self._relist_cause_of(outcome):
                        self._start_over(cause)
                    await self._backoff.next()

    def _falls_back(self, outcome: Ended | ApiError) -> bool:
        """Return whether a WatchList was cut or refused, so that a LIST follows at once.

        After a failed LIST both are possible again: behind some proxies only one of them works.
        """
        # The stream was an ordinary watch, or the LIST itself failed. Without a version the LIST failed, and a
        # WatchList may be tried again at once.
        if self._initial_list is None:
            if not self._version:
                self._list_until = -math.inf
            return False
        # An API server without the feature refuses `sendInitialEvents`. Every server can LIST, so this process does
        # not try the WatchList again.
        if isinstance(outcome, Invalid) and self._can_watch_list:
            self._can_watch_list = False
            return True
        # The stream ended properly, but without the bookmark that marks the end of the initial events. One such end
        # may be a time limit of a proxy. After several in a row the server is taken to ignore the parameter.
        if isinstance(outcome, Ended):
            self._incomplete += 1
            self._can_watch_list = self._incomplete < _INCOMPLETE_LISTS_MAX
        # No stream was opened and the server did not refuse a version. So the connection failed, and a LIST would
        # fail as well.
        elif not (self._is_open or isinstance(outcome, (Gone, ResourceVersionTooLarge))):
            return False
        self._list_until = self.clock.now() + _LIST_S
        # The server wants a pause, which the caller makes. The LIST follows after it.
        if isinstance(outcome, TooManyRequests):
            return False
        self._record_failure(
            outcome if isinstance(outcome, ApiError) else ApiError("ended before the initial list was complete")
        )
        return True

    async def _locate_again(self) -> None:
        """Find the kind again after a 404: it moved to another version, or is gone. Objects stay until a new list."""
        try:
            served = await self.locate()
        except DiscoveryFailed as why:
            self.stats.last_error = str(why)
            await self._backoff.next()
            return
        # A resource may move to another version during an upgrade of the control plane. The objects stay stored, and
        # the list at the new place compares them with what is there.
        if served is not None:
            if served != self.served:
                _log.warning("kind is served elsewhere now", kind=self.spec.name, was=self.served.path, now=served.path)
                self.served = served
                self._start_over("moved")
            await self._backoff.next()
            return
        if not self.stats.absent:
            _log.warning("kind is not served any more", kind=self.spec.name)
        # The kind is gone, for instance with the feature gate of an API server that was restarted. Its objects stay
        # until a list shows the contrary: a control plane under upgrade has servers of two versions, and the next
        # request may reach the other one.
        self.stats.absent = True
        self._start_over("absent")
        self.on_served(False)
        await self._backoff.pause(_ABSENT_S)

    async def _follow(self) -> Ended | ApiError:
        """Run one round: a list if needed, then the stream until it ends. Return how it ended."""
        self._has_progressed = self._is_open = self._was_silent = False
        self._initial_list = None
        # A server that was away this long may come back with an older etcd. Its watch would accept our version and
        # send nothing about the objects that the restore has removed.
        if self._is_unreachable and self._version and self.stats.is_down:
            self._start_over("outage")
        if self._relist_cause:
            self._start_over(self._relist_cause)
            self._relist_cause = ""
        # Exceptions end here and become values. So `run` can match them next to the proper end of a stream.
        try:
            if not self._version and self._can_watch_list and self.clock.now() >= self._list_until:
                self._initial_list = {}
            elif not self._version:
                await self._list()
            return await self._stream()
        except ApiError as error:
            return error

    # -- the first picture -----------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """List page by page; consistent, because no version is requested."""
        # Without a resourceVersion the server reads from etcd and answers with the newest state. A version of 0 would
        # be served from its cache, which may be older than what this process has seen already.
        query = {"limit": _PAGE} | self._selection()
        objects: list[T | Broken] = []
        while True:
            page = page_of(await self.transport.list(self.served.path, query))
            self._received()
            for n, raw in enumerate(page.items or (), start=1):
                if (obj := self._decode(raw)) is not None:
                    objects.append(self.store.held(obj))
                # Decoding a page takes several milliseconds. Without this turn, leases could not be renewed while ten
                # thousand objects arrive.
                if n % _DECODED_PER_TURN == 0:
                    await asyncio.sleep(0)
            # A continue token expires when etcd is compacted. The server then answers with Gone, and `run` begins a
            # new list.
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self._replace(objects, page.metadata.resource_version)

    def _replace(self, objects: Iterable[T | Broken], version: str) -> None:
        # The store compares old and new objects, so unchanged objects give no delta. Objects that are missing give a
        # deletion, because their DELETED events were missed.
        deltas, vanished = self.store.replace(
            sorted(objects, key=attrgetter("metadata.version")) if self.spec.by_age else objects
        )
        self._version = version
        self._errors = 0
        self._newer.clear()
        _count(self.stats.relists, self._cause)
        self.stats.synthesised_deletes += vanished
        self.stats.synced = True
        self.stats.completed(is_watching=self._is_open)
        self._deliver(deltas)
        self.on_served(True)
        self.synced.set()

    def _relist_cause_of(self, outcome: ApiError) -> str:
        """Return why a new list is needed; "" if the stream may be resumed. The old objects stay until then."""
        if isinstance(outcome, (Gone, ResourceVersionTooLarge)):  # history compacted, or the server has an older one
            return "gone"
        # A healthy watch sends bookmarks at least. A silent one may hang at a proxy, or follow a server whose etcd
        # was restored, so its version is doubtful.
        if self._was_silent:
            return "silent"
        if isinstance(outcome, Invalid) and self._version:  # perhaps the version: an object's may be no number
            return "error"
        return "" if self._errors < _ERRORS_MAX else "error"

    def _start_over(self, cause: str) -> None:
        self._version = ""
        self._cause = cause
        self._errors = 0

    # -- the stream ------------------------------------------------------------------------------------------------

    async def _stream(self) -> Ended:
        query = self._stream_query()
        async with self.transport.watch(self.served.path, query, inactivity_timeout_s=INACTIVITY_S) as chunks:
            opened_at = self.clock.now()
            self._open()
            # The timeout has no deadline. `relist` moves it into the past, which ends the stream at once. Any other
            # TimeoutError is an error of the transport.
            try:
                async with asyncio.timeout(None) as self._cut:
                    await self._read_all(chunks)
            except TimeoutError:
                if not self._relist_cause:
                    raise
                self._has_progressed = True  # it is no failure of the server, so nothing has to be waited for
            finally:
                self._cut = None
                self._close(opened_at)
        return Ended(is_idle=not self._has_progressed)

    def _open(self) -> None:
        self._received()
        self._is_open, self._was_silent = True, True
        if self._initial_list is None:
            self.stats.completed(is_watching=True)

    def _close(self, opened_at: float) -> None:
        """Record the end of a stream.

        A stream with events is progress; one that was silent for the whole time is doubtful.

        A real server sends only events and bookmarks newer than the requested version. A restored etcd with older
        versions therefore looks silent.
        """
        self.stats.watch_ended()
        lived_s = self.clock.now() - opened_at
        # Only a long silence is suspicious: a kind without changes gets one bookmark a minute.
        self._was_silent = self._was_silent and self._initial_list is None and lived_s >= _SILENT_S
        if lived_s >= _LIVED_S and not self._was_silent:
            self._progressed()

    async def _read_all(self, chunks: AsyncIterator[bytes]) -> None:
        rest = b""
        async for chunk in chunks:
            self._received()
            self._was_silent = False
            # A chunk ends anywhere, also within a line. The incomplete rest is kept for the next chunk; at the end of
            # the stream it is dropped, because its object comes again.
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            self._read(lines)

    def _stream_query(self) -> dict[str, str]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self.rng.randint(300, 600)),
        } | self._selection()
        # A WatchList has no resourceVersion. The server then waits until its cache is as new as etcd, and sends all
        # objects as ADDED events.
        if self._initial_list is not None:
            return query | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return query | {"resourceVersion": self._version}

    def _selection(self) -> dict[str, str]:
        return {"fieldSelector": self.spec.field_selector} if self.spec.field_selector else {}

    def _read(self, lines: Iterable[bytes]) -> None:
        """Apply complete lines and pass on the changes, also if an ERROR ends the stream."""
        # All lines of a chunk are one batch. During a storm of events the queue then applies hundreds of changes
        # between two attempts, instead of one each.
        deltas: list[Delta[T]] = []
        try:
            for line in lines:
                if line:
                    self._apply(line, deltas)
        finally:
            if self._newer:
                self._apply_newer(deltas)
            self._deliver(deltas)

    def _apply_newer(self, deltas: list[Delta[T]]) -> None:
        """Apply newer objects of an incomplete list.

        Claims wait for its end, when their order is known (`by_age`); so does everything before the first list.
        """
        # The initial events of a large kind take seconds. Pods that were bound in that time must count at once, or a
        # decision would use their capacity again.
        newer, self._newer = self._newer, []
        if not self.stats.synced or self.spec.by_age:
            return
        for type_, obj in newer:
            if not self.store.is_news(obj):
                continue
            if type_ == "DELETED":
                self.store.remove(obj, deltas)
            else:
                self.store.set(obj, deltas)
        if deltas:
            self._progressed()

    def _apply(self, line: bytes, deltas: list[Delta[T]]) -> None:
        # A line that cannot be read is counted and ignored. Ending the stream for it would repeat the same line
        # without end.
        try:
            event = apijson.decode(LINES, line)
        except (msgspec.DecodeError, ValueError) as error:
            self._unreadable(str(error), line)
            return
        _count(self.stats.events, event.type)
        match event.type:
            case "ERROR":
                self._errors += 1
                raise failure(0, event.object)
            case "BOOKMARK":
                self._bookmark(event.object)
            case "ADDED" | "MODIFIED" | "DELETED":
                self._object(event, deltas)
            case unknown:
                self._unreadable(f"unknown event type {unknown!r}", line)

    def _object(self, event: WatchLine, deltas: list[Delta[T]]) -> None:
        obj = self._decode(event.object)
        if obj is None:
            return
        # Initial events are collected, because only the bookmark shows which objects no longer exist.
        if self._initial_list is not None:
            if event.type == "DELETED":
                self._initial_list.pop(obj.key, None)
            else:
                obj = self._initial_list[obj.key] = self.store.held(obj)
            self._newer.append((event.type, obj))
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
        if self._initial_list is None:
            self._progress(metadata.resource_version)
        elif metadata.annotations.get(_INITIAL_EVENTS_END) == "true":
            # Without a version the watch cannot be resumed, and each end of a stream would read all objects again.
            if not metadata.resource_version:
                raise ApiError("the bookmark that ends the initial list has no metadata.resourceVersion")
            objects, self._initial_list = self._initial_list, None
            self._incomplete = 0
            self._replace(objects.values(), metadata.resource_version)

    def _progress(self, version: str) -> None:
        """Record progress: resume from here, and start the back-off again."""
        if version:
            self._version = version
        self._errors = 0
        self._progressed()

    def _progressed(self) -> None:
        # The back-off ends with the first sign of life of a stream, not with its end. A stream that fails after hours
        # of events was no failure of the server.
        if not self._has_progressed:
            self._has_progressed = True
            self._backoff.reset()

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _deliver(self, deltas: list[Delta[T]]) -> None:
        self.stats.objects = len(self.store)
        if deltas:
            self.on_batch(deltas)

    def _decode(self, raw: msgspec.Raw) -> T | Broken | None:
        """Return the object, a `Broken`, or None if not even its name is readable."""
        obj = self.decoder.decode(raw)
        if isinstance(obj, Broken):
            if not obj.metadata.name:
                self._unreadable(obj.why, bytes(raw))
                return None
            self.stats.decode_errors += 1
        elif isinstance(obj, PartlyReadPod):
            self.stats.decode_errors += 1
        return obj

    def _unreadable(self, why: str, line: bytes) -> None:
        self.stats.decode_errors += 1
        _log.error("unreadable line from the API server", kind=self.spec.name, error=why, start=repr(line[:120]))

    def _received(self) -> None:
        self.stats.last_byte_at = self.clock.now()
        self.stats.denied = ""
        self.stats.absent = False
        self.stats.last_error = ""

    def _record_failure(self, error: ApiError) -> None:
        self.stats.failed()
        self._is_unreachable = not error.status
        verb = "list" if not (self._version or self._initial_list is not None) else "watch"
        text = f"{verb} {self.spec.plural}: {error.message}"
        # The same error every few seconds says nothing new, so only a change of the text is logged. A kind that stays
        # down is logged once a minute below.
        if text != self.stats.last_error:
            # A cut stream with events, and compacted history, are normal; everything else is logged.
            log = _log.info if self._has_progressed or isinstance(error, Gone) else _log.warning
            log("watch interrupted", kind=self.spec.name, error=text, status=error.status)
        self.stats.last_error = text
        self.stats.denied = f"cannot {text}" if isinstance(error, (Forbidden, Unauthorized)) else ""
        if self.stats.is_down and self.clock.now() - self._logged_down_at >= _LOG_EVERY_S:
            self._logged_down_at = self.clock.now()
            _log.warning(
                "no complete list and no watch",
                kind=self.spec.name,
                seconds=round(self.stats.down_s),
                failures=self.stats.failures,
                error=text,
            )


def _count(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1
