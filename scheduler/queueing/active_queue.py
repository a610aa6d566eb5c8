"""The heap of pods that can be tried now, and fair shares among namespaces.

A heap of queued pods from which any pod can be taken out in O(1).

Smallest key first, first in first out among equal keys. A pod is in at most one heap; all heaps of a queue draw their
tickets from one counter, so that an entry left behind in one heap cannot come alive through a push into another.

The share of time that fruitless preemption attempts may take while other pods are ready (docs/spec/core.md §10.2).

A pod that fits nowhere can cost hundreds of milliseconds an attempt: DefaultPreemption looks at every node. After such an
attempt pods of this kind are passed over until ready pods of other kinds have had nine times as long.
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
    """Lazy deletion: an entry is alive while its pod still holds its ticket.

    Upstream: pkg/scheduler/backend/queue/active_queue.go activeQueue
    """

    def __init__(self, tickets: Iterator[int]) -> None:
        self._tickets = tickets
        self._entries: list[tuple[SortKey, int, QueuedPodInfo]] = []
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def push(self, key: SortKey, queued: QueuedPodInfo) -> None:
        """O(log n). The pod must be in no heap."""
        queued.ticket = next(self._tickets)
        heapq.heappush(self._entries, (key, queued.ticket, queued))
        self._live += 1

    def discard(self, queued: QueuedPodInfo) -> None:
        """Take out a pod that is in this heap."""
        queued.ticket = -1  # its entry stays and is skipped: order is untouched, and nothing is searched
        self._live -= 1
        dead = len(self._entries) - self._live
        if dead > _DEAD_MIN and dead > self._live:
            self._entries = [entry for entry in self._entries if entry[2].ticket == entry[1]]
            heapq.heapify(self._entries)

    def first(self) -> QueuedPodInfo | None:
        """The pod to take next; None when empty. It stays in until it is discarded."""
        entries = self._entries
        while entries and entries[0][2].ticket != entries[0][1]:
            heapq.heappop(entries)
        return entries[0][2] if entries else None


SHARE: Final = 0.1
"""Of the time, while pods of other kinds are ready."""
COSTLY_S: Final = 0.02
"""Searches for victims that take less are not held against the pod."""
_KINDS: Final = 4096


class FairShare:
    """Remembers which kinds of pods were costly, and how long others go first.

    Pods of one kind have the same namespace, scheduler name, priority and requests: the replicas of a workload, however it names them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._costly: BoundedCache[Hashable, bool] = BoundedCache(_KINDS)
        """The kind that was charged longest ago comes first, and is forgotten first."""
        self._until = -math.inf

    def charge(self, info: PodInfo, spent_s: float) -> None:
        """Record that the pod's attempt searched for victims that long, in vain."""
        if spent_s < COSTLY_S:
            return
        self._costly.put(_kind(info), True)
        self._until = max(self._until, self._clock.now() + spent_s * (1 / SHARE - 1))

    def clear(self, info: PodInfo) -> None:
        """A pod of this kind found a node, or victims: the others are worth trying at once."""
        if self._costly:
            self._costly.pop(_kind(info))

    @property
    def is_exhausted(self) -> bool:
        """Whether other pods go first now."""
        return self._clock.now() < self._until

    def is_costly(self, info: PodInfo) -> bool:
        """Whether the last attempt of a pod of this kind was costly."""
        return _kind(info) in self._costly


def _kind(info: PodInfo) -> Hashable:
    pod = info.pod
    return (pod.metadata.namespace, pod.spec.scheduler_name, info.priority, tuple(sorted(info.requests.items())))
