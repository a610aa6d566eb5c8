"""The event loop of simulations: virtual time, connections in memory, and the rest of the world as it comes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from scheduler.core.clock import SystemClock
from scheduler.kube.client_config import Settings
from scheduler.kube.http.client import UNUSED_S
from scheduler.kube.http.http1 import Http1Client
from scheduler.kube.transport import HttpTransport
from simulator.apiserver import ApiServer
from simulator.eventloop import SimulatedClock, VirtualLoop

WALL_S = 1_767_225_600.0


def run(main: Callable[[SimulatedClock], Awaitable[object]]) -> object:
    """Run it in a new virtual loop."""
    loop = VirtualLoop()

    async def running() -> object:
        return await main(SimulatedClock(loop, wall_at_start=WALL_S))

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(running())


def test_hours_pass_at_once_and_in_order() -> None:
    seen: list[tuple[str, int]] = []

    async def main(clock: SimulatedClock) -> None:
        async def sleeper(name: str, delay_s: float) -> None:
            await clock.sleep(delay_s)
            seen.append((name, round(clock.now())))

        await asyncio.gather(sleeper("later", 7200), sleeper("first", 3600), sleeper("last", 7201))
        assert round(clock.wall() - WALL_S) == 7201

    run(main)

    assert seen == [("first", 3600), ("later", 7200), ("last", 7201)]


def test_a_speed_limits_how_fast_time_passes() -> None:
    loop, outside = VirtualLoop(speed=100.0), SystemClock()

    async def main() -> float:
        began_s = loop.time()
        await asyncio.sleep(20)
        return loop.time() - began_s

    began_s = outside.now()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(main()) == pytest.approx(20, abs=0.1)
    assert outside.now() - began_s >= 0.19


def test_unused_connections_are_closed_at_their_very_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time a timer fires exactly when it is due. A sum that is rounded must not make it fire again and again."""
    original, calls = Http1Client._close_unused, 0

    def counted(client: Http1Client) -> None:
        nonlocal calls
        calls += 1
        if calls < 1_000:  # otherwise the time stands still
            original(client)

    monkeypatch.setattr(Http1Client, "_close_unused", counted)

    async def main(clock: SimulatedClock) -> None:
        async with ApiServer(clock=clock) as server:
            transport = HttpTransport(Settings(server=server.url), clock=clock)
            for tenths in range(30):
                await clock.sleep(UNUSED_S * 3 + tenths / 10)
                await transport.get("/api")
            await transport.close()

    run(main)
    assert calls <= 60


def test_work_that_reads_the_clock_comes_to_its_end() -> None:
    """The time does not depend on the machine, and work without a pause may have a limit."""

    async def main(clock: SimulatedClock) -> int:
        readings = 1
        while clock.now() < 0.001:
            readings += 1
        return readings

    assert run(main) == run(main) == 100


def test_requests_to_a_server_of_the_loop_have_no_socket() -> None:
    async def main(clock: SimulatedClock) -> None:
        async with ApiServer(clock=clock) as server, aiohttp.ClientSession() as session:
            server.create("ConfigMap", {"metadata": {"name": "a"}, "data": {"x": "y" * 300_000}})
            for path in ("configmaps/a", "configmaps/b", "configmaps/a"):
                url = f"{server.url}/api/v1/namespaces/default/{path}"
                async with session.get(url) as answer:
                    assert answer.status == (404 if path.endswith("b") else 200)
                    assert len(await answer.read()) > (0 if path.endswith("b") else 300_000)
            with socket.socket() as outside:
                outside.settimeout(1)
                outside.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))  # the kernel queues it
                outside.setblocking(False)
                with pytest.raises(BlockingIOError):
                    outside.recv(1)

    run(main)


def test_both_ends_of_a_connection_learn_of_its_end() -> None:
    async def main(clock: SimulatedClock) -> None:
        async with ApiServer(clock=clock) as server, aiohttp.ClientSession() as session:
            answer = await session.get(f"{server.url}/api/v1/pods?watch=1")
            assert server.cut_watches("pods") == 1
            assert await answer.read() == b""
            watching = await session.get(f"{server.url}/api/v1/pods?watch=1")
            watching.close()
            await clock.sleep(1)
            assert server.cut_watches("pods") == 0
        with pytest.raises(aiohttp.ClientConnectorError):
            async with aiohttp.ClientSession() as late:
                await late.get(server.url)

    run(main)


@pytest.mark.parametrize("outside", ["a thread", "a socket"])
def test_an_answer_from_outside_comes_before_its_time_limit(outside: str) -> None:
    """Else virtual time would jump to the limit at once."""

    async def main(_: SimulatedClock) -> object:
        if outside == "a thread":
            return await asyncio.wait_for(asyncio.to_thread(lambda: "here"), 3600)
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                return (await asyncio.wait_for(reader.read(), 3600)).decode()
            finally:
                writer.close()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        writer.close()

    assert run(main) == "here"
