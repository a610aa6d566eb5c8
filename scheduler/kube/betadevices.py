"""Claims and slices of resource.k8s.io/v1beta1, and taint rules of v1alpha3, in the form of v1 (docs/spec/dra.md §6).

Requests were flat, devices were inside `basic`. v1beta2 looks as v1 does, and so do classes and what became of a claim in
every version. A rule of 1.33 or 1.34 could select devices by class or CEL, which no later version has (§4.11).
"""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.core.decode import Broken, Older
from scheduler.core.devices import (
    CounterSet,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from scheduler.core.meta import Frozen, Metadata
from scheduler.core.pod import NodeSelector
from scheduler.core.resourceclaims import (
    ClaimMetadata,
    DeviceClaim,
    DeviceConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)

_ASKS_NOTHING: Final = ExactDeviceRequest()


class _Request(ExactDeviceRequest, frozen=True):
    first_available: tuple[ExactDeviceRequest, ...] = ()


class _DeviceClaim(Frozen, frozen=True):
    requests: tuple[_Request, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class _ClaimSpec(Frozen, frozen=True):
    devices: _DeviceClaim = _DeviceClaim()


class _Claim(Frozen, frozen=True):
    metadata: ClaimMetadata
    spec: _ClaimSpec = _ClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class _Device(Frozen, frozen=True):
    name: str = ""
    basic: Device = Device()


class _SliceSpec(Frozen, frozen=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool | None = None
    devices: tuple[_Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class _Slice(Frozen, frozen=True):
    metadata: Metadata
    spec: _SliceSpec = _SliceSpec()


class _RuleSelector(DeviceTaintSelector, frozen=True):
    device_class_name: str | None = None
    selectors: tuple[DeviceSelector, ...] = ()


class _RuleSpec(Frozen, frozen=True):
    taint: DeviceTaint
    device_selector: _RuleSelector | None = None


class _Rule(Frozen, frozen=True):
    metadata: Metadata
    spec: _RuleSpec


def _current_rule(rule: _Rule) -> DeviceTaintRule | Broken:
    """Broken if it selects by class or CEL: without those it would taint devices that it does not select."""
    selector = rule.spec.device_selector
    if selector is None:
        return DeviceTaintRule(rule.metadata, DeviceTaintRuleSpec(rule.spec.taint))
    for field, value in (("deviceClassName", selector.device_class_name), ("selectors", selector.selectors)):
        if value:
            why = f"device taint rules that select by {field} are not supported, use driver, pool and device"
            at = f" - at `$.spec.deviceSelector.{field}`"
            return Broken(kind="DeviceTaintRule", metadata=rule.metadata, why=why + at)
    readable = DeviceTaintSelector(driver=selector.driver, pool=selector.pool, device=selector.device)
    return DeviceTaintRule(rule.metadata, DeviceTaintRuleSpec(rule.spec.taint, readable))


def _current_claim(claim: _Claim) -> ResourceClaim:
    asked = claim.spec.devices
    requests = tuple(_current_request(request) for request in asked.requests)
    devices = DeviceClaim(requests=requests, constraints=asked.constraints, config=asked.config)
    return ResourceClaim(metadata=claim.metadata, spec=ResourceClaimSpec(devices=devices), status=claim.status)


def _current_request(request: _Request) -> DeviceRequest:
    """Whatever a request says itself is what it asks for exactly, be it valid or not."""
    exactly = ExactDeviceRequest(
        device_class_name=request.device_class_name,
        selectors=request.selectors,
        allocation_mode=request.allocation_mode,
        count=request.count,
        admin_access=request.admin_access,
        tolerations=request.tolerations,
        capacity=request.capacity,
    )
    return DeviceRequest(
        name=request.name,
        exactly=exactly if exactly != _ASKS_NOTHING else None,
        first_available=request.first_available,
    )


def _current_slice(each: _Slice) -> ResourceSlice:
    """An empty node name and `allNodes: false` said nothing."""
    spec = each.spec
    return ResourceSlice(
        metadata=each.metadata,
        spec=ResourceSliceSpec(
            driver=spec.driver,
            pool=spec.pool,
            node_name=spec.node_name or None,
            node_selector=spec.node_selector,
            all_nodes=spec.all_nodes or None,
            per_device_node_selection=spec.per_device_node_selection,
            devices=tuple(msgspec.structs.replace(device.basic, name=device.name) for device in spec.devices),
            shared_counters=spec.shared_counters,
        ),
    )


OLDER_CLAIMS: Final = {"v1beta1": Older(_Claim, _current_claim)}
OLDER_RULES: Final = {"v1alpha3": Older(_Rule, _current_rule)}
OLDER_SLICES: Final = {"v1beta1": Older(_Slice, _current_slice)}
