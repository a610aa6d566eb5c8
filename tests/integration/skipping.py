"""Virtual time for a whole world with real sockets on loopback: waiting costs nothing, and work takes no time."""

from __future__ import annotations

import asyncio
import selectors
from typing import Final

from scheduler.core.clock import SystemClock

_IN_TRANSIT_S: Final = 0.0005
"""Loopback delivers at once. A busy machine may defer that; a packet that is later still has taken a virtual moment."""
_SHORTEST_S: Final = 1e-6
"""asyncio runs a timer up to a nanosecond early, and time would stand while a caller sleeps what is left."""


class SkippingClock(SystemClock):
    """The event loop's own time, which stands while the loop works and skips to the next timer when it would sleep.

    Everything in the loop lives by it: timers of asyncio and aiohttp too. One history therefore takes the same course on
    a slow machine. Work in threads takes no time, as long as the loop waits for that work alone.
    """

    def __init__(self) -> None:
        """In the loop that it is for."""
        loop = asyncio.get_running_loop()
        selector: selectors.BaseSelector = loop._selector  # type: ignore[attr-defined]
        self._now_s = loop.time()
        self._select = selector.select
        loop.time = self.now  # type: ignore[method-assign]
        selector.select = self._skipping_select  # type: ignore[method-assign]

    def now(self) -> float:
        return self._now_s

    async def sleep(self, delay_s: float) -> None:
        """As the clock of the system, which goes on by itself: a sleep that is not empty moves the time."""
        await super().sleep(max(delay_s, _SHORTEST_S) if delay_s > 0 else delay_s)

    def _skipping_select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return self._select(timeout)
        events = self._select(0) or self._select(_IN_TRANSIT_S)
        if not events:
            self._now_s += timeout
        return events
