"""Things and the nodes they are at, each as often as it was said."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet

T = TypeVar("T", bound=Hashable)

_FEW: Final = 16
"""Up to so many places a set is made when it is asked for; what is at more keeps one."""


class Places(Generic[T]):
    """Thing → slot → how often."""

    __slots__ = ("_sets", "_slots")

    def __init__(self) -> None:
        self._slots: dict[T, dict[int, int]] = {}
        self._sets: dict[T, NodeSet] = {}

    def add(self, thing: T, slot: int) -> bool:
        """Once more; whether it is the first time."""
        slots = self._slots.setdefault(thing, {})
        slots[slot] = slots.get(slot, 0) + 1
        if slots[slot] > 1:
            return False
        if thing in self._sets:
            self._sets[thing] |= 1 << slot
        return True

    def remove(self, thing: T, slot: int) -> bool:
        """Once less; whether it was the last time."""
        slots = self._slots[thing]
        slots[slot] -= 1
        if slots[slot]:
            return False
        del slots[slot]
        if thing in self._sets:
            self._sets[thing] &= ~(1 << slot)
        if len(slots) <= _FEW:
            self._sets.pop(thing, None)
        if not slots:
            del self._slots[thing]
        return True

    def count(self, thing: T, slot: int) -> int:
        """How often it is there."""
        slots = self._slots.get(thing)
        return slots.get(slot, 0) if slots else 0

    def nodes(self, thing: T) -> NodeSet:
        """Where it is."""
        slots = self._slots.get(thing)
        if not slots:
            return EMPTY
        if len(slots) <= _FEW:
            return nodeset.of(slots)
        known = self._sets.get(thing)
        if known is None:
            known = self._sets[thing] = nodeset.of(slots)
        return known
