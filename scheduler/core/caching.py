"""A bounded cache, computed values, an interner, and texts that are logged once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache of at most `size` entries; None is not a valid value.

    All operations are O(1), and a read takes about 0.1 µs. `functools.lru_cache` does the same in C for a function of
    hashable arguments. `Interner` reads at the cost of a dict.
    """

    __slots__ = ("_entries", "_size")

    def __init__(self, size: int) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._size = size

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        """Return whether there is an entry; the call does not count as a use of it."""
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, the least recently used first."""
        return iter(self._entries)

    def items(self) -> ItemsView[K, V]:
        """Return keys and values, the least recently used first; the call does not count as a use of them."""
        return self._entries.items()

    def values(self) -> Iterator[V]:
        """Iterate over the values, the least recently used first; the call does not count as a use of them."""
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
        self._entries.clear()


T = TypeVar("T")


class Computed(dict[K, T]):
    """A dict that computes the value of a missing key, for an owner that lives no longer than the values are valid."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[K], T]) -> None:
        self._compute = compute

    def __missing__(self, key: K) -> T:
        value = self[key] = self._compute(key)
        return value


class Interner(dict[K, T]):
    """A dict of content → the one object that represents all equal objects. A read costs the same as in a dict.

    It drops all entries before it would hold more than `size` objects. The limit costs nothing per read, and objects
    in use come back with their next `share`. Dropping is safe: equal objects are then two objects, and nothing else
    changes. None is not a valid object.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def share(self, content: K, one: T) -> T:
        """Return the object that is stored for the content, or store this one. Amortized O(1)."""
        cached = self.get(content)
        if cached is not None:
            return cached
        if len(self) >= self._size:
            self.clear()
        self[content] = one
        return one


class Numbers(Generic[K]):
    """A map of content → number, counted from 0 in the order of arrival. `contents` is the inverse."""

    __slots__ = ("_numbers", "contents")

    def __init__(self) -> None:
        self._numbers: dict[K, int] = {}
        self.contents: list[K] = []

    def __len__(self) -> int:
        return len(self.contents)

    def of(self, content: K) -> int:
        """Return the number of the content; a new content gets the next one."""
        number = self._numbers.setdefault(content, len(self.contents))
        if number == len(self.contents):
            self.contents.append(content)
        return number


_SUBJECTS: Final = 20_000


class LogOnce:
    """The last logged text of each subject. The least recently logged subject is dropped first."""

    def __init__(self, size: int = _SUBJECTS) -> None:
        self._texts: BoundedCache[Hashable, str] = BoundedCache(size)

    def is_new(self, subject: Hashable, text: str = "") -> bool:
        """Return whether the text differs from the last one about the subject, and store it. O(1)."""
        if self._texts.get(subject) == text:
            return False
        self._texts.put(subject, text)
        return True

    def forget(self, subject: Hashable) -> None:
        """Drop the last text of the subject, so that the next one is new."""
        self._texts.pop(subject)
