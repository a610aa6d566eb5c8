"""Virtual time."""

import asyncio

import pytest

from tests.support.clock import VirtualClock


async def test_sleepers_wake_in_order_and_may_sleep_again() -> None:
    """Each sees the time it asked for, and what it does then happens before the next wakes."""
    clock = VirtualClock(wall=1000)
    woken: list[tuple[str, float, float]] = []

    async def sleeper(name: str, *delays: float) -> None:
        for delay in delays:
            await clock.sleep(delay)
            woken.append((name, clock.now(), clock.wall()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("a", 2, 2))
        group.create_task(sleeper("b", 1, 2))
        await clock.advance(3.5)
        assert woken == [("b", 1, 1001), ("a", 2, 1002), ("b", 3, 1003)]
        assert (clock.now(), clock.sleepers) == (3.5, 1)
        await clock.advance(10)
    assert woken[-1] == ("a", 4, 1004)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    """Cancelling ends the sleep at once."""
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers == 0
    await clock.advance(10)


async def test_no_delay_is_a_turn_of_the_loop() -> None:
    """Zero and less need no advance."""
    await VirtualClock().sleep(0)
    await VirtualClock().sleep(-1)
