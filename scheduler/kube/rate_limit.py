"""The client-side rate limit, and the priority of bindings over Events.

`Throttle` is a token bucket for `clientConnection.qps` and `burst` that serves bindings first. There is one per
daemon, and every write and Event takes a token, and so does each page of the self-audit. Watches and lists of informers
are not counted: there are few, and a delayed relist costs more than it saves.

`RequestsInFlight` lets Events give way to bindings and evictions: during a burst only one Event is in flight, so Events
still proceed. If their queue fills up, they are sent like other writes (`hurry_events`). Holding back all Events until
the end of the burst was tried, and made no burst faster: most of them come after it already.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
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


class RequestsInFlight:
    """Let Events wait while many bindings and evictions are in flight, until they are hurried."""

    def __init__(self) -> None:
        self._events_give_way = True
        self._urgent = 0
        self._events = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextlib.contextmanager
    def urgent(self) -> Iterator[None]:
        """Count an urgent request while it is in flight. Never waits."""
        self._urgent += 1
        try:
            yield
        finally:
            self._urgent -= 1
            if self._waiting and self._urgent < BUSY:
                while self._waiting:
                    self._wake()

    @contextlib.asynccontextmanager
    async def event(self) -> AsyncIterator[None]:
        """Count an Event. During a burst, wait while another Event is in flight. Cancelling leaves the line."""
        while self._events_give_way and self._urgent >= BUSY and self._events:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._events += 1
        try:
            yield
        finally:
            self._events -= 1
            self._wake()

    def hurry_events(self, is_hurried: bool) -> None:
        """Send Events without a wait, because too many of them wait, or let them wait again."""
        self._events_give_way = not is_hurried
        while is_hurried and self._waiting:
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
