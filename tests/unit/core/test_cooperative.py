"""Work in steps: what ends it, and when.

The drivers are also tested where they are used: searches, explanations and compilations.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.core.cooperative import Work, finish, metered
from tests.unit.harness import StepClock


class Steps:
    """Work of three steps of one second each."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.has_ended = False

    def work(self) -> Work[str]:
        try:
            for _ in range(2):
                self.clock.move(1)
                yield
            self.clock.move(1)
        finally:
            self.has_ended = True
        return "found"


def limit(most_s: float) -> Callable[[float], None]:
    """Return a meter that raises once more than this was spent."""
    spent_s = 0.0

    def spend(seconds: float) -> None:
        nonlocal spent_s
        spent_s += seconds
        if spent_s > most_s:
            raise TimeoutError

    return spend


def test_metered_work_within_its_limit_returns_its_result() -> None:
    steps = Steps()
    assert finish(metered(steps.work(), steps.clock, limit(3))) == "found"


@pytest.mark.parametrize(
    "keeps_open", [pytest.param(False, id="and ends it"), pytest.param(True, id="and leaves it suspended")]
)
def test_a_meter_that_raises_stops_the_work(keeps_open: bool) -> None:
    steps = Steps()
    work = steps.work()

    with pytest.raises(TimeoutError):
        finish(metered(work, steps.clock, limit(1), keeps_open=keeps_open))

    assert steps.has_ended is not keeps_open
    if keeps_open:
        assert finish(metered(work, steps.clock, limit(3))) == "found"


def test_pauses_are_not_counted() -> None:
    steps = Steps()
    work = metered(steps.work(), steps.clock, limit(3))
    for _ in work:
        steps.clock.move(100)
    assert steps.has_ended
