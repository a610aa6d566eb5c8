"""Memos of a plugin: cached results by the shape of a pod, valid while the nodes stay the same (ADR 0002).

`ByObjects` is invalidated by changes of node objects (labels, taints, cordon). `BySlots` follows the columns and
refreshes the changed slots, or all slots if many changed. Both drop the least recently used shape.

The module also has shapes for queueing hints, and the hint for events about the waiting pod itself
(`EventHint.shape`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core.caching import BoundedCache
from scheduler.core.cluster_events import ClusterEvent
from scheduler.framework.interface import EventHint, Hint, Scores, Topics

T = TypeVar("T")

Index: TypeAlias = slice | npt.NDArray[np.intp]
"""The slots of a column: a leading slice, or an array of slot numbers."""

FEW: Final = 8
"""Up to this number of slots, plain integers are faster than arrays."""


class ByObjects(Generic[T]):
    """A map of shape → result. It is cleared when the columns grow, or a node object changes in a relevant way."""

    def __init__(self, nodes: Nodes, *, size: int = 1024) -> None:
        self._nodes = nodes
        self._entries: BoundedCache[Hashable, T] = BoundedCache(size)
        self._seen = (-1, -1)

    def get(self, shape: Hashable, make: Callable[[], T]) -> T:
        """Return the result for this shape; call `make` if there is none for the current nodes."""
        now = (self._nodes.object_generation, self._nodes.capacity)
        if now != self._seen:
            self._entries.clear()
            self._seen = now
        return self._entries.get_or_make(shape, make)


class Refreshable(Protocol):
    """A value per slot that can be updated slot by slot."""

    def refresh(self, slots: Sequence[int]) -> None:
        """Update these slots, whose columns changed; some may be repeated. A range means all slots from 0 on."""


R = TypeVar("R", bound=Refreshable)


class _Kept(msgspec.Struct, Generic[R], eq=False):
    value: R
    position: int
    capacity: int


class BySlots(Generic[R]):
    """A map of shape → a value with an entry per slot, refreshed from the log of changed columns.

    A value is valid until the next `get` of the same shape, which may change it in place. Trials also write to the
    log, so values are correct inside and after a trial.
    """

    def __init__(self, nodes: Nodes, *, size: int = 256) -> None:
        self._nodes = nodes
        self._entries: BoundedCache[Hashable, _Kept[R]] = BoundedCache(size)

    def get(self, shape: Hashable, make: Callable[[], R]) -> R:
        """Return the value for this shape and the current columns.

        The cost is a look-up if nothing changed, some µs per changed slot, and that of all slots if too much changed.
        """
        nodes = self._nodes
        kept = self._entries.get(shape)
        if kept is None or kept.capacity != nodes.capacity:
            kept = self._entries.put(shape, _Kept(make(), position=nodes.position, capacity=nodes.capacity))
        elif behind := nodes.position - kept.position:
            changed = nodes.changed_since(kept.position) if behind <= nodes.capacity // 8 else None
            kept.value.refresh(range(nodes.present.bit_length()) if changed is None else changed)
            kept.position = nodes.position
        return kept.value


class ScoreColumn:
    """A score per slot. `many` computes the scores of an index of slots, `one` the score of a single slot."""

    def __init__(self, nodes: Nodes, *, many: Callable[[Index], Scores], one: Callable[[int], int]) -> None:
        self._many = many
        self._one = one
        self.column: Scores = np.zeros(nodes.capacity, dtype=np.int64)
        top = nodes.present.bit_length()
        self.column[:top] = many(slice(top))

    def refresh(self, slots: Sequence[int]) -> None:
        """Score these slots again."""
        if len(slots) <= FEW:
            for slot in slots:
                self.column[slot] = self._one(slot)
        else:
            index = slice(slots.stop) if isinstance(slots, range) else np.array(slots, dtype=np.intp)
            self.column[index] = self._many(index)


def on_common_topic(event: ClusterEvent, shape: Callable[[PodInfo], Hashable], topics: Topics) -> EventHint:
    """Return a registration whose hint is QUEUE where the waiting pod and the event have a common topic."""

    def hint(pod: PodInfo, old: Any, new: Any) -> Hint:
        of_event = set(topics.of_event(old, new) or ())
        is_met = bool(of_event) and any(topic in of_event for topic in topics.of_pod(pod) or ())
        return Hint.QUEUE if is_met else Hint.SKIP

    return EventHint(event, hint, shape, topics)


def all_alike(_pod: PodInfo) -> Hashable:
    """Return one value for all pods, for hints that do not depend on the waiting pod."""
    return None


def by_tolerations(pod: PodInfo) -> Hashable:
    """Return the tolerations, for hints that depend on them."""
    return pod.pod.spec.tolerations


def by_placement(pod: PodInfo) -> Hashable:
    """Return the shape of nodeSelector and affinity, for hints that depend on them."""
    return pod.placement_shape


def by_requests(pod: PodInfo) -> Hashable:
    """Return the requested amounts, for hints that depend on them."""
    return tuple(sorted(pod.requests.items()))


def by_host_ports(pod: PodInfo) -> Hashable:
    """Return the host ports, for hints that depend on them."""
    return pod.host_ports


def queue_itself(pod: PodInfo, _old: PodInfo | None, new: PodInfo | None) -> Hint:
    """Return QUEUE if the changed pod is the waiting one. It depends on the pod's identity, so it has no shape."""
    return Hint.QUEUE if new is not None and new.uid == pod.uid else Hint.SKIP
