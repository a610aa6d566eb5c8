"""A multiset of items per node: the count of each item on each slot, and the slots of an item as a node set."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet

T = TypeVar("T", bound=Hashable)

_FEW: Final = 16
"""The node set of an item on more slots is cached once it is read. For fewer slots it is computed on each read."""
_NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})


class NodeMultiset(Generic[T]):
    """Item → slot → count, none of them 0. Changes and counts are O(1)."""

    __slots__ = ("_sets", "_slots")

    def __init__(self) -> None:
        self._slots: dict[T, dict[int, int]] = {}
        self._sets: dict[T, NodeSet] = {}

    def __len__(self) -> int:
        """Return the number of different items."""
        return len(self._slots)

    def __iter__(self) -> Iterator[T]:
        return iter(self._slots)

    def add(self, slot: int, item: T) -> bool:
        """Count the item once more; return whether it is new on this slot."""
        slots = self._slots.get(item)
        if slots is None:
            slots = self._slots[item] = {}
        before = slots.get(slot, 0)
        slots[slot] = before + 1
        if before:
            return False
        if item in self._sets:
            self._sets[item] |= 1 << slot
        return True

    def remove(self, slot: int, item: T) -> bool:
        """Undo one `add`; return whether the slot has no more of the item. KeyError if it had none."""
        slots = self._slots[item]
        left = slots[slot] - 1
        if left:
            slots[slot] = left
            return False
        del slots[slot]
        if item in self._sets:
            if len(slots) <= _FEW:
                del self._sets[item]
            else:
                self._sets[item] &= ~(1 << slot)
        if not slots:
            del self._slots[item]
        return True

    def count(self, slot: int, item: T) -> int:
        """Return how often the item is on the slot."""
        slots = self._slots.get(item)
        return slots.get(slot, 0) if slots else 0

    def slots(self, item: T) -> Mapping[int, int]:
        """Return slot → count of one item: a live view."""
        return self._slots.get(item, _NOWHERE)

    def nodes(self, item: T) -> NodeSet:
        """Return the slots of the item. A look-up, or O(slots of the item) on the first read."""
        slots = self._slots.get(item)
        if not slots:
            return EMPTY
        if len(slots) <= _FEW:
            return nodeset.of(slots)
        known = self._sets.get(item)
        if known is None:
            known = self._sets[item] = nodeset.of(slots)
        return known

    def snapshot(self) -> dict[T, dict[int, int]]:
        """Return a copy of all counts. O(items and their slots)."""
        return {item: dict(slots) for item, slots in self._slots.items()}
