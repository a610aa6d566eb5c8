"""Work in steps: a generator that yields where it may be suspended, and returns its result.

The driver decides how long the work runs at a time, and what runs between two steps. A generator that is closed
before its end leaves no changes behind.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Final, TypeAlias, TypeVar

from scheduler.core.clock import Clock

T = TypeVar("T")

TURN_S: Final = 0.005
"""After this time the work lets the event loop run."""
PACE_S: Final = 0.003
"""The same in `paced`, where one step and the wait for the worker thread add some milliseconds."""
_INLINE_S: Final = 0.001
_WAIT_S: Final = 0.001
_SWITCH_S: Final = 0.001
"""How long the worker thread may keep the interpreter while the event loop waits for it."""

Work: TypeAlias = Generator[None, None, T]


def finish(work: Generator[object, None, T]) -> T:
    """Run the work without suspension and return its result; what it yields is dropped."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found


class TookTooLong(Exception):
    """Work has taken all the time that it had."""


def paced(
    work: Work[T],
    clock: Clock,
    aside: Callable[[], AbstractContextManager[None]] = nullcontext,
    *,
    limit_s: float = math.inf,
    aside_s: float = 0.0,
) -> Work[T]:
    """Run the work, but yield only when more than 3 ms have passed since the last yield, and within `aside`.

    If `aside` itself takes longer, the work runs as long as that before it yields. `aside_s` is that time, if it is known.

    Raises TookTooLong once the work has taken `limit_s` seconds, without `aside` and without the yields.
    """
    turn = clock.now()
    spent_s = 0.0
    try:
        while True:
            try:
                next(work)
            except StopIteration as done:
                found: T = done.value
                return found
            now = clock.now()
            if spent_s + now - turn > limit_s:
                raise TookTooLong
            if now - turn > max(PACE_S, aside_s):
                spent_s += now - turn
                with aside():
                    paused_at = clock.now()
                    yield
                    resumed_at = clock.now()
                turn = clock.now()
                aside_s = paused_at - now + turn - resumed_at
    finally:
        work.close()


def metered(work: Work[T], clock: Clock, spend: Callable[[float], None], *, keeps_open: bool = False) -> Work[T]:
    """Run the work and call `spend` with the seconds of each step, without pauses; it may raise to end the work.

    `keeps_open`: the work stays suspended then, and the caller may go on with it.
    """
    try:
        while True:
            began = clock.now()
            try:
                next(work)
            except StopIteration as done:
                found: T = done.value
                return found
            spend(clock.now() - began)
            yield
    finally:
        if not keeps_open:
            work.close()


def started(work: Work[T], clock: Clock) -> T | Work[T]:
    """Run the work for one millisecond; return its result if it has ended, else the unfinished work."""
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
    """Return a finished result, or run the work and return its result."""
    if isinstance(answer, Generator):
        return (yield from answer)
    return answer


def submitted(job: Callable[[], T]) -> Future[T]:
    """Start the job in the one worker thread: pure computation that shares only locked data with the event loop."""
    return _worker().submit(job)


def awaited(future: Future[T]) -> Work[T]:
    """Return the result of a job in the worker thread; yield every millisecond while the job runs. Raise what it raises."""
    while not future.done():
        with suppress(TimeoutError):
            future.exception(_WAIT_S)
        yield
    return future.result()


@cache
def _worker() -> ThreadPoolExecutor:
    sys.setswitchinterval(_SWITCH_S)
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")
