"""ResourceSlices, ResourceClaims, DeviceClasses and DeviceTaintRules as they are decoded from resource.k8s.io/v1.

Sources: docs/spec/dra.md §0.4, §2. v1beta2 has the same fields (docs/spec/dra.md §6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from scheduler.api.core_v1 import NodeSelector, Pod
from scheduler.api.meta import AnnotatedMetadata, ClusterObject, Frozen, NamespacedObject
from scheduler.api.quantity import Quantity
from scheduler.core import api_json as apijson


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceAttribute(Frozen, frozen=True):
    """One value; the API server ensures that there is exactly one."""

    bool_: bool | None = msgspec.field(name="bool", default=None)
    int_: int | None = msgspec.field(name="int", default=None)
    string: str | None = None
    version: str | None = None
    bools: tuple[bool, ...] | None = None
    ints: tuple[int, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRange(Frozen, frozen=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Frozen, frozen=True):
    """The amounts of a shared capacity that may be consumed."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


_Named = TypeVar("_Named")


def full_name(driver: str, name: str) -> str:
    """Return the name of an attribute or capacity with its domain; without one it has the driver's domain.

    Rules: docs/spec/changes-1.38-devices.md §1.5.
    """
    return name if "/" in name else f"{driver}/{name}"


def bare_name(driver: str, name: str) -> str:
    """Return the name without the driver's own domain; names with another domain stay as they are."""
    bare = name.removeprefix(f"{driver}/")
    return name if "/" in bare else bare


def by_bare_name(driver: str, named: Mapping[str, _Named]) -> Mapping[str, _Named]:
    """Return the values by the names of `bare_name`; of two names for one thing, the one with the domain wins.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/schedulerapi/types.go NewDeviceConsumedCapacity
    """
    if not any("/" in name for name in named):
        return named
    return {name: value for name, value in named.items() if "/" not in name} | {
        bare_name(driver, name): value for name, value in named.items() if "/" in name
    }


class DeviceCapacity(Frozen, frozen=True):
    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class Counter(Frozen, frozen=True):
    """An amount of a shared counter."""

    value: Quantity


class DeviceCounterConsumption(Frozen, frozen=True):
    """The counters that a device consumes while it is in use."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class CounterSet(Frozen, frozen=True):
    """Counters that the devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Frozen, frozen=True):
    """A taint that excludes requests without a toleration."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(Frozen, frozen=True):
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
    """The pool and generation of a slice."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Frozen, frozen=True):
    """Devices of a pool, as its driver publishes them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(ClusterObject, frozen=True):
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(Frozen, frozen=True):
    """All given fields must be equal; without fields every device matches (docs/spec/dra.md §4.11)."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def selects(self, driver: str, pool: str, device: str) -> bool:
        return self.driver in {None, driver} and self.pool in {None, pool} and self.device in {None, device}


class DeviceTaintRuleSpec(Frozen, frozen=True):
    """Devices and their taint."""

    taint: DeviceTaint
    device_selector: DeviceTaintSelector | None = None


class DeviceTaintRule(ClusterObject, frozen=True):
    spec: DeviceTaintRuleSpec


FINALIZER: Final = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that a scheduler creates for a pod's extended resources (§2.4)."""
IMPLICIT_EXTENDED_RESOURCE: Final = "deviceclass.resource.kubernetes.io/"
EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
RESULTS_MAX: Final = 32
"""Devices of one claim."""
RESERVED_FOR_MAX: Final = 256
"""Users of one claim; the API server refuses more."""
NO_PARAMETERS: Final = msgspec.Raw(b"null")


class CelSelector(Frozen, frozen=True):
    expression: str = ""


class DeviceSelector(Frozen, frozen=True):
    cel: CelSelector | None = None


class DeviceToleration(Frozen, frozen=True):
    """A taint of a device that a request accepts."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Frozen, frozen=True):
    """The requested amounts of a device's capacities."""

    requests: dict[str, Quantity] = {}


class DerivedAttribute(Frozen, frozen=True):
    """An attribute of devices that a request computes by an expression."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(Frozen, frozen=True):
    """`exactly`, or an alternative of `firstAvailable`: those have a name and no admin access."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceRequest(Frozen, frozen=True):
    """One request of a claim: `exactly`, or the first alternative that is available."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[ExactDeviceRequest, ...] = ()


class DeviceConstraint(Frozen, frozen=True):
    """An attribute that the devices of some requests must share, or must not; of all requests, if none is named."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueConfiguration(Frozen, frozen=True):
    """Configuration for a driver. `parameters` is the JSON as it was read: the driver gets the same bytes."""

    driver: str = ""
    parameters: msgspec.Raw = NO_PARAMETERS

    def __post_init__(self) -> None:
        """Copy the bytes, because decoded bytes keep the whole response in memory.

        Raises ValueError if the interpreter cannot parse all of them: a driver must not get less than was claimed.
        """
        if apijson.CUT in bytes(self.parameters):
            raise ValueError("the parameters are nested too deeply for this interpreter")
        msgspec.structs.force_setattr(self, "parameters", self.parameters.copy())


class DeviceConfiguration(Frozen, frozen=True):
    """`config[]` of a class or claim; classes name no requests."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceClaim(Frozen, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class DeviceRequestAllocationResult(Frozen, frozen=True):
    """One allocated device. `request` is `R`, or `R/S` of the chosen alternative."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] | None = None
    skip_node_operations: tuple[str, ...] = ()
    """The operations that the node's kubelet skips; the node must declare that it can."""

    @property
    def id(self) -> DeviceId:
        return DeviceId(self.driver, self.pool, self.device)


class AllocatedConfiguration(Frozen, frozen=True):
    """`allocation.devices.config[]`; `source` is FromClass or FromClaim."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceAllocationResult(Frozen, frozen=True):
    """All devices of a claim, and the configuration of their drivers."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class AllocationResult(Frozen, frozen=True):
    """`status.allocation`. Without a node selector it is usable on every node."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class Condition(Frozen, frozen=True):
    """A driver's condition of an allocated device."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(Frozen, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    conditions: tuple[Condition, ...] = ()


class ConsumerReference(Frozen, frozen=True):
    """`status.reservedFor[]`: a user of the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimSpec(Frozen, frozen=True):
    """Immutable after creation."""

    devices: DeviceClaim = DeviceClaim()


class ResourceClaimStatus(Frozen, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ClaimMetadata(AnnotatedMetadata, frozen=True):
    """Metadata with finalizers."""

    finalizers: tuple[str, ...] = ()


class ResourceClaim(NamespacedObject, frozen=True):
    metadata: ClaimMetadata
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def version(self) -> int:
        """The version for comparisons of claims with the same uid (§1.2); 0 if it is no number."""
        return self.metadata.version

    @property
    def is_allocated(self) -> bool:
        """Whether it has devices."""
        return self.status.allocation is not None

    def is_reserved_for(self, pod_uid: str) -> bool:
        """Return whether the pod may use the claim (§2.3)."""
        return any(user.uid == pod_uid for user in self.status.reserved_for)


class DeviceClassSpec(Frozen, frozen=True):
    """What requests of this class share."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(ClusterObject, frozen=True):
    spec: DeviceClassSpec = DeviceClassSpec()


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """Return `namespace/name` of each ResourceClaim of the pod once, in the order of the entries.

    A claim of a template that is not created yet has no name, and an entry may need no claim: they are left out.
    """
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    names = (each.resource_claim_name or made.get(each.name) for each in pod.spec.resource_claims)
    return tuple(dict.fromkeys(f"{pod.metadata.namespace}/{name}" for name in names if name))
