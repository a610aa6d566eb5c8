"""DynamicResources reserves and frees devices: docs/spec/dra.md §3.5, §3.7, §3.8, rows 272, 275, 286–290, 297, 298, 311."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import pod_info
from scheduler.core.errors import Unavailable
from scheduler.framework.interface import CycleState
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import Builder, pod
from tests.unit.plugins.dra.served import (
    ASKING,
    ERR,
    HELD,
    NO_DEVICES,
    Served,
    Slow,
    U,
    claim_for_two,
    fails,
    said,
    steps,
    using,
)

HELD_ON_N9 = ASKING.allocated(a_result("r", "a/n9/d0"), on="n9")


# -- PostFilter ----------------------------------------------------------------------------------------------------------


FREED = (U, "deallocation of ResourceClaim completed")
NOT_HELPED = (U, "still not schedulable")
OTHER = a_claim("d").request("r", "A").allocated(a_result("r", "a/n9/d1"), on="n9")


@pytest.mark.parametrize(("things", "claims", "expected", "writes"), [
    pytest.param([HELD_ON_N9.reserved_for("p", "p").reserved_for("x")], ("c",), NOT_HELPED, ["unreserve c"],
        id="both pods have reserved it: this pod leaves, so that the other can free the devices"),
    pytest.param([HELD_ON_N9, HELD.reserved_for("p", "p").set({"metadata": {"name": "e"}})], ("c", "e"), FREED,
        ["deallocate c", "unreserve e"], id="one that is useless, and one that is reserved for it"),
    pytest.param([HELD_ON_N9, OTHER], ("c", "d"), FREED, ["deallocate c", "deallocate d"],
        id="§10.3 two at once"),
    pytest.param([HELD_ON_N9.reserved_for("x"), OTHER], ("c", "d"), FREED, ["deallocate d"],
        id="§10.3 another pod has reserved the first: the second is freed"),
    pytest.param([HELD_ON_N9.reserved_for("x"), OTHER, a_claim("e").allocated(a_result("r", "a/n9/d2"), on="n9")],
        ("c", "d", "e"), FREED, ["deallocate d"],
        id="§10.3 another pod has reserved the first: one of the other two is freed, as upstream"),
    pytest.param([HELD], ("c",), NOT_HELPED, [], id="the claim blocks no pod"),
    pytest.param([HELD_ON_N9, a_claim("d").request("r", "A", count=9)], ("c", "d"), NOT_HELPED, [],
        id="§3.4 the allocator fails everywhere: freeing would not help"),
])  # fmt: skip
async def test_post_filter(
    things: list[Builder[Any]], claims: tuple[str, ...], expected: object, writes: list[str]
) -> None:
    """PostFilter frees claims so that the pod can run, and reports it in its status."""
    world = Served(*things)
    info, state = world.tried(*claims)

    assert expected == said(world.post_filter(state, info))
    await world.background()
    assert writes == world.writes


async def test_no_claim_is_freed_if_another_plugin_rejects_every_node() -> None:
    """Filter still runs, as in a trial that runs all filters. The claim blocks no node that the other plugin accepts."""
    world = Served(HELD_ON_N9)
    info = using("c")
    state, groups = world.filter(info)
    assert groups

    assert NOT_HELPED == said(world.post_filter(state, info, {}))
    await world.background()
    assert [] == world.writes


async def test_all_pods_that_share_a_useless_claim_leave_it_and_the_last_frees_the_devices() -> None:
    """The order of the attempts does not matter. A daemon that died had reserved the claim for these pods."""
    world = Served(HELD_ON_N9.reserved_for("p", "p").reserved_for("q", "q"))
    for name in ("p", "q", "p"):
        info, state = world.tried("c", name=name)
        world.post_filter(state, info)
        await world.background()

    assert ["unreserve c", "deallocate c"] == world.writes
    assert "" == await world.bound(world.reserved(using("c")))


def test_a_node_that_was_not_searched_does_not_free_a_claim() -> None:
    """§3.4: the claim is not the only obstacle on a node that was not searched."""
    world = Served(HELD_ON_N9, a_claim("d").request("r", "A", count=9))
    world.plugin._verdicts._clock = Slow(world.clock)
    info, state = world.tried("c", "d")

    assert NOT_HELPED == said(world.post_filter(state, info))


async def test_a_claim_that_another_component_changed_is_not_freed() -> None:
    """290: the write fails, and the other component's change stays."""
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


# -- Reserve and Unreserve ---------------------------------------------------------------------------------------------


async def test_the_reservations_of_two_successive_pods_of_one_name_are_both_removed() -> None:
    """The first pod is gone. The write that removes its reservation still runs when the second pod fails, too."""
    world = Served(HELD.reserved_for("p", "first").reserved_for("p", "second"))
    steps(world, fails(Unavailable("busy")))
    for uid in ("first", "second"):
        world.unreserve(world.reserved(pod_info(pod("p").uid(uid).claim("e0", claim="c").typed())))

    await world.background()

    assert [] == world.users("c")


def test_reserve_on_a_node_without_devices() -> None:
    """311: the node was not verified, or another pod reserved the devices first."""
    world = Served(claim_for_two(), claim_for_two("d"))
    info, state = world.tried("c", name="late")
    world.reserved(using("d", name="early"))

    assert NO_DEVICES == said(world.plugin.reserve(state, info, "n1"))
    assert ["d"] == world.in_flight


def test_reserve_after_the_claim_is_gone() -> None:
    """§3.7 step 4: no state of the attempt stays."""
    world = Served(ASKING, a_claim("d").request("r", "A"))
    info, state = world.tried("c", "d")
    world.withdraw("d")

    no = world.plugin.reserve(state, info, "n1")
    world.plugin.unreserve(state, info, "n1")

    assert (ERR, "internal error, couldn't signal allocation for claim d") == said(no)
    assert ([], []) == (world.in_flight, world.used)


async def test_unreserve_before_anything_is_written() -> None:
    """275, 298: a second call changes nothing, and pods that wait for the devices are notified."""
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


async def test_unreserve_of_a_pod_that_another_scheduler_has_bound() -> None:
    """The pod runs with its reservation, so the reservation stays."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    await world.bound(under)
    world.cluster.add_pod(under.info)

    world.plugin.unreserve(under.state, under.info, "n1")
    await world.background()

    assert ["p"] == world.users("c")


def test_unreserve_without_a_reservation() -> None:
    """Unreserve is idempotent and writes nothing."""
    world = Served(ASKING)

    world.plugin.unreserve(CycleState(), using("c"), "n1")
    state, _ = world.filter(using("c"))
    world.plugin.unreserve(state, using("c"), "n1")

    assert [] == world.writes
