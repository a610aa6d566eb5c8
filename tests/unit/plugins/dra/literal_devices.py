"""What a node sees of devices, and single rules about one device, written down as they are specified.

For `literal_allocator` (docs/spec/dra.md §4.2, §4.3, §4.7–§4.10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler.api.quantity import Quantity, text
from scheduler.api.resource_v1 import (
    CapacityRange,
    CapacityRequestPolicy,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceConstraint,
    DeviceId,
    ExactDeviceRequest,
    ResourceSlice,
    ResourceSliceSpec,
)
from scheduler.core.feature_gates import (
    BINDING_CONDITIONS,
    CAPACITY_ERRORS,
    CLAIM_DEVICE_STATUS,
    CONSUMABLE,
    FRACTIONAL_RANGE,
    PARTITIONABLE,
)
from tests.unit.wakeups.literal_volumes import all_hold

NANO = 10**9
MILLI = 10**6


@dataclass
class LiteralDevices:
    """What there is. `holds` says of (expression, driver, device) whether it is true, or what is wrong."""

    nodes: dict[str, dict[str, str]]
    slices: list[ResourceSlice]
    classes: dict[str, DeviceClass]
    gates: frozenset[str]
    holds: Callable[[str, str, Device], bool | str]
    exclusive: set[DeviceId] = field(default_factory=set)
    shares: dict[DeviceId, list[dict[str, int]]] = field(default_factory=dict)

    def consumed(self, device: DeviceId, name: str) -> int:
        """What earlier shares take of one capacity, which is named with its domain."""
        taken = 0
        for share in self.shares.get(device, ()):
            domain, bare = name.split("/", 1)
            taken += share.get(name, share.get(bare, 0) if domain == device.driver else 0)
        return taken

    @property
    def strict_capacity(self) -> bool:
        """Errors of capacities are those of 1.38."""
        return CAPACITY_ERRORS in self.gates

    @property
    def binding(self) -> bool:
        """Binding conditions are understood."""
        return BINDING_CONDITIONS in self.gates and CLAIM_DEVICE_STATUS in self.gates


@dataclass
class Pool:
    """One pool as a node sees it (§4.3)."""

    driver: str
    name: str
    state: str
    slices: list[ResourceSlice] = field(default_factory=list)
    elsewhere: list[ResourceSlice] = field(default_factory=list)
    counters: dict[tuple[str, str], int] = field(default_factory=dict)


class Candidate(NamedTuple):
    """A device in its place."""

    id: DeviceId
    device: Device
    slice: ResourceSlice
    pool: Pool


# -- pools -------------------------------------------------------------------------------------------------------------


def node_matches(world: LiteralDevices, node: str, where: ResourceSliceSpec | Device) -> bool:
    """§4.2."""
    if where.node_name:
        return where.node_name == node
    if where.all_nodes or where.node_selector is None:
        return bool(where.all_nodes)
    return any(
        (term.match_expressions or term.match_fields)
        and all_hold(term.match_expressions, world.nodes[node])
        and all_hold(term.match_fields, {"metadata.name": node})
        for term in where.node_selector.node_selector_terms
    )


def _relevant(world: LiteralDevices, node: str, each: ResourceSlice) -> bool:
    spec = each.spec
    if PARTITIONABLE not in world.gates and (spec.per_device_node_selection is not None or spec.shared_counters):
        return False
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return node_matches(world, node, spec)
    if spec.per_device_node_selection:
        return any(node_matches(world, node, device) for device in spec.devices)
    return False


def pools(world: LiteralDevices, node: str) -> list[Pool]:
    """In the order in which they are tried."""
    groups: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in sorted(world.slices, key=lambda each: each.key):
        if not _relevant(world, node, each):
            continue
        group = groups.setdefault((each.spec.driver, each.spec.pool.name), [])
        if group and each.spec.pool.generation < group[0].spec.pool.generation:
            continue
        if group and each.spec.pool.generation > group[0].spec.pool.generation:
            group.clear()
        group.append(each)
    found = [pool for key, group in groups.items() if (pool := _pool(world, key, group)) is not None]
    return sorted(found, key=lambda pool: (_has_conditions(pool), pool.driver, pool.name))


def _has_conditions(pool: Pool) -> bool:
    return any(device.binding_conditions for each in pool.slices for device in each.spec.devices)


def _pool(world: LiteralDevices, key: tuple[str, str], group: list[ResourceSlice]) -> Pool | None:
    elsewhere: list[ResourceSlice] = []
    count = group[0].spec.pool.resource_slice_count
    if len(group) != count:
        generation = group[0].spec.pool.generation
        whole = [each for each in world.slices if (each.spec.driver, each.spec.pool.name) == key]
        if any(each.spec.pool.generation > generation for each in whole):
            return None
        equal = [each for each in whole if each.spec.pool.generation == generation]
        if len(equal) != count:
            return Pool(*key, "incomplete")
        elsewhere = [each for each in equal if each not in group]
    if PARTITIONABLE not in world.gates:
        good = _names_differ(group)
        return Pool(*key, "good", group) if good else Pool(*key, "invalid")
    devices = [each for each in group if not each.spec.shared_counters]
    counters: dict[tuple[str, str], int] = {}
    sets = [each for one in (*group, *elsewhere) for each in one.spec.shared_counters]
    elsewhere = [each for each in elsewhere if not each.spec.shared_counters]
    for each in sets:
        counters.update({(each.name, name): counter.value.nano for name, counter in each.counters.items()})
    fine = _names_differ(devices) and len({each.name for each in sets}) == len(sets)
    names = {each.name for each in sets}
    for one in (*devices, *elsewhere):
        for device in one.spec.devices:
            for consumption in device.consumes_counters:
                fine = fine and consumption.counter_set in names
                fine = fine and all((consumption.counter_set, name) in counters for name in consumption.counters)
    return Pool(*key, "good", devices, elsewhere, counters) if fine else Pool(*key, "invalid")


def _names_differ(slices: Iterable[ResourceSlice]) -> bool:
    names = [device.name for each in slices for device in each.spec.devices]
    return len(set(names)) == len(names)


def candidates(pool: Pool) -> list[Candidate]:
    """The devices of a pool in published order."""
    return [
        Candidate(DeviceId(pool.driver, pool.name, device.name), device, each, pool)
        for each in pool.slices
        for device in each.spec.devices
    ]


# -- single rules ------------------------------------------------------------------------------------------------------


def shared(world: LiteralDevices, device: Device) -> bool:
    """Several may have it at once."""
    return CONSUMABLE in world.gates and device.allow_multiple_allocations


def tolerated(spec: ExactDeviceRequest, device: Device) -> bool:
    """§4.7: every hard taint."""
    for taint in device.taints:
        if taint.effect not in ("NoSchedule", "NoExecute"):
            continue
        for each in spec.tolerations:
            if each.effect not in ("", taint.effect) or each.key not in ("", taint.key):
                continue
            if each.operator == "Exists" or (each.operator in ("", "Equal") and each.value == taint.value):
                break
        else:
            return False
    return True


class NoAmount(Exception):
    """A request that is no amount of a capacity."""


def capacities(driver: str, device: Device) -> dict[str, DeviceCapacity]:
    """The capacities, named with their domain. One that is published with its domain hides its other name."""
    out = {f"{driver}/{name}": each for name, each in device.capacity.items() if "/" not in name}
    out.update((name, each) for name, each in device.capacity.items() if "/" in name)
    return out


def amounts(world: LiteralDevices, spec: ExactDeviceRequest, driver: str, device: Device) -> dict[str, int] | None:
    """§4.9, steps 1 to 3; the names have a domain. Raises NoAmount."""
    offered = capacities(driver, device)
    asked: dict[str, Quantity] = {}
    both = ""
    for name, quantity in ({} if spec.capacity is None else spec.capacity.requests).items():
        whole = name if "/" in name else f"{driver}/{name}"
        if whole not in offered:
            return None
        both = whole if whole in asked else both
        asked[whole] = quantity
    if both:
        bare = both.split("/", 1)[1]
        raise NoAmount(f'capacity "{bare}" requested both as "{bare}" and as "{both}"')
    out = {}
    for name, capacity in offered.items():
        policy = capacity.request_policy or CapacityRequestPolicy()
        short = name.split("/", 1)[1]
        label = name if world.strict_capacity or name in device.capacity else short
        wanted = asked.get(name)
        if world.strict_capacity and wanted is not None and wanted.nano < 0:
            raise NoAmount(f'capacity "{label}": capacity value is negative: request {text(wanted)}')
        try:
            out[name] = _rounded(wanted, capacity.value, policy, unit=_unit(world, policy.valid_range))
        except NoAmount as wrong:
            raise NoAmount(f'capacity "{label}": {wrong}') from wrong
        if out[name] < 0:
            raise NoAmount(f'capacity "{label}": capacity value is negative')
    for name, capacity in offered.items():
        policy = capacity.request_policy or CapacityRequestPolicy()
        if not _allowed(out[name], policy, unit=_unit(world, policy.valid_range)):
            return None
    return out


def _unit(world: LiteralDevices, valid: CapacityRange | None) -> int:
    """In what a range is computed: thousandths, or whole units."""
    if valid is None or FRACTIONAL_RANGE not in world.gates:
        return NANO
    bounds = [each for each in (valid.min, valid.max, valid.step) if each is not None]
    is_fine = all(each.nano % MILLI == 0 and each.nano // MILLI < 2**63 for each in bounds)
    return MILLI if is_fine and (valid.step is None or valid.step.nano >= MILLI) else NANO


def _rounded(asked: Quantity | None, value: Quantity, policy: CapacityRequestPolicy, *, unit: int) -> int:
    if asked is None:
        return (value if policy.default is None else policy.default).nano
    valid = policy.valid_range
    if valid is not None and valid.min is not None:
        if asked.nano < valid.min.nano:
            return valid.min.nano
        if valid.step is None:
            return asked.nano
        cannot = f"capacity request cannot be represented in the device's range arithmetic: request {text(asked)}"
        if unit == MILLI and asked.nano % MILLI:
            raise NoAmount(f"{cannot} is not a representable milli value")
        amount, step = -(-valid.min.nano // unit), -(-valid.step.nano // unit)
        while amount < -(-asked.nano // unit):
            amount += step
        return amount * unit
    for each in policy.valid_values:
        if each.nano >= asked.nano:
            return each.nano
    return asked.nano


def _allowed(amount: int, policy: CapacityRequestPolicy, *, unit: int) -> bool:
    if policy.default is not None and amount == policy.default.nano:
        return True
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount > valid.max.nano:
            return False
        if valid.step is None or valid.min is None:
            return True
        if unit == MILLI and amount % MILLI:
            return False
        return (-(-amount // unit) + valid.min.nano // -unit) % -(-valid.step.nano // unit) == 0
    return not policy.valid_values or any(each.nano == amount for each in policy.valid_values)


def attribute(driver: str, device: Device, name: str) -> DeviceAttribute | None:
    """§4.10: a bare identifier is of the driver's own domain."""
    if name in device.attributes:
        return device.attributes[name]
    domain, bare = name.split("/", 1)
    return device.attributes.get(bare) if domain == driver else None


