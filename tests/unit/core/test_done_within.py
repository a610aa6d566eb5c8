"""A wait that ends in time, whatever it is for."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.core.clock import done_within
from tests.support.clock import VirtualClock


@pytest.mark.parametrize(
    ("takes_s", "is_done"),
    [pytest.param(3.0, True, id="it is done before"), pytest.param(9.0, False, id="it takes longer")],
)
async def test_whichever_comes_first(takes_s: float, is_done: bool) -> None:
    """What is late is given up."""
    clock = VirtualClock()
    work = asyncio.ensure_future(clock.sleep(takes_s))
    waiting = asyncio.ensure_future(done_within(clock, work, 5.0))
    await clock.advance(5.0)

    assert await waiting is is_done
    await asyncio.gather(work, return_exceptions=True)
    assert work.cancelled() is not is_done


async def test_a_failure_is_left_to_who_wants_the_result() -> None:
    """It counts as done."""

    async def fail() -> None:
        raise ValueError("no")

    work = asyncio.ensure_future(fail())
    assert await done_within(VirtualClock(), work, 5.0)
    assert isinstance(work.exception(), ValueError)


async def test_cancelled_it_takes_the_work_with_it() -> None:
    """Nothing is left behind."""
    clock = VirtualClock()
    work = asyncio.ensure_future(clock.sleep(9.0))
    waiting = asyncio.ensure_future(done_within(clock, work, 5.0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, work, return_exceptions=True)

    assert (waiting.cancelled(), work.cancelled()) == (True, True)
