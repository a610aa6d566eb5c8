"""ResourceSlices, their devices, and DeviceTaintRules as decoded from resource.k8s.io/v1 (docs/spec/dra.md §0.4).

Older versions of the group are brought into this form where they are read (docs/spec/dra.md §6).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from scheduler.core.meta import Frozen, Metadata
from scheduler.core.pod import NodeSelector
from scheduler.core.quantity import Quantity


class DeviceId(NamedTuple):
    """What a device is known by everywhere."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceAttribute(Frozen, frozen=True):
    """One of these; the API server sees to that."""

    bool_: bool | None = msgspec.field(name="bool", default=None)
    int_: int | None = msgspec.field(name="int", default=None)
    string: str | None = None
    version: str | None = None
    bools: tuple[bool, ...] | None = None
    ints: tuple[int, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRange(Frozen, frozen=True):
    """`validRange`."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Frozen, frozen=True):
    """Which amounts of a shared capacity may be taken."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Frozen, frozen=True):
    """How much of something a device has."""

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class Counter(Frozen, frozen=True):
    """An amount of a shared counter."""

    value: Quantity


class DeviceCounterConsumption(Frozen, frozen=True):
    """What a device takes of one counter set while it is in use."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class CounterSet(Frozen, frozen=True):
    """Counters that the devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Frozen, frozen=True):
    """Keeps requests off a device that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(Frozen, frozen=True):
    """One device of a slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(Frozen, frozen=True):
    """Of which pool, at which state, a slice is a part."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Frozen, frozen=True):
    """What a driver says of some devices of a pool."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Frozen, frozen=True):
    """A slice as the API server has it."""

    metadata: Metadata
    spec: ResourceSliceSpec = ResourceSliceSpec()

    @property
    def key(self) -> str:
        """Its name."""
        return self.metadata.name


class DeviceTaintSelector(Frozen, frozen=True):
    """All that is given must be equal; nothing given selects every device (docs/spec/dra.md §4.11)."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def selects(self, driver: str, pool: str, device: str) -> bool:
        """Whether this very device is meant."""
        return self.driver in {None, driver} and self.pool in {None, pool} and self.device in {None, device}


class DeviceTaintRuleSpec(Frozen, frozen=True):
    """Which devices get which taint."""

    taint: DeviceTaint
    device_selector: DeviceTaintSelector | None = None


class DeviceTaintRule(Frozen, frozen=True):
    """A rule as the API server has it."""

    metadata: Metadata
    spec: DeviceTaintRuleSpec

    @property
    def key(self) -> str:
        """Its name."""
        return self.metadata.name
