"""What is in flight from capacity objects: docs/spec/volumes.md §12.1 B-1."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from scheduler.api.storage_v1 import STORAGE_PROVISIONERS
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.capacity_reservations import GRACE_S, HOLD_S, SETTLE_S
from scheduler.cache.storage.volumes import Volumes
from simulator.builders.core import node
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import a_capacity, a_claim, a_pv

GI = 2**30


class World:
    """Two nodes in zones a and b, an object of 10 Gi for each zone, and what watches say; amounts in Gi."""

    def __init__(self, *, with_objects: bool = True) -> None:
        self.nodes = Nodes()
        self.clock = VirtualClock()
        self.volumes = Volumes(self.nodes, self.clock)
        self.reservations = self.volumes.reservations
        for name, zone in (("n1", "a"), ("n2", "b")):
            self.nodes.set_node(node(name).label("zone", zone).typed())
        if with_objects:
            for zone in "ab":
                self.write(zone)
        self.told()

    def write(self, zone: str, room: str = "10Gi", *, version: str = "1", storage_class: str = "D") -> None:
        """The driver has written the object of a zone."""
        self.put(a_capacity(zone, storage_class, room).where("zone", zone).resource_version(version))

    def put(self, obj: Any) -> None:
        old = self.volumes.capacities.pool(obj.typed().key)
        self.reservations.pool_changed(old, self.volumes.capacities.put(obj.typed()))

    def remove(self, zone: str) -> None:
        old = self.volumes.capacities.remove(f"default/{zone}")
        assert old is not None
        self.reservations.pool_changed(old, None)

    def claim(self, claim: Any) -> None:
        self.volumes.claims.set(claim.typed())

    def gone(self, name: str) -> None:
        self.volumes.claims.remove(f"default/{name}")

    def pass_(self, seconds: float) -> None:
        asyncio.run(self.clock.advance(seconds))

    def taken(self) -> dict[str, int]:
        """Of each object what is in flight, in Gi; those with nothing left out."""
        self.reservations.catch_up()
        pools = {zone: self.volumes.capacities.pool(f"default/{zone}") for zone in "abc"}
        counted = [e for e in self.reservations if not e.is_over and (e.state != "stranded" or e.pool is not None)]
        assert sum(entry.size for entry in counted) == sum(self.reservations.bytes_in_flight().values())
        return {zone: pool.in_flight // GI for zone, pool in pools.items() if pool is not None and pool.in_flight}

    def told(self) -> set[str]:
        """The classes whose room grew since the last look."""
        freed = set(self.reservations.freed)
        self.reservations.freed.clear()
        return freed


def c(name: str = "c", size: str = "3Gi") -> Any:
    """A claim of class D whose provisioner is known."""
    return a_claim(name, size, "D").uid(name).annotation(STORAGE_PROVISIONERS[0], "p").resource_version("1")


def v(name: str, zone: str, claim: str) -> Any:
    return a_pv(name, "3Gi", "D").where("zone", zone).claimed_by(claim, uid=claim)


# -- flying ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "taken"),
    [
        pytest.param([c()], {}, id="nothing is selected"),
        pytest.param([c().selected("")], {}, id="an empty node is none"),
        pytest.param([c().selected("n1")], {"a": 3}, id="selected, by whomever"),
        pytest.param([c().selected("n1"), c("d", "2Gi").selected("n1")], {"a": 5}, id="two on one"),
        pytest.param([c().selected("n1"), c("d").selected("n2")], {"a": 3, "b": 3}, id="one on each"),
        pytest.param([c(size="30Gi").selected("n1")], {"a": 30}, id="more than there is"),
        pytest.param([c().request(None).selected("n1")], {}, id="nothing asked for"),
        pytest.param([c().selected("n9")], {}, id="a node that nobody knows"),
        pytest.param([a_claim("c", "3Gi", "E").uid("c").selected("n1")], {}, id="a class without objects"),
        pytest.param([c().bound_to("v").selected("n1")], {}, id="bound before we looked"),
        pytest.param([c().wants("v").selected("n1")], {}, id="it has a volume already, if not for good"),
        pytest.param([c().selected("n1"), c().selected("n2")], {"b": 3}, id="selected anew elsewhere"),
        pytest.param([c().selected("n1"), c()], {}, id="the annotation was removed"),
        pytest.param([c().selected("n1"), c(size="5Gi").selected("n1")], {"a": 5}, id="it asks for more now"),
        pytest.param([c().selected("n1"), c().selected("n1").deleting()], {}, id="nobody makes one for it any more"),
        pytest.param(
            [c().selected("n1"), c().uid("other").selected("n2")], {"b": 3}, id="another claim of that name"
        ),
        pytest.param([c().selected("n1"), c().uid("other")], {}, id="another one without a node"),
        pytest.param(
            [c().selected("n1"), c().label("x", "y").resource_version("2").selected("n1")], {"a": 3}, id="another write"
        ),
    ],
)  # fmt: skip
def test_what_is_selected_is_in_flight(claims: list[Any], taken: dict[str, int]) -> None:
    world = World()
    for claim in claims:
        world.claim(claim)

    assert taken == world.taken()


def test_our_own_selection_counts_from_the_moment_it_is_assumed() -> None:
    """And is given back if it is undone; waiting pods hear of that."""
    world = World()
    world.claim(c())
    world.volumes.claims.assume(c().selected("n1").typed())

    assert ({"a": 3}, set()) == (world.taken(), world.told())

    world.volumes.claims.restore(c().selected("n1").typed())

    assert ({}, {"D"}) == (world.taken(), world.told())

    world.volumes.claims.assume(c().selected("n1").typed())
    world.claim(c().selected("n1").resource_version("2"))

    assert ({"a": 3}, set()) == (world.taken(), world.told())

    world.gone("c")

    assert ({}, {"D"}) == (world.taken(), world.told())


@pytest.mark.parametrize(
    ("rooms", "sizes", "taken"),
    [
        pytest.param({"a": "10Gi", "c": "9Gi"}, ["3Gi"], {"a": 3}, id="from the one with most left"),
        pytest.param({"a": "10Gi", "c": "9Gi"}, ["3Gi", "3Gi"], {"a": 3, "c": 3}, id="then from the other"),
        pytest.param({"a": "10Gi", "c": "10Gi"}, ["3Gi"], {"a": 3}, id="the first by key of equal ones"),
        pytest.param(
            {"a": "10Gi of 2Gi", "c": "9Gi"}, ["3Gi"], {"c": 3}, id="not from one whose volumes are too small"
        ),
        pytest.param({"a": "4Gi", "c": "3Gi"}, ["5Gi"], {"a": 5}, id="from the largest, if it fits nowhere"),
    ],
)
def test_two_objects_for_one_node(rooms: dict[str, str], sizes: list[str], taken: dict[str, int]) -> None:
    world = World(with_objects=False)
    for name, told in rooms.items():
        room, _, largest = told.partition(" of ")
        obj = a_capacity(name, "D", room).where("zone", "a")
        world.put(obj.maximum(largest) if largest else obj)
    for at, size in enumerate(sizes):
        world.claim(c(f"c{at}", size).selected("n1"))

    assert taken == world.taken()


# -- settling ----------------------------------------------------------------------------------------------------------


def bound(world: World, at: float = 0) -> None:
    """A claim flew from zone a and has its volume now."""
    world.claim(c().selected("n1"))
    world.pass_(at)
    world.claim(c().selected("n1").bound_to("v").resource_version("2"))


def test_a_new_volume_counts_until_its_object_is_written() -> None:
    """The driver measures after it has made the volume; then it is in what the object says."""
    world = World()
    bound(world)
    world.pass_(GRACE_S)

    assert ({"a": 3}, set()) == (world.taken(), world.told())

    world.write("b", version="2")

    assert {"a": 3} == world.taken()

    world.write("a", "7Gi", version="2")

    assert ({}, {"D"}) == (world.taken(), world.told())


def test_an_object_written_at_that_very_moment_may_be_older_than_the_volume() -> None:
    """So it takes another write, or the time that drivers get which never write."""
    world = World()
    bound(world)
    world.pass_(GRACE_S / 2)
    world.write("a", version="2")
    world.pass_(GRACE_S)

    assert {"a": 3} == world.taken()

    world.write("a", version="2")

    assert {} == world.taken()


def test_an_object_that_shrank_by_the_volume_was_measured_after_it_however_soon() -> None:
    """Provisioners publish right after they have made a volume, and then not again while nothing changes."""
    world = World()
    bound(world)
    world.pass_(GRACE_S / 2)
    world.write("a", "7Gi", version="2")

    assert ({}, {"D"}) == (world.taken(), world.told())


def test_the_same_version_again_is_no_write() -> None:
    world = World()
    bound(world)
    world.pass_(GRACE_S)
    world.write("a", version="1")

    assert {"a": 3} == world.taken()


def test_an_object_written_before_the_volume_came_does_not_count_it() -> None:
    world = World()
    world.claim(c().selected("n1"))
    world.write("a", version="2")
    world.pass_(5)
    world.claim(c().selected("n1").bound_to("v").resource_version("2"))
    world.pass_(5)

    assert {"a": 3} == world.taken()


def test_an_object_that_is_never_written_again() -> None:
    world = World()
    bound(world)
    world.pass_(SETTLE_S - 1)

    assert ({"a": 3}, set()) == (world.taken(), world.told())

    world.pass_(1)

    assert ({}, {"D"}) == (world.taken(), world.told())


def test_a_volume_that_is_gone_at_once() -> None:
    world = World()
    bound(world)
    world.gone("c")

    assert ({}, {"D"}) == (world.taken(), world.told())


def test_a_new_volume_whose_object_is_replaced() -> None:
    """Who serves its node now has the charge, for as long as it would have lasted."""
    world = World()
    bound(world)
    world.remove("a")
    world.put(a_capacity("c", "D", "10Gi").everywhere().resource_version("7"))
    world.pass_(SETTLE_S - 1)

    assert {"c": 3} == world.taken()

    world.pass_(1)

    assert {} == world.taken()


# -- stranded ----------------------------------------------------------------------------------------------------------


def pair() -> World:
    """A pod waits with c and d; d has its volume in zone a, and c was to follow but lost its node."""
    world = World()
    world.reservations.plan(["default/c", "default/d"])
    for name in "cd":
        world.claim(c(name).selected("n1"))
    world.volumes.set_volume(v("vd", "a", "d").typed())
    world.claim(c("d").selected("n1").bound_to("vd").resource_version("2"))
    world.pass_(GRACE_S)
    world.write("a", "7Gi", version="2")
    assert {"a": 3} == world.taken()
    world.claim(c().resource_version("2"))
    world.told()
    return world


def test_a_claim_that_cannot_go_elsewhere_keeps_its_room() -> None:
    """Its sibling's volume is in zone a: whoever takes that room leaves the pod with half of its volumes."""
    world = pair()

    assert {"a": 3} == world.taken()

    world.claim(c().selected("n1").resource_version("3"))

    assert {"a": 3} == world.taken()

    world.gone("c")

    assert ({}, 0) == (world.taken(), len(world.reservations))


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(lambda world: world.reservations.end_plan(["default/c", "default/d"]), id="the pod is gone"),
        pytest.param(lambda world: world.gone("d"), id="the sibling is gone"),
        pytest.param(lambda world: world.gone("c"), id="the claim is gone"),
        pytest.param(lambda world: world.pass_(HOLD_S), id="it has waited too long"),
        pytest.param(lambda world: world.claim(a_claim("c", "3Gi", "D").uid("new")), id="a namesake, never tried"),
    ],
)
def test_until(ends: Any) -> None:
    """And whoever waits for room hears of it."""
    world = pair()
    ends(world)

    assert ({}, {"D"}) == (world.taken(), world.told())


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(lambda world: world.gone("c"), id="it is gone"),
        pytest.param(lambda world: world.claim(c().selected("n1").resource_version("3")), id="it is selected again"),
        pytest.param(lambda world: world.claim(c().bound_to("vc").resource_version("3")), id="it has a volume"),
        pytest.param(
            lambda world: world.reservations.end_plan(["default/c", "default/d"]), id="its pod waits no longer"
        ),
    ],
)
def test_it_is_not_looked_at_for_ever_because_it_lost_its_node(ends: Any) -> None:
    """Where nodes never change nobody else would clear that up."""
    world = pair()
    before = set(world.reservations._lost)
    ends(world)

    assert ({"default/c"}, set()) == (before, world.reservations._lost)


