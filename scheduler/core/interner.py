"""Equal contents become one shared object, or one small number."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Interner(dict[K, T]):
    """Content → the object that stands for all equal ones. Reads are those of a dict.

    It forgets everything before it would hold more than `size` objects. That costs nothing per read, and objects in use come back with
    their next `share`. Forgetting is safe: equal objects are then two objects and nothing else changes. None is no object.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def share(self, content: K, one: T) -> T:
        """Return the object that is known by the content, or keep this one. Amortized O(1)."""
        known = self.get(content)
        if known is not None:
            return known
        if len(self) >= self._size:
            self.clear()
        self[content] = one
        return one


class Numbers(Generic[K]):
    """Content → number, counted from 0 in the order of arrival. `contents` is the inverse."""

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
