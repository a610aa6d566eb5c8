"""A connection to a port of a pod, through the API server and the pod's kubelet, as a socket of this process.

The protocol is the kubelet's port forwarding over a websocket, `v4.channel.k8s.io`: the first byte of a message is its
channel. Channel 0 has the data of the first port, channel 1 its errors, and each begins with two bytes of the port.
TLS runs inside, between this process and the daemon, so neither the API server nor the kubelet sees the request.

The server's half is websocket.go in pkg/streaming/portforward of k8s.io/cri-streaming.

The API server's proxy of pods would be simpler, but it removes the header Authorization.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from scheduler.cli.leader import Leader, NoAnswer, one_line, rbac_rule
from scheduler.kube.client_config import Settings
from scheduler.kube.http.sockets import api_server_socket
from scheduler.kube.http.streams import through

PROTOCOL: Final = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
PORT_BYTES: Final = 2
_CHUNK_BYTES: Final = 32 * 1024
_LONGEST_ERROR: Final = 1024
_CLOSED_WITHIN_S: Final = 2.0
_RULES: Final = rbac_rule("", "pods/portforward", "get", "create")


class OpenSockets:
    """The socket factory of one session. A loop that ends before it has closed a socket leaves it open."""

    def __init__(self) -> None:
        self._made: list[socket.socket] = []

    def __call__(self, address: tuple[Any, ...]) -> socket.socket:
        self._made.append(api_server_socket(address))
        return self._made[-1]

    async def closed(self) -> None:
        """Wait until all sockets are closed, at most two seconds: a peer may be slow to end TLS."""
        await _closed(self._made)


async def _closed(sockets: Sequence[socket.socket]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSED_WITHIN_S):
            while any(each.fileno() >= 0 for each in sockets):
                await asyncio.sleep(0.001)


class Tunnel:
    """One open connection. `socket` is this process's end; bytes flow while the tunnel is open."""

    def __init__(self, messages: aiohttp.ClientWebSocketResponse, ours: socket.socket) -> None:
        self.socket = ours
        self._messages = messages
        self._errors = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._theirs: tuple[socket.socket, asyncio.StreamWriter] | None = None

    async def start(self, theirs: socket.socket) -> None:
        """Begin to copy between the websocket and the other end of the socket pair."""
        reader, writer = await asyncio.open_connection(sock=theirs)
        self._theirs = theirs, writer
        self._tasks = [
            asyncio.create_task(self._from_pod(writer)),
            asyncio.create_task(self._to_pod(reader)),
        ]

    async def close(self) -> None:
        """Close both ends. The kubelet gets two seconds for its answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSED_WITHIN_S):
                await self._messages.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._theirs is not None:
            theirs, writer = self._theirs
            writer.transport.abort()
            await _closed([theirs])
        self.socket.close()

    async def error(self) -> str:
        """Return the kubelet's error of the connection, "" if there is none. Waits for the end of the tunnel."""
        if self._tasks:
            await asyncio.wait(self._tasks[:1], timeout=_CLOSED_WITHIN_S)
        return one_line(self._errors.decode(errors="replace"))

    async def _from_pod(self, writer: asyncio.StreamWriter) -> None:
        """Copy until the websocket ends. The reader of the socket then sees the end, too."""
        skipped = {DATA: PORT_BYTES, ERROR: PORT_BYTES}
        try:
            async for message in self._messages:
                if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                channel, content = message.data[0], message.data[1:]
                head = min(skipped.get(channel, len(content)), len(content))
                if channel in skipped:
                    skipped[channel] -= head
                if channel == DATA:
                    writer.write(content[head:])
                    await writer.drain()
                elif channel == ERROR:
                    self._errors = (self._errors + content[head:])[:_LONGEST_ERROR]
        except (OSError, aiohttp.ClientError):
            pass  # the reader of the socket reports that the connection is closed
        finally:
            writer.close()

    async def _to_pod(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, aiohttp.ClientError):
            while chunk := await reader.read(_CHUNK_BYTES):
                await self._messages.send_bytes(bytes((DATA,)) + chunk)


