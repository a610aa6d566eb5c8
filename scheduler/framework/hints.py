"""Which cluster events can help a pod that a plugin rejected (docs/spec/core.md §1.10)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from scheduler.core.events import ClusterEvent
from scheduler.core.podinfo import PodInfo


class Hint(enum.Enum):
    """`value` is the label of queueing_hint_execution_duration_seconds."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


HintFn: TypeAlias = Callable[[PodInfo, Any, Any], Hint]
"""`(waiting pod, old, new)`: objects are `PodInfo` for pod events, core objects for others, None where absent.

An exception is logged and counts as QUEUE.
"""

OfPod: TypeAlias = Callable[[PodInfo], Iterable[Hashable] | None]
OfEvent: TypeAlias = Callable[[Any, Any], Iterable[Hashable] | None]


@dataclass(frozen=True, slots=True)
class Topics:
    """What a hint's answer depends on, so that an event asks only for the waiting pods that it can concern.

    The law: the hint says QUEUE only if one of the two answers None, or both name a common topic. It may well say SKIP
    then: topics save questions, they decide nothing. An exception is logged and counts as None. Of a plugin that gates pods
    (PreEnqueue) they do decide: a gated pod is asked about only at events that share a topic with it, by its gate's words.

    Registrations that share `of_event` have it called once per event; those of a plugin that share shape and `of_pod`
    are kept in one index.
    """

    of_pod: OfPod
    """What the answer for a waiting pod can depend on; None for anything.

    Asked when the first pod of a shape begins to wait, for all of that shape: pods of equal shape must have equal
    topics. Beyond the pod it may look only at what it was refused for: what turns up later is not what it waits for.
    """
    of_event: OfEvent
    """`(old, new)` as for the hint: what the event is about; None for everything, nothing for nobody."""


@dataclass(frozen=True, slots=True)
class EventHint:
    """One registration of a plugin.

    `hint is None` means: always worth a try. `shape` maps a waiting pod to a value such that pods of equal value
    always get the same answer; the queue then asks once per value instead of once per pod. Without it every
    waiting pod that the plugin rejected is asked. A hint that depends on the pod's own identity (events about
    the waiting pod itself) must not have a shape. `topics` narrow the question down to some of the shapes.
    """

    event: ClusterEvent
    hint: HintFn | None = None
    shape: Callable[[PodInfo], Hashable] | None = None
    topics: Topics | None = None

    def __post_init__(self) -> None:
        if self.topics is not None and (self.hint is None or self.shape is None):
            raise ValueError(f"a registration for {self.event.label} has topics: it needs a hint and a shape, too")
