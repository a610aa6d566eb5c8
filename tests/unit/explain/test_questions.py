"""Questions share the loop: one at a time, a turn of 5 ms, a small share while pods can be tried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from scheduler.context import Inbox
from scheduler.core.errors import UnforeseenErrors
from scheduler.explain.fixes import Steps
from scheduler.explain.questions import SHARE, WAITING_MAX, Questions, TooManyQuestions
from tests.unit.harness import SchedulerHarness, StepClock


class Bench:
    """Questions with a clock that each step moves."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.inbox = Inbox()
        self.errors = UnforeseenErrors(self.clock)
        self.questions = Questions(self.inbox, self.clock, self.errors)
        self.closed = 0

    def steps(self, count: int, *, took_s: float, is_between: bool = True) -> Callable[[], Steps[str]]:
        """Return work of `count` steps, each of which takes this long."""

        def begin() -> Steps[str]:
            try:
                for _ in range(count):
                    self.clock.time += took_s
                    yield is_between
            finally:
                self.closed += 1
            return "answer"

        return begin

    async def put(self, begin: Callable[[], Steps[str]]) -> asyncio.Task[str]:
        """Put a question without waiting for the answer."""
        task = asyncio.ensure_future(self.questions.answer_to(begin))
        await asyncio.sleep(0)
        return task


async def test_an_answer_takes_turns_of_five_milliseconds() -> None:
    bench = Bench()
    task = await bench.put(bench.steps(10, took_s=0.002))

    turns = 0
    while len(bench.questions):
        before = bench.clock.now()
        await bench.questions.turn()
        turns += 1
        assert bench.clock.now() - before <= 0.007

    assert (await task, turns) == ("answer", 4)


async def test_a_trial_is_not_left_in_the_middle_and_changes_wait_for_its_end() -> None:
    bench = Bench()
    seen: list[str] = []
    task = await bench.put(bench.steps(10, took_s=0.004, is_between=False))
    bench.inbox.put(lambda: seen.append("change"))

    await bench.questions.turn()

    assert (await task, seen) == ("answer", [])
    bench.inbox.catch_up()
    assert seen == ["change"]


async def test_while_pods_can_be_tried_answers_get_three_percent_of_the_time() -> None:
    bench = Bench()
    await bench.put(bench.steps(10_000, took_s=0.005))
    began, spent = bench.clock.now(), 0.0
    while bench.clock.now() < began + 120.0:
        bench.clock.time += 0.005  # attempts
        if bench.questions.may_run(is_busy=True):
            before = bench.clock.now()
            await bench.questions.turn()
            spent += bench.clock.now() - before

    assert 0.02 < spent / (bench.clock.now() - began) < 0.04
    bench.questions.close()


async def test_an_idle_loop_answers_at_once() -> None:
    bench = Bench()
    await bench.put(bench.steps(1_000, took_s=0.005))
    while len(bench.questions):
        assert bench.questions.may_run(is_busy=False)
        await bench.questions.turn()


async def test_a_question_that_pods_had_to_wait_for_is_paid_back_before_the_next_one() -> None:
    bench = Bench()
    await bench.put(bench.steps(100, took_s=0.005))
    while len(bench.questions):
        assert bench.questions.may_run(is_busy=False)
        await bench.questions.turn()
    bench.questions.may_run(is_busy=True)
    await bench.put(bench.steps(1, took_s=0.001))

    assert not bench.questions.may_run(is_busy=False)
    bench.clock.time += 0.4 / SHARE  # 0.435 s are owed
    assert not bench.questions.may_run(is_busy=False)
    bench.clock.time += 0.04 / SHARE
    assert bench.questions.may_run(is_busy=False)
    bench.questions.close()


async def test_a_caller_that_goes_away_ends_the_work() -> None:
    bench = Bench()
    task = await bench.put(bench.steps(100, took_s=0.005))
    await bench.questions.turn()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    await bench.questions.turn()

    assert (len(bench.questions), bench.closed) == (0, 1)


async def test_an_error_concerns_only_its_question() -> None:
    bench = Bench()

    def broken() -> Steps[str]:
        yield True
        raise ValueError("unforeseen")

    first, second = await bench.put(broken), await bench.put(bench.steps(1, took_s=0.001))
    while len(bench.questions):
        await bench.questions.turn()

    with pytest.raises(ValueError, match="unforeseen"):
        await first
    assert await second == "answer"
    assert bench.errors.counts["answer"] == 1


async def test_too_many_questions_are_refused() -> None:
    bench = Bench()
    for _ in range(WAITING_MAX):
        await bench.put(bench.steps(1, took_s=0.001))

    with pytest.raises(TooManyQuestions):
        await bench.questions.answer_to(bench.steps(1, took_s=0.001))
    bench.questions.close()


async def test_the_scheduling_loop_answers_next_to_its_pods() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("large", cpu="2")
    for number in range(5):
        sched.pod(f"p{number}", cpu="100m")
    asking = asyncio.ensure_future(
        sched.parts.questions.answer_to(lambda: sched.parts.explainer.explain("default/large"))
    )
    await sched.settle()

    found = await asking
    assert found is not None
    assert found.verdict == "doesNotFit"
    assert len(sched.writer.binds) == 5
