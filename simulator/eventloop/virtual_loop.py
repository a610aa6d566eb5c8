"""An event loop in virtual time: while nothing can run, its time jumps to the next timer.

Two runs of the same program call the same callbacks in the same order, however busy the machine is. Two things decide
that order elsewhere: how long each step takes, and when the kernel delivers bytes. Here the time does not depend on the
machine, and a connection to a server of the same loop is a pair of transports in memory.

Bytes from outside of the process, such as answers of an extender, come when they come. While the loop has a socket or a
thread, its time passes as outside, so that timeouts of these keep their meaning.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple

from scheduler.core.clock import SystemClock
from simulator.eventloop.memory_transport import MemoryServer, connected

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_TICK_S: Final = 10e-6
_SELF_PIPE: Final = 1
"""The socket of each loop for signals and threads."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop. Its time starts at 0."""

    def __init__(self, *, speed: float | None = None) -> None:
        """Create the loop. `speed` is its seconds per second outside; None: time jumps to the next timer."""
        self._now_s = 0.0
        self.speed = speed
        self._in_threads = 0
        self._servers: dict[Any, MemoryServer] = {}
        self._connecting: dict[socket.socket, MemoryServer] = {}
        super().__init__(_VirtualSelector(self))

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let virtual time pass. Timers that become due run in the next turn."""
        self._now_s += seconds

    @property
    def is_waiting_outside(self) -> bool:
        """Whether an answer of another process or a thread may come."""
        return self._in_threads > 0

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """Run the function in a thread. Until it returns, time passes as outside."""
        self._in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._in_threads -= 1

    # -- connections within the loop -----------------------------------------------------------------------------------

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        """Listen. With `sock` and without TLS only clients of this loop can connect, by the address of the socket."""
        sock = options.get("sock")
        if sock is None or options.get("ssl") is not None:
            return await super().create_server(protocol_factory, *args, **options)
        address = sock.getsockname()
        server = self._servers[address] = MemoryServer(self, protocol_factory, sock, lambda: self._servers.pop(address))
        return server

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect the socket, or remember for `create_connection` that it leads to a server of this loop."""
        server = self._servers.get(address)
        if server is None:
            await super().sock_connect(sock, address)
        else:
            self._connecting[sock] = server

    async def create_connection(self, protocol_factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        """Connect the protocol, in memory if the socket leads to a server of this loop."""
        sock = options.get("sock")
        server = self._connecting.pop(sock, None) if sock is not None else None
        if server is None or sock is None:
            return await super().create_connection(protocol_factory, *args, **options)
        sock.close()
        protocol = protocol_factory()
        return connected(self, protocol, server.protocol_factory()), protocol


class _VirtualSelector(selectors.DefaultSelector):
    """A selector that lets the time of its loop pass instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._outside = SystemClock()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return events that are ready. Without any, virtual time passes until the timeout."""
        if timeout is None:  # without a timer only a signal or a thread can continue
            return super().select(None)
        if timeout > 0 and (self._loop.is_waiting_outside or len(self.get_map()) > _SELF_PIPE):
            began = self._outside.now()
            events = super().select(timeout)
            self._loop.advance(self._outside.now() - began if events else timeout)
            return events
        events = super().select(timeout / self._loop.speed if self._loop.speed else 0)
        if timeout > 0 and not events:
            self._loop.advance(timeout)
        return events


class SimulatedClock:
    """`scheduler.core.clock.Clock` in the time of the loop.

    Each reading takes 10 µs. Without that, work that ends after some time would never end: it reads the clock in between.
    """

    def __init__(self, loop: VirtualLoop, *, wall_at_start: float) -> None:
        """Create the clock. `wall_at_start` is the time in seconds since the epoch when the loop's time is 0."""
        self._loop = loop
        self._wall_at_start = wall_at_start

    def now(self) -> float:
        """Return virtual seconds since the start of the loop."""
        self._loop.advance(_TICK_S)
        return self._loop.time()

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return self._wall_at_start + self.now()

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` virtual seconds."""
        await asyncio.sleep(delay_s)
