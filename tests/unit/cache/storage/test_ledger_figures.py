"""What gauges show of the ledger: how long volumes have been in flight, what was given up, and whether sums agree."""

from __future__ import annotations

from scheduler.cache.storage.capacity_reservations import SETTLE_S
from tests.support.volumebuilders import a_class
from tests.unit.cache.storage.test_ledger import GI, World, c, v


def test_how_long_by_state() -> None:
    """Each state counts from its own beginning; the oldest is told."""
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
    """A driver that never writes its capacity; one that does is not counted."""
    world = World()
    for name, zone, node in (("c", "a", "n1"), ("d", "b", "n2")):
        world.claim(c(name).selected(node))
        world.volumes.set_volume(v(f"pv-{name}", zone, name).typed())
        world.claim(c(name).selected(node).bound_to(f"pv-{name}").resource_version("2"))
    world.pass_(10)
    world.write("b", "7Gi", version="2")
    assert world.taken() == {"a": 3}
    world.pass_(SETTLE_S)

    assert world.taken() == {}
    assert world.reservations.expired == {"flying": 0, "settling": 1, "stranded": 0}


def test_drift_is_nothing_until_somebody_makes_a_mistake() -> None:
    """Either way: drawn and not booked, or booked and not drawn."""
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
    """A gauge that comes and goes cannot be told from one that is not scraped; static classes have nothing in flight."""
    world = World()
    for each in (a_class("D", "p"), a_class("E", "p"), a_class("local")):
        world.volumes.set_class(each.typed())
    world.claim(c().selected("n1"))

    assert world.volumes.bytes_in_flight() == {"D": 3 * GI, "E": 0}
