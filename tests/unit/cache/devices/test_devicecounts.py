"""Devices in use: consumed capacity, hypothetical states, and numbers per class and node (docs/spec/dra.md §3.12)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.quantity import Quantity, parse
from scheduler.api.resource_v1 import AllocationResult, DeviceAllocationResult, DeviceId, DeviceRequestAllocationResult
from scheduler.cache.cluster import Cluster
from scheduler.cache.devices.allocation_state import AllocationState, HypotheticalState
from scheduler.cache.devices.device_counts import DeviceCounts
from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import SliceBuilder, a_device, a_device_class, a_slice
from tests.examples import examples
from tests.support.clock import VirtualClock
from tests.unit.objects import node

ANY = a_device_class("any").typed()
LARGE = a_device_class("large", 'device.driver == "a"', 'device.attributes["a"].size > 4').typed()


def large(name: str) -> Any:
    return a_device(name).attr("size", 8)


def small(name: str) -> Any:
    return a_device(name).attr("size", 2)


class World:
    def __init__(self, *slices: SliceBuilder, nodes: int = 3) -> None:
        self.cluster = Cluster(VirtualClock())
        for at in range(nodes):
            self.cluster.set_node(node(f"n{at}", labels={"rack": str(at % 2)}))
        for each in slices:
            self.cluster.devices.set_slice(each.typed())
        self.counts = DeviceCounts(self.cluster.nodes, self.cluster.devices)

    def take(self, *devices: str, uid: str = "c", **given_: Any) -> None:
        results = [a_result("r", device, **given_) for device in devices]
        claim = a_claim(uid).uid(uid).resource_version("1").allocated(*results).typed()
        self.cluster.devices.use.hold(uid, claim.status.allocation)

    def counted(self, device_class: Any = ANY, counts: DeviceCounts | None = None) -> dict[str, tuple[int, int]]:
        """Node → devices and those in use, of nodes that have any."""
        whole, used = (counts or self.counts).columns(device_class)
        names = {slot: self.cluster.nodes.name(slot) for slot in range(self.cluster.nodes.capacity)}
        return {names[at]: (int(whole[at]), int(used[at])) for at in range(len(whole)) if whole[at] or used[at]}


HERE = a_slice("n0", "a", large("d0"), large("d1"), small("d2"))


@pytest.mark.parametrize(("device_class", "slices", "expected"), [
    pytest.param(ANY, [HERE], {"n0": (3, 0)}, id="without selectors all count"),
    pytest.param(LARGE, [HERE], {"n0": (2, 0)}, id="those that all selectors hold of"),
    pytest.param(LARGE, [HERE, a_slice("n0", "b", large("d0"))], {"n0": (2, 0)}, id="of another driver"),
    pytest.param(ANY, [HERE, a_slice("n0", "b", large("d0"))], {"n0": (4, 0)}, id="of all drivers"),
    pytest.param(ANY, [a_slice("p", "a", small("d0")).everywhere()], {f"n{at}": (1, 0) for at in range(3)},
        id="everywhere"),
    pytest.param(ANY, [a_slice("p", "a", small("d0")).where("rack", "0")], {"n0": (1, 0), "n2": (1, 0)},
        id="where selected"),
    pytest.param(ANY, [a_slice("p", "a", small("d0").on("n1"), small("d1").everywhere()).per_device()],
        {"n0": (1, 0), "n1": (2, 0), "n2": (1, 0)}, id="devices say where"),
    pytest.param(ANY, [HERE.of(2)], {}, id="of a pool that is not whole nothing can be had"),
    pytest.param(LARGE, [a_slice("n0", "a", large("d0"), a_device("odd")), a_slice("n1", "a", large("d0"))],
        {"n1": (1, 0)}, id="a selector fails on one of them: the node counts for nothing"),
    pytest.param(ANY, [], {}, id="no slices"),
])  # fmt: skip
def test_what_counts(device_class: Any, slices: list[SliceBuilder], expected: dict[str, tuple[int, int]]) -> None:
    assert expected == World(*slices).counted(device_class)


def test_what_is_in_use() -> None:
    world = World(HERE, a_slice("n1", "a", large("d0").shared().cap("m", "8")))
    world.take("a/n0/d0")
    assert {"n0": (2, 1), "n1": (1, 0)} == world.counted(LARGE)

    world.take("a/n1/d0", uid="s", share="s1", consumed={"m": "1"})
    world.take("a/n1/d0", uid="t", share="s2", consumed={"m": "1"})
    world.take("a/n0/d1", uid="a", admin=True)
    assert {"n0": (2, 1), "n1": (1, 1)} == world.counted(LARGE)
    assert {"n0": (3, 1), "n1": (1, 1)} == world.counted(ANY)

    world.cluster.devices.use.hold("c", None)
    assert {"n0": (2, 0), "n1": (1, 1)} == world.counted(LARGE)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "free", "slice", "unslice", "shared", "node", "gone"]),
        st.integers(0, 30),
        st.integers(0, 2),
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(_STEPS, max_size=5))
def test_what_is_kept_is_what_a_new_count_finds(rounds: list[list[tuple[str, int, int]]]) -> None:
    world = World(nodes=31)
    devices = world.cluster.devices
    for steps in rounds:
        for what, at, d in steps:
            match what:
                case "take":
                    world.take(f"a/n{at}/d{d}", uid=f"c{d}")
                case "free":
                    devices.use.hold(f"c{d}", None)
                case "slice":
                    devices.set_slice(a_slice(f"n{at}", "a", *(large(f"d{i}") for i in range(d + 1))).typed())
                case "unslice":
                    devices.remove_slice(f"n{at}-a")
                case "shared":
                    devices.set_slice(a_slice("p", "a", small("d0"), large("d1")).where("rack", str(d % 2)).typed())
                case "node":
                    world.cluster.set_node(node(f"n{at + d * 40}", labels={"rack": str(d)}))
                case _:
                    world.cluster.remove_node(f"n{at}")
        for device_class in (ANY, LARGE):
            fresh = DeviceCounts(world.cluster.nodes, devices)
            assert world.counted(device_class, fresh) == world.counted(device_class)


DEVICE = DeviceId("a", "p", "d")


def part(share: str, **consumed: str) -> AllocationResult:
    capacity = {name: parse(amount) for name, amount in consumed.items()}
    result = DeviceRequestAllocationResult(
        request="r", driver="a", pool="p", device="d", share_id=share, consumed_capacity=capacity
    )
    return AllocationResult(devices=DeviceAllocationResult(results=(result,)))


@pytest.mark.parametrize(
    ("stays", "wanted"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"mem": "0"}, {}, id="nothing of a capacity"),
        pytest.param({"mem": "2"}, {"mem": 2_000_000_000}, id="something of the same capacity"),
        pytest.param({"cores": "1"}, {"cores": 1_000_000_000}, id="something of another"),
    ],
)
def test_a_part_that_is_given_back_leaves_no_trace(stays, wanted):
    """Nodes are alike if their use is equal: a zero that stands for what was there once would distinguish them."""
    use, never = AllocationState(), AllocationState()
    use.hold("gone", part("1", mem="3"))
    for each in (use, never):
        each.hold("here", part("2", **stays))

    as_if = HypotheticalState(use, frozenset({"gone"}), AllocationState())
    assert wanted == as_if.consumed(DEVICE)
    use.hold("gone", None)

    assert wanted == use.consumed(DEVICE) == never.consumed(DEVICE)


DEVICES = tuple(DeviceId("drv", "pool", name) for name in "abc")
results = st.builds(
    lambda device, share: DeviceRequestAllocationResult(
        request="r",
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        share_id=str(share) if share else None,
        consumed_capacity={"gi": Quantity(share)} if share else None,
    ),
    st.sampled_from(DEVICES),
    st.integers(0, 3),
)
allocations = st.lists(results, min_size=1, max_size=3, unique_by=lambda each: (each.device, each.share_id)).map(
    lambda some: AllocationResult(DeviceAllocationResult(tuple(some)))
)


@given(
    held=st.dictionaries(st.sampled_from("uvwx"), allocations),
    gone=st.frozensets(st.sampled_from("uvwxy")),
    kept=st.dictionaries(st.sampled_from("kl"), allocations),
)
def test_it_equals_the_real_state(
    held: dict[str, AllocationResult], gone: frozenset[str], kept: dict[str, AllocationResult]
) -> None:
    use, besides, really = AllocationState(), AllocationState(), AllocationState()
    for uid, allocation in held.items():
        use.hold(uid, allocation)
        if uid not in gone:
            really.hold(uid, allocation)
    for uid, allocation in kept.items():
        besides.hold(uid, allocation)
        really.hold(uid, allocation)
    revision = use.revision

    as_if = HypotheticalState(use, gone, besides)

    for device in DEVICES:
        assert as_if.is_exclusive(device) == really.is_exclusive(device)
        assert as_if.is_used(device) == really.is_used(device)
        assert sorted(as_if.shares(device), key=str) == sorted(really.shares(device), key=str)
        assert as_if.consumed(device) == really.consumed(device)
    assert use.revision == revision
