"""Who has waited too long for an event: the net under missing hints (docs/spec/core.md §1.11)."""

from __future__ import annotations

import itertools
from typing import Final

from scheduler.queueing.records import QueuedPod
from scheduler.queueing.waiting import Waiting

FLUSH_EVERY_S: Final = 30.0
AT_ONCE: Final = 500
"""More go with the next tick: tens of thousands in one would hold up the loop for too long."""


class Flush:
    """Looks through the pool every 30 s. Times are readings of `Clock.now()`."""

    def __init__(self, pool: Waiting, *, now: float, limit_s: float) -> None:
        self._pool = pool
        self._limit_s = limit_s
        self._next = now + FLUSH_EVERY_S

    def late(self, now: float) -> list[QueuedPod]:
        """If it is time: the pods to be retried, gated ones included, marked as flushed. O(pods in the pool)."""
        if now < self._next:
            return []
        late = list(itertools.islice((queued for queued in self._pool if self.waits_until(queued) < now), AT_ONCE))
        for queued in late:
            queued.was_flushed = True
            queued.flushed_at = now
        if len(late) < AT_ONCE:
            self._next = now + FLUSH_EVERY_S
        return late

    def waits_until(self, queued: QueuedPod) -> float:
        """After this the pod is late; it counts from the last failure or flush."""
        return self._limit_s + (queued.queued_at if queued.flushed_at is None else queued.flushed_at)
