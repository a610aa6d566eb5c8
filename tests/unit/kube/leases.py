"""Leases of the in-process API server without sockets and on virtual time; requests and answers may be slow or lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from scheduler.api.meta import micros
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError
from scheduler.kube.leader_election import Elector, LeaseLost, LeaseTiming
from scheduler.kube.wire import JSON, Query, as_it_is, failure
from scheduler.kube.writes.api_writer import LeaseWriter
from simulator.apiserver import ApiServer, Refused
from tests.support.clock import VirtualClock

PATH = "/apis/coordination.k8s.io/v1/namespaces/"
NEVER_S = 1e9


@dataclass
class Trouble:
    """Strikes the next requests of this verb ("" is any), `times` of them."""

    verb: str = ""
    refusal: ApiError | None = None
    """Raised before anything happens, or after it with `is_done`."""
    is_done: bool = False
    there_s: float = 0.0
    """Seconds until the server carries the request out, even if the client has given up."""
    back_s: float = 0.0
    """Seconds until the answer arrives."""
    times: int = 1


@dataclass
class Line:
    """One client's way to the server. `recorded` are the verbs with the times at which they were sent."""

    server: ApiServer
    clock: VirtualClock
    client: Clock
    troubles: list[Trouble] = field(default_factory=list)
    recorded: list[tuple[str, float]] = field(default_factory=list)

    async def get(self, path: str, *, query: Query | None = None, timeout_s: float = 30, accept: str = JSON) -> bytes:
        namespace, name = _place(path)
        return await self._request("get", lambda: self.server.get("leases", name, namespace))

    async def post(
        self, path: str, body: bytes, *, query: Query | None = None, before_sending: Callable[[], None] = as_it_is
    ) -> bytes:
        assert query == {"fieldManager": "kubestow"}
        obj = msgspec.json.decode(body)
        return await self._request("create", lambda: self.server.create("leases", obj))

    async def patch(
        self,
        path: str,
        body: bytes,
        *,
        content_type: str,
        query: Query | None = None,
        before_sending: Callable[[], None] = as_it_is,
    ) -> bytes:
        assert content_type == "application/merge-patch+json"
        (namespace, name), patch = _place(path), msgspec.json.decode(body)
        assert {"uid", "resourceVersion"} == patch["metadata"].keys()
        return await self._request("patch", lambda: self.server.patch("leases", name, patch, namespace=namespace))

    async def put(self, path: str, body: bytes, **_: Any) -> bytes:
        raise NotImplementedError

    async def list(self, path: str, query: Query) -> bytes:
        raise NotImplementedError

    def watch(
        self, path: str, query: Query, *, inactivity_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def delete(self, path: str, body: bytes, *, before_sending: Callable[[], None] = as_it_is) -> bytes:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def _request(self, verb: str, act: Callable[[], Any]) -> bytes:
        self.recorded.append((verb, self.clock.now()))
        trouble = self._strike(verb)
        if trouble.refusal is not None and not trouble.is_done:
            raise trouble.refusal
        # As on a real server, the request is carried out after the client has given up.
        done = asyncio.ensure_future(self._carry_out(verb, act, trouble.there_s))
        done.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait({done})
        if trouble.back_s:
            await self.client.sleep(trouble.back_s)
        answer = done.result()
        if trouble.refusal is not None:
            raise trouble.refusal
        return answer

    async def _carry_out(self, verb: str, act: Callable[[], Any], after_s: float) -> bytes:
        if after_s:
            await self.clock.sleep(after_s)
        try:
            return msgspec.json.encode(act())
        except Refused as refused:
            raise failure(refused.code, msgspec.json.encode(refused.body()), is_write=verb != "get") from None

    def _strike(self, verb: str) -> Trouble:
        for trouble in self.troubles:
            if trouble.times > 0 and trouble.verb in {"", verb}:
                trouble.times -= 1
                return trouble
        return Trouble()


def _place(path: str) -> tuple[str, str]:
    namespace, _, name = path.removeprefix(PATH).split("/")
    return namespace, name


class StallingClock:
    """Shares the time of another clock; sleepers wake no earlier than the end of the latest stall."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._stalled_until = 0.0

    def now(self) -> float:
        return self._clock.now()

    def wall(self) -> float:
        return self._clock.wall()

    def stall(self, seconds: float) -> None:
        """As an event loop that is held up: nothing that was to wake wakes."""
        self._stalled_until = self.now() + seconds

    async def sleep(self, delay_s: float) -> None:
        await self._clock.sleep(delay_s)
        while self._stalled_until > self.now():
            await self._clock.sleep(self._stalled_until - self.now())


class Never(random.Random):
    """No jitter."""

    def random(self) -> float:
        return 0.0


@dataclass
class Member:
    """One elector and its line; `led_at` when it won."""

    server: ApiServer
    clock: VirtualClock
    name: str
    timing: LeaseTiming = field(default_factory=LeaseTiming)
    namespace: str = "kube-system"

    def __post_init__(self) -> None:
        self.stalls = StallingClock(self.clock)
        self.line = Line(self.server, self.clock, self.stalls)
        leases = LeaseWriter(self.line, self.namespace, "kubestow")
        self.elector = Elector(leases, self.stalls, Never(), identity=self.name, timing=self.timing)
        self.led_at: float | None = None
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        await self.elector.acquire()
        self.led_at = self.clock.now()
        await self.elector.hold()

    def leads(self) -> bool:
        return self.elector.is_leading()

    @property
    def why_lost(self) -> str:
        """Of a task that has ended: why. Fails if it did not end by losing the lease."""
        assert self.task.done()
        error = self.task.exception()
        assert isinstance(error, LeaseLost)
        return str(error)

    def suffers(self, **trouble: Any) -> None:
        self.line.troubles.append(Trouble(**trouble))

    async def leave(self) -> None:
        """SIGTERM."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        resigning = asyncio.ensure_future(self.elector.resign())
        await self.clock.advance(60)
        assert resigning.done()


class World:
    """A server and the candidates for its lease."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(clock=self.clock, rng=random.Random(1))
        self.members: list[Member] = []

    async def end(self) -> None:
        """End all members."""
        for member in self.members:
            member.task.cancel()
        await asyncio.gather(*(member.task for member in self.members), return_exceptions=True)

    async def join(self, name: str, **more: Any) -> Member:
        """A candidate that has had its first try."""
        member = Member(self.server, self.clock, name, **more)
        self.members.append(member)
        await self.clock.advance(0)
        return member

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.server.get("leases", "kubestow", "kube-system")["spec"]
        return spec

    def put(self, holder: str, **more: Any) -> None:
        """Create or change the lease as another client."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": micros(self.clock.wall()), **more}
        spec = {name: value for name, value in spec.items() if value is not None}
        if self.server.list("leases"):
            self.server.patch("leases", "kubestow", {"spec": spec}, namespace="kube-system")
        else:
            metadata = {"name": "kubestow", "namespace": "kube-system", "labels": {"team": "a"}}
            self.server.create("leases", {"metadata": metadata, "spec": spec})

    def now(self) -> str:
        return micros(self.clock.wall())
