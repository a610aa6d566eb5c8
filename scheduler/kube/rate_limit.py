"""The client-side rate limit, and the priority of bindings over Events.

`Throttle` is a token bucket for `clientConnection.qps` and `burst` that serves bindings first. There is one per
daemon, and every write and Event takes a token, and so does each page of the self-audit. Watches and lists of informers are
not counted: there are few, and a delayed relist costs more than it saves. `RequestsInFlight` lets Events give way to
bindings and evictions. An API server has the same processors for both: with the Events of a burst written after its
bindings, the last pod of the burst starts about a fifth earlier. An Event waits some seconds at most, and from then on one
Event is in flight at a time, so Events proceed however long the burst lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, TypeAlias

from scheduler.core.clock import Clock

DEFAULT_QPS: Final = 50.0
DEFAULT_BURST: Final = 100
_URGENT_IN_A_ROW: Final = 4
"""While both kinds wait, every fifth token goes to normal requests: conditions must reach autoscalers under load."""

_WHOLE: Final = 1 - 1e-6
"""One token minus rounding: waiting for the last billionth would be a sleep too short for any clock."""

_Line: TypeAlias = deque[asyncio.Future[None]]


class Throttle:
    """Grant `qps` tokens per second, with at most `burst` saved. 0: upstream's default; a negative `qps`: no limit."""

    def __init__(self, clock: Clock, *, qps: float = 0.0, burst: int = 0) -> None:
        self._clock = clock
        self._qps = qps or DEFAULT_QPS
        self._burst = float(max(burst or DEFAULT_BURST, 1))
        self._tokens = self._burst
        self._filled_at = clock.now()
        self._urgent: _Line = deque()
        self._others: _Line = deque()
        self._urgent_in_a_row = 0
        self._server: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Return how many callers wait for a token."""
        return sum(not waiter.done() for line in (self._urgent, self._others) for waiter in line)

    async def take(self, *, urgent: bool = False) -> None:
        """Wait for one token. Callers are served in order of arrival, urgent ones first.

        Cancelling leaves the line and returns a token that was just granted.
        """
        if self._qps < 0:
            return
        if self._server is None:
            self._fill()
            if self._tokens >= _WHOLE:
                self._tokens -= 1
                return
            self._server = asyncio.create_task(self._serve())
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._urgent if urgent else self._others).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._tokens += 1
            raise

    async def _serve(self) -> None:
        """Grant tokens until no caller waits."""
        try:
            while True:
                self._fill()
                while self._tokens >= _WHOLE:
                    waiter = self._next()
                    if waiter is None:
                        return
                    self._tokens -= 1
                    waiter.set_result(None)
                await self._clock.sleep((1 - self._tokens) / self._qps)
        finally:
            self._server = None

    def _next(self) -> asyncio.Future[None] | None:
        for line in (self._urgent, self._others):
            while line and line[0].done():
                line.popleft()
        if self._urgent and (not self._others or self._urgent_in_a_row < _URGENT_IN_A_ROW):
            self._urgent_in_a_row += 1
            return self._urgent.popleft()
        self._urgent_in_a_row = 0
        return self._others.popleft() if self._others else None

    def _fill(self) -> None:
        now = self._clock.now()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now


BUSY: Final = 8
"""Requests in flight that count as a burst."""
CALM_S: Final = 0.25
"""A burst has ended when for this time no such number was in flight: between two groups it is not over."""


class RequestsInFlight:
    """The requests of one writer, and whether they are a burst."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._urgent = 0
        self._events = 0
        self._busy_until = clock.now()
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextlib.contextmanager
    def urgent(self) -> Iterator[None]:
        """Count an urgent request while it is in flight. Never waits."""
        self._urgent += 1
        try:
            yield
        finally:
            if self._urgent >= BUSY:
                self._busy_until = self._clock.now() + CALM_S
            self._urgent -= 1
            if self._waiting and self._urgent < BUSY:
                while self._waiting:
                    self._wake()

    @contextlib.asynccontextmanager
    async def event(self, gives_way: Callable[[], bool]) -> AsyncIterator[None]:
        """Count an Event. During a burst, wait while it gives way, and then while another Event is in flight.

        Cancelling leaves the line.
        """
        while gives_way() and (rest_s := self._burst_s()) > 0:
            await self._clock.sleep(rest_s)
        while self._urgent >= BUSY and self._events:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._events += 1
        try:
            yield
        finally:
            self._events -= 1
            self._wake()

    def _burst_s(self) -> float:
        """Return how long the burst lasts at least."""
        return CALM_S if self._urgent >= BUSY else self._busy_until - self._clock.now()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
