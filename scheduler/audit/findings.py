"""Differences between the cache and the stored objects, and the form of a check.

A check is a generator. Each step compares one object, or a few, with values that are computed in the same step. So a change
between two steps is no difference. The step also corrects what it found, before it yields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

_SOME: Final = 10
"""Entries of one step, where an entry costs as much as the pods of a node."""


class Difference(NamedTuple):
    """One value of the cache, and the value that follows from the stored objects."""

    about: str
    """The object: `node n1`, `claim default/data`."""
    field: str
    cached: object
    stored: object


Steps: TypeAlias = Iterator[Sequence[Difference]]
"""The steps of a check: the differences of one object each."""
Check: TypeAlias = Callable[[], Steps]

BEHIND: Final = 64
"""An index that has more changes to process than this is not compared: its next reader computes it, for many milliseconds."""


class Comparison(list[Difference]):
    """The differences of one object."""

    __slots__ = ("about",)

    def __init__(self, about: str) -> None:
        super().__init__()
        self.about = about

    def differs(self, field: str, cached: object, stored: object) -> bool:
        """Compare two values, and add a difference unless they are equal. Return whether they differ."""
        if cached == stored:
            return False
        self.append(Difference(self.about, field, cached, stored))
        return True


def in_parts(things: Iterable[T], size: int = _SOME) -> Iterator[Sequence[T]]:
    """Yield the present things, some at a time. Things that are added later are left out."""
    now = tuple(things)
    return (now[at : at + size] for at in range(0, len(now), size))
