"""Pauses between attempts of one request."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError, TooManyRequests


@dataclass(eq=False)
class Retry:
    """Counts the attempts of one request and sleeps between them; the caller sends it again after each `pause`.

    The pauses grow from `first_s` by `factor` up to `longest_s`. A pause that the server requests replaces them, unless
    `obeys_server` is False. There are at most `tries` attempts, the first one included, and no pause ends after
    `deadline` (by `clock.now()`). `on_longest` is called before each pause of `longest_s`.
    """

    clock: Clock
    first_s: float
    longest_s: float = math.inf
    factor: float = 2.0
    tries: float = math.inf
    deadline: float = math.inf
    on_longest: Callable[[], None] | None = None
    obeys_server: bool = True

    def __post_init__(self) -> None:
        self._next_s = self.first_s
        self._tries_left = self.tries - 1

    async def pause(self, error: ApiError, *, pause_s: float | None = None) -> None:
        """Sleep before the next attempt; raise the error if none is left. `pause_s` replaces the computed pause once."""
        grown_s = self._next_s
        requested_s = error.retry_after_s if self.obeys_server and isinstance(error, TooManyRequests) else None
        sleep_s = pause_s if pause_s is not None else grown_s if requested_s is None else max(requested_s, self.first_s)
        if self._tries_left <= 0 or self.clock.now() + sleep_s >= self.deadline:
            raise error
        self._tries_left -= 1
        if grown_s == self.longest_s and self.on_longest is not None:
            self.on_longest()
        self._next_s = min(self.factor * grown_s, self.longest_s)
        await self.clock.sleep(sleep_s)


@dataclass(eq=False)
class BusyRetry:
    """Waits only for a busy server that states a pause, as client-go does. `tries` is the number of attempts left."""

    clock: Clock
    tries: int = 10

    async def wait(self, error: TooManyRequests) -> None:
        """Sleep for the pause that the server states. Raise the error if it states none, or after the last attempt."""
        self.tries -= 1
        if error.retry_after_s is None or self.tries <= 0:
            raise error
        await self.clock.sleep(error.retry_after_s)


@dataclass(eq=False)
class Backoff:
    """Waits of 0.2 s doubling to 10 s. With `rng` each is up to half shorter, so that kinds and replicas spread."""

    clock: Clock
    rng: random.Random | None = None
    first_s: float = 0.2
    longest_s: float = 10.0

    def __post_init__(self) -> None:
        self._next_s = self.first_s

    def reset(self) -> None:
        """Start again with the shortest wait."""
        self._next_s = self.first_s

    def next_s(self) -> float:
        """Return the next wait for a caller that waits itself, and double the one after it."""
        wait_s, self._next_s = self._next_s, min(2 * self._next_s, self.longest_s)
        return self._spread(wait_s)

    async def next(self) -> None:
        """Wait, and double the next wait."""
        await self.clock.sleep(self.next_s())

    async def pause(self, wait_s: float) -> None:
        """Wait `wait_s`, shortened as the other waits are."""
        await self.clock.sleep(self._spread(wait_s))

    def _spread(self, wait_s: float) -> float:
        return wait_s if self.rng is None else wait_s * self.rng.uniform(0.5, 1.0)
