"""Deltas of storage objects: the cache has a change before any event (docs/spec/volumes.md §1.2, §7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import structlog

from scheduler.api.decode import Delta
from scheduler.cache.cluster import Cluster
from scheduler.cache.storage.capacity_reservations import SETTLE_S
from scheduler.core.cluster_events import Action
from scheduler.eventhandlers.storage import CAPACITY_FREED, StorageHandlers
from simulator.builders.core import node
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_csi_node, a_pv, an_attachment
from tests.unit.eventhandlers.deviceworld import Hearing, broken


class World(Hearing):
    """A cluster with volumes, its event handlers, and the calls that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.cluster = Cluster(self.clock)
        self.cluster.set_node(node("n1").typed())
        self.storage = StorageHandlers(self.cluster, self.move)

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        return self.storage.handlers()


def _shown(volumes: Any, kind: str, key: str) -> Any:
    known = volumes.classes.get(key)
    return {
        "PersistentVolumeClaim": lambda: volumes.claims.get(key),
        "PersistentVolume": lambda: volumes.volumes.get(key),
        "StorageClass": lambda: known.obj if known is not None else None,
        "CSINode": lambda: volumes.csi_nodes.get(key),
        "CSIDriver": lambda: volumes.drivers.get(key),
        "CSIStorageCapacity": lambda: volumes.capacities.get(key),
        "VolumeAttachment": lambda: volumes.attachments.get(key),
    }[kind]()


@pytest.mark.parametrize(
    ("kind", "built"),
    [
        ("PersistentVolumeClaim", a_claim("c", "1Gi", "D").selected("n1")),
        ("PersistentVolume", a_pv("v", "1Gi", "D").on("n1").claimed_by("c")),
        ("StorageClass", a_class("D", "P").allowed("zone", "a")),
        ("CSINode", a_csi_node("n1").driver("P", 3)),
        ("CSIDriver", a_csi_driver("P").tracks_capacity()),
        ("CSIStorageCapacity", a_capacity("o", "D", "1Gi").everywhere()),
        ("VolumeAttachment", an_attachment("v", "n1", "P")),
    ],
)
def test_the_cache_changes_before_subscribers_and_the_queue_are_called(kind: str, built: Any) -> None:
    world = World()
    first, second = built.resource_version("1").typed(), built.resource_version("2").label("a", "b").typed()
    volumes, key = world.cluster.volumes, first.key
    world.shown = lambda: _shown(volumes, kind, key)
    end = volumes.subscribe([(kind, key), (kind, "another")], world.notified)
    bad = broken(kind, first)

    def heard(action: Action, old: Any, new: Any) -> list[tuple[Any, ...]]:
        return [("notified", new), (kind, action, old, new, new)]

    assert heard(Action.ADD, None, first) == world.feed(kind, None, first)
    assert heard(Action.UPDATE_OTHER, first, second) == world.feed(kind, first, second)
    assert heard(Action.DELETE, second, None) == world.feed(kind, second, bad)
    assert {(kind, key): bad} == volumes.broken
    assert heard(Action.ADD, None, second) == world.feed(kind, bad, second)
    assert {} == volumes.broken
    assert heard(Action.DELETE, second, None) == world.feed(kind, second, None)

    end()

    assert [(kind, Action.ADD, None, first, first)] == world.feed(kind, None, first)
    world.feed(kind, first, None)
    assert (0, 0, {}) == (len(volumes.groups), len(volumes.reservations), volumes._watchers)


def test_an_object_that_cannot_be_read_is_logged_once() -> None:
    """The same error is logged once. The end of an unreadable object causes no event."""
    world, claim = World(), a_claim("c").typed()
    first, same, other = (broken("PersistentVolumeClaim", claim, why) for why in ("a", "a", "b"))
    with structlog.testing.capture_logs() as logs:
        for old, new in ((None, first), (first, same), (same, other), (other, None)):
            assert [] == world.feed("PersistentVolumeClaim", old, new)

    assert [("default/c", "a"), ("default/c", "b")] == [(line["object"], line["error"]) for line in logs]
    assert {} == world.cluster.volumes.broken


def test_the_end_of_a_capacity_reservation_wakes_pods_of_the_class() -> None:
    world = World()
    world.feed("CSIStorageCapacity", None, a_capacity("o", "D", "1Gi").everywhere().typed())
    claim = a_claim("c", "1Gi", "D").uid("c").selected("n1")
    world.feed("PersistentVolumeClaim", None, claim.typed())
    bound = claim.bound_to("v").resource_version("2").typed()
    world.feed("PersistentVolumeClaim", claim.typed(), bound)
    world.heard.clear()
    world.storage.tick()

    assert [] == world.heard

    asyncio.run(world.clock.advance(SETTLE_S))
    world.storage.tick()
    world.storage.tick()

    assert [("CSIStorageCapacity", CAPACITY_FREED.action, None, "D", None)] == world.heard


def test_pods_are_woken_when_the_server_does_not_serve_capacity_objects() -> None:
    """D5 of §8: pods of every class are woken."""
    world = World()
    for name in "DE":
        world.feed("StorageClass", None, a_class(name, "P").typed())
    world.heard.clear()
    world.storage.capacity_served(is_served=False)

    assert ["D", "E"] == [new for _, _, _, new, _ in world.heard]
    assert not world.cluster.volumes.capacities.is_served

    world.heard.clear()
    world.storage.capacity_served(is_served=True)

    assert [] == world.heard
    assert world.cluster.volumes.capacities.is_served


def test_the_newest_allowed_topologies_of_a_class_count() -> None:
    world = World()
    volumes, first = world.cluster.volumes, a_class("D", "P").allowed("zone", "a")
    world.feed("StorageClass", None, first.typed())

    assert 0 == volumes.classes["D"].allowed.nodes

    world.feed("StorageClass", first.typed(), a_class("D", "P").typed())

    assert 1 == volumes.classes["D"].allowed.nodes.bit_count()
    assert 1 == len(volumes.groups)


def test_a_callback_may_end_its_own_subscription() -> None:
    volumes = World().cluster.volumes
    heard: list[str] = []
    ends: list[Callable[[], None]] = []

    def once() -> None:
        heard.append("once")
        ends[0]()

    ends.append(volumes.subscribe([("PersistentVolume", "v")], once))
    volumes.subscribe([("PersistentVolume", "v")], lambda: heard.append("always"))
    for _ in range(2):
        volumes.notify("PersistentVolume", "v")
    ends[0]()

    assert ["once", "always", "always"] == heard
