"""Clocks for the event loop of a test: fast ones, and virtual ones."""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Final

from scheduler.core.clock import SystemClock

HASTE: Final = 125
_HASTE_AT_WORK: Final = 25
_ROUNDED_S: Final = 0.001
"""A selector counts in milliseconds, so it may sleep this much longer."""
_IN_TRANSIT_S: Final = 0.0005
"""Loopback delivers at once, except on a busy machine. A packet that is later has taken a virtual moment."""
_SHORTEST_S: Final = 1e-6
"""asyncio runs a timer up to a nanosecond early. Without a minimum, a caller would sleep again and again in the same moment."""


class HastyClock(SystemClock):
    """A second lasts eight milliseconds while the loop is idle, and five times as long while it works.

    Only the CPU time of this thread counts as work. So time stands still while other processes use the machine, and a slow machine does not let
    time-outs pass while answers are on their way. Create it in the loop that it is for.
    """

    def __init__(self) -> None:
        self._idle_s = 0.0
        selector: selectors.BaseSelector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        self._select = selector.select
        selector.select = self._timed_select  # type: ignore[method-assign]

    def now(self) -> float:
        return self._idle_s * HASTE + time.thread_time() * _HASTE_AT_WORK

    async def sleep(self, delay_s: float) -> None:
        until = self.now() + delay_s
        await super().sleep(delay_s / HASTE)
        while (left_s := until - self.now()) > 0:
            await super().sleep(left_s / HASTE)

    def _timed_select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Measure how long the loop sleeps. The delay of a late wake-up does not count."""
        began = time.monotonic()
        events = self._select(timeout)
        if timeout is None or timeout > 0:
            slept_s = time.monotonic() - began
            self._idle_s += slept_s if timeout is None else min(slept_s, timeout + _ROUNDED_S)
        return events


class SkippingClock(SystemClock):
    """The event loop's own time, which stands still while the loop works and skips to the next timer when it would sleep.

    Timers of asyncio and aiohttp use it, too. One history therefore takes the same course on a slow machine. Work in threads takes no time, as
    long as the loop waits for that work alone. Create it in the loop that it is for.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        selector: selectors.BaseSelector = loop._selector  # type: ignore[attr-defined]
        self._now_s = loop.time()
        self._select = selector.select
        loop.time = self.now  # type: ignore[method-assign]
        selector.select = self._skipping_select  # type: ignore[method-assign]

    def now(self) -> float:
        return self._now_s

    def advance(self, delay_s: float) -> None:
        """Let time pass at once, as while the loop is blocked."""
        self._now_s += delay_s

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(max(delay_s, _SHORTEST_S) if delay_s > 0 else delay_s)

    def _skipping_select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return self._select(timeout)
        events = self._select(0) or self._select(_IN_TRANSIT_S)
        if not events:
            self._now_s += timeout
        return events
