"""The order in which devices are tried: the one that other pods need least comes first (docs/spec/dra.md §10.3).

The switch `deviceScoring` selects it. Devices that must be taken together come first: for a match constraint, the
smallest group of equal values that suffices. Then come the smallest devices: those that use the least of shared
counters, preferably of counters in use; the part of a shared device with the least to spare; the device with the
least capacity. Devices that are equal in all of this keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from scheduler.plugins.dra.structured.allocator import Order
from scheduler.plugins.dra.structured.constraints import Values
from scheduler.plugins.dra.structured.feasibility import bits
from scheduler.plugins.dra.structured.node_devices import NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate, RequestData

_Rank: TypeAlias = tuple[float | int, ...]


def packing(demand: ClaimsToAllocate, node_devices: NodeDevices) -> Order:
    """Return the order in which a search tries the devices of a node."""

    def order(c: int, request_data: RequestData) -> Sequence[int]:
        numbers = list(bits(node_devices.selectable(request_data).mask))
        # Most selectors leave one device of a node, or the node has only one.
        if len(numbers) < 2:
            return numbers
        # The smallest group that suffices comes first: two GPUs of a NUMA node with two free ones, before two of a
        # node with eight.
        groups = _group_sizes(demand, node_devices, c, request_data, numbers)
        free_counters: dict[int, dict[tuple[str, str], int]] = {}
        return sorted(
            numbers,
            key=lambda n: (
                *groups.get(n, ()),
                *_draw(node_devices, n, free_counters),
                *_spare(node_devices, request_data, n),
                _size(node_devices, n),
                n,
            ),
        )

    return order


def _group_sizes(
    demand: ClaimsToAllocate, node_devices: NodeDevices, c: int, request_data: RequestData, numbers: Sequence[int]
) -> dict[int, _Rank]:
    """Return per device and match constraint whether its group is too small, and the group's size."""
    claim = demand.claims[c]
    ranks: dict[int, _Rank] = {}
    for constraint in claim.constraints:
        if not constraint.is_match or not request_data.is_under(constraint):
            continue
        # Lists count with their smallest alternative, so that a group which is large enough for one of them is not
        # ranked behind.
        needed = sum(
            min(each.spec.count for each in request.alternatives)
            for request in claim.requests
            if any(each.is_under(constraint) for each in request.alternatives)
        )
        sizes: dict[Values | None, int] = {}
        values = {n: constraint.values(node_devices.kind(n)) for n in numbers}
        for n in numbers:
            # Devices in use keep their place in the order but do not make a group larger.
            if not node_devices.used >> n & 1:
                sizes[values[n]] = sizes.get(values[n], 0) + 1
        for n in numbers:
            size = sizes.get(values[n], 0)
            ranks[n] = (*ranks.get(n, ()), size < needed, size)
    return ranks


def _draw(node_devices: NodeDevices, number: int, free_counters: dict[int, dict[tuple[str, str], int]]) -> _Rank:
    """Return the largest share of a counter that the device uses, and the smallest share left of these counters."""
    draws = node_devices.kind(number).draws
    if not draws:
        return 0.0, 0.0
    pool = node_devices.pool_of[number]
    if pool not in free_counters:
        free_counters[pool] = node_devices.free_counters(pool)
    # A partition of a GPU that is in use already comes before one of an untouched GPU, because an untouched GPU can
    # still be given as a whole.
    share, spare = 0.0, 1.0
    for (counter_set, counter), amount in draws.items():
        total = node_devices.pools[pool].counters.get(counter_set, {}).get(counter, 0)
        if total:
            share = max(share, amount / total)
            spare = min(spare, free_counters[pool].get((counter_set, counter), 0) / total)
    return share, spare


def _spare(node_devices: NodeDevices, request_data: RequestData, number: int) -> _Rank:
    """Return the smallest share that would be left of a shared device's capacities."""
    if not node_devices.shared >> number & 1:
        return (0.0,)
    capacity, consumed = node_devices.kind(number).capacity, node_devices.consumed(number)
    amounts = node_devices.amounts(request_data, number) or {}
    spare = (
        (capacity[name].value.nano - consumed.get(name, 0) - amount) / capacity[name].value.nano
        for name, amount in amounts.items()
        if capacity[name].value.nano
    )
    return (min(spare, default=0.0),)


def _size(node_devices: NodeDevices, number: int) -> tuple[int, ...]:
    """Return all capacities, ordered by name."""
    # Without counters and shares the published capacities say which device is the smaller one: 40 GB is kept for the
    # pod that needs it.
    return tuple(amount.value.nano for _, amount in sorted(node_devices.kind(number).capacity.items()))
