"""What is shared of a pool, and drawn: only of a pool that is there as it should be (docs/spec/dra.md §4.3, §4.8, §4.9)."""

from __future__ import annotations

import pytest

from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.node_kinds import DeviceNodes
from scheduler.cache.devices.pools import PoolKey
from scheduler.cache.nodes.nodes import Nodes
from simulator.builders.devices import SliceBuilder, a_device, a_slice

NANO = 10**9
KEY = PoolKey("d", "n1")
CARD = a_slice("n1", "d").named("card").counters("card", {"units": "4"}).of(2)
HALF = a_device("half").consumes("card", {"units": "2"})
PARTS = a_slice("n1", "d", HALF, a_device("m").shared().cap("memory", "8"), a_device("plain").cap("memory", "8")).of(2)


def of(*slices: SliceBuilder, partitionable: bool = True) -> DeviceNodes:
    """These are published."""
    nodes = DeviceNodes(Nodes(), AllocationState(), partitionable=partitionable)
    for each in slices:
        nodes.set_slice(each.typed())
    return nodes


def test_what_a_pool_has_to_share() -> None:
    draws = of(CARD, PARTS).draws(KEY)

    assert draws is not None
    half, shared = DeviceId("d", "n1", "half"), DeviceId("d", "n1", "m")
    assert {shared: {"memory": 8 * NANO}} == draws.capacities
    assert {"card": {"units": 4 * NANO}} == draws.counters
    assert ({half: {"card": {"units": 2 * NANO}}}, {"card": (half,)}) == (draws.drawn, draws.drawers)


def test_without_the_rules_of_partitions_nothing_draws() -> None:
    """Devices that would cannot be had then (§4.7)."""
    draws = of(CARD, PARTS, partitionable=False).draws(KEY)

    assert draws is not None
    assert ({}, {}, 1) == (draws.drawn, draws.drawers, len(draws.capacities))


@pytest.mark.parametrize(
    "slices",
    [
        pytest.param((), id="it is not there"),
        pytest.param((PARTS,), id="a slice is missing"),
        pytest.param((CARD, PARTS.generation(2)), id="a slice of another generation is still there"),
        pytest.param((CARD, PARTS.of(3)), id="its slices do not agree how many they are"),
        pytest.param((CARD, PARTS.device(a_device("plain"))), id="two devices of one name"),
        pytest.param((CARD.of(3), PARTS.of(3), CARD.of(3).named("again")), id="two counter sets of one name"),
        pytest.param((a_slice("n1", "d", HALF),), id="a counter set that is not there"),
        pytest.param((CARD, PARTS.device(a_device("wide").consumes("card", {"lanes": "1"}))), id="a missing counter"),
    ],
)
def test_nothing_can_be_said(slices: tuple[SliceBuilder, ...]) -> None:
    assert of(*slices).draws(KEY) is None


def test_plain_devices_may_contradict_each_other() -> None:
    draws = of(a_slice("n1", "d", a_device("plain"), a_device("plain"))).draws(KEY)

    assert draws is not None
    assert ({}, {}) == (draws.capacities, draws.drawn)


def test_it_is_followed_as_slices_come_and_go() -> None:
    nodes = of(CARD, PARTS)
    first = nodes.draws(KEY)
    assert first is nodes.draws(KEY)

    nodes.set_slice(CARD.counters("more", {"units": "1"}).typed())
    second = nodes.draws(KEY)
    assert second is not None
    assert {"card", "more"} == set(second.counters)

    nodes.remove_slice("card")
    assert nodes.draws(KEY) is None
