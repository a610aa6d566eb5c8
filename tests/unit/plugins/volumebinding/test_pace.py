"""How many plans are begun at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from scheduler.plugins.volumebinding.binder import UnfinishedPods


class Plans:
    """Plans that wait for their event; `begun` has those that were started."""

    def __init__(self, most: int) -> None:
        self.pace = UnfinishedPods(most)
        self.begun: list[int] = []
        self.over: dict[int, Callable[[], None]] = {}
        self.go: dict[int, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, *numbers: int) -> None:
        for number in numbers:
            self.go[number] = asyncio.Event()
            self.tasks.append(asyncio.ensure_future(self._run(number)))
        await self.turn()

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def _run(self, number: int) -> None:
        async with self.pace.begun() as over:
            self.begun.append(number)
            self.over[number] = over
            await self.go[number].wait()


async def test_a_plan_waits_for_one_before_it_to_end_and_goes_in_its_turn() -> None:
    plans = Plans(2)
    await plans.start(1, 2, 3, 4)
    assert plans.begun == [1, 2]
    plans.go[2].set()
    await plans.turn()
    assert plans.begun == [1, 2, 3]


async def test_a_long_plan_starts_one_more_plan_and_none_when_it_ends() -> None:
    plans = Plans(1)
    await plans.start(1, 2, 3)
    plans.over[1]()
    plans.over[1]()
    await plans.turn()
    assert plans.begun == [1, 2]
    plans.go[1].set()
    await plans.turn()
    assert plans.begun == [1, 2]


async def test_a_cancelled_plan_leaves_its_place_to_the_next() -> None:
    plans = Plans(1)
    await plans.start(1, 2, 3)
    plans.tasks[1].cancel()
    plans.tasks[0].cancel()
    await plans.turn()
    assert plans.begun == [1, 3]
