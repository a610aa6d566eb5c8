"""Devices as if some claims had given theirs back and others had some: as a count of claims that really had."""

from __future__ import annotations

from hypothesis import given, strategies as st

from scheduler.api.quantity import from_nano
from scheduler.api.resource_v1 import AllocationResult, DeviceAllocationResult, DeviceId, DeviceRequestAllocationResult
from scheduler.cache.devices.allocation_state import AllocationState, HypotheticalState

DEVICES = tuple(DeviceId("drv", "pool", name) for name in "abc")
results = st.builds(
    lambda device, share: DeviceRequestAllocationResult(
        request="r",
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        share_id=str(share) if share else None,
        consumed_capacity={"gi": from_nano(share)} if share else None,
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
def test_as_if_it_were_so(
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
