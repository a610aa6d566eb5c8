"""Back-off periods, and the flush of pods that wait too long.

The back-off queues hold failed and rejected pods (docs/spec/core.md §1.9). Back-off starts at the failure and ends
with a whole second. So all pods of one second are tried in the order of their priorities. Rejections and errors
are counted separately. A second here is the floor of `Clock.now()`.

The flush retries pods that have waited too long for an event, in case a queueing hint is missing (docs/spec/core.md
§1.11).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Final

from scheduler.queueing.active_queue import ActiveQueue
from scheduler.queueing.types import Place, QueuedPodInfo, SortKey
from scheduler.queueing.unschedulable_pods import UnschedulablePods

_NEVER: Final = -1
"""Before every second of the clock."""
_DOUBLINGS_MAX: Final = 62


class BackoffQueue:
    """The durations, and the pods that are backing off.

    Upstream: pkg/scheduler/backend/queue/backoff_queue.go backoffQueue
    """

    def __init__(self, initial_s: float, max_s: float, tickets: Iterator[int]) -> None:
        self._initial_s = initial_s
        self._max_s = max_s
        self._rejected = ActiveQueue(tickets)
        self._failed = ActiveQueue(tickets)

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    @property
    def heaps(self) -> tuple[ActiveQueue, ActiveQueue]:
        """The pods that back off after a rejection, and after an error."""
        return self._rejected, self._failed

    def key(self, queued: QueuedPodInfo, order: SortKey) -> SortKey:
        """Return the key in the queue that `queued.place` names; `order` is the order within one second."""
        until = self.until(queued)
        return (until,) if queued.place is Place.ERROR_BACKOFF else (until, *order)

    def until(self, queued: QueuedPodInfo) -> int:
        """Return the last second of the pod's back-off, cached in the record, because its inputs stay the same."""
        if queued.backoff_until is None:
            count = queued.consecutive_errors or queued.unschedulable_count
            # 1, 2, 4, 8, 10, 10 … seconds for counts from 1 with the defaults
            duration_s = min(self._initial_s * 2.0 ** min(count - 1, _DOUBLINGS_MAX), self._max_s)
            queued.backoff_until = math.floor(queued.queued_at + duration_s) if count > 0 else _NEVER
        return queued.backoff_until

    def is_backing_off(self, queued: QueuedPodInfo, now: float) -> bool:
        """Return whether the pod still backs off.

        Back-off ends in the second after `until`. The wait is the duration, less a fraction of a second, plus up to
        one second.
        """
        return self.until(queued) >= math.floor(now)

    def push(self, queued: QueuedPodInfo) -> None:
        """Add the pod to the queue that `queued.place` names."""
        (self._failed if queued.place is Place.ERROR_BACKOFF else self._rejected).push(
            self.key(queued, queued.order), queued
        )

    def discard(self, queued: QueuedPodInfo) -> None:
        """Remove the pod from the queue that `queued.place` names."""
        (self._failed if queued.place is Place.ERROR_BACKOFF else self._rejected).discard(queued)

    def first_rejected(self) -> QueuedPodInfo | None:
        """Return the rejected pod whose back-off ends first, ended or not. Failed pods are never returned early."""
        return self._rejected.first()

    def first_due(self, now: float) -> QueuedPodInfo | None:
        """Return a pod whose back-off has ended: rejected pods first, then failed pods."""
        second = math.floor(now)
        for queued in (self._rejected.first(), self._failed.first()):
            if queued is not None and self.until(queued) < second:
                return queued
        return None


FLUSH_EVERY_S: Final = 30.0
AT_ONCE: Final = 500
"""The maximum per tick. Tens of thousands of pods in one tick would block the event loop for too long."""


class Flush:
    """Checks the pool every 30 s. Times are readings of `Clock.now()`.

    Upstream: pkg/scheduler/backend/queue/scheduling_queue.go flushUnschedulablePodsLeftover
    """

    def __init__(self, pool: UnschedulablePods, *, now: float, limit_s: float) -> None:
        self._pool = pool
        self._limit_s = limit_s
        self._next = now + FLUSH_EVERY_S

    def late(self, now: float) -> list[QueuedPodInfo]:
        """Return the pods to retry, also gated ones, and mark them as flushed; none before the time. O(pool)."""
        if now < self._next:
            return []
        late = list(itertools.islice((queued for queued in self._pool if self.waits_until(queued) < now), AT_ONCE))
        for queued in late:
            queued.was_flushed = True
            queued.flushed_at = now
        if len(late) < AT_ONCE:
            self._next = now + FLUSH_EVERY_S
        return late

    def waits_until(self, queued: QueuedPodInfo) -> float:
        """Return the time at which the pod becomes late. It counts from the last failure or flush."""
        return self._limit_s + (queued.queued_at if queued.flushed_at is None else queued.flushed_at)
