"""The devices of one node for the search, in the order in which they are tried (docs/spec/dra.md §4.3, §4.6, §4.9).

Sets of devices are masks: bit *i* is device *i*. Amounts of capacity are exact, in nano units. A range with `min` and
`step` rounds a request up to its grid: in whole units, or in thousandths with DRAFractionalCapacityRange.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

import msgspec

from scheduler.api.quantity import Quantity, text
from scheduler.api.resource_v1 import (
    CapacityRange,
    CapacityRequestPolicy,
    DeviceCapacity,
    DeviceId,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    bare_name,
    full_name,
)
from scheduler.cache.devices.allocation_state import DeviceUse
from scheduler.cache.devices.node_kinds import DeviceNodes, usable
from scheduler.cache.devices.pools import DeviceKind, PoolState, PoolView, PublishedDevice
from scheduler.core import feature_gates
from scheduler.core.caching import Computed
from scheduler.plugins.dra.structured.constraints import is_unsupported
from scheduler.plugins.dra.structured.requests import RequestData, SelectorFault, Selectors

_NANO: Final = 10**9
_MILLI: Final = 10**6
_INT64_MAX: Final = 2**63 - 1
_NOTHING: Final[Mapping[str, Quantity]] = {}
_NEGATIVE: Final = "capacity value is negative"
_REFUSED: Final = "capacity request cannot be represented in the device's range arithmetic"


class NotRepresentable(Exception):
    """A request is no valid amount of a capacity. The message is upstream's and names the capacity."""


def consumption(
    request: ExactDeviceRequest, kind: DeviceKind, *, is_fractional: bool, is_strict: bool
) -> dict[str, int] | None:
    """Return capacity → amount for every capacity of such a device; None if the device cannot serve the request.

    `is_fractional`: the gate DRAFractionalCapacityRange is on. `is_strict`: as `AllocatorFeatures.strict_capacity`.
    Raises NotRepresentable.
    """
    requested = _requested(request, kind)
    if requested is None:
        return None
    found = {}
    for name, capacity in kind.capacity.items():
        try:
            found[name] = _amount(requested.get(name), capacity, is_fractional=is_fractional, is_strict=is_strict)
        except NotRepresentable as error:
            label = full_name(kind.driver, name) if is_strict else kind.published_name(name)
            raise NotRepresentable(f'capacity "{label}": {error}') from None
    if any(
        _violates(found[name], capacity.request_policy, is_fractional=is_fractional)
        for name, capacity in kind.capacity.items()
    ):
        return None
    return found


def _amount(wanted: Quantity | None, capacity: DeviceCapacity, *, is_fractional: bool, is_strict: bool) -> int:
    # Rounding can hide a negative request.
    if is_strict and wanted is not None and wanted.nano < 0:
        raise NotRepresentable(f"{_NEGATIVE}: request {text(wanted)}")
    # The policy rounds a request up to what the device can give. The sum of rounded amounts is compared with the
    # capacity, so that shares never overlap.
    amount = _rounded(wanted, capacity, is_fractional=is_fractional)
    if amount < 0:
        raise NotRepresentable(_NEGATIVE)
    return amount


def _requested(request: ExactDeviceRequest, kind: DeviceKind) -> Mapping[str, Quantity] | None:
    """Return capacity → requested amount; None if the device lacks one of the capacities."""
    if request.capacity is None:
        return _NOTHING
    amounts = request.capacity.requests
    requested = {bare_name(kind.driver, name): amount for name, amount in amounts.items()}
    if not requested.keys() <= kind.capacity.keys():
        return None
    # One capacity has two names, so a request can name two amounts of it.
    if len(requested) < len(amounts):
        name = next(name for name in requested if name in amounts and full_name(kind.driver, name) in amounts)
        both = f'"{name}" and as "{full_name(kind.driver, name)}"'
        raise NotRepresentable(f'capacity "{name}" requested both as {both}')
    return requested


def _rounded(wanted: Quantity | None, capacity: DeviceCapacity, *, is_fractional: bool) -> int:
    policy = capacity.request_policy
    if wanted is None:
        # A claim that names no amount of a capacity takes the default of the policy, or else all of it.
        return (policy.default if policy is not None and policy.default is not None else capacity.value).nano
    if policy is None:
        return wanted.nano
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _up_in_range(wanted, policy.valid_range.min, policy.valid_range, is_fractional=is_fractional)
    return next((valid.nano for valid in policy.valid_values if wanted.nano <= valid.nano), wanted.nano)


