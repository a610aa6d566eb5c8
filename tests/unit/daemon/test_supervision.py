"""A part that fails starts over. Only a part that fails again and again ends the process."""

from __future__ import annotations

import asyncio
import random

import pytest

from scheduler.core.errors import UnforeseenErrors
from scheduler.daemon.supervision import FAILURES, WITHIN_S, Supervisor
from tests.support.clock import VirtualClock


def counted(errors: UnforeseenErrors) -> dict[str, int]:
    """The parts that had errors."""
    return {part: count for part, count in errors.counts.items() if count}


class Lost(Exception):
    """Ends the process at once."""


class Supervised:
    """A supervisor on virtual time, with a part that fails at its first runs."""

    def __init__(self, *failures: Exception, lives_s: float = 0.0) -> None:
        self.clock = VirtualClock()
        self.errors = UnforeseenErrors(self.clock)
        self.supervisor = Supervisor(self.clock, random.Random(1), self.errors, fatal=(Lost,))
        self.began: list[float] = []
        self._failures = list(failures)
        self._lives_s = lives_s

    async def part(self) -> None:
        """Fail as planned, then run without end."""
        self.began.append(self.clock.now())
        await self.clock.sleep(self._lives_s)
        if self._failures:
            raise self._failures.pop(0)
        await asyncio.Event().wait()

    def ended(self) -> BaseException | None:
        return self.supervisor.failure


async def test_a_part_that_fails_starts_over_after_growing_pauses():
    run = Supervised(*[ValueError("wrong")] * 5)
    run.supervisor.spawn("part", run.part)
    await run.clock.advance(60.0)
    pauses = [after - before for before, after in zip(run.began, run.began[1:], strict=False)]

    assert (None, 6, {"part": 5}) == (run.ended(), len(run.began), counted(run.errors))
    assert all(0.05 * 2**n <= pause <= 0.1 * 2**n + 1e-9 for n, pause in enumerate(pauses))
    await run.supervisor.stop()


async def test_the_part_is_shown_as_down_only_while_it_pauses():
    run = Supervised(ValueError("wrong"))
    run.supervisor.spawn("part", run.part)
    await run.clock.settle()
    down = run.errors.down()
    await run.clock.advance(0.2)

    assert (True, "") == (down.startswith("part: ValueError, starts over in 0."), run.errors.down())
    await run.supervisor.stop()


async def test_ten_failures_in_a_row_within_a_minute_end_the_process():
    run = Supervised(*[ValueError("wrong")] * 100)
    run.supervisor.spawn("part", run.part)
    await run.clock.advance(WITHIN_S)

    assert FAILURES == len(run.began)
    with pytest.raises(ValueError, match="wrong"):
        await run.supervisor.wait()
    await run.supervisor.stop()


async def test_failures_that_are_far_apart_never_end_the_process():
    run = Supervised(*[ValueError("wrong")] * 100, lives_s=7.0)
    run.supervisor.spawn("part", run.part)
    await run.clock.advance(3600.0)

    assert (None, 101) == (run.ended(), len(run.began))
    await run.supervisor.stop()


async def test_the_pauses_begin_again_after_a_quiet_minute():
    run = Supervised(*[ValueError("wrong")] * 20, lives_s=WITHIN_S + 1)
    run.supervisor.spawn("part", run.part)
    await run.clock.advance(3600.0)
    lives = [after - before for before, after in zip(run.began, run.began[1:], strict=False)]

    assert max(lives) <= WITHIN_S + 1.1
    await run.supervisor.stop()


async def test_a_fatal_error_ends_the_process_at_once():
    run = Supervised(Lost("the lease is lost"))
    run.supervisor.spawn("part", run.part)
    await run.clock.settle()

    with pytest.raises(Lost):
        await run.supervisor.wait()
    assert {} == counted(run.errors)
    await run.supervisor.stop()


async def test_one_failing_part_does_not_stop_another():
    run = Supervised(*[ValueError("wrong")] * 3)
    other = asyncio.Event()
    run.supervisor.spawn("part", run.part)
    task = run.supervisor.spawn("other", lambda: _until(other))
    await run.clock.advance(10.0)

    assert not task.done()
    other.set()
    await task
    assert run.ended() is None
    await run.supervisor.stop()


async def test_stopping_ends_all_parts_and_what_waits_for_them():
    run = Supervised(ValueError("wrong"))
    run.supervisor.spawn("part", run.part)
    waiting = asyncio.ensure_future(run.supervisor.wait())
    await run.clock.settle()
    await run.supervisor.stop()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert "" == run.errors.down()


async def _until(event: asyncio.Event) -> None:
    await event.wait()
