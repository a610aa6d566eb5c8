"""What was found out about long lists and maps. Nobody changes them, and in loops the same ones come again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, Generic, TypeVar

_Found = TypeVar("_Found")
LONG: Final = 128
"""Elements from which on it is worth remembering."""
_MOST: Final = 2**19
"""Elements, so that what is kept of expressions that are done stays small."""


class Recollections(Generic[_Found]):
    """Answers by the identity of what was asked about, which is kept, so that its id stays its own."""

    __slots__ = ("_elements", "_known")

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Any, Any, _Found]] = {}
        self._elements = 0

    def of(self, one: Any, other: Any, find: Callable[[], _Found]) -> _Found:
        """What was found of these two, or is now."""
        pair = id(one), id(other)
        known = self._known.get(pair)
        if known is not None:
            return known[2]
        found = find()
        count = len(one) + len(other)
        if self._elements + count > _MOST:
            self._known.clear()
            self._elements = 0
        if count <= _MOST:
            self._known[pair] = one, other, found
            self._elements += count
        return found

    def kept(self) -> list[Any]:
        """What is held for its id."""
        return [each for one, other, _ in self._known.values() for each in (one, other)]


def recollected(find: Callable[[Any], _Found]) -> Callable[[Any], _Found]:
    """The function of a list or map, which it asks only once if that is long. Errors are not remembered."""
    known = Recollections[_Found]()

    @wraps(find)
    def recall(value: Any) -> _Found:
        return find(value) if len(value) < LONG else known.of(value, (), lambda: find(value))

    return recall
