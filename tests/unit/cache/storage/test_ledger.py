"""Capacity reservations: docs/spec/volumes.md §12.1 B-1."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
from typing import Any

import pytest

from scheduler.api.storage_v1 import PROVISIONED_BY, STORAGE_PROVISIONERS
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.claims_together import ClaimsTogether
from scheduler.cache.storage.reservation import GRACE_S, HOLD_S, SETTLE_S
from scheduler.cache.storage.volumes import Volumes
from simulator.builders.core import node
from tests.support.clock import VirtualClock
from tests.support.hashing import HashedText
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_pv

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
        self.freed()

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

    def claim(self, claim: Any, *, is_used: bool = True) -> None:
        if is_used:
            self.reservations.users.add("pod", [claim.typed().key])
        self.volumes.claims.set(claim.typed())

    def gone(self, name: str) -> None:
        self.volumes.claims.remove(f"default/{name}")

    def pass_(self, seconds: float) -> None:
        asyncio.run(self.clock.advance(seconds))

    def taken(self) -> dict[str, int]:
        """Of each object what is in flight, in Gi; those with nothing left out."""
        self.reservations.catch_up()
        pools = {zone: self.volumes.capacities.pool(f"default/{zone}") for zone in "abc"}
        counted = [
            e
            for e in self.reservations
            if e.is_counted and not e.is_over and (e.state != "stranded" or e.pool is not None)
        ]
        assert sum(entry.size for entry in counted) == sum(self.reservations.bytes_in_flight().values())
        return {zone: pool.in_flight // GI for zone, pool in pools.items() if pool is not None and pool.in_flight}

    def freed(self) -> set[str]:
        """Return the classes whose free capacity grew since the last call."""
        freed = set(self.reservations.freed)
        self.reservations.freed.clear()
        return freed


def c(name: str = "c", size: str = "3Gi") -> Any:
    """A claim of class D whose provisioner is known."""
    return a_claim(name, size, "D").uid(name).annotation(STORAGE_PROVISIONERS[0], "p").resource_version("1")


def v(name: str, zone: str, claim: str) -> Any:
    return a_pv(name, "3Gi", "D").where("zone", zone).claimed_by(claim, uid=claim)


# -- the worked example of the module ----------------------------------------------------------------------------------


def test_the_worked_example() -> None:
    """The steps of the docstring of capacity_reservations."""
    world = World()
    pool = world.volumes.capacities.pool("default/a")
    assert pool is not None

    world.claim(c("a", "6Gi").selected("n1"))
    assert (world.taken(), [entry.state for entry in world.reservations]) == ({"a": 6}, ["flying"])
    assert not pool.takes(6 * GI)

    volume = a_pv("of-a", "6Gi", "D").where("zone", "a").claimed_by("a", uid="a")
    world.volumes.set_volume(volume.typed())
    world.claim(c("a", "6Gi").selected("n1").bound_to("of-a").resource_version("2"))
    assert (world.taken(), [entry.state for entry in world.reservations]) == ({"a": 6}, ["settling"])

    world.pass_(GRACE_S)
    world.write("a", "4Gi", version="2")
    assert (world.taken(), list(world.reservations)) == ({}, [])

    world.freed()
    world.claim(c("d", "3Gi").selected("n1"))
    assert world.taken() == {"a": 3}
    world.pass_(HOLD_S)
    assert (world.taken(), world.freed(), world.reservations.expired["flying"]) == ({}, {"D"}, 1)


# -- flying ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "taken"),
    [
        pytest.param([c().selected("")], {}, id="an empty node is none"),
        pytest.param([c().selected("n1")], {"a": 3}, id="selected"),
        pytest.param([c().selected("n1"), c("d").selected("n2")], {"a": 3, "b": 3}, id="one on each"),
        pytest.param([c().wants("v").selected("n1")], {}, id="it has a volume already, if not for good"),
        pytest.param([c().selected("n1"), c().selected("n1").deleting()], {"a": 3}, id="the claim is being deleted"),
        pytest.param([c().selected("n1"), c().deleting()], {}, id="the claim is being deleted, and has no node"),
    ],
)  # fmt: skip
def test_what_is_selected_is_in_flight(claims: list[Any], taken: dict[str, int]) -> None:
    world = World()
    for claim in claims:
        world.claim(claim)

    assert taken == world.taken()


@pytest.mark.parametrize(("capacities", "sizes", "taken"), [
    pytest.param({"a": "10Gi", "c": "9Gi"}, ["3Gi"], {"a": 3}, id="from the one with most left"),
    pytest.param({"a": "10Gi", "c": "9Gi"}, ["3Gi", "3Gi"], {"a": 3, "c": 3}, id="then from the other"),
    pytest.param({"a": "10Gi", "c": "10Gi"}, ["3Gi"], {"a": 3}, id="the first by key of equal ones"),
    pytest.param({"a": "10Gi of 2Gi", "c": "9Gi"}, ["3Gi"], {"c": 3}, id="not from one whose volumes are too small"),
    pytest.param({"a": "4Gi", "c": "3Gi"}, ["5Gi"], {}, id="none has as much, so that no volume can be made"),
    pytest.param({"a": "9Gi of 4Gi"}, ["5Gi"], {}, id="no volume may be as large"),
    pytest.param({"a": "4Gi", "c": "8Gi"}, ["5Gi", "5Gi"], {"c": 10}, id="the one that is in use, if it is large enough"),
])  # fmt: skip
def test_two_objects_for_one_node(capacities: dict[str, str], sizes: list[str], taken: dict[str, int]) -> None:
    world = World(with_objects=False)
    for name, told in capacities.items():
        room, _, largest = told.partition(" of ")
        obj = a_capacity(name, "D", room).where("zone", "a")
        world.put(obj.maximum(largest) if largest else obj)
    for at, size in enumerate(sizes):
        world.claim(c(f"c{at}", size).selected("n1"))

    assert taken == world.taken()


@pytest.mark.parametrize(("before", "after", "taken"), [
    pytest.param("3Gi", "2Gi", {}, id="too small for the volume, also if it includes the volume"),
    pytest.param("2Gi", "3Gi", {"a": 3}, id="large enough for the volume"),
])  # fmt: skip
def test_a_pool_that_changes(before: str, after: str, taken: dict[str, int]) -> None:
    world = World(with_objects=False)
    world.write("a", before)
    world.claim(c().selected("n1"))
    world.freed()
    world.write("a", after, version="2")

    assert (taken, {"D"} - {"D" for _ in taken}) == (world.taken(), world.freed())


def test_a_selection_without_a_pod_reserves_nothing() -> None:
    """All users with write access to the claim can write the annotation."""
    world = World()
    world.claim(c().selected("n1"), is_used=False)
    assert {} == world.taken()
    world.reservations.users.add("pod", ["default/c"])
    world.reservations.claim_used("default/c")

    assert {"a": 3} == world.taken()

    world.reservations.users.remove("pod", ["default/c"])
    world.claim(c().selected("n1").label("a", "b").resource_version("2"), is_used=False)

    assert {"a": 3} == world.taken()


def test_our_own_selection_needs_no_other_proof() -> None:
    """The pod of the plan may be deleted before the plan ends."""
    world = World()
    world.claim(c(), is_used=False)
    world.reservations.promise(c().typed(), "pod", "n1")

    assert {"a": 3} == world.taken()


def test_a_node_that_was_only_planned_is_not_lost() -> None:
    """A question tries the pod on a node, or its Reserve fails: the claim is then as before, whatever its sibling is tied to."""
    world = World()
    world.volumes.set_volume(v("v", "a", "d").typed())
    world.claim(c("d").bound_to("v"))
    claim = a_claim("c", "3Gi", "D").uid("c")
    world.claim(claim)
    world.reservations.plan(["default/c", "default/d"])
    world.reservations.promise(claim.typed(), "pod", "n1")
    world.reservations.end_promise(claim.typed(), "pod")

    assert ({}, []) == (world.taken(), list(world.reservations))


# -- settling ----------------------------------------------------------------------------------------------------------


def bound(world: World, at: float = 0) -> None:
    """A claim flew from zone a and has its volume now."""
    world.claim(c().selected("n1"))
    world.pass_(at)
    world.claim(c().selected("n1").bound_to("v").resource_version("2"))


def test_a_new_volume_counts_until_its_object_is_written() -> None:
    world = World()
    bound(world)
    world.pass_(GRACE_S)

    assert ({"a": 3}, set()) == (world.taken(), world.freed())

    world.write("b", version="2")

    assert {"a": 3} == world.taken()

    world.write("a", "7Gi", version="2")

    assert ({}, {"D"}) == (world.taken(), world.freed())


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

    assert ({}, {"D"}) == (world.taken(), world.freed())


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

    assert ({"a": 3}, set()) == (world.taken(), world.freed())

    world.pass_(1)

    assert ({}, {"D"}) == (world.taken(), world.freed())


def test_a_new_volume_whose_object_is_replaced() -> None:
    """The pool that serves its node now is charged for the remaining time."""
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
    world.freed()
    return world


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
def test_the_reservation_ends(ends: Any) -> None:
    world = pair()
    ends(world)

    assert ({}, {"D"}) == (world.taken(), world.freed())


@pytest.mark.parametrize("ends", [
    pytest.param(lambda world: world.gone("c"), id="it is gone"),
    pytest.param(lambda world: world.claim(c().selected("n1").resource_version("3")), id="it is selected again"),
    pytest.param(lambda world: world.claim(c().bound_to("vc").resource_version("3")), id="it has a volume"),
    pytest.param(lambda world: world.reservations.end_plan(["default/c", "default/d"]), id="its pod waits no longer"),
])  # fmt: skip
def test_a_claim_that_lost_its_node_is_forgotten_in_the_end(ends: Any) -> None:
    """Where nodes never change, no other event would remove it."""
    world = pair()
    before = set(world.reservations._lost)
    ends(world)

    assert ({"default/c"}, set()) == (before, set(world.reservations._lost))


def test_what_was_given_up_stays_so_until_it_is_bound() -> None:
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
    world = pair()
    world.nodes.remove_node("n1")
    world.claim(c().label("x", "y").resource_version("3"))
    world.remove("a")
    world.nodes.set_node(node("n3").label("zone", "a").typed())
    world.write("a", version="9")

    assert {"a": 3} == world.taken()


# -- aside -------------------------------------------------------------------------------------------------------------


def test_a_pod_is_not_in_its_own_way() -> None:
    world = World()
    world.claim(c().selected("n1"))
    world.claim(c("d", "2Gi").selected("n1"))
    with world.reservations.without(["c", "unknown"]):
        assert {"a": 2} == world.taken()
    with contextlib.suppress(ZeroDivisionError), world.reservations.without(["c", "d"]):
        assert {} == world.taken()
        raise ZeroDivisionError

    assert ({"a": 5}, set()) == (world.taken(), world.freed())


def test_how_long_by_state() -> None:
    world = World()
    assert world.reservations.oldest_s() == {"flying": 0, "settling": 0, "stranded": 0}
    world.claim(c().selected("n1"))
    world.pass_(100)
    world.claim(c("d").selected("n1"))
    world.pass_(10)
    assert world.reservations.oldest_s() == {"flying": 110, "settling": 0, "stranded": 0}

    world.volumes.set_volume(v("pv", "a", "c").typed())
    world.claim(c().selected("n1").bound_to("pv").resource_version("2"))
    world.pass_(5)
    assert world.reservations.oldest_s() == {"flying": 15, "settling": 5, "stranded": 0}


def test_what_took_too_long_is_counted() -> None:
    world = World()
    for name, zone, name_of_node in (("c", "a", "n1"), ("d", "b", "n2")):
        world.claim(c(name).selected(name_of_node))
        world.volumes.set_volume(v(f"pv-{name}", zone, name).typed())
        world.claim(c(name).selected(name_of_node).bound_to(f"pv-{name}").resource_version("2"))
    world.pass_(10)
    world.write("b", "7Gi", version="2")
    assert world.taken() == {"a": 3}
    world.pass_(SETTLE_S)

    assert world.taken() == {}
    assert world.reservations.expired == {"flying": 0, "settling": 1, "stranded": 0}


def test_drift_shows_wrong_sums() -> None:
    world = World()
    world.claim(c().selected("n1"))
    world.claim(c("d", "2Gi").selected("n2"))
    assert (world.taken(), world.reservations.drift_bytes()) == ({"a": 3, "b": 2}, 0)

    for zone, amount in (("a", 4), ("b", -2)):
        pool = world.volumes.capacities.pool(f"default/{zone}")
        assert pool is not None
        pool.in_flight += amount * GI
    assert world.reservations.drift_bytes() == 6 * GI


def test_classes_of_which_nothing_is_in_flight_are_shown() -> None:
    """A gauge that comes and goes looks like one that is not scraped; static classes have nothing in flight."""
    world = World()
    for each in (a_class("D", "p"), a_class("E", "p"), a_class("local")):
        world.volumes.set_class(each.typed().key, each.typed())
    world.claim(c().selected("n1"))

    assert world.volumes.bytes_in_flight() == {"D": 3 * GI, "E": 0}


YOUNG_S = 30.0


def started(world: World, age_s: float = YOUNG_S) -> str:
    """Return the timestamp of `age_s` before now."""
    return dt.datetime.fromtimestamp(world.clock.wall() - age_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def made(world: World, age_s: float = YOUNG_S, *, version: str = "20", zone: str = "a") -> Any:
    """The volume of claim c, made by a provisioner `age_s` before now."""
    made = v("vc", zone, "c").phase("Bound").annotation(PROVISIONED_BY, "p").resource_version(version)
    return made.set({"metadata": {"creationTimestamp": started(world, age_s)}})


def bound_claim() -> Any:
    return c().selected("n1").bound_to("vc").resource_version("21")


def capacity(version: str = "10") -> Any:
    return a_capacity("a", "D", "10Gi").where("zone", "a").resource_version(version)


@pytest.mark.parametrize("order", list(itertools.permutations(("claim", "volume", "capacity"))))
def test_it_is_charged_in_whatever_order_the_objects_are_listed(order: tuple[str, ...]) -> None:
    world = World(with_objects=False)
    for what in order:
        if what == "claim":
            world.claim(bound_claim())
        elif what == "volume":
            world.volumes.set_volume(made(world).typed())
        else:
            world.put(capacity())

    assert {"a": 3} == world.taken()


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        pytest.param({}, {"a": 3}, id="the volume is younger than what the object says"),
        pytest.param({"capacity": capacity("30")}, {}, id="the object was written since"),
        pytest.param({"age_s": SETTLE_S}, {}, id="the volume is old"),
        pytest.param({"age_s": -5.0}, {"a": 3}, id="the clock of the server is ahead"),
        pytest.param({"claim": c().bound_to("vc")}, {}, id="no node was selected: it was not made for a pod"),
        pytest.param({"claim": c().uid("new").selected("n1").bound_to("vc")}, {}, id="another claim of that name"),
        pytest.param({"volume": v("vc", "a", "c")}, {}, id="a volume made by hand"),
        pytest.param({"capacity": capacity("not a number")}, {"a": 3}, id="versions that cannot be compared"),
    ],
)
def test_which_volumes_are_charged(change: dict[str, Any], taken: dict[str, int]) -> None:
    world = World(with_objects=False)
    world.put(change.get("capacity", capacity()))
    world.claim(change.get("claim", bound_claim()))
    world.volumes.set_volume(change.get("volume", made(world, change.get("age_s", YOUNG_S))).typed())

    assert taken == world.taken()


def restarted(world: World | None = None) -> World:
    """A process that has just listed everything."""
    world = world or World(with_objects=False)
    world.put(capacity())
    world.claim(bound_claim())
    world.volumes.set_volume(made(world).typed())
    assert {"a": 3} == world.taken()
    return world


def test_it_is_charged_until_the_volume_is_two_minutes_old() -> None:
    world = restarted()
    world.pass_(SETTLE_S - YOUNG_S - 1)

    assert {"a": 3} == world.taken()

    world.pass_(1)

    assert ({}, {"D"}) == (world.taken(), world.freed())


def test_it_is_charged_until_its_object_is_written_and_then_never_again() -> None:
    world = restarted()
    world.pass_(GRACE_S)
    world.put(capacity("30"))

    assert {} == world.taken()

    world.claim(bound_claim().label("x", "y").resource_version("40"))
    world.volumes.set_volume(made(world, version="41").typed())

    assert {} == world.taken()


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(node("n1").label("zone", "b"), id="its node is in another zone by now"),
        pytest.param(None, id="its node is gone"),
    ],
)
def test_it_is_charged_where_the_volume_is(now: Any) -> None:
    world = World(with_objects=False)
    world.nodes.remove_node("n1")
    for each in (now, node("n3").label("zone", "a")):
        if each is not None:
            world.nodes.set_node(each.typed())
    world.write("b")

    assert {"a": 3} == restarted(world).taken()


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        pytest.param("30", {}, id="an object written after the volume counts it"),
        pytest.param("10", {"a": 3}, id="an object written before the volume does not count it"),
    ],
)
def test_a_daemon_that_runs_takes_an_object_that_is_made_again_as_one_that_starts(
    version: str, taken: dict[str, int]
) -> None:
    """Charged twice, the volume would keep pods that fit waiting for up to two minutes."""
    world = World(with_objects=False)
    world.put(capacity("5"))
    world.claim(c().selected("n1"))
    world.volumes.set_volume(made(world).typed())
    world.claim(bound_claim())

    assert {"a": 3} == world.taken()

    world.remove("a")
    world.put(capacity(version))

    assert taken == world.taken()


def test_a_set_of_claims_costs_in_proportion_to_its_size() -> None:
    """A pod may name 15,000 claims."""
    together, keys = ClaimsTogether(), [HashedText(number) for number in range(1000)]
    HashedText.hashes = 0
    together.add(keys)
    together.remove(keys)

    assert together.snapshot() == {}
    assert HashedText.hashes < 20 * len(keys)
