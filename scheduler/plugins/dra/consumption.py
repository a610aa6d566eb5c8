"""How much of a device's capacities a request takes (docs/spec/dra.md §4.9). Amounts are exact, in nano units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.core.devices import CapacityRange, CapacityRequestPolicy, Device, DeviceCapacity
from scheduler.core.quantity import Quantity
from scheduler.core.resourceclaims import ExactDeviceRequest

_NANO: Final = 10**9
_NOTHING: Final[Mapping[str, Quantity]] = {}


def consumption(request: ExactDeviceRequest, device: Device) -> dict[str, int] | None:
    """Capacity name → amount, for every capacity of the device; None if the device does not offer what is asked."""
    asked = request.capacity.requests if request.capacity is not None else _NOTHING
    if any(name not in device.capacity for name in asked):
        return None
    out: dict[str, int] = {}
    for name, capacity in device.capacity.items():
        wanted = asked.get(name)
        amount = _amount(wanted, capacity)
        if _violates(amount, capacity.request_policy):
            return None
        out[name] = amount
    return out


def _amount(wanted: Quantity | None, capacity: DeviceCapacity) -> int:
    policy = capacity.request_policy
    if wanted is None:
        return (policy.default if policy is not None and policy.default is not None else capacity.value).nano
    if policy is None:
        return wanted.nano
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _up_in_range(wanted, policy.valid_range.min, policy.valid_range.step)
    return next((valid.nano for valid in policy.valid_values if wanted.nano <= valid.nano), wanted.nano)


def _up_in_range(wanted: Quantity, least: Quantity, step: Quantity | None) -> int:
    if wanted.nano < least.nano:
        return least.nano
    if step is None or not step.value:
        return wanted.nano
    steps = -((least.value - wanted.value) // step.value)
    return (least.value + steps * step.value) * _NANO


def _violates(amount: int, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and policy.default.nano == amount):
        return False
    if policy.valid_range is not None:
        return _outside(amount, policy.valid_range)
    return bool(policy.valid_values) and all(valid.nano != amount for valid in policy.valid_values)


def _outside(amount: int, valid: CapacityRange) -> bool:
    if valid.max is not None and amount > valid.max.nano:
        return True
    if valid.step is None or not valid.step.value:
        return False
    least = valid.min.value if valid.min is not None else 0
    return bool((-(-amount // _NANO) - least) % valid.step.value)
