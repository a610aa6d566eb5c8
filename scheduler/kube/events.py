"""Post Events for users (events.k8s.io/v1) in the background; no caller waits for one.

The queue is bounded and drops its oldest Event; from half of it on, Events no longer give way to bindings. A
repetition (same type, action, reason, controller, object and related object) is counted in a series, which is written
every few minutes. Another note makes a new Event, so that users see why the result changed (docs/spec/core.md §7.2,
§10.5). Knows nothing of scheduling.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from scheduler.api.core_v1 import Pod
from scheduler.api.meta import micros
from scheduler.api.pod_group import AnyPodGroup
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Fenced,
    NotFound,
    Unavailable,
    UnforeseenErrors,
    shortened,
)
from scheduler.core.retry import Retry
from scheduler.kube.writes.api_writer import ApiWriter


@dataclass(slots=True)
class RecorderStats:
    """Counters of Events. `dropped`: removed from a full queue; `failed`: refused, or abandoned after retries."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0
    queued: int = 0


class Reference(msgspec.Struct, rename="camel"):
    """The pod, claim or group that an Event is about."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    kind: str = "Pod"
    api_version: str = "v1"


class EventMetadata(msgspec.Struct):
    """Metadata of an Event; its namespace is that of its object."""

    name: str
    namespace: str


class EventSeries(msgspec.Struct, rename="camel"):
    """How often it has happened; the API accepts counts from 2."""

    count: int
    last_observed_time: str


class Event(msgspec.Struct, rename="camel"):
    metadata: EventMetadata
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: Reference
    note: str
    type: str
    related: Reference | UnsetType = UNSET
    series: EventSeries | UnsetType = UNSET
    api_version: str = "events.k8s.io/v1"
    kind: str = "Event"


def reference(about: Pod | PersistentVolumeClaim | AnyPodGroup) -> Reference:
    """Return the part of the object that an Event needs, so that the object itself can be freed."""
    seen = about.metadata
    match about:
        case Pod():
            kind, api_version = "Pod", "v1"
        case PersistentVolumeClaim():
            kind, api_version = "PersistentVolumeClaim", "v1"
        case _:
            kind, api_version = "PodGroup", about.api_version
    return Reference(seen.name, seen.namespace, seen.uid, seen.resource_version, kind, api_version)


_log = structlog.get_logger(__name__)

_NAME_LENGTH: Final = 253
REFRESH_S: Final = 300.0
"""Shortest time between two writes of a series."""
IDLE_S: Final = 360.0
"""A series without repetition for this time is closed; the next occurrence is a new Event."""
_TIDY_S: Final = 30.0
_MOST: Final = 32_768
"""Series that are open, and those that are queued. With fewer open ones a queued series would be closed, and its
repetition queued once more."""


class _Key(NamedTuple):
    uid: str
    type_: str
    reason: str
    action: str
    controller: str
    related_uid: str


@dataclass(slots=True, eq=False)
class _Series:
    """One Event and its count. `is_queued` while it waits to be created or written.

    While a request is in flight (`is_sending`), a write waits for its answer (`is_due_again`): until then the count
    on the server is unknown, and the server refuses a patch with count 1. Holds references instead of objects, so
    that thousands of series do not keep deleted pods in memory.
    """

    key: _Key
    regarding: Reference
    related: Reference | None
    note: str
    name: str
    happened_s: float
    last_s: float
    written_at: float
    seen_at: float
    count: int = 1
    written_count: int = 0
    is_queued: bool = True
    is_sending: bool = False
    is_due_again: bool = False


@dataclass(eq=False, repr=False)
class EventRecorder:
    """Implement the `Recorder` port. Events are only sent while `run` runs.

    Upstream: staging/src/k8s.io/client-go/tools/events/event_broadcaster.go eventBroadcasterImpl
    """

    writer: ApiWriter
    clock: Clock
    instance: str
    limit: int = _MOST
    in_flight: int = 8
    errors: UnforeseenErrors = field(default_factory=UnforeseenErrors)

    def __post_init__(self) -> None:
        self.stats = RecorderStats()
        self._queue: asyncio.Queue[_Series] = asyncio.Queue()
        self._series: dict[_Key, _Series] = {}
        self._stamp_ns = 0

    def event(  # noqa: PLR0913 (an event has that many parts)
        self,
        about: Pod | PersistentVolumeClaim | AnyPodGroup,
        *,
        controller: str,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: Pod | None = None,
    ) -> None:
        """Record an event of a pod, a claim or a group, within some microseconds. `note` is cut to 1024 bytes."""
        note = shortened(note)
        key = _Key(
            about.metadata.uid or about.key, type_, reason, action, controller, related.metadata.uid if related else ""
        )
        now, wall_s = self.clock.now(), self.clock.wall()
        series = self._series.get(key)
        if series is not None and series.note == note and now - series.seen_at < IDLE_S:
            series.count += 1
            series.last_s, series.seen_at = wall_s, now
            return
        if series is not None:
            self._close(series)
        regarding = reference(about)
        name = self._name(regarding, wall_s)
        if len(self._series) >= _MOST:
            self._close(next(iter(self._series.values())))
        other = reference(related) if related else None
        series = self._series[key] = _Series(key, regarding, other, note, name, wall_s, wall_s, now, now)
        self._enqueue(series)

    async def run(self) -> None:
        """Send recorded Events, a few at a time, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tidy())
            for _ in range(self.in_flight):
                group.create_task(self._send_all())

    async def flush(self, timeout_s: float) -> bool:
        """Write every series and wait until all is sent; return False if `timeout_s` was too short."""
        for series in list(self._series.values()):
            self._write_back(series)
        return await done_within(self.clock, self._queue.join(), timeout_s)

    # -- series ------------------------------------------------------------------------------------------------------

    def _close(self, series: _Series) -> None:
        """Write the rest of the series; the next occurrence is a new Event."""
        if self._series.get(series.key) is series:
            del self._series[series.key]
        self._write_back(series)

    def _write_back(self, series: _Series) -> None:
        if series.is_sending:
            series.is_due_again = True
        elif series.count > series.written_count and not series.is_queued:
            series.is_queued = True
            self._enqueue(series)

    async def _tidy(self) -> None:
        while True:
            await self.clock.sleep(_TIDY_S)
            now = self.clock.now()
            for series in list(self._series.values()):
                if now - series.seen_at >= IDLE_S:
                    self._close(series)
                elif now - series.written_at >= REFRESH_S:
                    self._write_back(series)

    # -- queue -------------------------------------------------------------------------------------------------------

    def _enqueue(self, series: _Series) -> None:
        if self._queue.qsize() >= self.limit:
            self._drop(self._queue.get_nowait())
            self._queue.task_done()
        self._queue.put_nowait(series)
        self._count_queued()

    def _count_queued(self) -> None:
        """Count the queue. Events give way to bindings, but not until the queue is full and the oldest of them are lost."""
        self.stats.queued = self._queue.qsize()
        self.writer.hurry_events(self.stats.queued > self.limit // 2)

    def _drop(self, series: _Series) -> None:
        self.stats.dropped += 1
        series.is_queued = False
        if not series.written_count and self._series.get(series.key) is series:
            del self._series[series.key]

    async def _send_all(self) -> None:
        while True:
            series = await self._queue.get()
            self._count_queued()
            try:
                await self._send(series)
            except Exception as error:  # noqa: BLE001 (an Event that cannot be sent must not stop the rest)
                self.errors.record("event-recorder", error, "event not recorded", about=series.regarding.name)
                self._drop(series)
            finally:
                self._queue.task_done()

    async def _send(self, series: _Series) -> None:
        """Create or write the series, and write it again if another write became due."""
        series.is_queued, series.is_sending, series.is_due_again = False, True, False
        try:
            is_sent = await self._is_sent(series)
        finally:
            series.is_sending = False
        if is_sent and series.is_due_again:
            self._write_back(series)

    async def _is_sent(self, series: _Series) -> bool:
        """Create or write the series, with retries while the server is away; count it as sent or failed."""
        retry = Retry(self.clock, first_s=0.5, factor=4.0, tries=4)
        while True:
            count = series.count
            try:
                try:
                    await self._write(series, count)
                except (Ambiguous, Unavailable) as error:
                    await retry.pause(error)
                    continue
            except ApiError as error:
                self._failed(series, error)
                return False
            series.written_count = count
            series.written_at = self.clock.now()
            self.stats.sent += 1
            return True

    async def _write(self, series: _Series, count: int) -> None:
        namespace = series.regarding.namespace or "default"
        if series.written_count:
            try:
                await self.writer.patch_event_series(namespace, series.name, count=count, last_observed_s=series.last_s)
            except NotFound:  # it has expired: create it again
                series.name = self._name(series.regarding, self.clock.wall())
                series.happened_s = series.last_s
            else:
                return
        try:
            await self.writer.create_event(namespace, self._body(series, namespace, count))
        except Conflict:  # an earlier try succeeded although its answer was lost
            return

    def _failed(self, series: _Series, error: ApiError) -> None:
        self.stats.failed += 1
        if not series.written_count and self._series.get(series.key) is series:
            del self._series[series.key]
        if isinstance(error, Fenced):  # one of thousands; the cause is logged elsewhere
            return
        _log.info(
            "event not recorded",
            pod=f"{series.regarding.namespace}/{series.regarding.name}",
            reason=series.key.reason,
            error=error.message,
        )

    def _name(self, about: Reference, wall_s: float) -> str:
        """Return the name as client-go: the object's name and the nanoseconds in hexadecimal, never the same twice."""
        self._stamp_ns = max(int(wall_s * 1e9), self._stamp_ns + 1)
        suffix = f".{self._stamp_ns:x}"
        return about.name[: _NAME_LENGTH - len(suffix)].rstrip("-.") + suffix

    def _body(self, series: _Series, namespace: str, count: int) -> bytes:
        key = series.key
        return msgspec.json.encode(
            Event(
                metadata=EventMetadata(series.name, namespace),
                event_time=micros(series.happened_s),
                reporting_controller=key.controller,
                reporting_instance=self.instance[:128],
                action=key.action,
                reason=key.reason,
                regarding=series.regarding,
                note=series.note,
                type=key.type_,
                related=series.related or UNSET,
                series=EventSeries(count, micros(series.last_s)) if count > 1 else UNSET,
            )
        )
