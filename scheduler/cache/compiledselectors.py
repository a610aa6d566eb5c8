"""Compiled selectors, kept within a limit of bytes. The one that was used longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

COMPILED_BYTES: Final = 64 * 2**20


class _Kept(NamedTuple, Generic[T]):
    value: T
    size_bytes: int


class CompiledSelectors(Generic[T]):
    """Expression → what it was compiled to. Single owner: the event loop."""

    def __init__(self, limit_bytes: int = COMPILED_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self.size_bytes = 0
        """What all of them keep alive."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, expression: str) -> T | None:
        """The value, None if there is none."""
        kept = self._kept.get(expression)
        if kept is None:
            return None
        self._kept.move_to_end(expression)
        return kept.value

    def put(self, expression: str, value: T, size_bytes: int) -> None:
        """Keep the value in place of those that were used longest ago. What is larger than the limit is not kept."""
        known = self._kept.pop(expression, None)
        if known is not None:
            self.size_bytes -= known.size_bytes
        if size_bytes > self._limit_bytes:
            return
        self._kept[expression] = _Kept(value, size_bytes)
        self.size_bytes += size_bytes
        while self.size_bytes > self._limit_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.size_bytes -= oldest.size_bytes
