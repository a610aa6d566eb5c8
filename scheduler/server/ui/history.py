"""The last hour of the scheduler, one point a minute, in memory of a fixed size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from scheduler.core.clock import Clock
from scheduler.server.ui.answers import HistoryPoint

POINTS_MAX: Final = 60
EVERY_S: Final = 60.0


class History:
    """A ring buffer. It reads gauges and counters that exist anyway, and keeps nothing per pod."""

    def __init__(
        self, clock: Clock, pending: Callable[[], Mapping[str, int]], attempts: Callable[[], Mapping[str, float]]
    ) -> None:
        """Create an empty history. `attempts` returns counters by result, which only grow."""
        self._clock = clock
        self._pending = pending
        self._attempts = attempts
        self._seen = dict(attempts())
        self._due = clock.now() + EVERY_S
        self.points: deque[HistoryPoint] = deque(maxlen=POINTS_MAX)

    def tick(self) -> None:
        """Add a point if a minute is over. Call about once a second."""
        now = self._clock.now()
        if now < self._due:
            return
        self._due += EVERY_S
        if self._due <= now:
            self._due = now + EVERY_S
        counted = dict(self._attempts())
        new = {result: int(count - self._seen.get(result, 0)) for result, count in counted.items()}
        self._seen = counted
        self.points.append(HistoryPoint(time=self._clock.wall(), pending=dict(self._pending()), attempts=new))
