"""Devices in use: consumed capacity, and hypothetical states."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from scheduler.api.quantity import Quantity, parse
from scheduler.api.resource_v1 import AllocationResult, DeviceAllocationResult, DeviceId, DeviceRequestAllocationResult
from scheduler.cache.devices.allocation_state import AllocationState, HypotheticalState

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
