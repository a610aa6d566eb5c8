"""Events that arrive during scheduling attempts, so that no wake-up is lost (docs/spec/core.md §1.6, §1.10).

Each event is stored once, for any number of pods in flight, until no pod is in flight that was popped before it.
`end` must follow every `begin`. The list is bounded: see `_blur`.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import ClusterEvent
from scheduler.queueing.types import QueuedPodInfo

EVENTS_MAX: Final = 4096
POD_POPPED: Final = "PodPopped"
"""The label of popped pods in the inflight_events gauge, next to the events."""


class Recorded(msgspec.Struct, frozen=True):
    """An event with its objects. If it concerns exactly one pod, `target` is the uid of that pod."""

    seq: int
    event: ClusterEvent
    old: Any
    new: Any
    target: str | None
    concerns: Callable[[PodInfo], bool] | None
    is_blurred: bool = False
    """Whether it represents several events without their objects. It must be assumed to help."""

    def is_for(self, pod: PodInfo) -> bool:
        """Return whether the event can concern this pod."""
        return (self.target is None or self.target == pod.uid) and (self.concerns is None or self.concerns(pod))


class InFlightEvents:
    """The pods in flight, each with its position in the sequence of events.

    Upstream: pkg/scheduler/backend/queue/active_queue.go addEventIfAnyInFlight, clusterEventsForPod
    """

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events_max = self._limit = events_max
        self._seq = 0
        self._pods: dict[str, tuple[int, QueuedPodInfo]] = {}
        self._newest_pod = 0
        self._events: list[Recorded] = []

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return (queued for _, queued in self._pods.values())

    def get(self, uid: str) -> QueuedPodInfo | None:
        place = self._pods.get(uid)
        return None if place is None else place[1]

    def begin(self, queued: QueuedPodInfo) -> bool:
        """Record the pop; return False if it is in flight already: a second position would keep events permanently."""
        if queued.uid in self._pods:
            return False
        self._seq += 1
        self._newest_pod = self._seq
        self._pods[queued.uid] = (self._seq, queued)
        return True

    def end(self, uid: str) -> QueuedPodInfo | None:
        """Record the end of the attempt, and drop the events that only this pod needed. Idempotent."""
        ended = self._pods.pop(uid, None)
        if ended is None:
            return None
        if not self._pods:
            self._events.clear()
            self._limit = self._events_max
        elif self._events:
            oldest = next(iter(self._pods.values()))[0]  # a dict keeps the order of pops
            if oldest > ended[0]:
                del self._events[: bisect.bisect_left(self._events, oldest, key=_seq)]
        return ended[1]

    def record(
        self,
        event: ClusterEvent,
        old: object,
        new: object,
        *,
        target: str | None = None,
        concerns: Callable[[PodInfo], bool] | None = None,
    ) -> None:
        """Store the event for the pods in flight; do nothing if there are none."""
        if not self._pods or (target is not None and target not in self._pods):
            return
        if self._is_repeated(event, old, new, target, concerns):
            return
        self._seq += 1
        self._events.append(Recorded(self._seq, event, old, new, target, concerns))
        if len(self._events) > self._limit:
            self._blur()

    def since_pop(self, uid: str) -> list[Recorded] | None:
        """Return the events since the pod was popped, oldest first; None if it is not in flight."""
        place = self._pods.get(uid)
        return None if place is None else self._events[bisect.bisect_left(self._events, place[0], key=_seq) :]

    def counts(self) -> dict[str, int]:
        """Return label → number of stored events, and the number of popped pods."""
        counts = Counter(recorded.event.label for recorded in self._events)
        if self._pods:
            counts[POD_POPPED] = len(self._pods)
        return dict(counts)

    def _is_repeated(self, event: ClusterEvent, old: object, new: object, target: str | None, concerns: object) -> bool:
        if not self._events or self._events[-1].seq < self._newest_pod:
            return False
        last = self._events[-1]
        same = last.old is old and last.new is new and last.target == target and last.concerns is concerns
        return same and not last.is_blurred and last.event == event

    def _blur(self) -> None:
        """Reduce the list to one event per kind, at the position of its last one and without its objects.

        Merging the updates of one object (first old, last new) would be wrong. A hint compares the two, and a value
        that changed and changed back would compare as unchanged. A pod that was in flight for thousands of events
        loses the exact answer instead, and gets a retry that may be unnecessary.
        """
        kinds: dict[tuple[ClusterEvent, str | None], Recorded] = {}
        for recorded in self._events:
            kind = (recorded.event, recorded.target)
            if kinds.pop(kind, None) is not None:
                kinds[kind] = Recorded(
                    recorded.seq, recorded.event, None, None, target=recorded.target, concerns=None, is_blurred=True
                )
            else:
                kinds[kind] = recorded
        self._events = list(kinds.values())
        self._limit = max(self._events_max, 2 * len(self._events))


def _seq(recorded: Recorded) -> int:
    return recorded.seq
