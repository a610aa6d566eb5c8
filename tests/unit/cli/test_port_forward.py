"""The tunnel: bytes arrive as they are, and a refusal says which permission or component is missing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from scheduler.cli.leader import Leader, NoAnswer
from scheduler.cli.port_forward import Tunnel, port_forward
from scheduler.kube.client_config import Settings
from tests.support.port_forwarding import ApiFront, Forwarder, fronted

LEADER = Leader("stow", "stow-0", 10259, "n1")
ECHOED = bytes(range(256)) * 4096
"""One MiB: more than the buffers of all sockets on the way."""


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    """Yield the port of a server that returns what it reads."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def tunnel_to(front: ApiFront, leader: Leader = LEADER) -> AsyncIterator[Tunnel]:
    async with fronted(front), port_forward(Settings(front.url), leader) as tunnel:
        yield tunnel


async def exchanged(tunnel: Tunnel, sent: bytes) -> bytes:
    """Send and return as many bytes, or those before the end."""
    reader, writer = await asyncio.open_connection(sock=tunnel.socket)

    async def send() -> None:
        with contextlib.suppress(OSError):
            for at in range(0, len(sent), 8192):
                writer.write(sent[at : at + 8192])
                await writer.drain()

    sending = asyncio.create_task(send())
    read = b""
    with contextlib.suppress(BrokenPipeError):
        while len(read) < len(sent) and (chunk := await reader.read(65536)):
            read += chunk
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    writer.close()
    return read


@pytest.mark.parametrize(
    ("is_bytewise", "sent"),
    [
        pytest.param(False, ECHOED, id="more than the buffers hold"),
        pytest.param(True, ECHOED[:2000], id="each byte in a message"),
    ],
)
async def test_bytes_arrive_as_they_are(is_bytewise: bool, sent: bytes) -> None:
    async with echoing() as port:
        forwarder = Forwarder(port, is_bytewise=is_bytewise)
        async with tunnel_to(ApiFront(forwarder)) as tunnel:
            assert await exchanged(tunnel, sent) == sent

    assert forwarder.requested == ["/api/v1/namespaces/stow/pods/stow-0/portforward?ports=10259"]


async def test_the_end_of_the_pods_connection() -> None:
    async with echoing() as port, tunnel_to(ApiFront(Forwarder(port, cuts_after_bytes=100))) as tunnel:
        assert await exchanged(tunnel, ECHOED[:1000]) == ECHOED[:100]
        assert await tunnel.error() == ""


async def test_the_error_of_the_kubelet() -> None:
    async with tunnel_to(ApiFront(Forwarder(1))) as tunnel:
        assert await exchanged(tunnel, b"x") == b""
        assert await tunnel.error() == "failed to connect to localhost:1 inside the pod: connection refused"


async def test_a_tunnel_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with echoing() as port:
        forwarder = Forwarder(port, hangs=True)
        async with fronted(ApiFront(forwarder)) as front, port_forward(Settings(front.url), LEADER) as tunnel:
            tunnel.socket.send(b"x")
    async with asyncio.timeout(60):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)


RULE = '{apiGroups: [""], resources: ["pods/portforward"], verbs: [get, create]}'
BY_HAND = "run `kubectl -n stow port-forward stow-0 10259` and use --server"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            401,
            "the API server does not accept your credentials to forward port 10259 of pod stow/stow-0 (401); log in again",
        ),
        (
            403,
            (
                "no permission to forward port 10259 of pod stow/stow-0: a Role in namespace stow needs the rule "
                f"{RULE}; clusters before 1.35 check get alone"
            ),
        ),
        (404, "pod stow/stow-0 has gone; another replica takes the Lease: try again in a minute"),
        (
            400,
            (
                "the API server did not forward port 10259 of pod stow/stow-0 (400): a proxy before it may not pass "
                f"websockets; {BY_HAND}"
            ),
        ),
        (
            502,
            (
                "the API server did not forward port 10259 of pod stow/stow-0 (502): look whether it reaches the kubelet of "
                "node n1, for example by `kubectl -n stow logs stow-0`"
            ),
        ),
    ],
)
async def test_a_refusal(status: int, said: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        async with tunnel_to(ApiFront(Forwarder(1), statuses={"/portforward": status})):
            pass

    assert str(raised.value) == said


async def test_a_kubelet_without_the_protocol() -> None:
    said = rf"^the kubelet of node n1 does not forward ports by v4\.channel\.k8s\.io; {BY_HAND}$"
    with pytest.raises(NoAnswer, match=said):
        async with tunnel_to(ApiFront(Forwarder(1, protocols=()))):
            pass


async def test_no_api_server() -> None:
    with pytest.raises(NoAnswer, match=r"^the API server cannot be reached: .*127\.0\.0\.1:1"):
        async with port_forward(Settings("http://127.0.0.1:1"), LEADER):
            pass
