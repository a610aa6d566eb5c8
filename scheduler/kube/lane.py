"""Events give way to bindings and evictions on the wire: a burst is placed first and told about right behind.

While many of those are under way only one Event is; so events still trickle, and none waits for a quiet moment that
never comes. Knows nothing of tokens: the throttle is another thing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

BUSY: Final = 8
"""So many on the wire are a burst."""


class Lane:
    """Counts what is on the wire. Every `enter` is followed by its `leave`."""

    def __init__(self) -> None:
        self._urgent = 0
        self._events = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def urgent_enters(self) -> None:
        """What pods wait for is about to be sent: never waits."""
        self._urgent += 1

    def urgent_leaves(self) -> None:
        """Its answer is there."""
        self._urgent -= 1
        if self._waiting and self._urgent < BUSY:
            while self._waiting:
                self._wake()

    async def event_enters(self) -> None:
        """Wait while a burst is on and another event is under way. Cancelling gives up the place."""
        while self._urgent >= BUSY and self._events:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._events += 1

    def event_leaves(self) -> None:
        """Its answer is there."""
        self._events -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
