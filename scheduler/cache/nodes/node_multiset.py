"""A multiset of things per node: how often each thing is on each slot, and the slots of a thing as a node set."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet

T = TypeVar("T", bound=Hashable)

_FEW: Final = 16
"""The node set of a thing on more slots is kept once it is read. For fewer slots it is made on each read."""
_NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})


class NodeMultiset(Generic[T]):
    """Thing → slot → count, none of them 0. Changes and counts are O(1)."""

    __slots__ = ("_sets", "_slots")

    def __init__(self) -> None:
        self._slots: dict[T, dict[int, int]] = {}
        self._sets: dict[T, NodeSet] = {}

    def __len__(self) -> int:
        """Return the number of different things."""
        return len(self._slots)

    def __iter__(self) -> Iterator[T]:
        return iter(self._slots)

    def add(self, slot: int, thing: T) -> bool:
        """Count the thing once more; return whether it is new on this slot."""
        slots = self._slots.get(thing)
        if slots is None:
            slots = self._slots[thing] = {}
        before = slots.get(slot, 0)
        slots[slot] = before + 1
        if before:
            return False
        if thing in self._sets:
            self._sets[thing] |= 1 << slot
        return True

    def remove(self, slot: int, thing: T) -> bool:
        """Undo one `add`; return whether the slot has no more of the thing. KeyError if it had none."""
        slots = self._slots[thing]
        left = slots[slot] - 1
        if left:
            slots[slot] = left
            return False
        del slots[slot]
        if thing in self._sets:
            if len(slots) <= _FEW:
                del self._sets[thing]
            else:
                self._sets[thing] &= ~(1 << slot)
        if not slots:
            del self._slots[thing]
        return True

    def count(self, slot: int, thing: T) -> int:
        """Return how often the thing is on the slot."""
        slots = self._slots.get(thing)
        return slots.get(slot, 0) if slots else 0

    def slots(self, thing: T) -> Mapping[int, int]:
        """Return slot → count of one thing: a live view."""
        return self._slots.get(thing, _NOWHERE)

    def nodes(self, thing: T) -> NodeSet:
        """Return the slots of the thing. A look-up, or O(slots of the thing) on the first read."""
        slots = self._slots.get(thing)
        if not slots:
            return EMPTY
        if len(slots) <= _FEW:
            return nodeset.of(slots)
        known = self._sets.get(thing)
        if known is None:
            known = self._sets[thing] = nodeset.of(slots)
        return known

    def snapshot(self) -> dict[T, dict[int, int]]:
        """Return a copy of all counts. O(things and their slots)."""
        return {thing: dict(slots) for thing, slots in self._slots.items()}
