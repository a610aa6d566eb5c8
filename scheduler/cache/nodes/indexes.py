"""Nodes by their labels, and multisets of items per node: how many of each are on a slot, and the slots of an item."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from scheduler.api.core_v1 import NodeSelectorRequirement
from scheduler.api.selectors import integer
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet


class LabelIndex:
    """A map of `(key, value)` → nodes. The cost of a requirement grows with its values, not with the number of nodes."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, NodeSet]] = {}
        self._having: dict[str, NodeSet] = {}

    def add(self, slot: int, labels: Mapping[str, str]) -> None:
        bit = 1 << slot
        for key, value in labels.items():
            values = self._values.setdefault(key, {})
            values[value] = values.get(value, EMPTY) | bit
            self._having[key] = self._having.get(key, EMPTY) | bit

    def remove(self, slot: int, labels: Mapping[str, str]) -> None:
        keep = ~(1 << slot)
        for key, value in labels.items():
            values = self._values[key]
            remaining = values[value] & keep
            if remaining:
                values[value] = remaining
            else:
                del values[value]
            self._having[key] &= keep
            if not values:
                del self._values[key], self._having[key]

    def clear(self) -> None:
        self._values.clear()
        self._having.clear()

    def items(self) -> list[tuple[str, str | None]]:
        """Return all labels, and each key with None in place of its value."""
        labels = ((key, value) for key, values in self._values.items() for value in values)
        return [*((key, None) for key in self._having), *labels]

    def nodes(self, item: tuple[str, str | None]) -> NodeSet:
        """Return the nodes with this label, or with this key if the value is None."""
        return self.having(item[0]) if item[1] is None else self.equal(item[0], item[1])

    def equal(self, key: str, value: str) -> NodeSet:
        """Return the nodes with this label."""
        values = self._values.get(key)
        return values.get(value, EMPTY) if values else EMPTY

    def having(self, key: str) -> NodeSet:
        """Return the nodes with this key, with any value."""
        return self._having.get(key, EMPTY)

    def values(self, key: str) -> Mapping[str, NodeSet]:
        """Return value → nodes. A live view: do not keep it."""
        return self._values.get(key, {})

    def matching(self, requirement: NodeSelectorRequirement, universe: NodeSet) -> NodeSet:
        """Return the nodes of `universe` that satisfy a requirement (docs/spec/core.md §5.4).

        An invalid requirement matches no node.
        """
        key, wanted = requirement.key, requirement.values
        match requirement.operator:
            case "In":
                return self._any(key, wanted) & universe if wanted else EMPTY
            case "NotIn":
                return universe & ~self._any(key, wanted) if wanted else EMPTY
            case "Exists":
                return self.having(key) & universe if not wanted else EMPTY
            case "DoesNotExist":
                return universe & ~self.having(key) if not wanted else EMPTY
            case "Gt" | "Lt":
                return self._compared(requirement) & universe
            case _:
                return EMPTY

    def _any(self, key: str, wanted: tuple[str, ...]) -> NodeSet:
        values = self._values.get(key, {})
        matching = EMPTY
        for value in wanted:
            matching |= values.get(value, EMPTY)
        return matching

    def _compared(self, requirement: NodeSelectorRequirement) -> NodeSet:
        bound = integer(requirement.values[0]) if len(requirement.values) == 1 else None
        if bound is None:
            return EMPTY
        matching = EMPTY
        for value, nodes in self._values.get(requirement.key, {}).items():
            number = integer(value)
            if number is not None and (number > bound if requirement.operator == "Gt" else number < bound):
                matching |= nodes
        return matching


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
        remaining = slots[slot] - 1
        if remaining:
            slots[slot] = remaining
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

    def clear(self) -> None:
        self._slots.clear()
        self._sets.clear()

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
        cached = self._sets.get(item)
        if cached is None:
            cached = self._sets[item] = nodeset.of(slots)
        return cached

    def is_current(self, item: T) -> bool:
        """Return whether the cached node set of the item, if there is one, has its slots. O(slots of the item)."""
        return self._sets.get(item) in {None, nodeset.of(self.slots(item))}

    def snapshot(self) -> dict[T, dict[int, int]]:
        """Return a copy of all counts. O(items and their slots)."""
        return {item: dict(slots) for item, slots in self._slots.items()}