def _up_in_range(wanted: Quantity, least: Quantity, valid: CapacityRange, *, is_fractional: bool) -> int:
    step = valid.step
    # Below the minimum there is no grid: the request is raised to the minimum first.
    if wanted.nano < least.nano:
        return least.nano
    if step is None or not step.nano:
        return wanted.nano
    # Kubernetes 1.37 computes ranges with fractions in thousandths, in int64. What overflows is refused.
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
    # Floor division of a negative number rounds away from zero. This is the ceiling without floating-point numbers.
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
    # The policy's default is admitted in any case, also off the grid.
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


Mask: TypeAlias = int
_NO_AMOUNTS: Final[Mapping[str, int]] = {}
_PLACEHOLDER: Final = re.compile("\1([0-9]+) ([0-9]+)\1(\1?)")
_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})


class AllocatorFeatures(msgspec.Struct, frozen=True):
    """The allocator's rules that are in force: kube-scheduler's feature gates and changes, and one rule of ours."""

    partitionable: bool = True
    taints: bool = True
    binding: bool = True
    consumable: bool = True
    fractional: bool = False
    """Whether ranges of capacities are computed in thousandths."""
    names_request: bool = False
    """Whether the text for a claim with too many devices names the request."""
    names_device: bool = False
    """Whether the text for a selector that fails names the device."""
    config_for_all: bool = False
    """Whether a configuration that is for all requests of its claim names none."""
    bad_pool_rejects_node: bool = False
    """Whether a request for all devices rejects a node with a bad pool, without ending the attempt."""
    strict_capacity: bool = False
    """Whether errors about capacities have full names, and negative requests are refused before they are rounded."""
    strict_values: bool = False
    """Whether a constraint ends the attempt at a device whose attribute has an unsupported value."""
    merges_terms: bool = False
    """Whether node selectors of several terms are merged; upstream returns an error."""

    @classmethod
    def of(cls, gates: frozenset[str], *, merges_terms: bool = False) -> AllocatorFeatures:
        """Return the rules for these feature gates. Binding conditions also need the device status."""
        return cls(
            merges_terms=merges_terms,
            partitionable=feature_gates.PARTITIONABLE in gates,
            taints=feature_gates.TAINTS in gates,
            binding=gates >= {feature_gates.BINDING_CONDITIONS, feature_gates.CLAIM_DEVICE_STATUS},
            consumable=feature_gates.CONSUMABLE in gates,
            fractional=feature_gates.FRACTIONAL_RANGE in gates,
            names_request=feature_gates.LIMIT_NAMES_REQUEST in gates,
            names_device=feature_gates.ERROR_NAMES_DEVICE in gates,
            config_for_all=feature_gates.CONFIG_FOR_ALL in gates,
            bad_pool_rejects_node=feature_gates.BAD_POOL_REJECTS_NODE in gates,
            strict_capacity=feature_gates.CAPACITY_ERRORS in gates,
            strict_values=feature_gates.UNSUPPORTED_VALUES in gates,
        )


class CapacityFault(msgspec.Struct, frozen=True):
    """A request for a capacity of the device that is no valid amount."""

    text: str


DeviceFault: TypeAlias = SelectorFault | CapacityFault
Amounts: TypeAlias = dict[str, int] | CapacityFault | Literal[False]
"""False: a device lacks a capacity of the request, or its policy does not allow the amount."""


def amounts_of(request_data: RequestData, kind: DeviceKind, rules: AllocatorFeatures) -> Amounts:
    """Return the amounts that the request takes of the capacities of such a device; cached with the kind (§4.9)."""
    # Keyed by the kind of device: a cluster has a thousand devices and few kinds of them.
    key = request_data.amounts_key, rules.fractional, rules.strict_capacity
    found: Amounts | None = kind.memo.get(key)
    if found is None:
        try:
            amounts = consumption(
                request_data.spec, kind, is_fractional=rules.fractional, is_strict=rules.strict_capacity
            )
            found = False if amounts is None else amounts
        except NotRepresentable as error:
            found = CapacityFault(str(error))
        kind.memo[key] = found
    return found


@dataclass(slots=True)
class CandidateDevices:
    """The devices of a node that a request can select.

    `mask` includes devices in `faults`: the search must reach them.
    """

    mask: Mask = 0
    faults: dict[int, SelectorFault] = field(default_factory=dict)


