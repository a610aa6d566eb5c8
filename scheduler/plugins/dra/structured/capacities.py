"""Amounts that a request takes of a device's capacities (docs/spec/dra.md §4.9, changes-1.37-devices.md §1.14).

Amounts are exact, in nano units. A range with `min` and `step` rounds a request up to its grid: in whole units, or in
thousandths with DRAFractionalCapacityRange.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.api.quantity import Quantity, text
from scheduler.api.resource_v1 import CapacityRange, CapacityRequestPolicy, Device, DeviceCapacity, ExactDeviceRequest

_NANO: Final = 10**9
_MILLI: Final = 10**6
_INT64_MAX: Final = 2**63 - 1
_NOTHING: Final[Mapping[str, Quantity]] = {}
_REFUSED: Final = "capacity request cannot be represented in the device's range arithmetic"


class NotRepresentable(Exception):
    """A request is no valid amount of a capacity. The message is upstream's and names the capacity."""


def consumption(request: ExactDeviceRequest, device: Device, *, is_fractional: bool) -> dict[str, int] | None:
    """Return capacity name → amount for every capacity of the device; None if the device cannot serve the request.

    `is_fractional`: the gate DRAFractionalCapacityRange is on. Raises NotRepresentable.
    """
    requested = request.capacity.requests if request.capacity is not None else _NOTHING
    if any(name not in device.capacity for name in requested):
        return None
    out = {
        name: _amount(name, requested.get(name), capacity, is_fractional=is_fractional)
        for name, capacity in device.capacity.items()
    }
    if any(
        _violates(out[name], capacity.request_policy, is_fractional=is_fractional)
        for name, capacity in device.capacity.items()
    ):
        return None
    return out


def _amount(name: str, wanted: Quantity | None, capacity: DeviceCapacity, *, is_fractional: bool) -> int:
    try:
        amount = _rounded(wanted, capacity, is_fractional=is_fractional)
    except NotRepresentable as error:
        raise NotRepresentable(f'capacity "{name}": {error}') from None
    if amount < 0:
        raise NotRepresentable(f'capacity "{name}": capacity value is negative')
    return amount


def _rounded(wanted: Quantity | None, capacity: DeviceCapacity, *, is_fractional: bool) -> int:
    policy = capacity.request_policy
    if wanted is None:
        return (policy.default if policy is not None and policy.default is not None else capacity.value).nano
    if policy is None:
        return wanted.nano
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _up_in_range(wanted, policy.valid_range.min, policy.valid_range, is_fractional=is_fractional)
    return next((valid.nano for valid in policy.valid_values if wanted.nano <= valid.nano), wanted.nano)


def _up_in_range(wanted: Quantity, least: Quantity, valid: CapacityRange, *, is_fractional: bool) -> int:
    step = valid.step
    if wanted.nano < least.nano:
        return least.nano
    if step is None or not step.nano:
        return wanted.nano
    if is_fractional and _fits_thousandths(valid):
        if not _is_thousandths(wanted):
            raise NotRepresentable(f"{_REFUSED}: request {text(wanted)} is not a representable milli value")
        amount = _up(wanted.nano, least.nano, step.nano)
        if amount > _INT64_MAX * _MILLI:
            passes = "passes the milli-value range"
            raise NotRepresentable(f"{_REFUSED}: rounding request {text(wanted)} up to the next step {passes}")
        return amount
    if wanted.nano > _INT64_MAX * _NANO:
        raise NotRepresentable(f"{_REFUSED}: request {text(wanted)} exceeds MaxInt64")
    if not step.value:
        return wanted.nano
    amount = _up(wanted.value, least.value, step.value)
    if amount > _INT64_MAX:
        raise NotRepresentable(f"{_REFUSED}: rounding request {text(wanted)} up to the next step passes MaxInt64")
    return amount * _NANO


def _up(wanted: int, least: int, step: int) -> int:
    return least - (least - wanted) // step * step


def _fits_thousandths(valid: CapacityRange) -> bool:
    """Return whether the range is computed in thousandths; it need not have fractions."""
    bounds = (valid.min, valid.max, valid.step)
    if any(each is not None and not _is_thousandths(each) for each in bounds):
        return False
    return valid.step is None or valid.step.nano >= _MILLI


def _is_thousandths(quantity: Quantity) -> bool:
    return not quantity.nano % _MILLI and abs(quantity.nano) <= _INT64_MAX * _MILLI


def _violates(amount: int, policy: CapacityRequestPolicy | None, *, is_fractional: bool) -> bool:
    if policy is None or (policy.default is not None and policy.default.nano == amount):
        return False
    if policy.valid_range is not None:
        return _outside(amount, policy.valid_range, is_fractional=is_fractional)
    return bool(policy.valid_values) and all(valid.nano != amount for valid in policy.valid_values)


def _outside(amount: int, valid: CapacityRange, *, is_fractional: bool) -> bool:
    if valid.max is not None and amount > valid.max.nano:
        return True
    if valid.step is None or not valid.step.nano:
        return False
    if is_fractional and _fits_thousandths(valid):
        least = valid.min.nano if valid.min is not None else 0
        return bool(amount % _MILLI or (amount - least) % valid.step.nano)
    if not valid.step.value:
        return False
    least = valid.min.value if valid.min is not None else 0
    return bool((-(-amount // _NANO) - least) % valid.step.value)
