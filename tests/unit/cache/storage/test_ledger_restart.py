"""A process that starts finds volumes that were made shortly before: their capacity objects may not show them yet."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest

from scheduler.api.storage_v1 import PROVISIONED_BY
from scheduler.cache.storage.capacity_reservations import GRACE_S, SETTLE_S
from simulator.builders.core import node
from tests.support.volumebuilders import a_capacity
from tests.unit.cache.storage.test_ledger import World, c, v

YOUNG_S = 30.0


def started(world: World, age_s: float = YOUNG_S) -> str:
    """A timestamp so long ago."""
    return dt.datetime.fromtimestamp(world.clock.wall() - age_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def made(world: World, age_s: float = YOUNG_S, *, version: str = "20", zone: str = "a") -> Any:
    """The volume of claim c, made by a provisioner so long ago."""
    made = v("vc", zone, "c").phase("Bound").annotation(PROVISIONED_BY, "p").resource_version(version)
    return made.set({"metadata": {"creationTimestamp": started(world, age_s)}})


def bound() -> Any:
    return c().selected("n1").bound_to("vc").resource_version("21")


def room(version: str = "10") -> Any:
    return a_capacity("a", "D", "10Gi").where("zone", "a").resource_version(version)


@pytest.mark.parametrize("order", list(itertools.permutations(("claim", "volume", "room"))))
def test_it_is_charged_in_whatever_order_the_objects_are_listed(order: tuple[str, ...]) -> None:
    world = World(with_objects=False)
    for what in order:
        if what == "claim":
            world.claim(bound())
        elif what == "volume":
            world.volumes.set_volume(made(world).typed())
        else:
            world.put(room())

    assert {"a": 3} == world.taken()


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        pytest.param({}, {"a": 3}, id="the volume is younger than what the object says"),
        pytest.param({"room": room("30")}, {}, id="the object was written since"),
        pytest.param({"age_s": SETTLE_S}, {}, id="the volume is old"),
        pytest.param({"age_s": -5.0}, {"a": 3}, id="the clock of the server is ahead"),
        pytest.param({"claim": c().bound_to("vc")}, {}, id="no node was selected: it was not made for a pod"),
        pytest.param({"claim": c().uid("new").selected("n1").bound_to("vc")}, {}, id="another claim of that name"),
        pytest.param({"volume": v("vc", "a", "c")}, {}, id="a volume made by hand"),
        pytest.param({"room": room("not a number")}, {"a": 3}, id="versions that cannot be compared"),
    ],
)
def test_which_volumes_are_charged(change: dict[str, Any], taken: dict[str, int]) -> None:
    world = World(with_objects=False)
    world.put(change.get("room", room()))
    world.claim(change.get("claim", bound()))
    world.volumes.set_volume(change.get("volume", made(world, change.get("age_s", YOUNG_S))).typed())

    assert taken == world.taken()


def restarted(world: World | None = None) -> World:
    """A process that has just listed everything."""
    world = world or World(with_objects=False)
    world.put(room())
    world.claim(bound())
    world.volumes.set_volume(made(world).typed())
    assert {"a": 3} == world.taken()
    return world


def test_it_is_charged_until_the_volume_is_two_minutes_old() -> None:
    world = restarted()
    world.pass_(SETTLE_S - YOUNG_S - 1)

    assert {"a": 3} == world.taken()

    world.pass_(1)

    assert ({}, {"D"}) == (world.taken(), world.told())


def test_it_is_charged_until_its_object_is_written_and_then_never_again() -> None:
    """Later writes to the claim and the volume say nothing about when it was made."""
    world = restarted()
    world.pass_(GRACE_S)
    world.put(room("30"))

    assert {} == world.taken()

    world.claim(bound().label("x", "y").resource_version("40"))
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
    world.put(room("5"))
    world.claim(c().selected("n1"))
    world.volumes.set_volume(made(world).typed())
    world.claim(bound())

    assert {"a": 3} == world.taken()

    world.remove("a")
    world.put(room(version))

    assert taken == world.taken()
