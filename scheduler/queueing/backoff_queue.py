"""Backoff periods, and the flush of pods that wait too long.

How long a failed pod waits, and the two queues of those that still do (docs/spec/core.md §1.9).

Backing off starts at the failure and ends with a whole second, so that pods of one second are tried in the order of
their priorities. Rejections and errors count separately. A second here is the floor of `Clock.now()`.

Who has waited too long for an event: the net under missing hints (docs/spec/core.md §1.11).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Final

from scheduler.queueing.active_queue import ActiveQueue
from scheduler.queueing.types import Place, QueuedPodInfo
from scheduler.queueing.unschedulable_pods import UnschedulablePods

_NEVER: Final = -1
_DOUBLINGS_MAX: Final = 62


class BackoffQueue:
    """Durations, and the pods that are backing off.

    Upstream: pkg/scheduler/backend/queue/backoff_queue.go backoffQueue
    """

    def __init__(self, initial_s: float, max_s: float, tickets: Iterator[int]) -> None:
        self._initial_s = initial_s
        self._max_s = max_s
        self._rejected = ActiveQueue(tickets)
        self._failed = ActiveQueue(tickets)

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    def duration_s(self, count: int) -> float:
        """1, 2, 4, 8, 10, 10 … for counts from 1 with the defaults; no wait for a count of 0."""
        if count <= 0:
            return 0.0
        return min(self._initial_s * 2.0 ** min(count - 1, _DOUBLINGS_MAX), self._max_s)

    def until(self, queued: QueuedPodInfo) -> int:
        """The last second of the pod's back-off; kept in the record, for it depends on nothing that changes."""
        if queued.backoff_until is None:
            count = queued.consecutive_errors or queued.unschedulable_count
            duration_s = self.duration_s(count)
            queued.backoff_until = math.floor(queued.queued_at + duration_s) if count > 0 else _NEVER
        return queued.backoff_until

    def is_backing_off(self, queued: QueuedPodInfo, now: float) -> bool:
        """Leaves only in the second after `until`: a wait of the duration, less a fraction, plus up to one second."""
        count = queued.consecutive_errors or queued.unschedulable_count
        return count > 0 and self.until(queued) >= math.floor(now)

    def push(self, queued: QueuedPodInfo) -> None:
        """Into the queue that `queued.place` names; `queued.order` decides within one second."""
        if queued.place is Place.ERROR_BACKOFF:
            self._failed.push((self.until(queued),), queued)
        else:
            self._rejected.push((self.until(queued), *queued.order), queued)

    def discard(self, queued: QueuedPodInfo) -> None:
        """Take the pod out of the queue that `queued.place` names."""
        (self._failed if queued.place is Place.ERROR_BACKOFF else self._rejected).discard(queued)

    def first_rejected(self) -> QueuedPodInfo | None:
        """The rejected pod that is due first, due or not; failed ones wait out their time."""
        return self._rejected.first()

    def first_due(self, now: float) -> QueuedPodInfo | None:
        """A pod whose time is over: rejected ones first, then failed ones."""
        second = math.floor(now)
        for queued in (self._rejected.first(), self._failed.first()):
            if queued is not None and self.until(queued) < second:
                return queued
        return None


FLUSH_EVERY_S: Final = 30.0
AT_ONCE: Final = 500
"""More go with the next tick: tens of thousands in one would hold up the loop for too long."""


class Flush:
    """Looks through the pool every 30 s. Times are readings of `Clock.now()`.

    Upstream: pkg/scheduler/backend/queue/scheduling_queue.go flushUnschedulablePodsLeftover
    """

    def __init__(self, pool: UnschedulablePods, *, now: float, limit_s: float) -> None:
        self._pool = pool
        self._limit_s = limit_s
        self._next = now + FLUSH_EVERY_S

    def late(self, now: float) -> list[QueuedPodInfo]:
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

    def waits_until(self, queued: QueuedPodInfo) -> float:
        """After this the pod is late; it counts from the last failure or flush."""
        return self._limit_s + (queued.queued_at if queued.flushed_at is None else queued.flushed_at)
