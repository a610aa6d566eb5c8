"""Connections that are slow, silent, greedy or too many cost little, and other connections are served."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from scheduler.explain.answer import WhatIfAnswer
from scheduler.explain.questions import Refused
from scheduler.explain.what_if import WhatIfRequest
from scheduler.server import listening as listening_module
from scheduler.server.authorization import RequestGate
from scheduler.server.cache_dump import Page
from scheduler.server.endpoints import Endpoints, EndpointSources
from scheduler.server.listening import CannotListen, Connection, Listener, ListenerLimits, bound
from scheduler.server.reviews import Permission, Reviews, User
from scheduler.server.tls import SelfSigned, Tls

DEADLINE_S = 60.0
PATIENT = ListenerLimits(handshake_s=3600, request_s=3600, idle_s=3600, answer_s=3600)
REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = REQUEST.replace(b"livez", b"metrics")
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


def limits(**changed: float) -> ListenerLimits:
    """Patient but for these."""
    named = {name: getattr(PATIENT, name) for name in ListenerLimits.__slots__} | changed
    return ListenerLimits(**named)


class Crowd:
    """A listener, and clients that are gone when the test is over."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.streams: list[Stream] = []

    async def connect(self, tls: ssl.SSLContext | None = None) -> Stream:
        stream = await asyncio.open_connection(
            "127.0.0.1", self.listener.port, ssl=tls, server_hostname="localhost" if tls else None
        )
        self.streams.append(stream)
        return stream

    async def request(self, stream: Stream, text: bytes = REQUEST) -> bytes:
        """The status line, with the rest read."""
        reader, writer = stream
        writer.write(text)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
        length = next(
            int(line.split()[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        return head.partition(b"\r\n")[0]

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, len(self.listener)
            await asyncio.sleep(0.01)


def secured() -> tuple[Tls, ssl.SSLContext]:
    """Return a server's TLS with its own certificate, and a client that trusts it."""
    source, served = SelfSigned(["localhost"]), Tls("VersionTLS12")
    served.serve(source.newest(time.time()))
    return served, ssl.create_default_context(cadata=source.newest(time.time()).certificate.decode())


async def ended(stream: Stream) -> bool:
    """The other side has closed or cut it."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(stream[0].read(), DEADLINE_S) is not None
    return True


def sources(
    metrics: Callable[[], bytes] = bytes,
    *,
    configz: Callable[[], object] = dict,
    debug_cache: Callable[[], Page] = dict,
) -> EndpointSources:
    """Empty pages, except for these."""

    async def unexplained(*_: str) -> None:
        return None

    async def unanswered(_: WhatIfRequest) -> WhatIfAnswer:
        raise Refused("no")

    return EndpointSources(
        dict,
        dict,
        metrics,
        configz=configz,
        debug_queue=dict,
        debug_cache=debug_cache,
        debug_pod=lambda _: None,
        explain=unexplained,
        explain_group=unexplained,
        what_if=unanswered,
        audit=dict,
    )


def empty() -> Endpoints:
    return Endpoints(sources())


@asynccontextmanager
async def listening(
    endpoints: Endpoints, allowed: ListenerLimits = PATIENT, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Crowd]:
    await endpoints.start()
    listener = Listener(bound("127.0.0.1", 0), endpoints.make, tls=tls, limits=allowed)
    listener.start()
    crowd = Crowd(listener)
    try:
        yield crowd
    finally:
        for _, writer in crowd.streams:
            writer.transport.abort()
        await listener.stop()
        await endpoints.stop()
        await listener.cut()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_one_connection_serves_many_requests() -> None:
    async with listening(empty()) as crowd:
        stream = await crowd.connect()
        for _ in range(3):
            assert await crowd.request(stream) == b"HTTP/1.1 200 OK"
        assert len(crowd.listener) == 1
        stream[1].close()
        await crowd.until(lambda: len(crowd.listener) == 0)


@pytest.mark.parametrize("drip", [b"", b"GET /livez HTTP/1.1\r\nHost: "], ids=["silent", "stuck in the headers"])
async def test_a_request_that_does_not_come_ends_the_connection(drip: bytes) -> None:
    async with listening(empty(), limits(request_s=1.0)) as crowd:
        first, second = await crowd.connect(), await crowd.connect()
        assert await crowd.request(second) == b"HTTP/1.1 200 OK"
        first[1].write(drip)
        second[1].write(drip or b"G")
        assert await ended(first)
        assert await ended(second)
        await crowd.until(lambda: len(crowd.listener) == 0)


async def test_dripping_does_not_buy_time() -> None:
    async with listening(empty(), limits(request_s=0.3)) as crowd:
        _, writer = stream = await crowd.connect()

        async def drip() -> None:
            writer.write(b"GET /livez HTTP/1.1\r\n")
            while True:
                writer.write(b"X-A: b\r\n")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert await ended(stream)
        dripping.cancel()


async def test_idle_connections_end() -> None:
    async with listening(empty(), limits(idle_s=0.2)) as crowd:
        stream = await crowd.connect()
        await crowd.request(stream)

        assert await ended(stream)


async def test_an_answer_that_is_not_read_ends_the_connection() -> None:
    async with listening(Endpoints(sources(lambda: b"x" * 50_000_000)), limits(answer_s=0.3)) as crowd:
        _, writer = await crowd.connect()
        writer.write(METRICS)
        await crowd.until(lambda: len(crowd.listener) == 1)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        await crowd.until(lambda: len(crowd.listener) == 0)


async def test_headers_without_end_are_cut_off() -> None:
    async with listening(empty(), limits(request_bytes=10_000)) as crowd:
        stream = await crowd.connect()
        with contextlib.suppress(ConnectionError):
            stream[1].write(b"GET /livez HTTP/1.1\r\n")
            for _ in range(50):
                stream[1].write(b"X: " + b"y" * 300 + b"\r\n")
                await stream[1].drain()

        assert await ended(stream)


async def test_a_new_connection_replaces_the_oldest() -> None:
    async with listening(empty(), limits(connections=3)) as crowd:
        first, second, third = [await crowd.connect() for _ in range(3)]
        await crowd.until(lambda: len(crowd.listener) == 3)
        await crowd.request(first)
        probe = await crowd.connect()

        assert await crowd.request(probe) == b"HTTP/1.1 200 OK"
        assert await ended(first)
        assert await crowd.request(second) == b"HTTP/1.1 200 OK"
        assert await crowd.request(third) == b"HTTP/1.1 200 OK"
        assert len(crowd.listener) == 3


def waits_for(event: asyncio.Event) -> Callable[[], bytes]:
    """Return a page that is made after this event. Pages are made in threads."""
    loop = asyncio.get_running_loop()

    def slow() -> bytes:
        asyncio.run_coroutine_threadsafe(event.wait(), loop).result(DEADLINE_S)
        return b"m"

    return slow


async def test_a_connection_that_is_being_answered_is_not_cut_off() -> None:
    may_go = asyncio.Event()
    async with listening(Endpoints(sources(waits_for(may_go))), limits(connections=1)) as crowd:
        busy = await crowd.connect()
        asking = asyncio.create_task(crowd.request(busy, METRICS))
        await crowd.until(lambda: not any(each.may_be_cut for each in crowd.listener._open))
        assert await ended(await crowd.connect())
        may_go.set()

        assert await asking == b"HTTP/1.1 200 OK"


class Thoughtful(Reviews):
    """An API server that never says whose token it is."""

    def __init__(self) -> None:
        self.asked = 0

    async def user_of(self, token: str) -> User | None:
        self.asked += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.asked -= 1
        return None

    async def may(self, user: User, *, verb: str, path: str) -> Permission:
        raise AssertionError(verb, path)


async def test_many_requests_with_unknown_tokens() -> None:
    """Probes are answered while reviews are pending; the review of a closed connection is cancelled."""
    server = Thoughtful()
    async with listening(Endpoints(sources(), RequestGate(server, ("/livez",))), limits(connections=3)) as crowd:
        token = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n"
        for _ in range(3):
            _, writer = await crowd.connect()
            writer.write(token)
        await crowd.until(lambda: server.asked == 3)

        assert await crowd.request(await crowd.connect()) == b"HTTP/1.1 200 OK"
        assert await ended(crowd.streams[0])
        await crowd.until(lambda: server.asked == 2)


async def test_requests_have_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "_REQUESTS_PACE_S", 0.02)
    with bound("127.0.0.1", 0) as listening_on:
        listener, order, began_s = Listener(listening_on, asyncio.Protocol), list[int](), time.monotonic()

        async def request(number: int) -> None:
            await listener.turn()
            order.append(number)

        asking = [asyncio.create_task(request(number)) for number in range(30)]
        await asyncio.sleep(0)
        asking[25].cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    assert order == [number for number in range(30) if number != 25]
    assert time.monotonic() - began_s >= 0.02 * 8  # 29, of which 20 were saved up, and the first one does not wait


async def test_starting_over() -> None:
    may_go = asyncio.Event()
    async with listening(Endpoints(sources(waits_for(may_go)))) as crowd:
        idle, busy = await crowd.connect(), await crowd.connect()
        await crowd.request(idle)
        asking = asyncio.create_task(crowd.request(busy, METRICS))
        await crowd.until(lambda: not all(each.may_be_cut for each in crowd.listener._open))
        crowd.listener.start_over()
        assert await ended(idle)
        may_go.set()

        assert await asking == b"HTTP/1.1 200 OK"
        assert await ended(busy)
        assert await crowd.request(await crowd.connect()) == b"HTTP/1.1 200 OK"


@LOOPS
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
def test_a_client_that_hangs_up_is_not_logged(loop: Loop, is_secure: bool, caplog: pytest.LogCaptureFixture) -> None:
    served, client = secured()

    async def hang_up() -> None:
        began, may_go, body = threading.Event(), threading.Event(), b"x" * 20_000_000

        def metrics() -> bytes:
            began.set()
            may_go.wait(DEADLINE_S)
            return body

        page = {"rows": lambda: iter([{"x": "y" * 2000}] * 20_000)}
        endpoints = Endpoints(sources(metrics, debug_cache=lambda: page))
        async with listening(endpoints, tls=served.front if is_secure else None) as crowd:
            for path, reads in ((b"metrics", False), (b"metrics", True), (b"debug/cache", True)):
                reader, writer = await crowd.connect(client if is_secure else None)
                writer.write(REQUEST.replace(b"livez", path))
                if reads:
                    may_go.set()
                    assert await asyncio.wait_for(reader.read(100), DEADLINE_S)
                else:
                    assert await asyncio.to_thread(began.wait, DEADLINE_S)
                writer.transport.abort()
                await crowd.until(lambda: len(crowd.listener) == 0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(hang_up())
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []


async def test_a_handshake_that_does_not_come() -> None:
    served, client = secured()
    async with listening(empty(), limits(connections=2), tls=served.front) as crowd:
        silent = [await crowd.connect() for _ in range(2)]
        await crowd.until(lambda: len(crowd.listener) == 2)
        assert await crowd.request(await crowd.connect(client)) == b"HTTP/1.1 200 OK"
        assert await ended(silent[0])
    async with listening(empty(), limits(handshake_s=0.2), tls=served.front) as crowd:
        silent = [await crowd.connect()]
        assert await ended(silent[0])
        await crowd.until(lambda: len(crowd.listener) == 0)


async def test_plain_http_on_the_tls_port() -> None:
    served, client = secured()
    async with listening(empty(), tls=served.front) as crowd:
        lost = await crowd.connect()
        lost[1].write(REQUEST)
        assert await ended(lost)
        assert await crowd.request(await crowd.connect(client)) == b"HTTP/1.1 200 OK"


@LOOPS
def test_stopping_ends_all_connections(loop: Loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check_stopping())


async def check_stopping() -> None:
    served, client = secured()
    for tls in (None, served.front):
        async with listening(empty(), tls=tls) as crowd:
            streams = [await crowd.connect() for _ in range(3)]
            streams[0][1].write(b"GET")
            await crowd.until(lambda: len(crowd.listener) == 3)
            asking = await crowd.connect(client if tls else None)
            for _ in range(2):
                assert await crowd.request(asking) == b"HTTP/1.1 200 OK"
            streams.append(asking)
        assert all([await ended(stream) for stream in streams])


@pytest.mark.parametrize(("host", "named"), [("127.0.0.1", r"127\.0\.0\.1"), ("::1", r"\[::1\]")])
def test_a_port_that_is_taken(host: str, named: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    says = rf"^{named}:\d+: .*use"
    with socket.create_server((host, 0), family=family) as taken, pytest.raises(CannotListen, match=says):
        bound(host, taken.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_is_shared(host: str) -> None:
    with bound(host, 0, reuse_port=True) as first, bound(host, first.getsockname()[1], reuse_port=True) as second:
        assert first.getsockname()[1] == second.getsockname()[1]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_all_addresses(host: str) -> None:
    """Of both families, if there are two, as in Go."""
    with bound(host, 0) as listening_on:
        port = listening_on.getsockname()[1]
        ways = ["127.0.0.1", *(["::1"] if listening_on.family == socket.AF_INET6 else [])]
        for way in ways:
            with socket.create_connection((way, port), timeout=DEADLINE_S) as there:
                assert there.getpeername()[1] == port


def test_a_connection_without_a_transport_can_be_cut() -> None:
    with bound("127.0.0.1", 0) as listening_on:
        Connection(asyncio.Protocol(), PATIENT, Listener(listening_on, asyncio.Protocol)).cut()
