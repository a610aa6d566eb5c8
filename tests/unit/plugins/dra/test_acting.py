"""What DynamicResources takes and gives back: docs/spec/dra.md §3.5, §3.7, §3.8, rows 272, 275, 286–290, 297, 298, 311."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import pod_info
from scheduler.core.errors import Unavailable
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import Builder, pod
from tests.unit.plugins.dra.points import ERR, NO_DEVICES, U, asking_two, said
from tests.unit.plugins.dra.served import ASKING, HELD, PARITY, Served, Slow, fails, steps, using

HELD_ON_N9 = ASKING.allocated(a_result("r", "a/n9/d0"), on="n9")


# -- PostFilter ----------------------------------------------------------------------------------------------------------


FREED = (U, "deallocation of ResourceClaim completed")
NOT_HELPED = (U, "still not schedulable")
OTHER = a_claim("d").request("r", "A").allocated(a_result("r", "a/n9/d1"), on="n9")


@pytest.mark.parametrize(("things", "claims", "ours", "expected", "writes"), [
    pytest.param([HELD_ON_N9], ("c",), None, FREED, ["deallocate c"], id="286 nobody's"),
    pytest.param([HELD_ON_N9.reserved_for("x")], ("c",), None, NOT_HELPED, [], id="287 another pod's"),
    pytest.param([HELD_ON_N9.reserved_for("p", "p")], ("c",), None, FREED, ["deallocate c"], id="288 this pod's alone"),
    pytest.param([HELD_ON_N9.reserved_for("p", "p").reserved_for("x")], ("c",), PARITY, NOT_HELPED, [],
        id="288 this pod's and another's, as upstream"),
    pytest.param([HELD_ON_N9.reserved_for("p", "p").reserved_for("x")], ("c",), None, NOT_HELPED, ["unreserve c"],
        id="this pod's and another's: it leaves, so that the other can give the devices back"),
    pytest.param([HELD_ON_N9, HELD.reserved_for("p", "p").set({"metadata": {"name": "e"}})], ("c", "e"), None, FREED,
        ["deallocate c", "unreserve e"], id="one that is useless, and one that is reserved for it"),
    pytest.param([HELD_ON_N9, OTHER], ("c", "d"), PARITY, FREED, ["deallocate c"],
        id="289 two: the first, as upstream"),
    pytest.param([HELD_ON_N9, OTHER], ("c", "d"), None, FREED, ["deallocate c", "deallocate d"],
        id="§10.3 two at once"),
    pytest.param([HELD_ON_N9.reserved_for("x"), OTHER], ("c", "d"), None, FREED, ["deallocate d"],
        id="§10.3 one that is another's: the first that is not"),
    pytest.param([HELD_ON_N9.reserved_for("x"), OTHER, a_claim("e").allocated(a_result("r", "a/n9/d2"), on="n9")],
        ("c", "d", "e"), None, FREED, ["deallocate d"],
        id="§10.3 one that is another's, and two that are not: one of these, as upstream"),
    pytest.param([HELD], ("c",), None, NOT_HELPED, [], id="the claim is in nobody's way"),
    pytest.param([HELD_ON_N9, a_claim("d").request("r", "A", count=9)], ("c", "d"), None, NOT_HELPED, [],
        id="§3.4 the allocator fails everywhere: freeing would not help"),
])  # fmt: skip
async def test_post_filter(
    things: list[Builder[Any]], claims: tuple[str, ...], ours: Any, expected: object, writes: list[str]
) -> None:
    """What is given back so that the pod can run, and what is said of it."""
    world = Served(*things, **({"ours": ours} if ours else {}))
    info, state = world.tried(*claims)

    assert expected == said(world.post_filter(state, info))
    await world.background()
    assert writes == world.writes


async def test_where_others_refuse_every_node_no_claim_is_given_back() -> None:
    """Asked about it all the same, as a trial does that asks all filters: a claim was in the way of nothing."""
    world = Served(HELD_ON_N9)
    info = using("c")
    state, groups = world.filter(info)
    assert groups

    assert NOT_HELPED == said(world.post_filter(state, info, {}))
    await world.background()
    assert [] == world.writes


async def test_all_who_share_a_useless_claim_leave_it_and_the_last_gives_the_devices_back() -> None:
    """In whatever order they are tried; a daemon that died had reserved it for them."""
    world = Served(HELD_ON_N9.reserved_for("p", "p").reserved_for("q", "q"))
    for name in ("p", "q", "p"):
        info, state = world.tried("c", name=name)
        world.post_filter(state, info)
        await world.background()

    assert ["unreserve c", "deallocate c"] == world.writes
    assert "" == await world.bound(world.reserved(using("c")))


def test_where_searching_takes_long_freeing_is_thought_over_first() -> None:
    """§3.4: a node that was not looked at is no node on which the claim is all that is in the way."""
    world = Served(HELD_ON_N9, a_claim("d").request("r", "A", count=9))
    world.plugin._verdicts._clock = Slow(world.clock)
    info, state = world.tried("c", "d")

    assert NOT_HELPED == said(world.post_filter(state, info))


async def test_a_freed_claim_can_be_allocated_elsewhere() -> None:
    """286: in the next attempt, with its finalizer still there."""
    world = Served(HELD_ON_N9.reserved_for("p", "p"))
    info, state = world.tried("c")
    world.post_filter(state, info)
    await world.background()

    assert ([], []) == (world.devices_of("c"), world.users("c"))
    under = world.reserved(info)
    assert "" == await world.bound(under)
    assert (["n1/d0"], ["allocate c"]) == (world.devices_of("c"), world.writes[1:])


async def test_freeing_what_somebody_wrote_meanwhile_does_not_happen() -> None:
    """290: the write fails, and what is written stays."""
    world = Served(HELD_ON_N9)
    info, state = world.tried("c")
    world.rewrite("c", reserved_for=())

    assert FREED == said(world.post_filter(state, info))
    await world.background()

    assert ["n9/d0"] == world.devices_of("c")


def test_post_filter_without_a_state() -> None:
    """§3.5: PreFilter of an earlier plugin has refused."""
    world = Served()

    assert (ERR, "not found") == said(world.post_filter(CycleState(), using("c")))


def test_post_filter_without_claims() -> None:
    """262."""
    world = Served()
    state, no = world.pre_filter(using())

    assert no is SKIP
    assert (U, "no new claims to deallocate") == said(world.post_filter(state, using()))


# -- Reserve and Unreserve ---------------------------------------------------------------------------------------------


def test_reserve_takes_devices_and_writes_nothing() -> None:
    """272."""
    world = Served(ASKING)

    world.reserved(using("c"))

    assert (["c"], ["n1/d0"], []) == (world.in_flight, world.used, world.writes)


async def test_pods_that_have_the_name_after_each_other_are_given_back_each() -> None:
    """The first is gone, and what takes its reservation away is still under way when the second fails, too."""
    world = Served(HELD.reserved_for("p", "first").reserved_for("p", "second"))
    steps(world, fails(Unavailable("busy")))
    for uid in ("first", "second"):
        world.unreserve(world.reserved(pod_info(pod("p").uid(uid).claim("e0", claim="c").typed())))

    await world.background()

    assert [] == world.users("c")


def test_reserve_where_a_claim_needs_nothing() -> None:
    """§3.7 step 1."""
    world = Served(HELD)

    world.reserved(using("c"))

    assert ([], ["n1/d0"]) == (world.in_flight, world.used)


def test_reserve_on_a_node_without_devices() -> None:
    """311: it was not verified, or somebody was faster."""
    world = Served(asking_two(), asking_two("d"))
    info, state = world.tried("c", name="late")
    world.reserved(using("d", name="early"))

    assert NO_DEVICES == said(world.plugin.reserve(state, info, "n1"))
    assert ["d"] == world.in_flight


def test_reserve_after_the_claim_is_gone() -> None:
    """§3.7 step 4: and nothing of the attempt stays."""
    world = Served(ASKING, a_claim("d").request("r", "A"))
    info, state = world.tried("c", "d")
    world.withdraw("d")

    no = world.plugin.reserve(state, info, "n1")
    world.plugin.unreserve(state, info, "n1")

    assert (ERR, "internal error, couldn't signal allocation for claim d") == said(no)
    assert ([], []) == (world.in_flight, world.used)


async def test_unreserve_before_anything_is_written() -> None:
    """275, 298: twice is as good as once, and who waits for the devices hears of it."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    before = world.server("c")
    world.moves.clear()

    world.unreserve(under)
    await world.undo(under)

    assert ([], [], []) == (world.in_flight, world.used, world.writes)
    assert before is world.server("c")
    ((_, old, new),) = world.moves
    assert (True, False) == (old.is_allocated, new.is_allocated)


