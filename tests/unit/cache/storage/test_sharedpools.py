"""Storage classes of one driver that share one pool (docs/spec/volumes.md §12.1 B-1)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.storage_v1 import STORAGE_PROVISIONERS
from scheduler.cache.storage.capacity_reservations import GRACE_S, SETTLE_S
from tests.support.volumebuilders import a_capacity, a_claim, a_class
from tests.unit.cache.storage.test_ledger import GI, World


class Classes:
    """Classes with an object of 10 Gi each in zone a, all of driver p unless they say otherwise; amounts in Gi."""

    def __init__(self, *names: str, mode: str = "learned", other_driver: str = "", other_zone: str = "") -> None:
        self.world = World(with_objects=False)
        self.world.reservations.pools_share(mode)
        self._versions = 0
        self._zones = {name: "b" if name == other_zone else "a" for name in names}
        for name in names:
            self.world.volumes.set_class(a_class(name, "q" if name == other_driver else "p").typed())
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
