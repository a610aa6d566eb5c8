"""Cases of `random_devices` with what kube-scheduler 1.37 adds: fractions of capacities, and counters in slices of some nodes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import (
    CapacityRange,
    CapacityRequestPolicy,
    CapacityRequirements,
    Device,
    DeviceCapacity,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from scheduler.core.feature_gates import DEVICE_CHANGES, FRACTIONAL_RANGE
from tests.unit.plugins.dra.random_devices import NODES, Case, Maker

_RANGES: Final = (
    CapacityRange(min=parse("100m"), max=parse("900m"), step=parse("100m")),
    CapacityRange(min=parse("500m"), step=parse("750m")),
    CapacityRange(min=parse("1"), max=parse("3"), step=parse("1")),
    CapacityRange(min=parse("2"), step=parse("500u")),
)
_AMOUNTS: Final = ("150m", "250m", "700m", "1", "1001m", "1500m", "2")
_VALUES: Final = ("1", "1500m", "3", "4")


def newer_case(seed: int, *, is_rich: bool) -> Case:
    """The case of this seed."""
    chance = random.Random(seed)
    case = Maker(chance, is_rich=is_rich).case()
    gates = case.world.gates | DEVICE_CHANGES
    if chance.random() < 0.8:
        gates |= {FRACTIONAL_RANGE}
    slices = [_slice(each, chance) for each in case.world.slices]
    claims = [_claim(each, chance) for each in case.claims]
    return Case(dataclasses.replace(case.world, gates=gates, slices=slices), claims)


def _slice(each: ResourceSlice, chance: random.Random) -> ResourceSlice:
    spec = replace(each.spec, devices=tuple(_device(device, chance) for device in each.spec.devices))
    if spec.shared_counters and chance.random() < 0.5:
        spec = replace(spec, node_name=chance.choice(sorted(NODES)), node_selector=None, all_nodes=None)
    return replace(each, spec=spec)


def _device(device: Device, chance: random.Random) -> Device:
    if not device.capacity or chance.random() < 0.4:
        return device
    capacity = {
        name: DeviceCapacity(parse(chance.choice(_VALUES)), CapacityRequestPolicy(valid_range=chance.choice(_RANGES)))
        for name in device.capacity
    }
    return replace(device, capacity=capacity)


def _claim(claim: ResourceClaim, chance: random.Random) -> ResourceClaim:
    requests = tuple(
        replace(
            request,
            exactly=_request(request.exactly, chance) if request.exactly is not None else None,
            first_available=tuple(_request(each, chance) for each in request.first_available),
        )
        for request in claim.spec.devices.requests
    )
    return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))


def _request(spec: ExactDeviceRequest, chance: random.Random) -> ExactDeviceRequest:
    if spec.capacity is None:
        return spec
    unit: Sequence[Any] = _AMOUNTS if chance.random() < 0.8 else ("1000500u",)
    amounts = {name: parse(chance.choice(unit)) for name in spec.capacity.requests}
    return replace(spec, capacity=CapacityRequirements(amounts))
