"""Virtual time: nothing waits for the wall, everything wakes in order.

Implements `scheduler.core.clock.Clock`. For unit and integration tests; `advance` is the only thing that moves it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

_TURNS = 20


class VirtualClock:
    """Starts at `now` 0 and a fixed date. Sleepers wake in the order of their times, then of their calls."""

    def __init__(self, *, wall: float = 1_767_225_600.0) -> None:
        self._now = 0.0
        self._wall_at_start = wall
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        """Virtual monotonic seconds."""
        return self._now

    def wall(self) -> float:
        """Virtual seconds since the epoch; moves with `now`."""
        return self._wall_at_start + self._now

    async def sleep(self, delay_s: float) -> None:
        """Return once `advance` has passed that moment; a delay of 0 or less only gives the loop a turn."""
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + delay_s, next(self._order), woken))
        await woken

    @property
    def sleepers(self) -> int:
        return sum(1 for _, _, woken in self._sleepers if not woken.done())

    async def advance(self, seconds: float) -> None:
        """Let that much time pass, moment by moment: each task that wakes runs, and may sleep again, before the next one."""
        end = self._now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            moment = self._sleepers[0][0]
            self._now = max(self._now, moment)
            while self._sleepers and self._sleepers[0][0] <= moment:
                _, _, woken = heapq.heappop(self._sleepers)
                if not woken.done():
                    woken.set_result(None)
            await self.settle()
        self._now = end
        await self.settle()

    async def settle(self) -> None:
        """Give the loop some turns, so that what is ready runs; sockets may need more than this."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
