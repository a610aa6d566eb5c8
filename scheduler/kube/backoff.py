"""How long to wait before trying again: doubling, with jitter, up to a limit."""

from __future__ import annotations

import random

from scheduler.core.clock import Clock


class Backoff:
    """Waits of 0.2 s doubling to 10 s, each shortened by up to half at random so that kinds and replicas spread."""

    def __init__(self, clock: Clock, chance: random.Random, *, first_s: float = 0.2, longest_s: float = 10.0) -> None:
        self._clock = clock
        self._chance = chance
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def reset(self) -> None:
        """Something worked: begin again with the shortest wait."""
        self._next_s = self._first_s

    async def next(self) -> None:
        """Wait, and wait twice as long next time."""
        wait_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        await self.pause(wait_s)

    async def pause(self, wait_s: float) -> None:
        """Wait between half of `wait_s` and all of it."""
        await self._clock.sleep(wait_s * self._chance.uniform(0.5, 1.0))

    async def longest(self) -> None:
        """What only a human changes is asked for slowly."""
        await self.pause(self._longest_s)
