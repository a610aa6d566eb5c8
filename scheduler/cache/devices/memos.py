"""Memos of many objects with one common limit.

A limit per object would bound nothing where there are as many objects as nodes. Evicted entries are computed again,
so eviction changes no result.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final
from weakref import WeakSet

_NOTHING: Final[object] = object()


class Limit:
    """The limit of any number of memos: at most twice `size` entries in total. It keeps no memo alive.

    The last `size` used entries are not evicted.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0
        self._young: WeakSet[Memo] = WeakSet()
        self._old: WeakSet[Memo] = WeakSet()

    def __len__(self) -> int:
        """Return the number of entries. O(memos with entries)."""
        return sum(map(len, self._young | self._old))

    def noted(self, memo: Memo, *, is_first: bool) -> None:
        """Count a new entry; `is_first` if it is the first one of this memo in the current generation."""
        if is_first:
            self._young.add(memo)
        self._count += 1
        if self._count >= self._size:
            for each in self._old:
                each.forget_old()
            for each in self._young:
                each.grow_old()
            self._young, self._old, self._count = WeakSet(), self._young, 0


class Memo:
    """A map of key → result about one object. Entries go with the object, or when the limit evicts them."""

    __slots__ = ("__weakref__", "_limit", "_old", "_young")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._young: dict[Hashable, Any] = {}
        self._old: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Hashable) -> Any:
        """Return the result; None if there is none."""
        found = self._young.get(key, _NOTHING)
        if found is not _NOTHING:
            return found
        found = self._old.pop(key, _NOTHING) if self._old else _NOTHING
        if found is _NOTHING:
            return None
        self[key] = found
        return found

    def __setitem__(self, key: Hashable, result: Any) -> None:
        is_first = not self._young
        is_new = key not in self._young
        self._young[key] = result
        if self._old:
            self._old.pop(key, None)
        if is_new:
            self._limit.noted(self, is_first=is_first)

    def clear(self) -> None:
        """Drop all entries."""
        self._young.clear()
        self._old.clear()

    def forget_old(self) -> None:
        """Drop the entries that were not used in this generation."""
        self._old = {}

    def grow_old(self) -> None:
        """Start a new generation; an entry joins it when it is used."""
        self._old |= self._young
        self._young = {}