@contextlib.asynccontextmanager
async def port_forward(settings: Settings, leader: Leader) -> AsyncIterator[Tunnel]:
    """Open a connection to the leader's port. Raises NoAnswer."""
    sockets = OpenSockets()
    connector = aiohttp.TCPConnector(socket_factory=sockets)
    try:
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            messages = await _upgraded(session, settings, leader)
            ours, theirs = socket.socketpair()
            tunnel = Tunnel(messages, ours)
            try:
                for end in (ours, theirs):
                    end.setblocking(False)
                await tunnel.start(theirs)
                yield tunnel
            finally:
                await tunnel.close()
    finally:
        await sockets.closed()


async def _upgraded(
    session: aiohttp.ClientSession, settings: Settings, leader: Leader
) -> aiohttp.ClientWebSocketResponse:
    path = f"/api/v1/namespaces/{leader.namespace}/pods/{leader.pod}/portforward?ports={leader.port}"
    try:
        messages: aiohttp.ClientWebSocketResponse = await session.ws_connect(
            URL(settings.server + path, encoded=True),
            protocols=(PROTOCOL,),
            headers=_headers(settings),
            ssl=settings.tls if settings.tls is not None else True,
            server_hostname=settings.tls_server_name,
            **through(settings.proxy),
        )
    except aiohttp.WSServerHandshakeError as error:
        raise _not_forwarded(error.status, leader) from error
    except (aiohttp.ClientError, OSError) as error:
        raise NoAnswer(f"the API server cannot be reached: {one_line(str(error) or type(error).__name__)}") from error
    if messages.protocol != PROTOCOL:
        await messages.close()
        raise NoAnswer(
            f"the kubelet of node {leader.node} does not forward ports by {PROTOCOL}; "
            f"run `kubectl -n {leader.namespace} port-forward {leader.pod} {leader.port}` and use --server"
        )
    return messages


def _headers(settings: Settings) -> Any:
    """Return the credentials and impersonation without the headers that describe an ordinary request."""
    headers = settings.headers()
    for name in ("Accept", "Accept-Encoding"):
        headers.popall(name, None)
    return headers


def _not_forwarded(status: int, leader: Leader) -> NoAnswer:
    what = f"forward port {leader.port} of pod {leader}"
    match status:
        case 401:
            return NoAnswer(f"the API server does not accept your credentials to {what} (401); log in again")
        case 403:
            return NoAnswer(
                f"no permission to {what}: a Role in namespace {leader.namespace} needs the rule {_RULES}; "
                "clusters before 1.35 check get alone"
            )
        case 404:
            return NoAnswer(f"pod {leader} has gone; another replica takes the Lease: try again in a minute")
        case 200 | 400 | 426:
            return NoAnswer(
                f"the API server did not {what} ({status}): a proxy before it may not pass websockets; "
                f"run `kubectl -n {leader.namespace} port-forward {leader.pod} {leader.port}` and use --server"
            )
        case _:
            return NoAnswer(
                f"the API server did not {what} ({status}): look whether it reaches the kubelet of node {leader.node}, "
                f"for example by `kubectl -n {leader.namespace} logs {leader.pod}`"
            )


class TunnelConnector(aiohttp.BaseConnector):
    """Carry the only connection of a session over a socket that is connected already, with TLS inside."""

    def __init__(self, connected: socket.socket, tls: ssl.SSLContext, server_name: str) -> None:
        super().__init__(force_close=True)
        self._connected = connected
        self._tls = tls
        self._server_name = server_name
        self._transport: asyncio.Transport | None = None

    async def abort(self) -> None:
        """Close the connection without the end of TLS, because the tunnel that carries it ends, too."""
        if self._transport is not None:
            self._transport.abort()
            await _closed([self._connected])

    async def _create_connection(self, *_: object) -> ResponseHandler:
        try:
            self._transport, protocol = await self._loop.create_connection(
                self._factory, sock=self._connected, ssl=self._tls, server_hostname=self._server_name
            )
        except ssl.SSLCertVerificationError as error:
            raise unverified(error, self._server_name) from error
        return protocol


def unverified(error: Exception, name: str) -> NoAnswer:
    """Return the error for a certificate that the authorities do not accept."""
    return NoAnswer(
        f"the scheduler's certificate is not valid for {name}: {one_line(str(error))}; "
        "give the authority by --scheduler-ca-file and the name by --scheduler-server-name"
    )
