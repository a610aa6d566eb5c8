"""Something whose changes others follow: a log of bounded length, and positions in it."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Followed(Generic[T]):
    """Base of indexes that are changed in small steps."""

    __slots__ = ("_log", "_log_start")

    def __init__(self) -> None:
        self._log: list[T] = []
        self._log_start = 0

    @property
    def position(self) -> int:
        """Where the log stands; give it to `changed_since` later."""
        return self._log_start + len(self._log)

    def changed_since(self, position: int) -> list[T] | None:
        """The entries since then, with repeats; None when that is too long ago to tell."""
        behind = position - self._log_start
        return None if behind < 0 else self._log[behind:]

    def _forget_half(self) -> None:
        """The log has grown too long."""
        drop = len(self._log) // 2
        del self._log[:drop]
        self._log_start += drop
