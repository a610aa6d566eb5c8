"""Time as a port: decisions never ask the machine what time it is (architecture D9)."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Two readings and one wait. Tests plug in `scheduler.testing.clock.VirtualClock`."""

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
