"""Time limits and rivals of reservations for volumes that do not come (docs/spec/volumes.md §12.1 B-1)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.cache.storage.capacity_reservations import GRACE_S, HOLD_S
from simulator.builders.core import node
from tests.unit.cache.storage.test_ledger import World, c, pair, v

# -- time --------------------------------------------------------------------------------------------------------------


def with_sibling() -> World:
    """A pod waits with c and d; d has its volume in zone a since long."""
    world = World()
    world.reservations.plan(["default/c", "default/d"])
    world.volumes.set_volume(v("vd", "a", "d").typed())
    world.claim(c("d").bound_to("vd"))
    return world


@pytest.mark.parametrize("flight_s", [3.0, 60.0, HOLD_S + 60.0])
@pytest.mark.parametrize("has_sibling", [True, False])
def test_a_claim_that_is_selected_again_and_again_reserves_capacity_for_ten_minutes_in_all(
    flight_s: float, has_sibling: bool
) -> None:
    world = with_sibling() if has_sibling else World()
    taken = {}
    while world.clock.now() < 2 * HOLD_S:
        for claim in (c().selected("n1"), c()):
            world.claim(claim.resource_version(f"{world.clock.now()}"))
            taken[world.clock.now()] = bool(world.taken())
            world.pass_(flight_s if claim.typed().selected_node else 3.0)
            taken[world.clock.now()] = bool(world.taken())

    assert not any(is_taken for at, is_taken in taken.items() if at >= HOLD_S)
    assert not has_sibling or all(is_taken for at, is_taken in taken.items() if at < HOLD_S)


def test_what_was_never_written_begins_no_time() -> None:
    """A pod of ours is reserved, and refused by another plugin, for more than ten minutes."""
    world = World()
    world.claim(c())
    for _ in range(3):
        world.volumes.claims.assume(c().selected("n1").typed())
        assert {"a": 3} == world.taken()
        world.pass_(HOLD_S - 1)
        world.volumes.claims.restore(c().selected("n1").typed())
        assert {} == world.taken()


def test_a_selected_node_whose_volume_never_comes_reserves_capacity_for_ten_minutes() -> None:
    """Some provisioners retry permanently and leave the node selected. The entry stays, so that it can be seen and cleared."""
    world = World()
    world.claim(c().selected("n1"))
    world.pass_(HOLD_S - 1)

    assert ({"a": 3}, set()) == (world.taken(), world.freed())

    world.pass_(1)

    assert ({}, {"D"}, 1) == (world.taken(), world.freed(), world.reservations.expired["flying"])
    assert [("flying", None)] == [(entry.state, entry.pool) for entry in world.reservations]
    assert HOLD_S == world.reservations.oldest_s()["flying"]


@pytest.mark.parametrize(
    ("then", "taken"),
    [
        pytest.param(c().selected("n1").label("x", "y"), {}, id="something else is written to the claim"),
        pytest.param(c(size="4Gi").selected("n1"), {}, id="it requests more"),
        pytest.param(c().selected("n2"), {}, id="another node is selected"),
        pytest.param(c(), {}, id="no node is selected any more"),
        pytest.param(c().selected("n1").bound_to("v"), {"a": 3}, id="a volume comes that the object does not show"),
        pytest.param(c().uid("new").selected("n1"), {"a": 3}, id="another claim of that name"),
    ],
)
def test_after_ten_minutes(then: Any, taken: dict[str, int]) -> None:
    world = World()
    world.claim(c().selected("n1"))
    world.pass_(HOLD_S)
    world.taken()
    world.claim(then.resource_version("2"))

    assert taken == world.taken()


def test_nodes_that_change_do_not_begin_another_ten_minutes() -> None:
    world = World()
    world.claim(c().selected("n1"))
    world.pass_(HOLD_S)
    assert {} == world.taken()
    world.nodes.set_node(node("n1").label("zone", "b").typed())
    world.write("c")

    assert {} == world.taken()


# -- two pods that exclude each other ----------------------------------------------------------------------------------


def rivals(capacity: str, *pods: tuple[str, ...]) -> World:
    """Pods whose first claim is bound in zone a, and whose other claims have lost their nodes, one second after the other."""
    world = World()
    world.write("a", "90Gi", version="2")
    for claims in pods:
        for name in claims:
            world.claim(c(name))
        world.volumes.set_volume(v(f"v{claims[0]}", "a", claims[0]).typed())
        world.claim(c(claims[0]).bound_to(f"v{claims[0]}"))
        world.reservations.plan([f"default/{name}" for name in claims])
        world.pass_(1)
    world.write("a", capacity, version="3")
    world.freed()
    return world


def holding(world: World) -> set[str]:
    world.reservations.catch_up()
    return {entry.claim.metadata.name for entry in world.reservations if entry.pool is not None}


@pytest.mark.parametrize(
    ("capacity", "pods", "held"),
    [
        pytest.param("6Gi", [("c", "d"), ("e", "f")], {"d", "f"}, id="capacity for both pods"),
        pytest.param("5Gi", [("c", "d"), ("e", "f")], {"d"}, id="capacity for one: the first pod"),
        pytest.param("2Gi", [("c", "d"), ("e", "f")], set(), id="capacity for no pod"),
        pytest.param("7Gi", [("c", "d", "d2"), ("e", "f", "f2")], {"d", "d2"}, id="a pod has all that it needs"),
        pytest.param("4Gi", [("c", "d", "d2"), ("e", "f")], {"f"}, id="half of what a pod needs is for another pod"),
        pytest.param("3Gi", [("c", "d"), ("e", "d")], {"d"}, id="pods that share the claim"),
    ],
)
def test_only_pods_that_can_be_served_hold_capacity(capacity: str, pods: list[tuple[str, ...]], held: set[str]) -> None:
    assert held == holding(rivals(capacity, *pods))


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda world: world.gone("d"), id="the claim that held it is gone"),
        pytest.param(lambda world: world.reservations.end_plan(["default/c", "default/d"]), id="its pod is gone"),
        pytest.param(lambda world: world.pass_(HOLD_S - 2), id="its time has passed"),
        pytest.param(lambda world: world.write("a", "6Gi", version="4"), id="there is capacity for both"),
        pytest.param(lambda world: world.claim(c("d", "2Gi").resource_version("9")), id="it needs less"),
    ],
)
def test_then_the_other_pod_holds_it(happens: Any) -> None:
    world = rivals("5Gi", ("c", "d"), ("e", "f"))
    assert {"d"} == holding(world)
    happens(world)

    assert "f" in holding(world)


# -- nodes that come back elsewhere ------------------------------------------------------------------------------------


def test_a_volume_that_is_made_stays_where_it_is() -> None:
    world = World()
    world.claim(c().selected("n1"))
    world.claim(c().selected("n1").bound_to("v").resource_version("2"))
    world.nodes.set_node(node("n1").label("zone", "b").typed())

    assert {"a": 3} == world.taken()

    world.pass_(GRACE_S)
    world.write("a", "7Gi", version="2")

    assert {} == world.taken()


def test_the_plan_of_a_pod_that_uses_a_claim_twice() -> None:
    world = pair()
    world.reservations.plan(["default/c", "default/c", "default/d"])
    for claims in (["default/c", "default/d"], ["default/c", "default/c", "default/d"]):
        assert {"a": 3} == world.taken()
        world.reservations.end_plan(claims)

    assert ({}, {}) == (world.taken(), world.reservations.together.snapshot())