def test_what_was_given_up_stays_so_until_it_is_bound() -> None:
    """A node that is selected again begins no other ten minutes."""
    world = pair()
    world.pass_(HOLD_S)
    assert {} == world.taken()
    world.claim(c().label("x", "y").resource_version("3"))

    assert {} == world.taken()

    world.claim(c().selected("n1").resource_version("4"))
    world.claim(c().resource_version("5"))

    assert {} == world.taken()

    world.claim(c().wants("v").resource_version("6"))

    assert {} == world.reservations._began


def test_where_it_could_still_go_to_several_objects_nothing_is_held() -> None:
    """And as soon as only one is left, that one."""
    world = pair()
    world.put(a_capacity("c", "D", "10Gi").where("zone", "a"))
    world.remove("a")
    assert {"c": 3} == world.taken()
    world.write("a", version="9")

    assert {"c": 3} == world.taken()

    world.put(a_capacity("c", "D", "10Gi").everywhere())
    world.claim(c().label("x", "y").selected("n1").resource_version("3"))
    world.claim(c().label("x", "z").resource_version("4"))

    assert {} == world.taken()

    world.remove("c")

    assert {"a": 3} == world.taken()


def test_nodes_that_come_to_a_siblings_volume() -> None:
    """The volume's zone had no node when the claim was stranded."""
    world = pair()
    world.nodes.remove_node("n1")
    world.claim(c().label("x", "y").resource_version("3"))
    world.remove("a")
    world.nodes.set_node(node("n3").label("zone", "a").typed())
    world.write("a", version="9")

    assert {"a": 3} == world.taken()


# -- aside -------------------------------------------------------------------------------------------------------------


def test_a_pod_is_not_in_its_own_way() -> None:
    """While it is judged, what it has in flight is not there; nobody is told, and an error changes nothing."""
    world = World()
    world.claim(c().selected("n1"))
    world.claim(c("d", "2Gi").selected("n1"))
    with world.reservations.without(["c", "unknown"]):
        assert {"a": 2} == world.taken()
    with contextlib.suppress(ZeroDivisionError), world.reservations.without(["c", "d"]):
        assert {} == world.taken()
        raise ZeroDivisionError

    assert ({"a": 5}, set()) == (world.taken(), world.told())
