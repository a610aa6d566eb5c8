"""What is shared is not overdrawn beside another scheduler either: capacities and counters, by the second look (§4.8, §4.9, §10.5).

A claim of ours `c` asks for 5 of the 8 that device `m` has, or for the partition `whole` or a share of it; what somebody else
takes meanwhile stands in each row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from scheduler.api.decode import Broken
from scheduler.api.podinfo import PodInfo, placed
from scheduler.api.resource_v1 import AllocationResult, ConsumerReference
from scheduler.config.args import KubestowArgs
from scheduler.framework.status import Code
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Builder, Manifest
from simulator.builders.devices import DeviceBuilder, SliceBuilder, a_device, a_slice
from tests.unit.plugins.dra.served import Served, Step, Under, nothing, steps, using
from tests.unit.plugins.dra.world import FIRST_FIT, Allocated, World
from tests.unit.plugins.dra.writings import BLIND

Given: TypeAlias = tuple[Manifest, ...]
Change: TypeAlias = Callable[[Served], object]

ROOM = a_slice("n1", "a", a_device("m").shared().cap("room", "8").cap("fans", "2"))
FIVE = a_claim("c").request("r", "A", capacity={"room": "5", "fans": "0"})
ROOM_GONE = "claim default/c: room of device a/n1/m got allocated to other claims in the meantime"

SPARE = a_slice("n1", "a").named("n1-set").counters("spare", {"units": "1"})
SET = SPARE.counters("card", {"units": "4", "lanes": "4"}).of(2)


def _part(name: str, units: int, lanes: int = 0) -> DeviceBuilder:
    return a_device(name).consumes("card", {"units": str(units), "lanes": str(lanes)})


PARTS = a_slice(
    "n1",
    "a",
    _part("whole", 4).shared().cap("room", "8"),
    _part("half", 2),
    _part("lane", 0, 4),
    a_device("other").consumes("spare", {"units": "1"}),
    a_device("plain"),
).of(2)
WHOLE = a_claim("c").request("r", "A", capacity={"room": "3"})
UNITS_GONE = "claim default/c: counter units of set card in pool a/n1 got allocated to other claims in the meantime"


def share(room: str, device: str = "m", at: str = "s1", fans: str = "0") -> Manifest:
    return a_result("r", f"a/n1/{device}", share=at, consumed={"room": room, "fans": fans})


def part(name: str, **given: Any) -> Manifest:
    return a_result("r", f"a/n1/{name}", **given)


def allocation(results: Given) -> AllocationResult:
    given = a_claim("x").allocated(*results).typed().status.allocation
    assert given is not None
    return given


def others_take(*results: Manifest, name: str = "o", user: str = "x") -> Step:
    """Another scheduler gives these to its claim."""

    def step(world: Served) -> None:
        world.rewrite(name, allocation=allocation(results), reserved_for=(ConsumerReference("", "pods", user, user),))

    return step


def stage(*slices: SliceBuilder, ours: ClaimBuilder, more: tuple[Builder[Any], ...] = ()) -> tuple[Served, Under]:
    """A pod with claim c, reserved; others have claims o and o2."""
    others = (a_claim(name).request("r", "A") for name in ("o", "o2"))
    world = Served(*slices, ours, *others, *more, ours=FIRST_FIT, bare=True)
    return world, world.reserved(using("c"))


ROWS = [
    pytest.param((ROOM,), FIVE, (share("4"),), ROOM_GONE, id="more of a capacity than there is"),
    pytest.param((ROOM,), FIVE, (share("2"), share("2", at="s2")), ROOM_GONE, id="in two shares"),
    pytest.param((ROOM,), FIVE, (share("3"),), "", id="just enough is left"),
    pytest.param((ROOM,), FIVE, (share("3", fans="9"),), "", id="of a capacity of which we want nothing"),
    pytest.param((ROOM,), FIVE, (share("9", "m2"),), "", id="of another device"),
    pytest.param((ROOM,), FIVE, (part("m"),),
        "claim default/c: device a/n1/m got allocated to another claim in the meantime", id="all of the device"),
    pytest.param((a_slice("n1", "a", a_device("m")),), a_claim("c").request("r", "A"), (part("m"),),
        "claim default/c: device a/n1/m got allocated to another claim in the meantime", id="the device that ours has"),
    pytest.param((a_slice("n1", "a", a_device("m").cap("room", "8")),), a_claim("c").request("r", "A"), (share("2"),),
        "claim default/c: device a/n1/m got allocated to another claim in the meantime",
        id="a share of the device that ours has whole"),
    pytest.param((ROOM,), FIVE, (part("m", admin=True),), "", id="an administrator takes nothing of a capacity"),
    pytest.param((SET, PARTS), WHOLE, (part("half"),), UNITS_GONE, id="a partition that draws on the same counter"),
    pytest.param((SET, PARTS), WHOLE, (part("half", admin=True),), "",
        id="an administrator takes nothing of a counter"),
    pytest.param((SET, PARTS), WHOLE, (part("lane"),), "", id="a partition that draws on another counter"),
    pytest.param((SET, PARTS), WHOLE, (part("other"),), "", id="a partition that draws on another set"),
    pytest.param((SET, PARTS), WHOLE, (part("plain"),), "", id="a device that draws on nothing"),
    pytest.param((SET, PARTS), WHOLE, (share("3", "whole"),), "", id="a share draws once, with the others"),
    pytest.param((SET, PARTS), WHOLE, (share("3", "whole"), part("half")), UNITS_GONE,
        id="shares, and a partition beside them"),
]  # fmt: skip


@pytest.mark.parametrize(("slices", "ours", "theirs", "problem"), ROWS)
async def test_before_the_write(
    slices: tuple[SliceBuilder, ...], ours: ClaimBuilder, theirs: Given, problem: str
) -> None:
    """Not even a finalizer is written of what would be too much."""
    world, under = stage(*slices, ours=ours)
    others_take(*theirs)(world)
    world.relay()

    assert problem == await world.bound(under)

    assert ([] if problem else ["protect c", "allocate c"], int(bool(problem))) == (
        world.writes,
        world.metrics.collisions,
    )


@pytest.mark.parametrize(("slices", "ours", "theirs", "problem"), ROWS)
async def test_somebody_else_was_first_in_the_watch(
    slices: tuple[SliceBuilder, ...], ours: ClaimBuilder, theirs: Given, problem: str
) -> None:
    """We yield if it is too much."""
    world, under = stage(*slices, ours=ours)
    steps(world, others_take(*theirs), only="allocate")

    assert problem == await world.bound(under)

    assert (not problem, True) == (world.server("c").is_allocated, world.server("o").is_allocated)
    assert int(bool(problem)) == world.metrics.collisions
    assert ({}, []) == (world.plugin._binder._writer.unconfirmed, world.users("c") if problem else [])


@pytest.mark.parametrize(("slices", "ours", "theirs", "problem"), ROWS)
async def test_somebody_else_came_second_in_the_watch(
    slices: tuple[SliceBuilder, ...], ours: ClaimBuilder, theirs: Given, problem: str
) -> None:
    """Whoever comes second yields, and that is not us."""
    world, under = stage(*slices, ours=ours)
    late = others_take(*theirs)
    world.writer.on_claim_written = lambda what, _: late(world) if what == "allocate" else None

    assert "" == await world.bound(under)

    assert (True, 0) == (world.server("c").is_allocated, world.metrics.collisions)


async def test_an_administrator_of_ours_takes_nothing() -> None:
    """Whatever others have."""
    world, under = stage(SET, PARTS, ours=a_claim("c").request("r", "A", admin=True))
    others_take(part("half"), part("lane"), part("whole"))(world)
    world.relay()

    assert "" == await world.bound(under)


async def test_two_partitions_of_one_claim_beside_one_of_others() -> None:
    """What our own claim draws is one sum."""
    world, under = stage(SET, HALVES, ours=a_claim("c").request("r", "A", count=2))
    steps(world, others_take(part("p2")), only="allocate")

    assert UNITS_GONE == await world.bound(under)


SMALL = {"room": "3", "fans": "0"}
HALVES = a_slice("n1", "a", *(_part(f"p{at}", 2) for at in range(3))).of(2)
SEVERAL = [
    pytest.param((ROOM,), {"capacity": SMALL}, share("5"), ROOM_GONE, id="shares"),
    pytest.param((SET, HALVES), {}, part("p2"), UNITS_GONE, id="partitions"),
]


@pytest.mark.parametrize(("slices", "asked", "theirs", "problem"), SEVERAL)
@pytest.mark.parametrize("is_written", [False, True], ids=["before the last is written", "when both of ours are"])
async def test_the_later_of_several_yield_until_what_is_left_fits(
    slices: tuple[SliceBuilder, ...], asked: Any, theirs: Manifest, problem: str, is_written: bool
) -> None:
    """Somebody else, then c, then d, of which the last is too much: what comes after it takes nothing from c."""
    ours, last = (a_claim(name).request("r", "A", **asked) for name in ("c", "d"))
    world, under = stage(*slices, ours=ours, more=(last,))
    other = world.reserved(using("d", name="q"))
    hold = asyncio.Event()
    world.writer.on_claim = lambda *_: setattr(world.writer, "claim_hold", hold)
    second = asyncio.ensure_future(world.pre_bind(other))
    await world.clock.settle()
    world.writer.claim_hold = None
    steps(world, others_take(theirs), only="allocate")
    first = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.settle()
    if not is_written:
        await world.passes(first)
    hold.set()
    await world.clock.settle()
    await world.passes(asyncio.gather(first, second))

    no = second.result()
    assert no is not None
    assert (None, problem.replace("/c", "/d", 1)) == (first.result(), no.message)
    assert (True, False) == (world.server("c").is_allocated, world.server("d").is_allocated)


# -- what cannot be compared -----------------------------------------------------------------------------------------------


CHANGES: dict[str, Change] = {
    "both slices are gone": lambda world: [world.devices.remove_slice(name) for name in ("n1-a", "n1-set")],
    "the pool is incomplete": lambda world: world.show(PARTS.of(3), SET.of(3)),
    "half of the pool is renewed": lambda world: world.show(PARTS.generation(2)),
    "the device is gone": lambda world: world.show(a_slice("n1", "a", a_device("plain")).of(2)),
    "a device is there twice": lambda world: world.show(PARTS.device(a_device("plain"))),
    "its counters are gone": lambda world: world.show(SPARE.of(2)),
    "its counters are there twice": lambda world: world.show(PARTS.of(3), SET.of(3), SET.named("n1-again").of(3)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_is_not_published_makes_nobody_yield(change: Change) -> None:
    """There is nothing to compare with."""
    world, under = stage(SET, PARTS, ours=WHOLE)

    def meanwhile(world: Served) -> None:
        others_take(part("half"), share("8", "whole"))(world)
        change(world)

    steps(world, meanwhile, only="allocate")

    assert "" == await world.bound(under)


async def test_what_is_published_by_now_counts() -> None:
    """A driver made the device smaller: as a search would see it."""
    world, under = stage(ROOM, ours=FIVE)
    others_take(share("2"))(world)
    world.relay()
    world.show(a_slice("n1", "a", a_device("m").shared().cap("room", "6")))

    assert ROOM_GONE == await world.bound(under)


# -- who is there already --------------------------------------------------------------------------------------------------


def running(world: Served, name: str) -> None:
    """A pod with this uid is bound."""
    info: PodInfo = using("o", name=name)
    world.cluster.add_pod(placed(info, "n1"))


@pytest.mark.parametrize(
    ("runs", "problem"),
    [pytest.param(True, "", id="a pod runs with it"), pytest.param(False, UNITS_GONE, id="it may be given back")],
)
async def test_one_more_share_of_what_draws_too_much_already(runs: bool, problem: str) -> None:
    """It draws nothing more as long as the first share stays; a search gives it away as well."""
    world, under = stage(SET, PARTS, ours=WHOLE)
    if runs:
        running(world, "x")
    others_take(share("3", "whole"))(world)
    others_take(part("half"), name="o2", user="y")(world)
    world.relay()

    assert problem == await world.bound(under)


@pytest.mark.parametrize(("first", "runs", "problem"), [
    pytest.param("o", True, "", id="a pod runs with it"),
    pytest.param("o", False, ROOM_GONE, id="no pod runs with it, and the other claim was first"),
    pytest.param("c", False, "", id="no pod runs with it, and it was first"),
])  # fmt: skip
async def test_what_was_allocated_before_we_began_counts_as_unconfirmed(first: str, runs: bool, problem: str) -> None:
    """The daemon died before it had looked."""
    claims = [FIVE.allocated(share("5")), a_claim("o").allocated(share("4", at="s2"))]
    world = Served(ROOM, *(claims if first == "c" else reversed(claims)), bare=True)
    if runs:
        running(world, "q")
        world.show(FIVE.allocated(share("5")).reserved_for("q", "q"))

    assert problem == await world.bound(world.reserved(using("c")))

    assert (not problem) == world.server("c").is_allocated


async def test_a_claim_that_cannot_be_read_any_more_keeps_what_it_has() -> None:
    """Bad input is not a way to overdraw."""
    world, under = stage(ROOM, ours=FIVE)

    def meanwhile(world: Served) -> None:
        others_take(share("4"))(world)
        world.relay("default/o")
        metadata = world.server("o").metadata
        world.put(Broken("ResourceClaim", metadata, "status.allocation: expected object"))

    steps(world, meanwhile, only="allocate")

    assert ROOM_GONE == await world.bound(under)


async def test_without_a_second_look_nobody_yields() -> None:
    """Upstream's way."""
    world = Served(ROOM, FIVE, a_claim("o"), ours=BLIND, bare=True)
    under = world.reserved(using("c"))
    steps(world, nothing, others_take(share("4")))

    assert "" == await world.bound(under, relays=False)


