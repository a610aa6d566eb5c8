"""Connections in memory: two transports of which each delivers what the other one writes, in the next turn of the loop.

A write never blocks. Both ends are in the same process, so a buffer that is full would only move bytes elsewhere.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any


class MemoryTransport(asyncio.Transport):
    """One end of a connection. `protocol` gets the bytes that the other end writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any) -> None:
        """Create one end. `connected` joins two of them."""
        super().__init__()
        self.peer = self
        self._loop = loop
        self._protocol = protocol
        self._received: deque[bytes | None] = deque()
        """What the protocol has not taken yet; None is the end."""
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Deliver the bytes to the other end."""
        if data and not self._is_closing:
            self.peer.take(bytes(data))

    def can_write_eof(self) -> bool:
        """Return False: a connection ends in both directions at once."""
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: a write never blocks."""

    # -- reading ---------------------------------------------------------------------------------------------------

    def take(self, data: bytes | None) -> None:
        """Receive bytes, or the end of the connection, in the next turn of the loop."""
        self._received.append(data)
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        while self._received and not self._is_paused and not self._is_closing:
            data = self._received.popleft()
            if data is None:
                self._protocol.eof_received()
                self.close()
            else:
                self._protocol.data_received(data)

    def pause_reading(self) -> None:
        """Keep what arrives until `resume_reading`."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Deliver what has arrived, and what will."""
        self._is_paused = False
        self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        """Return whether bytes are delivered."""
        return not self._is_paused and not self._is_closing

    # -- the end ---------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """End the connection. The other end gets everything that was written before."""
        if not self._is_closing:
            self._is_closing = True
            self.peer.take(None)
            self._loop.call_soon(self._lose)

    def abort(self) -> None:
        """End the connection as `close` does: nothing is buffered."""
        self.close()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._protocol.connection_lost(None)

    # -- what is known about it ------------------------------------------------------------------------------------

    def set_protocol(self, protocol: Any) -> None:
        """Deliver to this protocol from now on."""
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the addresses; a connection in memory has no socket and no TLS."""
        return ("127.0.0.1", 0) if name in {"peername", "sockname"} else default


def connected(loop: asyncio.AbstractEventLoop, client: Any, server: Any) -> MemoryTransport:
    """Connect two protocols, and return the transport of the first one."""
    ours, theirs = MemoryTransport(loop, client), MemoryTransport(loop, server)
    ours.peer, theirs.peer = theirs, ours
    server.connection_made(theirs)
    client.connection_made(ours)
    return ours


class MemoryServer(asyncio.AbstractServer):
    """A server that clients of the same loop reach. It keeps the socket whose address is its name."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol_factory: Callable[[], Any],
        sock: socket.socket,
        forget: Callable[[], object],
    ) -> None:
        """Create the server. `forget` is called once, when it closes."""
        self.protocol_factory = protocol_factory
        self.sockets = (sock,)
        self._loop = loop
        self._forget = forget

    def close(self) -> None:
        """Refuse further connections. Idempotent."""
        (sock,) = self.sockets
        if self.is_serving():
            self._forget()
            sock.close()

    def is_serving(self) -> bool:
        """Return whether clients can connect."""
        return self.sockets[0].fileno() >= 0

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    async def start_serving(self) -> None:
        """Do nothing: the server has served since it was created."""

    async def serve_forever(self) -> None:
        """Do nothing: see `start_serving`."""

    async def wait_closed(self) -> None:
        """Return at once: connections are closed by their protocols."""