async def test_unreserve_after_the_claim_is_written() -> None:
    """297, 298: the pod's own reservation goes, once; the devices stay with the claim."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    assert "" == await world.bound(under)
    world.moves.clear()

    world.unreserve(under)
    await world.undo(under)

    assert ["protect c", "allocate c", "unreserve c"] == world.writes
    assert ([], ["n1/d0"], ["n1/d0"]) == (world.users("c"), world.devices_of("c"), world.used)


async def test_unreserve_leaves_other_users_alone() -> None:
    """297."""
    world = Served(HELD.reserved_for("x"))
    under = world.reserved(using("c"))
    await world.bound(under)

    assert ["x", "p"] == world.users("c")
    await world.undo(under)

    assert ["x"] == world.users("c")


async def test_unreserve_of_a_pod_that_somebody_else_has_bound_meanwhile() -> None:
    """Its reservation is what it runs with."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    await world.bound(under)
    world.cluster.add_pod(under.info)

    world.plugin.unreserve(under.state, under.info, "n1")
    await world.background()

    assert ["p"] == world.users("c")


def test_unreserve_of_what_was_never_reserved() -> None:
    """Idempotent, and harmless."""
    world = Served(ASKING)

    world.plugin.unreserve(CycleState(), using("c"), "n1")
    state, _ = world.filter(using("c"))
    world.plugin.unreserve(state, using("c"), "n1")

    assert [] == world.writes
