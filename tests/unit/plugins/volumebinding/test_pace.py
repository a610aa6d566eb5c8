"""How many plans are begun at once: per process, over all profiles and reloads."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile
from scheduler.core.errors import Unavailable
from scheduler.plugins.volumebinding.binder import UNFINISHED, UnfinishedPods
from scheduler.profiles.reconciler import RequestedProfile
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import node, pod
from tests.unit.hints.hint_rows_limits import claims, stored
from tests.unit.wakeups.test_volumes_given_back import refusing


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


# -- whole schedulers --------------------------------------------------------------------------------------------------


OTHER = "kubestow-too"


async def test_neither_a_second_profile_nor_a_change_begins_more_at_once() -> None:
    """The PV controller does not work faster for it."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME), KubeSchedulerProfile(OTHER))))
    node("n1", cpu="4000", pods="1000")(sched)
    for thing in stored(a_class("made", "P"), *(a_claim(f"c{at}", "1Gi", "made") for at in range(3 * UNFINISHED))):
        thing(sched)
    sched.writer.on_select = refusing(Unavailable("busy"))
    for at in range(2 * UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"), scheduler=(OUR_NAME, OTHER)[at % 2])(sched)
    await sched.settle()
    assert len(set(sched.writer.selections)) == UNFINISHED

    wish = RequestedProfile("u", 1, {"percentageOfNodesToScore": 50})
    sched.parts.inbox.put(partial(sched.parts.reloading.reconcile, {OUR_NAME: wish}))
    for at in range(2 * UNFINISHED, 3 * UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"))(sched)
    await sched.settle()

    assert len(sched.parts.binder) == 3 * UNFINISHED
    assert len(set(sched.writer.selections)) == UNFINISHED


async def test_a_server_that_refuses_volumes_for_long_keeps_no_claim_from_its_node() -> None:
    """A webhook for volumes that cannot be reached fails them all, again and again, and nothing else."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME),)))
    node("n1", cpu="4000", pods="1000")(sched)
    volumes = [(a_pv(f"v{at}", "1Gi", "local"), a_claim(f"c{at}", "1Gi", "local")) for at in range(UNFINISHED)]
    made = (a_class("local"), a_class("made", "P"), a_claim("c", "1Gi", "made"))
    for thing in stored(*made, *itertools.chain.from_iterable(volumes)):
        thing(sched)
    sched.writer.on_prebind = refusing(Unavailable("failed calling webhook", status=500))
    for at in range(UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"))(sched)
    await sched.settle()
    assert len({name for name, *_ in sched.writer.prebinds}) == UNFINISHED

    pod("p", **claims("c"))(sched)
    await sched.settle()
    assert sched.writer.selections == []
    for _ in range(15):
        await sched.later(1)

    assert ("default/c", "n1") in sched.writer.selections
