"""Time as a port: decisions never ask the machine what time it is.

Rule: docs/architecture.md, "Design principles".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, Protocol


class Clock(Protocol):
    """Two readings and one wait. Tests plug in `tests.support.clock.VirtualClock`."""

    def now(self) -> float:
        """Monotonic seconds; only differences mean anything."""

    def wall(self) -> float:
        """Seconds since the epoch, for timestamps that others read."""

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s`; cancellation ends it at once."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


async def done_within(clock: Clock, work: Awaitable[Any], limit_s: float) -> bool:
    """Whether the work is done in time. If it is not, or if we are cancelled, it is cancelled.

    Who wants its result hands in a future. A failure of the work is not raised here.
    """
    doing = asyncio.ensure_future(work)
    limit = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait({doing, limit}, return_when=asyncio.FIRST_COMPLETED)
        return doing.done()
    finally:
        doing.cancel()
        limit.cancel()
