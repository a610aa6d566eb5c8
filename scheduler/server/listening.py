"""Sockets, and connections that may not stay for ever: nobody who is slow, or many, costs more than a little.

There are at most so many connections; who comes then takes the place of the one that has been there for longest, unless
it is being answered: so in a crowd everybody has the same time, and nobody can hold a place. A connection has a time for its handshake, for a whole request, between
two of them, and for taking an answer. What is beyond its limits is cut off without a word. All of them together make so
many requests a second. Knows nothing of HTTP but that requests begin, are admitted, and end.
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
"""Between two connections: a flood of handshakes gets a part of the loop, not all of it."""
_REQUESTS_PACE_S: Final = 0.0025
"""Between two requests. Everybody in a full house has had his turn before as many new ones could have taken the places."""
_SAVED: Final = 20
"""Requests at once after a while without any."""


class CannotListen(OSError):
    """The port is taken, or may not be. The message names the address."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """For one listener. `idle_s` is upstream's."""

    connections: int = 128
    handshake_s: float = 10.0
    request_s: float = 10.0
    """From the first byte, or from the handshake, to the last of the headers."""
    idle_s: float = 90.0
    answer_s: float = 60.0
    """Until it has been taken."""
    request_bytes: int = 64 * 1024


def bound(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a listening socket; 0.0.0.0 and :: mean all addresses of both families, as in Go. Raises CannotListen."""
    address = ipaddress.ip_address(host)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        if address.is_unspecified and socket.has_dualstack_ipv6():
            with contextlib.suppress(OSError):  # no IPv6 here, or the port is taken: the next one tells
                return _unblocked(
                    socket.create_server(
                        ("::", port),
                        family=socket.AF_INET6,
                        backlog=_BACKLOG,
                        reuse_port=reuse_port,
                        dualstack_ipv6=True,
                    )
                )
        return _unblocked(socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=reuse_port))
    except OSError as error:
        where = f"[{host}]:{port}" if address.version == 6 else f"{host}:{port}"
        raise CannotListen(f"{where}: {error.strerror or error}") from error


def _unblocked(listening: socket.socket) -> socket.socket:
    listening.setblocking(False)
    return listening


class _State(enum.Enum):
    READING = enum.auto()
    IDLE = enum.auto()
    ASKED = enum.auto()
    """Whether he who asks may come in is not known yet."""
    ANSWERING = enum.auto()


class Connection(asyncio.Protocol):
    """In front of the protocol that knows HTTP; passes everything on, and counts time and bytes."""

    def __init__(self, inner: asyncio.Protocol, limits: ListenerLimits, listener: Listener) -> None:
        self._inner = inner
        self._limits = limits
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._state = _State.READING
        self._received = 0
        self.greeting: asyncio.Task[None] | None = None
        """Accepting it, with its handshake."""
        self.is_last = False
        """The request that it brings now, or next, is its last one."""

    @property
    def may_be_cut(self) -> bool:
        """We wait for the other side, or do not know it: nobody whom we owe an answer loses his place to a crowd."""
        return self._state is not _State.ANSWERING

    async def begins(self) -> None:
        """A request was read; returns when its turn has come."""
        self._turn(_State.ASKED, self._limits.answer_s)
        await self._listener.turn()

    def admitted(self) -> None:
        """Whoever asks may, and is being answered."""
        self._turn(_State.ANSWERING, self._limits.answer_s)

    def ended(self) -> None:
        """Its answer has been handed over."""
        self._turn(_State.IDLE, self._limits.idle_s)

    def cut(self) -> None:
        """Now, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()
        elif self.greeting is not None:
            self.greeting.cancel()

    # -- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """After the handshake."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are, and do not say so
        self._turn(_State.READING, self._limits.request_s)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Of a request, as a rule."""
        if self._state is _State.IDLE:
            self._turn(_State.READING, self._limits.request_s)
        self._received += len(data)
        if self._received > self._limits.request_bytes:
            self.cut()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The other side says no more."""
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._listener.left(self)
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The other side is slow to take it."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        self._inner.resume_writing()

    def _turn(self, state: _State, limit_s: float) -> None:
        self._state = state
        self._received = 0
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(limit_s, self.cut)


class Listener:
    """Accepts connections for one socket until `stop`."""

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
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """In the running loop."""
        self._accepting = asyncio.ensure_future(self._accept())

    async def stop(self) -> None:
        """No new connections from now on. Idempotent."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._accepting = None
        self._socket.close()

    async def cut(self) -> None:
        """Whoever is still there, even in the handshake."""
        greetings = [connection.greeting for connection in self._open if connection.greeting is not None]
        for connection in list(self._open):
            connection.cut()
        await asyncio.gather(*greetings, return_exceptions=True)

    def start_over(self) -> None:
        """Whoever is connected has to connect again, when he has the answer that he waits for."""
        for connection in list(self._open):
            if connection.may_be_cut:
                connection.cut()
            connection.is_last = True

    async def turn(self) -> None:
        """In order of arrival; who gives up is not waited for."""
        async with self._turns:
            now_s = asyncio.get_running_loop().time()
            due_s = max(self._next_turn_s, now_s - _SAVED * _REQUESTS_PACE_S)
            if due_s > now_s:
                await asyncio.sleep(due_s - now_s)
            self._next_turn_s = due_s + _REQUESTS_PACE_S

    def left(self, connection: Connection) -> None:
        """It is gone."""
        self._open.pop(connection, None)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # no descriptor is left, as a rule
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
            self.left(oldest)
            oldest.cut()
        connection = Connection(self._make(), self._limits, self)
        self._open[connection] = None
        connection.greeting = asyncio.ensure_future(self._greet(connection, accepted))

    async def _greet(self, connection: Connection, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        secured = {"ssl_handshake_timeout": self._limits.handshake_s, "ssl_shutdown_timeout": 1.0} if self._tls else {}
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._tls, **secured)
        except (OSError, ssl.SSLError, TimeoutError) as error:  # said by whoever tried; we have seen stranger things
            _log.debug("a connection failed before its first request", error=str(error) or type(error).__name__)
            self.left(connection)
        except asyncio.CancelledError:
            self.left(connection)
            raise
