"""The clock interface. Decisions read the time only through it.

Rule: docs/architecture.md, "Design principles".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, Protocol


class Clock(Protocol):
    """Two clocks and one wait. Tests pass `tests.support.clock.VirtualClock`."""

    def now(self) -> float:
        """Return monotonic seconds; only differences have a meaning."""

    def wall(self) -> float:
        """Return seconds since the epoch, for timestamps that are written or shown."""

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s`; cancellation ends the wait at once."""


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


async def done_within(clock: Clock, work: Awaitable[Any], limit_s: float) -> bool:
    """Return whether the work ended in time; if it did not, or on cancellation of the caller, cancel the work.

    A caller that needs the result passes a future. A failure of the work is not raised here.
    """
    doing = asyncio.ensure_future(work)
    limit = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait({doing, limit}, return_when=asyncio.FIRST_COMPLETED)
        return doing.done()
    finally:
        doing.cancel()
        limit.cancel()
