"""Reservations: time limits, rivals, and storage classes of one driver that share a pool (docs/spec/volumes.md §12.1 B-1)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.storage_v1 import STORAGE_PROVISIONERS
from scheduler.cache.storage.reservation import GRACE_S, HOLD_S, SETTLE_S
from simulator.builders.core import node
from tests.support.volumebuilders import a_capacity, a_claim, a_class
from tests.unit.cache.storage.test_ledger import GI, World, c, pair, v

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


class Classes:
    """Classes with an object of 10 Gi each in zone a, all of driver p unless they say otherwise; amounts in Gi."""

    def __init__(self, *names: str, mode: str = "learned", other_driver: str = "", other_zone: str = "") -> None:
        self.world = World(with_objects=False)
        self.world.reservations.pools_share(mode)
        self._versions = 0
        self._zones = {name: "b" if name == other_zone else "a" for name in names}
        for name in names:
            self.world.volumes.set_class(name, a_class(name, "q" if name == other_driver else "p").typed())
            self.publish(name, 10)
        self.world.freed()

    def publish(self, storage_class: str, capacity: int) -> None:
        """Publish a capacity that the driver has measured."""
        self._versions += 1
        obj = a_capacity(storage_class.lower(), storage_class, f"{capacity}Gi").where(
            "zone", self._zones[storage_class]
        )
        self.world.put(obj.resource_version(f"{self._versions}"))

    def select(self, name: str, storage_class: str, size: int) -> None:
        self._show(self._claim(name, storage_class, size))

    def make(self, name: str, storage_class: str, size: int) -> None:
        """A claim gets a node, and its volume at once."""
        self.select(name, storage_class, size)
        self._show(self._claim(name, storage_class, size).bound_to(f"v{name}"))

    def _claim(self, name: str, storage_class: str, size: int) -> Any:
        node_name = {"a": "n1", "b": "n2"}[self._zones[storage_class]]
        claim = a_claim(name, f"{size}Gi", storage_class).uid(name).selected(node_name)
        return claim.annotation(STORAGE_PROVISIONERS[0], "p")

    def _show(self, claim: Any) -> None:
        self._versions += 1
        self.world.claim(claim.resource_version(f"{self._versions}"))

    def pass_(self, seconds: float) -> None:
        self.world.pass_(seconds)

    def in_flight(self) -> dict[str, int]:
        self.world.reservations.catch_up()
        assert self.world.reservations.drift_bytes() == 0
        return {pool.obj.storage_class_name: pool.in_flight // GI for pool in self.world.volumes.capacities}


def learned(classes: Classes) -> Classes:
    """3 Gi are made of D, and E has 3 Gi less."""
    classes.make("first", "D", 3)
    classes.pass_(GRACE_S)
    for name in "DE":
        classes.publish(name, 7)
    classes.pass_(1)
    return classes


@pytest.mark.parametrize(
    ("classes", "in_flight"),
    [
        pytest.param(Classes("D", "E"), {"D": 4, "E": 0}, id="nothing is known of them"),
        pytest.param(Classes("D", "E", mode="all"), {"D": 4, "E": 4}, id="all classes of a driver share"),
        pytest.param(Classes("D", "E", mode="all", other_driver="E"), {"D": 4, "E": 0}, id="of two drivers"),
        pytest.param(Classes("D", "E", mode="all", other_zone="E"), {"D": 4, "E": 0}, id="on other nodes"),
        pytest.param(learned(Classes("D", "E")), {"D": 4, "E": 4}, id="learned"),
        pytest.param(learned(Classes("D", "E", mode="none")), {"D": 4, "E": 0}, id="learned and forbidden"),
        pytest.param(learned(Classes("D", "E", other_driver="E")), {"D": 4, "E": 0}, id="not of two drivers"),
        pytest.param(learned(Classes("D", "E", other_zone="E")), {"D": 4, "E": 0}, id="not from other nodes"),
    ],
)
def test_a_volume_of_one_class_reduces_the_capacity_of_classes_that_share_the_pool(
    classes: Classes, in_flight: dict[str, int]
) -> None:
    classes.select("c", "D", 4)

    assert in_flight == classes.in_flight()

    classes.world.gone("c")
    assert in_flight == classes.in_flight()
    classes.pass_(HOLD_S)

    assert dict.fromkeys(in_flight, 0) == classes.in_flight()


@pytest.mark.parametrize(
    ("published", "shares"),
    [
        pytest.param({"E": 7}, True, id="it fell by that volume"),
        pytest.param({"E": 6}, True, id="and a little more"),
        pytest.param({"E": 9}, False, id="by less than half of it"),
        pytest.param({"E": 10}, False, id="not at all"),
        pytest.param({"D": 7}, False, id="it was not measured again"),
    ],
)
def test_sharing_is_learned_from_the_capacity_of_another_class(published: dict[str, int], shares: bool) -> None:
    classes = Classes("D", "E")
    classes.make("first", "D", 3)
    classes.pass_(GRACE_S)
    for name, room in published.items():
        classes.publish(name, room)

    assert shares is classes.world.volumes.capacities.sharing.shares("D", "E")


def test_volumes_of_the_class_explain_a_smaller_capacity() -> None:
    classes = Classes("D", "E")
    classes.make("first", "D", 3)
    classes.make("second", "E", 3)
    classes.pass_(GRACE_S)
    classes.publish("E", 7)

    assert not classes.world.volumes.capacities.sharing.shares("D", "E")

    classes.pass_(1)
    classes.make("third", "D", 2)
    classes.make("fourth", "E", 1)
    classes.pass_(GRACE_S)
    classes.publish("E", 4)

    assert classes.world.volumes.capacities.sharing.shares("D", "E")


@pytest.mark.parametrize(
    ("wait_s", "capacity"),
    [
        pytest.param(GRACE_S / 2, 10, id="the object may have been measured before"),
        pytest.param(601.0, 10, id="the volume was made long ago"),
        pytest.param(GRACE_S, 9, id="the write before may have been measured before, or after"),
    ],
)
def test_nothing_is_learned_from_a_volume_that_says_nothing(wait_s: float, capacity: int) -> None:
    classes = Classes("D", "E")
    classes.make("first", "D", 3)
    if capacity < 10:
        classes.publish("E", capacity)
    classes.pass_(wait_s)
    classes.publish("E", capacity - 3)

    assert not classes.world.volumes.capacities.sharing.shares("D", "E")


def test_classes_share_until_it_is_seen_otherwise() -> None:
    classes = learned(Classes("D", "E"))
    classes.make("second", "D", 3)
    assert {"D": 3, "E": 3} == classes.in_flight()
    classes.pass_(GRACE_S)
    classes.world.freed()
    classes.publish("E", 7)

    assert ({"D": 3, "E": 0}, {"E"}) == (classes.in_flight(), classes.world.freed())


@pytest.mark.parametrize("ends", [SETTLE_S, GRACE_S])
def test_pods_that_wait_for_either_class_are_woken_when_capacity_is_freed(ends: float) -> None:
    classes = Classes("D", "E", mode="all")
    classes.make("c", "D", 3)
    classes.pass_(ends)
    if ends == GRACE_S:
        classes.publish("D", 7)

    assert ({"D": 0, "E": 0}, {"D", "E"}) == (classes.in_flight(), classes.world.freed())


def test_an_object_that_goes_takes_its_bookings_from_the_classes_that_share_its_pool() -> None:
    classes = Classes("D", "E", mode="all")
    classes.select("c", "D", 3)
    classes.world.remove("d")

    assert {"E": 0} == classes.in_flight()

    classes.publish("D", 10)

    assert {"D": 3, "E": 3} == classes.in_flight()


def test_the_mode_may_change_while_volumes_are_in_flight() -> None:
    classes = Classes("D", "E", mode="none")
    classes.select("c", "D", 3)
    classes.world.reservations.pools_share("all")

    assert {"D": 3, "E": 3} == classes.in_flight()

    classes.world.reservations.pools_share("learned")

    assert {"D": 3, "E": 0} == classes.in_flight()
