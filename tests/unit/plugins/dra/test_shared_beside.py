"""The second check keeps another scheduler from overdrawing shared capacities and counters (docs/spec/dra.md §4.8, §4.9, §10.5).

Our claim `c` requests 5 of the 8 units of memory of device `m`, or a share of the partition `whole`. Each row lists
the devices that another scheduler allocates at the same time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from msgspec.structs import replace

from scheduler.api.decode import Broken
from scheduler.api.podinfo import PodInfo, placed
from scheduler.api.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.config.args import KubestowArgs
from scheduler.framework.status import Code
from scheduler.plugins.dra.binding.device_conflicts import DeviceConflicts
from scheduler.plugins.dra.structured.allocation_result import results
from scheduler.plugins.dra.structured.allocator import AllocationError, FailedOnNode
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Builder, Manifest
from simulator.builders.devices import DeviceBuilder, SliceBuilder, a_device, a_slice
from tests.examples import SLOW_SHARE, examples
from tests.unit.plugins.dra.allocator_setup import AllocatorSetup, cases
from tests.unit.plugins.dra.random_devices import NODES, AllocatorCase
from tests.unit.plugins.dra.served import Served, Step, Under, nothing, steps, using
from tests.unit.plugins.dra.world import FIRST_FIT, Allocated, World

Given: TypeAlias = tuple[Manifest, ...]
Change: TypeAlias = Callable[[Served], object]

MEMORY = a_slice("n1", "a", a_device("m").shared().cap("memory", "8").cap("fans", "2"))
FIVE = a_claim("c").request("r", "A", capacity={"memory": "5", "fans": "0"})
MEMORY_GONE = "claim default/c: memory of device a/n1/m got allocated to other claims in the meantime"

SPARE = a_slice("n1", "a").named("n1-set").counters("spare", {"units": "1"})
SET = SPARE.counters("card", {"units": "4", "lanes": "4"}).of(2)


def _part(name: str, units: int, lanes: int = 0) -> DeviceBuilder:
    return a_device(name).consumes("card", {"units": str(units), "lanes": str(lanes)})


PARTS = a_slice(
    "n1",
    "a",
    _part("whole", 4).shared().cap("memory", "8"),
    _part("half", 2),
    _part("lane", 0, 4),
    a_device("other").consumes("spare", {"units": "1"}),
    a_device("plain"),
).of(2)
WHOLE = a_claim("c").request("r", "A", capacity={"memory": "3"})
UNITS_GONE = "claim default/c: counter units of set card in pool a/n1 got allocated to other claims in the meantime"


def share(memory: str, device: str = "m", at: str = "s1", fans: str = "0") -> Manifest:
    return a_result("r", f"a/n1/{device}", share=at, consumed={"memory": memory, "fans": fans})


def part(name: str, **given: Any) -> Manifest:
    return a_result("r", f"a/n1/{name}", **given)


def allocation(results: Given) -> AllocationResult:
    given = a_claim("x").allocated(*results).typed().status.allocation
    assert given is not None
    return given


def other_takes(*results: Manifest, name: str = "o", user: str = "x") -> Step:
    """Return a step in which another scheduler allocates these devices to its claim."""

    def step(world: Served) -> None:
        world.rewrite(name, allocation=allocation(results), reserved_for=(ConsumerReference("", "pods", user, user),))

    return step


def stage(*slices: SliceBuilder, ours: ClaimBuilder, more: tuple[Builder[Any], ...] = ()) -> tuple[Served, Under]:
    """Return a pod that is reserved with claim c. Another scheduler has claims o and o2."""
    foreign = (a_claim(name).request("r", "A") for name in ("o", "o2"))
    world = Served(*slices, ours, *foreign, *more, ours=FIRST_FIT, bare=True)
    return world, world.reserved(using("c"))


ROWS = [
    pytest.param((MEMORY,), FIVE, (share("4"),), MEMORY_GONE, id="the sum exceeds the capacity"),
    pytest.param((MEMORY,), FIVE, (share("2"), share("2", at="s2")), MEMORY_GONE,
        id="the sum of two shares exceeds the capacity"),
    pytest.param((MEMORY,), FIVE, (share("3"),), "", id="exactly enough is left"),
    pytest.param((MEMORY,), FIVE, (share("3", fans="9"),), "",
        id="our claim requests nothing of the exceeded capacity"),
    pytest.param((MEMORY,), FIVE, (share("9", "m2"),), "", id="the share is of another device"),
    pytest.param((MEMORY,), FIVE, (part("m"),),
        "claim default/c: device a/n1/m got allocated to another claim in the meantime",
        id="the other claim gets the whole device"),
    pytest.param((a_slice("n1", "a", a_device("m")),), a_claim("c").request("r", "A"), (part("m"),),
        "claim default/c: device a/n1/m got allocated to another claim in the meantime",
        id="the other claim gets the device that ours has"),
    pytest.param((a_slice("n1", "a", a_device("m").cap("memory", "8")),), a_claim("c").request("r", "A"), (share("2"),),
        "claim default/c: device a/n1/m got allocated to another claim in the meantime",
        id="a share of the device that ours has whole"),
    pytest.param((MEMORY,), FIVE, (part("m", admin=True),), "", id="an administrator takes nothing of a capacity"),
    pytest.param((SET, PARTS), WHOLE, (part("half"),), UNITS_GONE, id="a partition that draws on the same counter"),
    pytest.param((SET, PARTS), WHOLE, (part("half", admin=True),), "",
        id="an administrator takes nothing of a counter"),
    pytest.param((SET, PARTS), WHOLE, (part("lane"),), "", id="a partition that draws on another counter"),
    pytest.param((SET, PARTS), WHOLE, (part("other"),), "", id="a partition that draws on another set"),
    pytest.param((SET, PARTS), WHOLE, (part("plain"),), "", id="a device that draws on nothing"),
    pytest.param((SET, PARTS), WHOLE, (share("3", "whole"),), "", id="all shares together draw once"),
    pytest.param((SET, PARTS), WHOLE, (share("3", "whole"), part("half")), UNITS_GONE,
        id="a partition overdraws next to shares"),
]  # fmt: skip


@pytest.mark.parametrize(("slices", "ours", "theirs", "problem"), ROWS)
async def test_before_the_write(
    slices: tuple[SliceBuilder, ...], ours: ClaimBuilder, theirs: Given, problem: str
) -> None:
    """PreBind writes not even a finalizer if the sum would be too large."""
    world, under = stage(*slices, ours=ours)
    other_takes(*theirs)(world)
    world.relay()

    assert problem == await world.bound(under)

    assert ([] if problem else ["protect c", "allocate c"], int(bool(problem))) == (
        world.writes,
        world.metrics.collisions,
    )


@pytest.mark.parametrize(("slices", "ours", "theirs", "problem"), ROWS)
async def test_the_other_scheduler_was_first_in_the_watch(
    slices: tuple[SliceBuilder, ...], ours: ClaimBuilder, theirs: Given, problem: str
) -> None:
    """Our claim yields if the sum is too large."""
    world, under = stage(*slices, ours=ours)
    steps(world, other_takes(*theirs), only="allocate")

    assert problem == await world.bound(under)

    assert (not problem, True) == (world.server("c").is_allocated, world.server("o").is_allocated)
    assert int(bool(problem)) == world.metrics.collisions
    assert ({}, []) == (world.plugin._binder._writer.unconfirmed, world.users("c") if problem else [])


@pytest.mark.parametrize(("slices", "ours", "theirs", "problem"), ROWS)
async def test_the_other_scheduler_came_second_in_the_watch(
    slices: tuple[SliceBuilder, ...], ours: ClaimBuilder, theirs: Given, problem: str
) -> None:
    """The second claim yields, and our claim is the first."""
    world, under = stage(*slices, ours=ours)
    late = other_takes(*theirs)
    world.writer.on_claim_written = lambda what, _: late(world) if what == "allocate" else None

    assert "" == await world.bound(under)

    assert (True, 0) == (world.server("c").is_allocated, world.metrics.collisions)


async def test_an_administrator_of_ours_takes_nothing() -> None:
    """The allocations of the other scheduler do not matter."""
    world, under = stage(SET, PARTS, ours=a_claim("c").request("r", "A", admin=True))
    other_takes(part("half"), part("lane"), part("whole"))(world)
    world.relay()

    assert "" == await world.bound(under)


async def test_two_partitions_of_our_claim_and_one_of_another_claim() -> None:
    """The check adds up both partitions of our claim."""
    world, under = stage(SET, HALVES, ours=a_claim("c").request("r", "A", count=2))
    steps(world, other_takes(part("p2")), only="allocate")

    assert UNITS_GONE == await world.bound(under)


SMALL = {"memory": "3", "fans": "0"}
HALVES = a_slice("n1", "a", *(_part(f"p{at}", 2) for at in range(3))).of(2)
SEVERAL = [
    pytest.param((MEMORY,), {"capacity": SMALL}, share("5"), MEMORY_GONE, id="the claims have shares"),
    pytest.param((SET, HALVES), {}, part("p2"), UNITS_GONE, id="the claims have partitions"),
]


@pytest.mark.parametrize(("slices", "options", "theirs", "problem"), SEVERAL)
@pytest.mark.parametrize(
    "is_written", [False, True], ids=["our last claim is not written yet", "both of our claims are written"]
)
async def test_the_later_of_several_yield_until_what_is_left_fits(
    slices: tuple[SliceBuilder, ...], options: Any, theirs: Manifest, problem: str, is_written: bool
) -> None:
    """The other claim is first, then c, then d. Only d is too large, so d yields and c keeps its devices."""
    ours, last = (a_claim(name).request("r", "A", **options) for name in ("c", "d"))
    world, under = stage(*slices, ours=ours, more=(last,))
    other = world.reserved(using("d", name="q"))
    hold = asyncio.Event()
    world.writer.on_claim = lambda *_: setattr(world.writer, "claim_hold", hold)
    second = asyncio.ensure_future(world.pre_bind(other))
    await world.clock.settle()
    world.writer.claim_hold = None
    steps(world, other_takes(theirs), only="allocate")
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


# -- incomplete pools ------------------------------------------------------------------------------------------------------


CHANGES: dict[str, Change] = {
    "both slices are gone": lambda world: [world.devices.remove_slice(name) for name in ("n1-a", "n1-set")],
    "the pool is incomplete": lambda world: world.show(PARTS.of(3), SET.of(3)),
    "half of the pool has a new generation": lambda world: world.show(PARTS.generation(2)),
    "the device is gone": lambda world: world.show(a_slice("n1", "a", a_device("plain")).of(2)),
    "a device is published twice": lambda world: world.show(PARTS.device(a_device("plain"))),
    "its counters are gone": lambda world: world.show(SPARE.of(2)),
    "its counters are published twice": lambda world: world.show(PARTS.of(3), SET.of(3), SET.named("n1-again").of(3)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_no_claim_yields_for_a_device_that_is_not_published(change: Change) -> None:
    """The check has no capacity to compare with."""
    world, under = stage(SET, PARTS, ours=WHOLE)

    def at_the_write(world: Served) -> None:
        other_takes(part("half"), share("8", "whole"))(world)
        change(world)

    steps(world, at_the_write, only="allocate")

    assert "" == await world.bound(under)


async def test_the_current_slices_count() -> None:
    """A driver made the device smaller. The check reads the current capacity, as a search does."""
    world, under = stage(MEMORY, ours=FIVE)
    other_takes(share("2"))(world)
    world.relay()
    world.show(a_slice("n1", "a", a_device("m").shared().cap("memory", "6")))

    assert MEMORY_GONE == await world.bound(under)


# -- earlier allocations ---------------------------------------------------------------------------------------------------


def running(world: Served, name: str) -> None:
    """Bind a pod with this uid."""
    info: PodInfo = using("o", name=name)
    world.cluster.add_pod(placed(info, "n1"))


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        pytest.param(True, "", id="a pod runs with the claim"),
        pytest.param(False, UNITS_GONE, id="no pod runs with the claim"),
    ],
)
async def test_one_more_share_of_an_overdrawn_partition(runs: bool, problem: str) -> None:
    """The second share draws nothing while the first share stays. A search allocates it too."""
    world, under = stage(SET, PARTS, ours=WHOLE)
    if runs:
        running(world, "x")
    other_takes(share("3", "whole"))(world)
    other_takes(part("half"), name="o2", user="y")(world)
    world.relay()

    assert problem == await world.bound(under)


@pytest.mark.parametrize(("first", "runs", "problem"), [
    pytest.param("o", True, "", id="a pod runs with the claim"),
    pytest.param("o", False, MEMORY_GONE, id="no pod runs with the claim, and the other claim was first"),
    pytest.param("c", False, "", id="no pod runs with the claim, and it was first"),
])  # fmt: skip
async def test_an_allocation_from_before_the_start_counts_as_unconfirmed(first: str, runs: bool, problem: str) -> None:
    """The previous daemon died before its second check."""
    claims = [FIVE.allocated(share("5")), a_claim("o").allocated(share("4", at="s2"))]
    world = Served(MEMORY, *(claims if first == "c" else reversed(claims)), bare=True)
    if runs:
        running(world, "q")
        world.show(FIVE.allocated(share("5")).reserved_for("q", "q"))

    assert problem == await world.bound(world.reserved(using("c")))

    assert (not problem) == world.server("c").is_allocated


async def test_a_claim_that_becomes_unreadable_keeps_its_devices() -> None:
    """Invalid input must not lead to an overdraft."""
    world, under = stage(MEMORY, ours=FIVE)

    def at_the_write(world: Served) -> None:
        other_takes(share("4"))(world)
        world.relay("default/o")
        metadata = world.server("o").metadata
        world.put(Broken("ResourceClaim", metadata, "status.allocation: expected object"))

    steps(world, at_the_write, only="allocate")

    assert MEMORY_GONE == await world.bound(under)


async def test_without_a_second_check_no_claim_yields() -> None:
    """Upstream has no second check."""
    world = Served(
        MEMORY, FIVE, a_claim("o"), ours=dataclasses.replace(FIRST_FIT, device_double_check="none"), bare=True
    )
    under = world.reserved(using("c"))
    steps(world, nothing, other_takes(share("4")))

    assert "" == await world.bound(under, relays=False)


@pytest.mark.parametrize("ours", [
    pytest.param(FIRST_FIT, id="first fit"),
    pytest.param(KubestowArgs(), id="packing"),
    pytest.param(KubestowArgs(parity=True), id="parity"),
])  # fmt: skip
def test_a_device_that_is_no_longer_shared_is_in_use_while_an_old_share_exists(ours: KubestowArgs) -> None:
    """The second check would refuse the device in every attempt."""
    world = World(ours=ours)
    world.show(a_slice("n1", "a", a_device("d0"), a_device("d1")))
    world.show(a_claim("old").request("r", "A").allocated(a_result("r", "a/n1/d0", share="s1")))
    for name in ("c", "d"):
        world.show(a_claim(name).request("r", "A"))

    both = world.pod("c", "d")
    assert "n1" in world.refusals(both)
    given = world.allocate("c")
    assert isinstance(given, Allocated)
    assert given.devices == [("r", "n1/d1")]


def test_the_end_of_the_last_old_share_frees_the_device() -> None:
    """The share ends when its claim is deleted."""
    world = World()
    world.show(a_slice("n1", "a", a_device("d0")))
    world.show(a_claim("old").request("r", "A").allocated(a_result("r", "a/n1/d0", share="s1")))
    world.show(a_claim("c").request("r", "A"))
    assert world.refusals(world.pod("c"))["n1"] == (Code.UNRESOLVABLE, "cannot allocate all claims")

    world.devices.claims.remove("default/old")

    assert "n1" not in world.refusals(world.pod("c"))


# -- a law: the second check accepts the result of a search while no other scheduler writes ----------------------------

RUNNING = a_claim("x").reserved_for("x").typed()


@settings(
    max_examples=examples(400, share=SLOW_SHARE),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(cases, st.sampled_from(sorted(NODES)))
def test_a_search_gives_away_what_the_second_look_lets_pass(case: AllocatorCase, node: str) -> None:
    """Counters may be overdrawn, pools incomplete, objects contradictory. Conflicts over whole devices are ignored."""
    setup = AllocatorSetup(case)
    search = setup.search(node)
    try:
        picked = search.run()
    except (AllocationError, FailedOnNode):
        picked = None
    assume(picked)
    assert picked is not None
    names = [claim.metadata.name for claim in case.claims]
    got = results(setup.demand, picked, search._node_devices, node_name=node, names=names, rng=random.Random(1))
    claims = SimpleNamespace(by_uid=lambda uid: RUNNING if uid.startswith("u") else None)
    devices: Any = SimpleNamespace(use=setup.use, on_nodes=setup.on_nodes, claims=claims)
    conflicts = DeviceConflicts(devices, runs=lambda _: True)
    for claim, allocation in zip(case.claims, got, strict=True):
        setup.use.hold(f"ours-{claim.key}", allocation)

    for claim, allocation in zip(case.claims, got, strict=True):
        ours = ResourceClaim(metadata=replace(claim.metadata, uid=f"ours-{claim.key}"))
        problem = conflicts.ahead(ours, allocation)
        assert not problem or ": device " in problem, problem
