"""What of a pool several may share, and what its devices draw on: of the whole pool at once, whoever sees what of it.

Nodes see parts of a pool, and an attempt asks what one of them sees (`devicepools`). What has been given away of a pool was
given away on all of them: this is what to hold it against. Source: docs/spec/dra.md §4.3, §4.8, §4.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from scheduler.cache.devicepools import Counters, PoolKey
from scheduler.core.devices import Device, DeviceId, ResourceSlice

Drawn: TypeAlias = Mapping[str, Mapping[str, int]]
"""Counter set → counter → amount, in nano units."""


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Only devices of which there is anything to be said are named. Amounts are in nano units."""

    capacities: Mapping[DeviceId, Mapping[str, int]] = field(default_factory=dict)
    """Of the devices that several may use at once."""
    counters: Counters = field(default_factory=dict)
    drawn: Mapping[DeviceId, Drawn] = field(default_factory=dict)
    """What a device draws while it is in use."""
    drawers: Mapping[str, tuple[DeviceId, ...]] = field(default_factory=dict)
    """Counter set → the devices that draw on it."""


_NO_DRAWS: Final = Draws()


def draws_of(key: PoolKey, slices: Iterable[ResourceSlice], *, partitionable: bool) -> Draws | None:
    """None if the pool is being updated, or contradicts itself: then nothing can be said of any of it."""
    slices = tuple(slices)
    states = {each.spec.pool for each in slices}
    if len(states) != 1 or len(slices) != next(iter(states)).resource_slice_count:
        return None
    devices = tuple(_devices(slices, partitionable=partitionable))
    if not any(each.allow_multiple_allocations or each.consumes_counters for each in devices):
        return _NO_DRAWS
    sets = [each for a_slice in slices for each in a_slice.spec.shared_counters] if partitionable else []
    counters = {each.name: {name: counter.value.nano for name, counter in each.counters.items()} for each in sets}
    if len(counters) < len(sets) or len({each.name for each in devices}) < len(devices):
        return None
    capacities: dict[DeviceId, Mapping[str, int]] = {}
    drawn: dict[DeviceId, Drawn] = {}
    drawers: dict[str, list[DeviceId]] = {}
    for each in devices:
        device = DeviceId(key.driver, key.name, each.name)
        if each.allow_multiple_allocations:
            capacities[device] = {name: capacity.value.nano for name, capacity in each.capacity.items()}
        if partitionable and each.consumes_counters:
            own = drawn[device] = _drawn(each)
            if any(counter not in counters.get(name, ()) for name, amounts in own.items() for counter in amounts):
                return None
            for name in own:
                drawers.setdefault(name, []).append(device)
    return Draws(capacities, counters, drawn, {name: tuple(some) for name, some in drawers.items()})


def _devices(slices: Iterable[ResourceSlice], *, partitionable: bool) -> Iterator[Device]:
    """A slice with counters has none (§4.3)."""
    return (
        each
        for a_slice in slices
        if not (partitionable and a_slice.spec.shared_counters)
        for each in a_slice.spec.devices
    )


def _drawn(device: Device) -> Drawn:
    out: dict[str, dict[str, int]] = {}
    for each in device.consumes_counters:
        own = out.setdefault(each.counter_set, {})
        for name, counter in each.counters.items():
            own[name] = own.get(name, 0) + counter.value.nano
    return out
