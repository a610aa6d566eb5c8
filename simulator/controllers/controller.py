"""The base of all controllers: each write adds work with a time, and a step does the work that is due.

A key that is noted twice is handled once, at the earlier moment. What a real controller finds by looking again and again,
a controller is called by the write that changes it.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import datetime as dt
import heapq
import itertools
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import msgspec

from scheduler.api.decode import from_manifest
from scheduler.core.clock import Clock, SystemClock
from simulator.apiserver import ApiServer, Refused

Object: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str, str]
"""Resource, namespace and name."""
_T = TypeVar("_T")
_AGAIN_S: Final = 1.0
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class Actor(abc.ABC):
    """Follows one server. `async with` runs it in the background, where its errors come out; `step()` does by hand.

    Existing objects of `resources` are reported at the start, as if they had been added.
    """

    component = "actor"
    resources: tuple[str, ...] = ()

    def __init__(self, server: ApiServer, *, clock: Clock | None = None) -> None:
        self._server = server
        self._clock = clock or SystemClock()
        self._order = itertools.count()
        self._due: list[tuple[float, int, Key]] = []
        self._when: dict[Key, float] = {}
        self._wake = asyncio.Event()
        self._told: set[tuple[str, str, str]] = set()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe = server.subscribe(self._heard)
        self.look_again()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def close(self) -> None:
        """Hear nothing more. Idempotent."""
        unsubscribe, self._unsubscribe = self._unsubscribe, lambda: None
        unsubscribe()

    def look_again(self) -> None:
        """Look at everything, as a resync or a restart does."""
        for resource in self.resources:
            for obj in self._server.objects(resource):
                self._heard("ADDED", resource, obj)

    def step(self) -> int:
        """Handle all that is due by now, and what becomes due by that; returns how much it was."""
        count = 0
        while self._due and self._due[0][0] <= self._clock.now():
            when, _, key = heapq.heappop(self._due)
            if self._when.get(key) == when:
                del self._when[key]
                self._try(key)
                count += 1
        self._wake.clear()
        return count

    def _try(self, key: Key) -> None:
        try:
            self._handle(key)
        except Refused:  # another write came first, or the server refuses: retry a little later
            self._note(key, _AGAIN_S)

    @property
    def is_idle(self) -> bool:
        """Nothing is noted, now or for later."""
        return not self._when

    @abc.abstractmethod
    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        """One object was written. Must not write, only note."""

    @abc.abstractmethod
    def _handle(self, key: Key) -> None:
        """Do the work that is due for this key."""

    def _note(self, key: Key, delay_s: float = 0) -> None:
        """Handle this after a while, or earlier if that was noted before."""
        when = self._clock.now() + delay_s
        if self._when.get(key, when + 1) > when:
            self._when[key] = when
            heapq.heappush(self._due, (when, next(self._order), key))
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self.step()
            await self._next()

    async def _next(self) -> None:
        """Until something is noted, or the first of what was noted is due."""
        if not self._due:
            await self._wake.wait()
            return
        waits = [
            asyncio.ensure_future(self._wake.wait()),
            asyncio.ensure_future(self._clock.sleep(self._due[0][0] - self._clock.now())),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _record(self, about: Object, type_: str, reason: str, message: str) -> None:
        """Write an event, once for the same text about the same object."""
        metadata, kind = about["metadata"], about["kind"]
        said = (metadata["uid"], reason, message)
        if said in self._told:
            return
        self._told.add(said)
        namespace = metadata.get("namespace") or "default"
        now = dt.datetime.fromtimestamp(self._clock.wall(), dt.UTC).strftime(_TIME)
        regarding = {"kind": kind, "namespace": metadata.get("namespace", ""), "name": metadata["name"]}
        event = {
            "metadata": {
                "generateName": f"{metadata['name']}.{self.component.replace('_', '-')}-",
                "namespace": namespace,
            },
            "regarding": regarding | {"uid": metadata["uid"], "apiVersion": "v1"},
            "type": type_,
            "reason": reason,
            "note": message,
            "deprecatedSource": {"component": self.component},
            "deprecatedFirstTimestamp": now,
            "deprecatedLastTimestamp": now,
            "deprecatedCount": 1,
        }
        with contextlib.suppress(Refused):  # its namespace is going
            self._server.create("events", event)


def key_of(resource: str, obj: Object) -> Key:
    metadata = obj["metadata"]
    return resource, metadata.get("namespace", ""), metadata["name"]


def is_finished(pod: Object) -> bool:
    """Return whether the pod has succeeded or failed."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def is_deleting(obj: Object) -> bool:
    """Return whether the object has been deleted and waits for its kubelet or a finalizer."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def annotations_of(obj: Object) -> dict[str, str]:
    """Those it has, or none."""
    found: dict[str, str] = obj["metadata"].get("annotations") or {}
    return found


def read(typ: type[_T], obj: Object) -> _T | None:
    """As `core` decodes it; None for one that cannot be read, which no controller acts on."""
    try:
        return from_manifest(typ, obj)
    except (msgspec.ValidationError, ValueError):
        return None
