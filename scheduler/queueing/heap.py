"""A heap of queued pods from which any pod can be taken out in O(1).

Smallest key first, first in first out among equal keys. A pod is in at most one heap; all heaps of a queue draw their
tickets from one counter, so that an entry left behind in one heap cannot come alive through a push into another.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from scheduler.queueing.records import QueuedPod, SortKey

_DEAD_MIN: Final = 64


class TicketHeap:
    """Lazy deletion: an entry is alive while its pod still holds its ticket."""

    def __init__(self, tickets: Iterator[int]) -> None:
        self._tickets = tickets
        self._entries: list[tuple[SortKey, int, QueuedPod]] = []
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def push(self, key: SortKey, queued: QueuedPod) -> None:
        """O(log n). The pod must be in no heap."""
        queued.ticket = next(self._tickets)
        heapq.heappush(self._entries, (key, queued.ticket, queued))
        self._live += 1

    def discard(self, queued: QueuedPod) -> None:
        """Take out a pod that is in this heap."""
        queued.ticket = -1  # its entry stays and is skipped: order is untouched, and nothing is searched
        self._live -= 1
        dead = len(self._entries) - self._live
        if dead > _DEAD_MIN and dead > self._live:
            self._entries = [entry for entry in self._entries if entry[2].ticket == entry[1]]
            heapq.heapify(self._entries)

    def first(self) -> QueuedPod | None:
        """The pod to take next; None when empty. It stays in until it is discarded."""
        entries = self._entries
        while entries and entries[0][2].ticket != entries[0][1]:
            heapq.heappop(entries)
        return entries[0][2] if entries else None
