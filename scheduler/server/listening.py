"""Sockets and connections with limits, so that slow or many clients cost little.

The number of connections is limited: a new one replaces the oldest connection without a running request. A handshake,
a request, an idle connection and the receipt of an answer each have a time limit, after which the connection is
closed. All connections share a rate of requests. Knows of HTTP only that requests begin, are admitted, and end.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import structlog

_log = structlog.get_logger(__name__)

_BACKLOG: Final = 128
_TROUBLE_S: Final = 1.0
_PACE_S: Final = 0.005
"""Pause between two connections, so that a flood of handshakes gets only a part of the event loop."""
_REQUESTS_PACE_S: Final = 0.0025
"""Pause between two requests. Each of the most connections gets a request before new ones could replace them all."""
_SAVED: Final = 20
"""Requests at once after a pause."""


class CannotListen(OSError):
    """The port cannot be bound. The message names the address."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one listener. `idle_s` is upstream's."""

    connections: int = 128
    handshake_s: float = 10.0
    request_s: float = 10.0
    """From the first byte, or the handshake, to the last header."""
    idle_s: float = 90.0
    answer_s: float = 60.0
    """Until the client has received it."""
    request_bytes: int = 64 * 1024


def bound(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a listening socket; 0.0.0.0 and :: mean all addresses of both families, as in Go. Raises CannotListen."""
    address = ipaddress.ip_address(host)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        if address.is_unspecified and socket.has_dualstack_ipv6():
            with contextlib.suppress(OSError):  # no IPv6 here, or the port is used: the next bind reports it
                return _listening("::", port, socket.AF_INET6, reuse_port=reuse_port, dualstack_ipv6=True)
        return _listening(host, port, family, reuse_port=reuse_port)
    except OSError as error:
        where = f"[{host}]:{port}" if address.version == 6 else f"{host}:{port}"
        raise CannotListen(f"{where}: {error.strerror or error}") from error


def _listening(host: str, port: int, family: socket.AddressFamily, **options: bool) -> socket.socket:
    made = socket.create_server((host, port), family=family, backlog=_BACKLOG, **options)
    made.setblocking(False)
    return made


class _State(enum.Enum):
    READING = enum.auto()
    IDLE = enum.auto()
    ASKED = enum.auto()
    """The permission of the caller is not known yet."""
    ANSWERING = enum.auto()


class Connection(asyncio.Protocol):
    """A connection in front of the HTTP protocol. It passes everything on, and counts time and bytes."""

    def __init__(self, inner: asyncio.Protocol, limits: ListenerLimits, listener: Listener) -> None:
        self._inner = inner
        self._limits = limits
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._state = _State.READING
        self._received = 0
        self.greeting: asyncio.Task[None] | None = None
        """The task that accepts it, with its handshake."""
        self.is_last = False
        """Whether its running or next request is its last one."""

    @property
    def may_be_cut(self) -> bool:
        """Return whether it may be closed for a new connection: not while an answer is owed to an admitted request."""
        return self._state is not _State.ANSWERING

    async def begins(self) -> None:
        """Wait for the turn of a request that was read."""
        self._turn(_State.ASKED, self._limits.answer_s)
        await self._listener.turn()

    def admitted(self) -> None:
        """Record that the caller has permission, and is being answered."""
        self._turn(_State.ANSWERING, self._limits.answer_s)

    def ended(self) -> None:
        """Record that the answer has been handed over."""
        self._turn(_State.IDLE, self._limits.idle_s)

    def cut(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self.greeting is not None:
            self.greeting.cancel()

    # -- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are, without saying so
        self._turn(_State.READING, self._limits.request_s)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._state is _State.IDLE:
            self._turn(_State.READING, self._limits.request_s)
        self._received += len(data)
        if self._received > self._limits.request_bytes:
            self.cut()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._listener.forget(self)
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def _turn(self, state: _State, limit_s: float) -> None:
        self._state = state
        self._received = 0
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(limit_s, self.cut)


class Listener:
    """Accept connections of one socket until `stop`."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None = None,
        limits: ListenerLimits | None = None,
    ) -> None:
        self._socket = listening
        self._make = make
        self._tls = tls
        self._limits = limits or ListenerLimits()
        self._open: dict[Connection, None] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._turns = asyncio.Lock()
        self._next_turn_s = 0.0

    @property
    def port(self) -> int:
        """Return the port."""
        return int(self._socket.getsockname()[1])

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Start in the running event loop."""
        self._accepting = asyncio.ensure_future(self._accept())

    async def stop(self) -> None:
        """Accept no further connections. Idempotent."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._accepting = None
        self._socket.close()

    async def cut(self) -> None:
        """Close all connections, also during the handshake."""
        greetings = [connection.greeting for connection in self._open if connection.greeting is not None]
        for connection in list(self._open):
            connection.cut()
        await asyncio.gather(*greetings, return_exceptions=True)

    def start_over(self) -> None:
        """Close all connections, each after its running answer, so that clients connect again."""
        for connection in list(self._open):
            if connection.may_be_cut:
                connection.cut()
            connection.is_last = True

    async def turn(self) -> None:
        """Wait for the turn of a request, in order of arrival. Cancelled requests lose their turn."""
        async with self._turns:
            now_s = asyncio.get_running_loop().time()
            due_s = max(self._next_turn_s, now_s - _SAVED * _REQUESTS_PACE_S)
            if due_s > now_s:
                await asyncio.sleep(due_s - now_s)
            self._next_turn_s = due_s + _REQUESTS_PACE_S

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._open.pop(connection, None)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # usually no file descriptor is left
                _log.warning("connections cannot be accepted", error=error.strerror or str(error))
                await asyncio.sleep(_TROUBLE_S)
                continue
            self._admit(accepted)
            await asyncio.sleep(_PACE_S)

    def _admit(self, accepted: socket.socket) -> None:
        if len(self._open) >= self._limits.connections:
            oldest = next((each for each in self._open if each.may_be_cut), None)
            if oldest is None:
                accepted.close()
                return
            self.forget(oldest)
            oldest.cut()
        connection = Connection(self._make(), self._limits, self)
        self._open[connection] = None
        connection.greeting = asyncio.ensure_future(self._greet(connection, accepted))

    async def _greet(self, connection: Connection, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        secured = {"ssl_handshake_timeout": self._limits.handshake_s, "ssl_shutdown_timeout": 1.0} if self._tls else {}
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._tls, **secured)
        except (OSError, ssl.SSLError, TimeoutError) as error:  # the failing task has reported it
            _log.debug("a connection failed before its first request", error=str(error) or type(error).__name__)
            self.forget(connection)
        except asyncio.CancelledError:
            self.forget(connection)
            raise
