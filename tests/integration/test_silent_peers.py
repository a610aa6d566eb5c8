"""Peers that vanish silently: no FIN, no RST, and no answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.config.types import LeaderElection
from scheduler.kube.client_config import Settings
from scheduler.kube.http import sockets
from scheduler.kube.http.shared_session import SharedSession
from scheduler.kube.transport import HttpTransport
from simulator.apiserver import ApiServer
from tests.integration.clocks import HastyClock
from tests.integration.daemon import rig_on, until
from tests.integration.test_transport import answer, raw, says


class Balancer:
    """Passes bytes on to a server. `silence` freezes the existing connections; new ones are served."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self._port = port
        self._living: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()

    def silence(self) -> None:
        """Stop passing bytes without closing a connection."""
        for task in self._living:
            task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection("127.0.0.1", self._port)
        passing = asyncio.ensure_future(self._serve(reader, writer, *server))
        self._living.add(passing)
        await asyncio.wait([passing])
        self._living.discard(passing)
        self._open |= {writer, server[1]}
        if not passing.cancelled():
            self._close(writer, server[1])

    def close(self) -> None:
        self.silence()
        self._close(*self._open)

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        ways = asyncio.ensure_future(_pass(reader, to_server)), asyncio.ensure_future(_pass(from_server, writer))
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()

    def _close(self, *writers: asyncio.StreamWriter) -> None:
        for writer in writers:
            writer.close()
            self._open.discard(writer)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def balanced(server: ApiServer) -> AsyncIterator[Balancer]:
    balancer = Balancer(int(server.url.rpartition(":")[2]))
    listener = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
    balancer.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        listener.close()
        balancer.close()


@pytest.mark.parametrize("pods", [1, 60], ids=["a quiet daemon", "with a burst's connections in its pool"])
async def test_a_leader_keeps_its_lease_when_its_api_server_is_silently_replaced(pods: int) -> None:
    clock = HastyClock()
    async with ApiServer(clock=clock) as server, balanced(server) as balancer:
        elected: dict[str, Any] = {"master": balancer.url, "leader_election": LeaderElection(leader_elect=True)}
        async with rig_on(server, clock=clock, **elected) as cluster:
            cluster.node("n1", cpu="64", pods="500")
            for i in range(pods):
                cluster.pod(f"p{i}")
            await cluster.bound(*(f"p{i}" for i in range(pods)))

            balancer.silence()
            died_at = clock.now()
            await until(lambda: clock.now() > died_at + 60, lambda: "time stands", clock=clock, lasts_s=60)

            assert cluster.daemon.failure is None
            assert cluster.leads()
            await cluster.daemon.stop(0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Return each socket that is created while the test runs."""
    seen: list[socket.socket] = []

    class Seen(socket.socket):
        def __init__(self, *args: object, **more: object) -> None:
            super().__init__(*args, **more)  # type: ignore[arg-type]
            seen.append(self)

    monkeypatch.setattr(socket, "socket", Seen)
    return seen


@pytest.mark.parametrize("way", ["request", "lease", "lent"])
async def test_the_kernel_gives_up_on_a_silent_peer_within_half_a_minute(way: str, made: list[socket.socket]) -> None:
    async with raw(says(answer(200))) as server:
        settings = Settings(server.url)
        transport = HttpTransport(settings)
        shared_session = SharedSession(settings, transport)
        made.clear()
        if way == "lent":
            session = await shared_session.session()
            assert session is not None
            async with session.get(server.url):
                pass
        else:
            await (transport.apart() if way == "lease" else transport).get("/x")
        ours = [each for each in made if each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]
        asked = {option: ours[0].getsockopt(socket.IPPROTO_TCP, option) for option, _ in sockets.OPTIONS}
        await shared_session.close()
        await transport.close()

    assert len(ours) == 1
    assert asked == dict(sockets.OPTIONS)
    assert sockets.NOTICED_S <= 30


async def test_a_platform_without_an_option_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "OPTIONS", ())
    async with raw(says(answer(200))) as server:
        transport = HttpTransport(Settings(server.url))
        assert await transport.get("/x") == b"{}"
        await transport.close()
