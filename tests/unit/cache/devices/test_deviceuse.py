"""What parts of a device sum up to, whatever came and went."""

from __future__ import annotations

import pytest

from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import AllocationResult, DeviceAllocationResult, DeviceId, DeviceRequestAllocationResult
from scheduler.cache.devices.allocation_state import AllocationState, HypotheticalState

DEVICE = DeviceId("a", "p", "d")


def _part(share: str, **consumed: str) -> AllocationResult:
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
    """Nodes are alike if their use is equal: a zero that stands for what was there once would tell them apart."""
    use, never = AllocationState(), AllocationState()
    use.hold("gone", _part("1", mem="3"))
    for each in (use, never):
        each.hold("here", _part("2", **stays))

    as_if = HypotheticalState(use, frozenset({"gone"}), AllocationState())
    assert wanted == as_if.consumed(DEVICE)
    use.hold("gone", None)

    assert wanted == use.consumed(DEVICE) == never.consumed(DEVICE)
