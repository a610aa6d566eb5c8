"""Work that is done bit by bit: a generator that yields wherever it may rest, and returns what it has found.

Who drives it decides how long it may go on, and what is done meanwhile; closed before its end, it leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Final, TypeAlias, TypeVar

from scheduler.core.clock import Clock

T = TypeVar("T")

TURN_S: Final = 0.005
"""So long others may have to wait for their turn."""
_INLINE_S: Final = 0.001

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


def metered(work: Work[T], clock: Clock, spend: Callable[[float], None]) -> Work[T]:
    """The same work; `spend` gets the seconds of each step, without the time between steps, and may raise to end the work."""
    began = clock.now()
    try:
        while True:
            try:
                next(work)
            except StopIteration as done:
                found: T = done.value
                return found
            spend(clock.now() - began)
            yield
            began = clock.now()
    finally:
        work.close()


def started(work: Work[T], clock: Clock) -> T | Work[T]:
    """Drive the work for a millisecond; return its result if it has ended by then, else the work, to be driven on."""
    until = clock.now() + _INLINE_S
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
        if clock.now() > until:
            return work


def answered(answer: T | Work[T]) -> Work[T]:
    """Return an answer, or the result of the work that finds it."""
    if isinstance(answer, Generator):
        return (yield from answer)
    return answer


def submitted(job: Callable[[], T]) -> Future[T]:
    """Start the job in the one worker thread: pure computation that shares nothing with the event loop but what is locked."""
    return _worker().submit(job)


def awaited(future: Future[T]) -> Work[T]:
    """The result of a job in the worker thread; rests every 5 ms, and the job goes on meanwhile. Raises what the job raises."""
    while not future.done():
        wait([future], timeout=TURN_S)
        yield
    return future.result()


@cache
def _worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")
