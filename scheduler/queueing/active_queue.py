"""The heap of pods that are ready for an attempt, and the fair share of costly pods.

`ActiveQueue` is a heap from which any pod can be removed in O(1). The smallest key comes first; equal keys are first
in, first out. A pod is in at most one heap. All heaps of a queue take their tickets from one counter. So a dead entry
in one heap cannot become valid through a push into another.

`FairShare` limits the time of costly attempts in vain (docs/spec/core.md §10.2). An attempt for an unschedulable pod can
take hundreds of milliseconds, because DefaultPreemption evaluates every node, and a search for devices half a minute.
After such an attempt, pods of this kind are skipped until ready pods of other kinds have had nine times as long. After
one of several seconds they also wait if no other pod is ready, because a pod that arrives during the next one would have to wait.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterator
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.core.caching import BoundedCache
from scheduler.core.clock import Clock
from scheduler.queueing.types import QueuedPodInfo, SortKey

_DEAD_MIN: Final = 64


class ActiveQueue:
    """A heap with lazy deletion: an entry is valid while its pod holds the entry's ticket.

    Upstream: pkg/scheduler/backend/queue/active_queue.go activeQueue
    """

    def __init__(self, tickets: Iterator[int]) -> None:
        self._tickets = tickets
        self._entries: list[tuple[SortKey, int, QueuedPodInfo]] = []
        self.live = 0

    def __len__(self) -> int:
        return self.live

    def push(self, key: SortKey, queued: QueuedPodInfo) -> None:
        """Add a pod that is in no heap. O(log n)."""
        queued.ticket = next(self._tickets)
        heapq.heappush(self._entries, (key, queued.ticket, queued))
        self.live += 1

    def discard(self, queued: QueuedPodInfo) -> None:
        """Remove a pod that is in this heap. Amortized O(1)."""
        queued.ticket = -1  # the entry stays in the heap and is skipped later
        self.live -= 1
        dead = len(self._entries) - self.live
        if dead > _DEAD_MIN and dead > self.live:
            self._entries = [entry for entry in self._entries if entry[2].ticket == entry[1]]
            heapq.heapify(self._entries)

    def clear(self) -> None:
        """Remove all entries; the pods keep their tickets."""
        self._entries, self.live = [], 0

    def entries(self) -> dict[int, SortKey]:
        """Return id of a record → its key, for the self-audit. O(entries)."""
        return {id(queued): key for key, ticket, queued in self._entries if queued.ticket == ticket}

    @property
    def is_ordered(self) -> bool:
        """Whether the entries are a heap."""
        return all(self._entries[(at - 1) // 2] <= self._entries[at] for at in range(1, len(self._entries)))

    def first(self) -> QueuedPodInfo | None:
        """Return the pod to take next, without removing it; None if the heap is empty."""
        entries = self._entries
        while entries and entries[0][2].ticket != entries[0][1]:
            heapq.heappop(entries)
        return entries[0][2] if entries else None


SHARE: Final = 0.1
"""The share of the time for costly pods while pods of other kinds are ready."""
COSTLY_S: Final = 0.02
"""Shorter searches for victims are not counted."""
LONG_S: Final = 2.0
"""After a longer attempt, costly pods wait even if no other pod is ready."""
_PAUSE_MAX_S: Final = 300.0
_KINDS: Final = 4096


class FairShare:
    """The kinds of pods that were costly, and the time until which other pods go first.

    Pods of one kind have the same namespace, scheduler name, priority and requests, and all or none of them have claims
    for volumes, and for devices. So the replicas of a workload are one kind.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._costly: BoundedCache[Hashable, bool] = BoundedCache(_KINDS)
        """The kind that was charged the longest time ago comes first, and is dropped first."""
        self._until = self._paused_until = -math.inf

    def charge(self, info: PodInfo, spent_s: float) -> None:
        """Record that the pod's attempt spent this time in vain: a search for victims, or a long search for a node."""
        if spent_s < COSTLY_S:
            return
        self._costly.put(_kind(info), True)
        now, pause_s = self._clock.now(), spent_s * (1 / SHARE - 1)
        self._until = max(self._until, now + pause_s)
        if spent_s >= LONG_S:
            self._paused_until = max(self._paused_until, now + min(pause_s, _PAUSE_MAX_S))

    def clear(self, info: PodInfo) -> None:
        """Record that a pod of this kind found a node or victims, so that its kind is no longer costly."""
        if self._costly:
            self._costly.pop(_kind(info))

    @property
    def is_exhausted(self) -> bool:
        """Whether pods of other kinds go first now."""
        return self._clock.now() < self._until

    @property
    def is_paused(self) -> bool:
        """Whether costly pods wait even if no other pod is ready."""
        return self._clock.now() < self._paused_until

    def is_costly(self, info: PodInfo) -> bool:
        """Return whether the last attempt of a pod of this kind was costly."""
        return _kind(info) in self._costly


def _kind(info: PodInfo) -> Hashable:
    metadata, spec = info.pod.metadata, info.pod.spec
    requests = tuple(sorted(info.requests.items()))
    return (
        metadata.namespace,
        spec.scheduler_name,
        info.priority,
        requests,
        bool(info.claims),
        bool(spec.resource_claims),
    )