@pytest.mark.parametrize(("ours", "first"), [
    pytest.param(FIRST_FIT, "n1/d1", id="the other is taken"),
    pytest.param(KubestowArgs(), "n1/d1", id="also where devices are packed"),
    pytest.param(KubestowArgs(parity=True), "n1/d0", id="upstream gives it away"),
])  # fmt: skip
def test_a_device_that_is_shared_no_more_is_in_use_while_somebody_has_an_old_share(
    ours: KubestowArgs, first: str
) -> None:
    """The second look would refuse it again and again."""
    world = World(ours=ours)
    world.show(a_slice("n1", "a", a_device("d0"), a_device("d1")))
    world.show(a_claim("old").request("r", "A").allocated(a_result("r", "a/n1/d0", share="s1")))
    for name in ("c", "d"):
        world.show(a_claim(name).request("r", "A"))

    both = world.pod("c", "d")
    assert ("n1" in world.refusals(both)) is not ours.parity
    given = world.allocate("c")
    assert isinstance(given, Allocated)
    assert given.devices == [("r", first)]


def test_whoever_gives_the_last_old_share_back_frees_the_device() -> None:
    """With the claim that had it."""
    world = World()
    world.show(a_slice("n1", "a", a_device("d0")))
    world.show(a_claim("old").request("r", "A").allocated(a_result("r", "a/n1/d0", share="s1")))
    world.show(a_claim("c").request("r", "A"))
    assert world.refusals(world.pod("c"))["n1"] == (Code.UNRESOLVABLE, "cannot allocate all claims")

    world.devices.claims.remove("default/old")

    assert "n1" not in world.refusals(world.pod("c"))