def values(each: DeviceAttribute) -> set[tuple[str, object]]:
    """Typed values; none if it has a form that is not understood."""
    for kind, one in (("b", each.bool_), ("i", each.int_), ("s", each.string)):
        if one is not None:
            return {(kind, one)}
    # The build metadata of a version counts for nothing.
    return {("v", each.version.split("+")[0])} if each.version is not None else set()


def cannot_compare(each: DeviceAttribute | None) -> bool:
    """Whether a constraint of 1.38 has no answer for the value."""
    if each is None or values(each) == set():
        return each is not None
    return each.version is not None and any(len(number) > 19 for number in each.version.split("-")[0].split("."))


def agree(constraint: DeviceConstraint, devices: Sequence[tuple[str, Device]]) -> bool:
    """Whether these devices, in this order, satisfy it."""
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    seen: list[set[tuple[str, object]]] = []
    for driver, device in devices:
        found = attribute(driver, device, name)
        if found is None:
            return False
        own = values(found)
        is_match = constraint.match_attribute is not None
        if not own and seen:
            return False
        if is_match and seen and not set.intersection(own, *seen):
            return False
        if not is_match and any(own & each for each in seen):
            return False
        seen.append(own)
    return True


def concerns(constraint: DeviceConstraint, request: str, full: str) -> bool:
    """Whether a request's devices are in scope."""
    return not constraint.requests or request in constraint.requests or full in constraint.requests


def draw(left: dict[tuple[str, str], int], device: Device) -> None:
    """Take what the device consumes."""
    for consumption in device.consumes_counters:
        for name, amount in consumption.counters.items():
            if (consumption.counter_set, name) in left:
                left[consumption.counter_set, name] -= amount.value.nano


def left_of(world: LiteralDevices, pool: Pool) -> dict[tuple[str, str], int]:
    """What devices that are in use already leave of a pool's counters (§4.8)."""
    left = dict(pool.counters)
    for each in (*pool.slices, *pool.elsewhere):
        for device in each.spec.devices:
            name = DeviceId(pool.driver, pool.name, device.name)
            if name in world.exclusive or name in world.shares:
                draw(left, device)
    return left
