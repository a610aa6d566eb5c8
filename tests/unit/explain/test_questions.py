"""Questions share the loop: one at a time, a turn of 5 ms, a small share while pods can be tried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from scheduler.context import Inbox
from scheduler.core.errors import UnforeseenErrors
from scheduler.explain.fixes import Steps
from scheduler.explain.questions import WAITING_MAX, Questions, TooManyQuestions
from tests.unit.harness import SchedulerHarness, StepClock


class Asked:
    """Questions with a clock that each step moves."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.inbox = Inbox()
        self.errors = UnforeseenErrors(self.clock)
        self.questions = Questions(self.inbox, self.clock, self.errors)
        self.closed = 0

    def steps(self, count: int, *, took_s: float, is_between: bool = True) -> Callable[[], Steps[str]]:
        """Return work of so many steps, each of which takes this long."""

        def begin() -> Steps[str]:
            try:
                for _ in range(count):
                    self.clock.time += took_s
                    yield is_between
            finally:
                self.closed += 1
            return "answer"

        return begin

    async def ask(self, begin: Callable[[], Steps[str]]) -> asyncio.Task[str]:
        """Ask without waiting for the answer."""
        task = asyncio.ensure_future(self.questions.ask(begin))
        await asyncio.sleep(0)
        return task


async def test_an_answer_takes_turns_of_five_milliseconds() -> None:
    asked = Asked()
    task = await asked.ask(asked.steps(10, took_s=0.002))

    turns = 0
    while len(asked.questions):
        before = asked.clock.now()
        await asked.questions.turn()
        turns += 1
        assert asked.clock.now() - before <= 0.007

    assert (await task, turns) == ("answer", 4)


async def test_a_trial_is_not_left_in_the_middle_and_changes_wait_for_its_end() -> None:
    asked = Asked()
    seen: list[str] = []
    task = await asked.ask(asked.steps(10, took_s=0.004, is_between=False))
    asked.inbox.put(lambda: seen.append("change"))

    await asked.questions.turn()

    assert (await task, seen) == ("answer", [])
    asked.inbox.catch_up()
    assert seen == ["change"]


async def test_while_pods_can_be_tried_answers_get_a_twentieth_of_the_time() -> None:
    asked = Asked()
    await asked.ask(asked.steps(10_000, took_s=0.005))
    began, spent = asked.clock.now(), 0.0
    while asked.clock.now() < began + 120.0:
        asked.clock.time += 0.005  # attempts
        if asked.questions.may_run(is_busy=True):
            before = asked.clock.now()
            await asked.questions.turn()
            spent += asked.clock.now() - before

    assert 0.03 < spent / (asked.clock.now() - began) < 0.07
    asked.questions.close()


async def test_an_idle_loop_answers_at_once() -> None:
    asked = Asked()
    await asked.ask(asked.steps(1_000, took_s=0.005))
    while len(asked.questions):
        assert asked.questions.may_run(is_busy=False)
        await asked.questions.turn()


async def test_a_caller_that_goes_away_ends_the_work() -> None:
    asked = Asked()
    task = await asked.ask(asked.steps(100, took_s=0.005))
    await asked.questions.turn()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    await asked.questions.turn()

    assert (len(asked.questions), asked.closed) == (0, 1)


async def test_an_error_concerns_only_its_question() -> None:
    asked = Asked()

    def broken() -> Steps[str]:
        yield True
        raise ValueError("unforeseen")

    first, second = await asked.ask(broken), await asked.ask(asked.steps(1, took_s=0.001))
    while len(asked.questions):
        await asked.questions.turn()

    with pytest.raises(ValueError, match="unforeseen"):
        await first
    assert await second == "answer"
    assert asked.errors.counts["answer"] == 1


async def test_too_many_questions_are_refused() -> None:
    asked = Asked()
    for _ in range(WAITING_MAX):
        await asked.ask(asked.steps(1, took_s=0.001))

    with pytest.raises(TooManyQuestions):
        await asked.questions.ask(asked.steps(1, took_s=0.001))
    asked.questions.close()


async def test_the_scheduling_loop_answers_next_to_its_pods() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("large", cpu="2")
    for number in range(5):
        sched.pod(f"p{number}", cpu="100m")
    asking = asyncio.ensure_future(sched.parts.questions.ask(lambda: sched.parts.explainer.explain("default/large")))
    await sched.settle()

    found = await asking
    assert found is not None
    assert found.verdict == "doesNotFit"
    assert len(sched.writer.binds) == 5