class NodeDevices:
    """One node's devices for one search."""

    def __init__(
        self, on_nodes: DeviceNodes, slot: int, use: DeviceUse, *, rules: AllocatorFeatures, is_for_kind: bool = False
    ) -> None:
        """Take the pools that the node sees. `is_for_kind`: texts have placeholders for devices, see `placed`."""
        self.slot = slot
        self._is_for_kind = is_for_kind
        self.pools = pools = on_nodes.pools(slot)
        self.rules = rules
        self._use = use
        self.devices: list[PublishedDevice] = []
        self.pool_of: list[int] = []
        # The numbers of devices follow the order of the pools, which upstream tries in. Everything else in this
        # folder speaks of numbers and masks.
        for number, view in enumerate(pools):
            self.devices.extend(view.devices)
            self.pool_of.extend([number] * len(view.devices))
        self._candidates = Computed(self._select)
        self._faults = Computed(self._find_faults)
        self.unsupported = Computed(self._find_unsupported)
        """Attribute → the devices at which a constraint on it ends the attempt."""

    @property
    def first_incomplete(self) -> PoolView | None:
        """The first pool that is incomplete or invalid, in the order of the pools (§4.4)."""
        return next((view for view in self.pools if view.state is not PoolState.GOOD), None)

    @property
    def has_invalid(self) -> bool:
        """Whether any pool contradicts itself."""
        return any(view.state is PoolState.INVALID for view in self.pools)

    @cached_property
    def used(self) -> Mask:
        """Devices that a claim has as a whole, and devices with `old_shares`."""
        return sum(1 << n for n, each in enumerate(self.devices) if self._use.is_exclusive(each.id)) | self.old_shares

    @cached_property
    def old_shares(self) -> Mask:
        """Devices with shares that no longer allow several users, because their driver has changed them.

        The double check has the same rule.
        """
        return sum(
            1 << number
            for number, each in enumerate(self.devices)
            if not self.shared >> number & 1 and self._use.shares(each.id)
        )

    @cached_property
    def shared(self) -> Mask:
        """Devices that several claims may use at once."""
        if not self.rules.consumable:
            return 0
        return sum(1 << n for n, each in enumerate(self.devices) if each.device.allow_multiple_allocations)

    @cached_property
    def in_use(self) -> Hashable:
        """Everything that a search reads of the devices in use: equal values give equal results."""
        shares = [
            (number, tuple(sorted(self.consumed(number).items())))
            for number, each in enumerate(self.devices)
            if self._use.shares(each.id)
        ]
        counted = [number for number, view in enumerate(self.pools) if view.counters]
        free = [tuple(self.free_counters(number).items()) for number in counted]
        return self.used, tuple(shares), tuple(free)

    def kind(self, number: int) -> DeviceKind:
        return self.devices[number].kind

    def name(self, number: int) -> str:
        """Return the device's name in messages."""
        if not self._is_for_kind:
            return str(self.devices[number].id)
        return f"\1{number} {self.kind(number).number}\1"

    def own_name(self, number: int) -> str:
        """Return the device's name without driver and pool, in messages."""
        return self.devices[number].id.device if not self._is_for_kind else f"{self.name(number)}\1"

    def placed(self, text: str) -> str:
        """Return a text about another node of this kind with the names of this node's devices."""

        def name(found: re.Match[str]) -> str:
            device = self._placed(int(found[1]), int(found[2]))
            return "" if device is None else device.device if found[3] else str(device)

        return _PLACEHOLDER.sub(name, text)

    def _placed(self, number: int, kind: int) -> DeviceId | None:
        """Return the device of this number, or one of its kind if shared pools have other positions on this node."""
        if number < len(self.devices) and self.kind(number).number == kind:
            return self.devices[number].id
        return next((each.id for each in self.devices if each.kind.number == kind), None)

    def consumed(self, number: int) -> Mapping[str, int]:
        """Return the amounts of the device's capacities that claims have taken."""
        return self._use.consumed(self.devices[number].id)

    def has_shares(self, number: int) -> bool:
        """Return whether any claim has a part of the device."""
        return bool(self._use.shares(self.devices[number].id))

    # -- devices of a request ------------------------------------------------------------------------------------------

    def selectable(self, request_data: RequestData) -> CandidateDevices:
        """Return the devices that pass class, selectors, binding conditions and node check (§4.6 step 4)."""
        assert request_data.selectors is not None
        return self._candidates[request_data.selectors]

    def _select(self, selectors: Selectors) -> CandidateDevices:
        found = CandidateDevices()
        verdicts: dict[DeviceKind, bool | SelectorFault] = {}
        for number, each in enumerate(self.devices):
            if not self.rules.binding and each.device.binding_conditions:
                continue
            verdict = verdicts.get(each.kind)
            if verdict is None:
                verdict = verdicts[each.kind] = selectors.of(each.kind)
            if isinstance(verdict, SelectorFault):
                found.faults[number] = verdict
            elif not verdict or not usable(each, self.slot):
                continue
            found.mask |= 1 << number
        return found

    def faults(self, request_data: RequestData) -> Mapping[int, DeviceFault]:
        """Return the devices at which the search for this request ends in an error."""
        return self._faults[request_data]

    def _find_faults(self, request_data: RequestData) -> Mapping[int, DeviceFault]:
        selected = self.selectable(request_data)
        concerned = self._have_capacity & selected.mask if self.rules.consumable else 0
        if not concerned:
            return selected.faults
        faults: dict[int, DeviceFault] = dict(selected.faults)
        for number, each in enumerate(self.devices):
            if concerned >> number & 1 and number not in faults:
                amounts = amounts_of(request_data, each.kind, self.rules)
                if isinstance(amounts, CapacityFault):
                    faults[number] = amounts
        return faults

    def _find_unsupported(self, attribute: str) -> Mask:
        if not self.rules.strict_values:
            return 0
        is_one = Computed[DeviceKind, bool](lambda kind: is_unsupported(kind, attribute))
        return sum(1 << number for number, each in enumerate(self.devices) if is_one[each.kind])

    @cached_property
    def _have_capacity(self) -> Mask:
        return sum(1 << number for number, each in enumerate(self.devices) if each.device.capacity)

    def is_tolerated(self, request_data: RequestData, number: int) -> bool:
        """Return whether the request tolerates every hard taint of the device; admin access is no exemption (§4.7)."""
        # Taints with PreferNoSchedule do not exist for devices. The effect None is for information only.
        taints = self.devices[number].device.taints
        if not taints or not self.rules.taints:
            return True
        return all(
            taint.effect not in _HARD_EFFECTS or any(tolerates(t, taint) for t in request_data.spec.tolerations)
            for taint in taints
        )

    def may_draw(self, number: int) -> bool:
        """Return whether the device may be allocated: one that consumes counters needs partitionable devices."""
        return self.rules.partitionable or not self.devices[number].device.consumes_counters

    def amounts(self, request_data: RequestData, number: int) -> Mapping[str, int] | None:
        """Return the amounts that the request takes of the device's capacities; None if not offered (§4.9)."""
        # Many devices have no capacity, and most requests name no amount. This line spares them the arithmetic.
        if request_data.spec.capacity is None and not self.devices[number].device.capacity:
            return _NO_AMOUNTS
        amounts = amounts_of(request_data, self.devices[number].kind, self.rules)
        return amounts if isinstance(amounts, dict) else None

    def offers(self, request_data: RequestData, number: int) -> bool:
        """Return whether the device has the request's amounts while no claim uses it."""
        amounts = self.amounts(request_data, number)
        capacity = self.kind(number).capacity
        return amounts is not None and all(amount <= capacity[name].value.nano for name, amount in amounts.items())

    def fits(self, request_data: RequestData, number: int, taking: Mapping[str, int]) -> bool:
        """Return whether the request's amounts are free when `taking` is taken as well."""
        amounts = self.amounts(request_data, number)
        if amounts is None:
            return False
        capacity, consumed = self.kind(number).capacity, self.consumed(number)
        return all(
            consumed.get(name, 0) + taking.get(name, 0) + amount <= capacity[name].value.nano
            for name, amount in amounts.items()
        )

    # -- counters ------------------------------------------------------------------------------------------------------

    def free_counters(self, pool: int) -> dict[tuple[str, str], int]:
        """Return (set, counter) → the amount that devices in use leave of it; it can be negative (§4.8)."""
        view = self.pools[pool]
        free = {(name, each): amount for name, counters in view.counters.items() for each, amount in counters.items()}
        # Devices that only other nodes can use draw on the same counters. They are not in `devices`, but count here.
        for each in (*view.devices, *view.elsewhere):
            if each.kind.draws and self._use.is_used(each.id):
                for counter, amount in each.kind.draws.items():
                    if counter in free:
                        free[counter] -= amount
        return free


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Return whether the toleration matches the taint (§4.7).

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/devicetoleration.go ToleratesTaint
    """
    # An empty effect or key matches all, as for the taints of nodes.
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value
