"""A transport that answers from a script and records requests, and a clock on which sleeping takes no time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from scheduler.core.errors import ApiError, NotFound
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.wire import JSON, Method, Query, as_it_is
from scheduler.kube.writes.api_writer import ApiWriter, LeaseWriter
from scheduler.kube.writes.own_objects import ProfileWriter
from scheduler.kube.writes.permissions import RbacRule


class LeapingClock:
    """`sleep` moves the time and returns after one turn of the loop; for code in which one thing waits at a time."""

    def __init__(self) -> None:
        self.time_s = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time_s

    def wall(self) -> float:
        return 1_700_000_000.0 + self.time_s

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.time_s += delay_s
        await asyncio.sleep(0)


@dataclass(frozen=True)
class RecordedRequest:
    method: str
    path: str
    query: dict[str, str]
    body: Any = None
    content_type: str = ""

    @property
    def rule(self) -> RbacRule:
        """The permission that it needs."""
        parts = self.path.split("/")
        group, rest = ("", parts[3:]) if parts[1] == "api" else (parts[2], parts[4:])
        plural, *named = rest[2:] if rest[0] == "namespaces" else rest
        verbs = {"POST": "create", "PUT": "update"}
        return RbacRule(group, "/".join([plural, *named[1:]]), verbs.get(self.method, self.method.lower()))


@dataclass
class Hang:
    """In a stream: nothing more comes."""


@dataclass
class Later:
    """In a stream: call this before going on, e.g. to let time pass."""

    act: Callable[[], None]


Answer = bytes | ApiError
Step = bytes | ApiError | Hang | Later


@dataclass
class ScriptedTransport:
    """`answers` are given in order to everything but watches, `streams` to watches; a watch too many hangs."""

    answers: list[Answer] = field(default_factory=list)
    streams: list[list[Step]] = field(default_factory=list)
    recorded: list[RecordedRequest] = field(default_factory=list)
    by_path: dict[str, Answer] = field(default_factory=dict)
    on_the_way: Callable[[], None] = as_it_is
    """Called for each write before the fence is checked."""

    def paths(self, method: str) -> list[str]:
        return [recorded.path for recorded in self.recorded if recorded.method == method]

    def watches(self) -> list[dict[str, str]]:
        return [recorded.query for recorded in self.recorded if recorded.method == "WATCH"]

    async def get(self, path: str, *, query: Query | None = None, timeout_s: float = 30, accept: str = JSON) -> bytes:
        return await self._answer(
            RecordedRequest("GET", path, dict(query or {}), content_type="" if accept == JSON else accept)
        )

    async def list(self, path: str, query: Query) -> bytes:
        return await self._answer(RecordedRequest("LIST", path, dict(query)))

    async def write(
        self,
        method: Method,
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Query | None = None,
        before_sending: Callable[[], None] = as_it_is,
    ) -> bytes:
        self._leave(before_sending)
        sent = body if method == "PUT" else msgspec.json.decode(body)
        type_ = "" if content_type == JSON else content_type
        return await self._answer(RecordedRequest(method, path, dict(query or {}), sent, type_))

    async def close(self) -> None:
        pass

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, query: Query, *, inactivity_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.recorded.append(RecordedRequest("WATCH", path, dict(query)))
        script = self.streams.pop(0) if self.streams else [Hang()]
        if script and isinstance(script[0], ApiError):
            raise script[0]
        async with contextlib.aclosing(self._stream(script)) as chunks:
            yield chunks

    async def _stream(self, script: Sequence[Step]) -> AsyncGenerator[bytes, None]:
        for step in script:
            await asyncio.sleep(0)
            match step:
                case bytes():
                    yield step
                case ApiError():
                    raise step
                case Hang():
                    await asyncio.Event().wait()
                case Later():
                    step.act()

    def _leave(self, before_sending: Callable[[], None]) -> None:
        self.on_the_way()
        before_sending()

    async def _answer(self, recorded: RecordedRequest) -> bytes:
        self.recorded.append(recorded)
        await asyncio.sleep(0)
        answer = self.by_path.get(recorded.path) or (self.answers.pop(0) if self.answers else b"{}")
        if isinstance(answer, ApiError):
            raise answer
        return answer


def raw(obj: Any) -> bytes:
    return msgspec.json.encode(obj)


def pod(name: str, *, uid: str = "", version: str = "1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": version},
        "spec": spec,
    }


ABSENT = NotFound("the server could not find the requested resource", status=404)


def serves(*plurals: str) -> bytes:
    """The list of resources of a group version."""
    return raw({"kind": "APIResourceList", "resources": [{"name": name} for name in plurals]})


def line(type_: str, obj: Any) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


def bookmark(version: str, *, ends_picture: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": version}
    if ends_picture:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return line("BOOKMARK", {"kind": "Pod", "metadata": metadata})


def error_line(code: int, message: str = "", reason: str = "") -> bytes:
    return line("ERROR", {"kind": "Status", "code": code, "message": message, "reason": reason})


def too_large(requested: int = 3739) -> bytes:
    """Return the line of a server that has not reached the version of the watch."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Timeout: Too large resource version: {requested}, current: 3312"
    status = {"kind": "Status", "code": 504, "reason": "Timeout", "message": message, "details": {"causes": causes}}
    return line("ERROR", status)


def page(*objects: dict[str, Any], version: str = "10", more: str = "") -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": version, "continue": more}, "items": list(objects)})


def picture(*objects: dict[str, Any], version: str = "10") -> bytes:
    """What WatchList sends first."""
    return b"".join(line("ADDED", obj) for obj in objects) + bookmark(version, ends_picture=True)


async def until(is_true: Callable[[], object], turns: int = 2000) -> None:
    """Give the loop turns until something has happened."""
    for _ in range(turns):
        if is_true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


class WriteBench:
    """Writers on a scripted transport. They may write until `until_s`, and find claims for devices in `version`."""

    def __init__(self, *answers: Answer, version: str = "v1") -> None:
        self.transport = ScriptedTransport(answers=list(answers))
        self.clock = LeapingClock()
        self.until_s = float("inf")
        self.version = version
        throttle = Throttle(self.clock, qps=-1)
        self.writer = ApiWriter(
            self.transport, throttle, self.clock, may_write=self.may_write, claims_version=lambda: self.version
        )
        self.profiles = ProfileWriter(self.transport, throttle, self.clock, may_write=self.may_write)
        self.leases = LeaseWriter(self.transport, "ns", "l")

    def may_write(self) -> bool:
        return self.clock.now() < self.until_s

    @property
    def recorded(self) -> list[RecordedRequest]:
        return self.transport.recorded
