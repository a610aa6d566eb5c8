"""Memos of a plugin: results by the shape of a pod.

Answers that depend only on a pod's shape, kept while the nodes they are about stay the same (ADR 0002).

Two kinds of freshness: `ByObjects` follows node objects (labels, taints, cordon), `BySlots` follows the columns and
refreshes just the slots that changed. Both forget the shape that was asked for longest ago. Neither knows what it keeps.

Shapes that hints are asked by, and the hint for events about the waiting pod itself (`EventHint.shape`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core.caching import BoundedCache
from scheduler.framework.interface import Hint, Scores

T = TypeVar("T")

Index: TypeAlias = slice | npt.NDArray[np.intp]
"""Which slots of a column: a leading slice, or an array of slot numbers."""

FEW: Final = 8
"""Up to so many slots plain integers are faster than arrays."""


class ByObjects(Generic[T]):
    """Shape → answer; everything is dropped when any node object changes in a way that matters, or columns grow."""

    def __init__(self, nodes: Nodes, *, size: int = 1024) -> None:
        self._nodes = nodes
        self._known: BoundedCache[Hashable, T] = BoundedCache(size)
        self._seen = (-1, -1)

    def get(self, shape: Hashable, make: Callable[[], T]) -> T:
        """The answer for this shape; `make` is called if it is not known for the nodes as they are."""
        now = (self._nodes.object_generation, self._nodes.capacity)
        if now != self._seen:
            self._known.clear()
            self._seen = now
        return self._known.get_or_make(shape, make)


class Refreshable(Protocol):
    """A value per slot that can be brought up to date slot by slot."""

    def refresh(self, slots: set[int]) -> None:
        """These slots' columns changed."""


R = TypeVar("R", bound=Refreshable)


class _Kept(Generic[R]):
    __slots__ = ("capacity", "position", "value")

    def __init__(self, value: R, *, position: int, capacity: int) -> None:
        self.value = value
        self.position = position
        self.capacity = capacity


class BySlots(Generic[R]):
    """Shape → a value with an entry per slot, refreshed from the log of changed columns.

    A value is good until the next `get` of the same shape, which may change it in place. Trials go through the log
    like every change, so what is read inside one is right, and right again after it.
    """

    def __init__(self, nodes: Nodes, *, size: int = 256) -> None:
        self._nodes = nodes
        self._known: BoundedCache[Hashable, _Kept[R]] = BoundedCache(size)

    def get(self, shape: Hashable, make: Callable[[], R]) -> R:
        """The value for this shape, true of the columns as they are now.

        Costs a look-up if nothing changed, some µs per changed slot, and `make` if too much did.
        """
        nodes = self._nodes
        kept = self._known.get(shape)
        if kept is not None and kept.capacity == nodes.capacity:
            behind = nodes.position - kept.position
            if not behind:
                return kept.value
            changed = nodes.changed_since(kept.position) if behind <= nodes.capacity // 8 else None
            if changed is not None:
                kept.value.refresh(set(changed))
                kept.position = nodes.position
                return kept.value
        value = make()
        self._known.put(shape, _Kept(value, position=nodes.position, capacity=nodes.capacity))
        return value


class ScoreColumn:
    """A score per slot. `many` gives the scores of an index of slots, `one` the same for a single slot."""

    __slots__ = ("_many", "_one", "column")

    def __init__(self, nodes: Nodes, *, many: Callable[[Index], Scores], one: Callable[[int], int]) -> None:
        self._many = many
        self._one = one
        self.column: Scores = np.zeros(nodes.capacity, dtype=np.int64)
        top = nodes.present.bit_length()
        self.column[:top] = many(slice(top))

    def refresh(self, slots: set[int]) -> None:
        """Score these slots again."""
        if len(slots) <= FEW:
            for slot in slots:
                self.column[slot] = self._one(slot)
        else:
            index = np.fromiter(slots, dtype=np.intp, count=len(slots))
            self.column[index] = self._many(index)


def everyone(_pod: PodInfo) -> Hashable:
    """The hint does not look at the waiting pod at all: one question for all of them."""
    return None


def by_tolerations(pod: PodInfo) -> Hashable:
    """The hint looks at the tolerations."""
    return pod.pod.spec.tolerations


def by_placement(pod: PodInfo) -> Hashable:
    """The hint looks at nodeSelector and affinity."""
    return pod.placement_shape


def by_requests(pod: PodInfo) -> Hashable:
    """The hint looks at the requested amounts."""
    return tuple(sorted(pod.requests.items()))


def by_host_ports(pod: PodInfo) -> Hashable:
    """The hint looks at the wanted host ports."""
    return pod.host_ports


def queue_itself(pod: PodInfo, _old: PodInfo | None, new: PodInfo | None) -> Hint:
    """Queue if the pod that changed is the waiting one. Has no shape: it depends on who the pod is."""
    return Hint.QUEUE if new is not None and new.uid == pod.uid else Hint.SKIP
