"""Questions to the scheduler, answered by the scheduling loop in small turns (docs/explain.md).

One question is answered at a time, at most 5 ms per turn, and to the end of the trial that is running then. While pods can
be tried, answers get a small share of the loop's time; an idle loop answers at once. A question that other pods had to
wait for is paid back before the next one begins. Between two trials of an answer other pods are tried and changes are applied; within a
trial nothing changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from scheduler.context import Inbox
from scheduler.core.clock import Clock
from scheduler.core.cooperative import TURN_S
from scheduler.core.errors import UnforeseenErrors
from scheduler.explain.fixes import Steps

T = TypeVar("T")

WAITING_MAX: Final = 16
SHARE: Final = 0.03
"""The share of the loop's time for answers while there are pods to try: 1.8 s per minute."""
_CREDIT_MAX_S: Final = 0.05
_DEBT_MAX_S: Final = 0.9
"""No question waits for more than half a minute because of the last one, while no pods can be tried."""


class Refused(Exception):
    """A question cannot be answered; the text is for the caller."""


class ClusterChanged(Refused):
    """The cluster changed again and again while the question was answered; try again."""


class TooManyQuestions(Exception):
    """Too many questions are waiting; try again later."""


@dataclass(slots=True, eq=False)
class _Question:
    begin: Callable[[], Steps[Any]]
    answer: asyncio.Future[Any]
    steps: Steps[Any] | None = None


class Questions:
    """The queue of questions. `answer_to` is called anywhere on the event loop, `turn` by the scheduling loop."""

    def __init__(self, inbox: Inbox, clock: Clock, errors: UnforeseenErrors) -> None:
        self._inbox = inbox
        self._clock = clock
        self._errors = errors
        self._waiting: deque[_Question] = deque()
        self._credit_s = _CREDIT_MAX_S
        self._counted_at = clock.now()
        self._has_delayed = False
        """Whether there were pods to try since there was credit."""

    def __len__(self) -> int:
        return len(self._waiting)

    async def answer_to(self, begin: Callable[[], Steps[T]]) -> T:
        """Return the answer of the work that `begin` starts. A cancelled caller ends the work.

        Raises TooManyQuestions, and what the work raises.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise TooManyQuestions
        question = _Question(begin, asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        self._inbox.wake()
        answer: T = await question.answer
        return answer

    def may_run(self, *, is_busy: bool) -> bool:
        """Return whether a turn would do something now. `is_busy`: there are pods to try."""
        self._has_delayed |= is_busy
        if not self._waiting:
            return False
        now = self._clock.now()
        self._credit_s = min(self._credit_s + (now - self._counted_at) * SHARE, _CREDIT_MAX_S)
        self._counted_at = now
        if self._credit_s > 0:
            self._has_delayed = is_busy
            return True
        has_begun = self._waiting[0].steps is not None
        return not is_busy and (has_begun or not self._has_delayed)

    async def turn(self) -> None:
        """Work on the first question for one turn, and to the end of the trial that is running then."""
        question = self._waiting[0]
        began, is_over = self._clock.now(), False
        spent_s = 0.0
        while not is_over:
            is_between = self._step(question)
            spent_s += self._clock.now() - began
            if is_between is None or (is_between and spent_s >= TURN_S):
                is_over = True
            elif not is_between:
                with self._inbox.closed():
                    await asyncio.sleep(0)
            began = self._clock.now()
        self._credit_s = max(self._credit_s - spent_s, -_DEBT_MAX_S)

    def close(self) -> None:
        """Cancel all questions."""
        while self._waiting:
            self._end(self._waiting[0])

    def _step(self, question: _Question) -> bool | None:
        """Take one step; return whether it ended between two trials, or None if the question is over."""
        try:
            if not question.answer.cancelled():
                if question.steps is None:
                    question.steps = question.begin()
                return next(question.steps)
        except StopIteration as done:
            question.answer.set_result(done.value)
        except Refused as refused:
            question.answer.set_exception(refused)
        except Exception as error:  # noqa: BLE001 (an unforeseen failure costs this answer, and must not end the loop)
            self._errors.record("answer", error, "a question could not be answered")
            question.answer.set_exception(error)
        self._end(question)
        return None

    def _end(self, question: _Question) -> None:
        if question.steps is not None:
            question.steps.close()
        question.answer.cancel()
        self._waiting.remove(question)
