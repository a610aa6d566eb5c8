"""A part that fails starts over; only a part that cannot run ends the process."""

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


class World:
    """A supervisor on virtual time, with a part that fails at its first runs."""

    def __init__(self, *failures: Exception, lives_s: float = 0.0) -> None:
        self.clock = VirtualClock()
        self.errors = UnforeseenErrors(self.clock)
        self.supervisor = Supervisor(self.clock, random.Random(1), self.errors, fatal=(Lost,))
        self.began: list[float] = []
        self._failures = list(failures)
        self._lives_s = lives_s

    async def part(self) -> None:
        """Fail as planned, later run for good."""
        self.began.append(self.clock.now())
        await self.clock.sleep(self._lives_s)
        if self._failures:
            raise self._failures.pop(0)
        await asyncio.Event().wait()

    def ended(self) -> BaseException | None:
        return self.supervisor.failure


async def test_a_part_that_fails_starts_over_after_growing_pauses():
    world = World(*[ValueError("wrong")] * 5)
    world.supervisor.spawn("part", world.part)
    await world.clock.advance(60.0)
    pauses = [after - before for before, after in zip(world.began, world.began[1:], strict=False)]

    assert (None, 6, {"part": 5}) == (world.ended(), len(world.began), counted(world.errors))
    assert all(0.05 * 2**n <= pause <= 0.1 * 2**n + 1e-9 for n, pause in enumerate(pauses))
    await world.supervisor.stop()


async def test_the_part_is_shown_as_down_only_while_it_pauses():
    world = World(ValueError("wrong"))
    world.supervisor.spawn("part", world.part)
    await world.clock.settle()
    down = world.errors.down()
    await world.clock.advance(0.2)

    assert (True, "") == (down.startswith("part: ValueError, starts over in 0."), world.errors.down())
    await world.supervisor.stop()


async def test_ten_failures_in_a_row_within_a_minute_end_the_process():
    world = World(*[ValueError("wrong")] * 100)
    world.supervisor.spawn("part", world.part)
    await world.clock.advance(WITHIN_S)

    assert FAILURES == len(world.began)
    with pytest.raises(ValueError, match="wrong"):
        await world.supervisor.wait()
    await world.supervisor.stop()


async def test_failures_that_are_far_apart_never_end_the_process():
    """Ten failures of which each came seven seconds after the last take longer than a minute."""
    world = World(*[ValueError("wrong")] * 100, lives_s=7.0)
    world.supervisor.spawn("part", world.part)
    await world.clock.advance(3600.0)

    assert (None, 101) == (world.ended(), len(world.began))
    await world.supervisor.stop()


async def test_the_pauses_begin_anew_after_a_quiet_minute():
    world = World(*[ValueError("wrong")] * 20, lives_s=WITHIN_S + 1)
    world.supervisor.spawn("part", world.part)
    await world.clock.advance(3600.0)
    lives = [after - before for before, after in zip(world.began, world.began[1:], strict=False)]

    assert max(lives) <= WITHIN_S + 1.1
    await world.supervisor.stop()


async def test_a_fatal_error_ends_the_process_at_once():
    world = World(Lost("the lease is lost"))
    world.supervisor.spawn("part", world.part)
    await world.clock.settle()

    with pytest.raises(Lost):
        await world.supervisor.wait()
    assert {} == counted(world.errors)
    await world.supervisor.stop()


async def test_one_failing_part_does_not_stop_another():
    world = World(*[ValueError("wrong")] * 3)
    other = asyncio.Event()
    world.supervisor.spawn("part", world.part)
    task = world.supervisor.spawn("other", lambda: _until(other))
    await world.clock.advance(10.0)

    assert not task.done()
    other.set()
    await task
    assert world.ended() is None
    await world.supervisor.stop()


async def test_stopping_ends_all_parts_and_what_waits_for_them():
    world = World(ValueError("wrong"))
    world.supervisor.spawn("part", world.part)
    waiting = asyncio.ensure_future(world.supervisor.wait())
    await world.clock.settle()
    await world.supervisor.stop()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert "" == world.errors.down()


async def _until(event: asyncio.Event) -> None:
    await event.wait()
