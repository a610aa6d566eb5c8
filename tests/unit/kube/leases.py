"""Leases of the in-process API server without sockets and on virtual time; requests and answers may be slow or lost."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from scheduler.api.meta import micros
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError
from scheduler.kube.leader_election import Elector, LeaseLost, LeaseTiming
from scheduler.kube.wire import failure
from scheduler.kube.writes.api_writer import LeaseWriter
from simulator.apiserver import ApiServer, Refused
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import RecordedRequest, ScriptedTransport

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


class Line(ScriptedTransport):
    """One client's way to the server. `sent` are the verbs with the times at which they were sent."""

    def __init__(self, server: ApiServer, clock: VirtualClock, client: Clock) -> None:
        super().__init__()
        self.server, self.clock, self.client = server, clock, client
        self.troubles: list[Trouble] = []
        self.sent: list[tuple[str, float]] = []

    async def _answer(self, recorded: RecordedRequest) -> bytes:
        verb = recorded.rule.verb
        self.sent.append((verb, self.clock.now()))
        trouble = self._strike(verb)
        if trouble.refusal is not None and not trouble.is_done:
            raise trouble.refusal
        # As on a real server, the request is carried out after the client has given up.
        done = asyncio.ensure_future(self._carry_out(recorded, trouble.there_s))
        done.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait({done})
        if trouble.back_s:
            await self.client.sleep(trouble.back_s)
        answer = done.result()
        if trouble.refusal is not None:
            raise trouble.refusal
        return answer

    async def _carry_out(self, recorded: RecordedRequest, after_s: float) -> bytes:
        if after_s:
            await self.clock.sleep(after_s)
        namespace, _, name = recorded.path.removeprefix(PATH).partition("/leases/")
        try:
            match recorded.method:
                case "GET":
                    done = self.server.get("leases", name, namespace)
                case "POST":
                    assert recorded.query == {"fieldManager": "kubestow"}
                    done = self.server.create("leases", recorded.body)
                case "PATCH":
                    assert recorded.content_type == "application/merge-patch+json"
                    assert {"uid", "resourceVersion"} == recorded.body["metadata"].keys()
                    done = self.server.patch("leases", name, recorded.body, namespace=namespace)
                case other:
                    raise NotImplementedError(other)
        except Refused as refused:
            is_write = recorded.method != "GET"
            raise failure(refused.code, msgspec.json.encode(refused.body()), is_write=is_write) from None
        return msgspec.json.encode(done)

    def _strike(self, verb: str) -> Trouble:
        for trouble in self.troubles:
            if trouble.times > 0 and trouble.verb in {"", verb}:
                trouble.times -= 1
                return trouble
        return Trouble()


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


class LeaseWorld:
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

    async def join(self, name: str, *, trouble: dict[str, Any] | None = None, **more: Any) -> Member:
        """A candidate that has had its first try, in which it may have had trouble."""
        member = Member(self.server, self.clock, name, **more)
        self.members.append(member)
        if trouble:
            member.suffers(**trouble)
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
