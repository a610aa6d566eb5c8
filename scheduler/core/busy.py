"""Waiting for an API server that is busy and says for how long."""

from __future__ import annotations

from scheduler.core.clock import Clock
from scheduler.core.errors import TooManyRequests


class BusyRetry:
    """Counts the tries of one request; the caller sends it again after each `wait`."""

    def __init__(self, clock: Clock, *, tries: int) -> None:
        self._clock = clock
        self._left = tries

    async def wait(self, error: TooManyRequests) -> None:
        """Sleep as long as the server asks. Raise the error if it names no time, or after the last try."""
        self._left -= 1
        if error.retry_after_s is None or self._left <= 0:
            raise error
        await self._clock.sleep(error.retry_after_s)
