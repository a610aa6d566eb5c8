"""Work that is done bit by bit: a generator that yields wherever it may rest, and returns what it has found.

Who drives it decides how long it may go on, and what is done meanwhile; closed before its end, it leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

TURN_S: Final = 0.005
"""So long others may have to wait for their turn."""

Work: TypeAlias = Generator[None, None, T]


def finish(work: Work[T]) -> T:
    """The result, without a rest."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
