"""Work that is done bit by bit: a generator that yields wherever it may rest, and returns what it has found.

Who drives it decides how long it may go on, and what is done meanwhile; closed before its end, it leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeAlias, TypeVar

from scheduler.core.clock import Clock

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


def paced(work: Work[T], clock: Clock, aside: Callable[[], AbstractContextManager[None]] = nullcontext) -> Work[T]:
    """The same work, resting only when more than 5 ms have passed since the last turn, and within `aside` then."""
    turn = clock.now()
    try:
        while True:
            try:
                next(work)
            except StopIteration as done:
                found: T = done.value
                return found
            if clock.now() - turn > TURN_S:
                with aside():
                    yield
                turn = clock.now()
    finally:
        work.close()
