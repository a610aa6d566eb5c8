"""What was found out about many things, remembered within one limit for all of them together.

A thing's own limit bounds nothing where there are as many things as nodes. Forgetting changes no result: what is not
remembered is found out again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

_NOTHING: Final[object] = object()


class Limit:
    """For any number of memos: at most twice `size` answers in all, of which the last `size` that were used are safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0
        self._young: list[Memo] = []
        self._old: list[Memo] = []

    def __len__(self) -> int:
        """How many answers are remembered. O(memos that have any)."""
        return sum(map(len, {id(memo): memo for memo in (*self._young, *self._old)}.values()))

    def noted(self, memo: Memo, *, is_first: bool) -> None:
        """One answer more; the first of this memo since the last time that all grew old."""
        if is_first:
            self._young.append(memo)
        self._count += 1
        if self._count >= self._size:
            for each in self._old:
                each.forget_old()
            for each in self._young:
                each.grow_old()
            self._young, self._old, self._count = [], self._young, 0


class Memo:
    """About one thing: what it was asked → the answer. Goes with the thing, or when others need the room."""

    __slots__ = ("__weakref__", "_limit", "_old", "_young")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._young: dict[Hashable, Any] = {}
        self._old: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, asked: Hashable) -> Any:
        """The answer, None if there is none."""
        found = self._young.get(asked, _NOTHING)
        if found is not _NOTHING:
            return found
        found = self._old.pop(asked, _NOTHING) if self._old else _NOTHING
        if found is _NOTHING:
            return None
        self[asked] = found
        return found

    def __setitem__(self, asked: Hashable, answer: Any) -> None:
        is_first = not self._young
        is_new = asked not in self._young
        self._young[asked] = answer
        if self._old:
            self._old.pop(asked, None)
        if is_new:
            self._limit.noted(self, is_first=is_first)

    def clear(self) -> None:
        """Nothing is remembered any more."""
        self._young.clear()
        self._old.clear()

    def forget_old(self) -> None:
        """What nobody has asked for since it grew old goes."""
        self._old = {}

    def grow_old(self) -> None:
        """What is asked for again is young again."""
        self._old |= self._young
        self._young = {}
