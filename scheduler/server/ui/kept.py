"""An answer that is built in small steps by the scheduling loop, and serves all readers for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from scheduler.core.clock import Clock
from scheduler.explain.fixes import Steps

FRESH_S: Final = 1.0
SHARE: Final = 0.05
"""The largest share of time in which an answer is built, however many browsers poll."""

_T = TypeVar("_T")


class LoopQuestions(Protocol):
    """The queue of questions to the scheduling loop."""

    def answer_to(self, begin: Callable[[], Steps[Any]]) -> Awaitable[Any]: ...


class KeptAnswer(Generic[_T]):
    """One answer. It serves for a second, or for twenty times what it cost."""

    def __init__(
        self,
        build: Callable[[], Steps[_T]],
        questions: LoopQuestions,
        clock: Clock,
        release: Callable[[_T], Steps[None]] | None = None,
    ) -> None:
        """Create it without an answer. `release` frees parts of a replaced answer in steps."""
        self._build = build
        self._questions = questions
        self._clock = clock
        self._release = release
        self._answers: list[_T] = []
        """One at most."""
        self._good_until = 0.0
        self._building: asyncio.Task[_T] | None = None

    async def fresh(self) -> _T:
        """Return an answer that is new enough. Concurrent callers share one that is being built.

        Raises what the questions raise.
        """
        if self._answers and self._clock.now() < self._good_until:
            return self._answers[0]
        if self._building is None:
            self._building = asyncio.ensure_future(self._questions.answer_to(self._steps))
            self._building.add_done_callback(self._built)
        return await asyncio.shield(self._building)

    def _built(self, building: asyncio.Future[_T]) -> None:
        self._building = None
        if not building.cancelled():
            building.exception()  # each reader has it, also if all of them have left

    def _steps(self) -> Steps[_T]:
        """Build an answer and put it in force. A step takes about a millisecond, except the first one of a process."""
        spent_s, began = 0.0, self._clock.now()
        work = self._build()
        while True:
            try:
                next(work)
            except StopIteration as done:
                found: _T = done.value
                now = self._clock.now()
                self._good_until = now + max(FRESH_S, (spent_s + now - began) / SHARE)
                break
            spent_s += self._clock.now() - began
            yield True
            began = self._clock.now()
        replaced, self._answers = self._answers, [found]
        if self._release is not None:
            for old in replaced:
                yield from self._release(old)
        return found
