"""What allocated devices take of their node's cpu, memory and huge pages (docs/spec/changes-1.37-devices.md §4.5).

A driver may publish that a device stands for an amount of a resource of the node (mapping), or that its use costs some
(overhead). A node must have what the pod requests and what its devices take.

Upstream: pkg/scheduler/framework/plugins/dynamicresources/nodeallocatabledynamicresources.go nodeFitsResources
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.api.core_v1 import (
    MappedResource,
    NodeAllocatableResourceClaimStatus as ClaimStatus,
    OverheadResource,
    Pod,
)
from scheduler.api.podinfo import (
    PodInfo,
    Requests,
    claim_amounts,
    container_amounts,
    pod_level,
    requests_with_claims,
)
from scheduler.api.quantity import NATIVE, Quantity
from scheduler.api.resource_v1 import (
    AllocationResult,
    Device,
    DeviceId,
    NodeAllocatableMapping,
    ResourceClaim,
    ResourceSlice,
    ResourceSliceSpec,
)
from scheduler.cache.devices.pools import PoolKey
from scheduler.cache.nodes.node_groups import matching_selector
from scheduler.core.errors import ApiError, Conflict, NotFound
from scheduler.core.feature_gates import NODE_ALLOCATABLE
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.status import Code, Groups, Rejection
from scheduler.framework.wait import settle
from scheduler.plugins.dra.binding.claim_writer import ClaimError
from scheduler.plugins.dra.binding.extended_resource_claim import repeated
from scheduler.plugins.dra.claims import Unresolved, claim_keys, claim_name
from scheduler.plugins.dra.state import PLUGIN, AllocatedDevice, Consumed, DeviceState, Variant
from scheduler.plugins.dra.structured.node_searches import SearchVerdict

_NANO: Final = 10**9
_HUGE_PAGES: Final = "hugepages-"
_INSUFFICIENT: Final = "is insufficient to cover"
_AGGREGATED: Final = "aggregated container and node-allocatable DRA"


class TakenDevice(NamedTuple):
    """An allocated device. `device` is an error text if the node has no such device."""

    id: DeviceId
    device: Device | str
    consumed: Consumed


Taken: TypeAlias = dict[str, list[TakenDevice]]
"""Uid of a claim → its devices."""


class ClaimStatusWriter:
    """Writes what the claims of pods take of their nodes into the pods' status, and removes it again."""

    def __init__(self, handle: Handle, *, is_bound: Callable[[str], bool]) -> None:
        """`is_bound` returns whether the pod with this uid was seen on a node."""
        self._writer = handle.writer.device_claims
        self._clock = handle.clock
        self._is_bound = is_bound

    async def write(self, known: DeviceState, pod: Pod) -> None:
        """Write what the attempt has computed. Raises ClaimError.

        The API server admits only claims that the pod names, so the claim for extended resources is left out.
        """
        named = {key.rpartition("/")[2] for key in claim_keys(pod)}
        statuses = tuple(each for each in known.claim_statuses if each.resource_claim_name in named)
        if not statuses:
            return
        known.is_status_sent = True
        try:
            await repeated(self._clock, lambda: settle(self._writer.set_claim_amounts(pod, statuses)))
        except ApiError as error:
            raise ClaimError(f"updating pod {pod.key} NodeAllocatableResourceClaimStatuses: {error}") from error

    async def clear(self, pod: Pod) -> None:
        """Remove it from the pod's status; do nothing if the pod is gone, or bound by now. Raises ApiError."""
        try:
            if not self._is_bound(pod.metadata.uid):
                await self._writer.set_claim_amounts(pod, ())
        except (NotFound, Conflict):  # gone, or another pod of that name
            return


class _UnknownAmount(Exception):
    """What the devices take cannot be computed; the attempt ends with this text."""


class NodeAllocatableResources:
    """The check of nodes for the pods of one profile. Does nothing while the gate is off."""

    def __init__(self, handle: Handle) -> None:
        self.is_on = NODE_ALLOCATABLE in handle.feature_gates
        self._nodes = handle.cluster.nodes
        self._pools = handle.cluster.devices.on_nodes

    def look_at(self, known: DeviceState, pod: PodInfo) -> None:
        """Find the devices of allocated claims, and the nodes that must not get the pod. Once per attempt.

        A claim with a device that stands for resources of its node can have one pod only.
        """
        for at, claim in enumerate(known.claims) if self.is_on else ():
            allocation = claim.status.allocation
            if allocation is None:
                continue
            found = known.allocated_devices[claim.uid] = self._devices_of(allocation)
            first = [each.published[0][1] for each in found if each.published]
            is_mapped = any(use.mapping for one in first for use in one.node_allocatable_resources.values())
            if is_mapped and claim.status.reserved_for and not claim.is_reserved_for(pod.uid):
                known.not_shared.append(at)

    def sharing(self, known: DeviceState, nodes: NodeSet) -> Groups:
        """Return the nodes rejected because another pod has a claim that cannot be shared."""
        groups: Groups = {}
        for at in known.not_shared:
            out = nodes & known.usable_on.get(at, nodes)
            if out:
                name = known.claims[at].metadata.name
                text = f"node allocatable resource claim {name} has a mapped device and cannot be shared across pods"
                groups[Rejection(PLUGIN, Code.UNRESOLVABLE, (text,))] = out
                nodes &= ~out
        return groups

    def concerns(self, known: DeviceState) -> bool:
        """Return whether a device of an allocated claim takes resources of its node."""
        return any(
            device.node_allocatable_resources
            for devices in known.allocated_devices.values()
            for each in devices
            for _, device in each.published
        )

    def taken(self, known: DeviceState, slot: int, variant: Variant | None, verdict: SearchVerdict | None) -> Taken:
        """Return the devices that each claim has, or would get by this verdict on the node."""
        taken = self._allocated(known.allocated_devices, slot)
        if variant is not None and verdict is not None:
            devices = [each for view in self._pools.pools(slot) for each in view.devices]
            for each in verdict.picked:
                found = devices[each.number]
                device = TakenDevice(found.id, found.device, each.amounts or None)
                taken.setdefault(variant.claims[each.claim].uid, []).append(device)
        return taken

    def reserve(self, known: DeviceState, pod: PodInfo, slot: int) -> Rejection | None:
        """Compute what the claims take of the node, once Reserve has decided the allocations.

        The devices may differ from those that Verify has seen, so the node is checked again; the pod is already counted there.
        """
        new = {uid: self._devices_of(allocation) for uid, allocation in known.allocations.items()}
        taken = self._allocated(known.allocated_devices | new, slot)
        try:
            known.claim_statuses = _statuses(known, pod, taken)
        except _UnknownAmount as error:
            return Rejection(PLUGIN, Code.ERROR, (str(error),))
        return self._check(pod, slot, known.claim_statuses, pod.requests)

    def check(self, known: DeviceState, pod: PodInfo, slot: int, taken: Taken) -> Rejection | None:
        """Return why the node has too little for the pod and its devices; None if it has enough.

        After Reserve the pod's requests contain the amounts, so NodeResourcesFit compares them.
        """
        try:
            return self._check(pod, slot, _statuses(known, pod, taken), {})
        except _UnknownAmount as error:
            return Rejection(PLUGIN, Code.ERROR, (str(error),))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check(self, pod: PodInfo, slot: int, statuses: tuple[ClaimStatus, ...], counted: Requests) -> Rejection | None:
        """Compare with the node. `counted` is what the node has counted of the pod."""
        if not statuses:
            return None
        claims = claim_amounts(statuses)
        problem = _pod_level_problem(pod.pod, statuses, claims)
        if problem:
            return Rejection(PLUGIN, Code.UNRESOLVABLE, (problem,))
        return self._shortage(requests_with_claims(pod.pod, claims), counted, slot)

    def _allocated(self, devices: Mapping[str, Iterable[AllocatedDevice]], slot: int) -> Taken:
        return {uid: [self._on_node(each, slot) for each in found] for uid, found in devices.items()}

    def _devices_of(self, allocation: AllocationResult) -> tuple[AllocatedDevice, ...]:
        return tuple(
            AllocatedDevice(each.id, tuple(self._published(each.id)), _consumed(each.consumed_capacity))
            for each in allocation.devices.results
        )

    def _published(self, device: DeviceId) -> Iterator[tuple[ResourceSlice, Device]]:
        for each in self._pools.published(PoolKey(device.driver, device.pool)):
            yield from ((each, one) for one in each.spec.devices if one.name == device.device)

    def _on_node(self, allocated: AllocatedDevice, slot: int) -> TakenDevice:
        """Return the device as the node sees it."""
        name = self._nodes.name(slot)
        for each, device in allocated.published:
            spec = each.spec
            if spec.per_device_node_selection:
                if not self._sees(device, slot, name):
                    missing = f"device {device.name} does not match node"
                    return TakenDevice(allocated.id, missing, allocated.consumed)
            elif not self._sees(spec, slot, name):
                continue
            return TakenDevice(allocated.id, device, allocated.consumed)
        driver, pool, device_name = allocated.id
        missing = f"device {device_name} not found in pool {pool} for driver {driver}"
        return TakenDevice(allocated.id, missing, allocated.consumed)

    def _sees(self, of: Device | ResourceSliceSpec, slot: int, name: str) -> bool:
        """Return whether the node sees the slice, or the device of a slice that leaves it to its devices."""
        if of.node_name:
            return of.node_name == name
        return bool(of.all_nodes) or (
            of.node_selector is not None and bool(matching_selector(self._nodes, of.node_selector) >> slot & 1)
        )

    def _shortage(self, demand: Requests, counted: Requests, slot: int) -> Rejection | None:
        """Return which resources the node has too little of. Only cpu, memory, local storage and huge pages count."""
        node = self._nodes.view(slot)
        reasons, is_final = [], False
        for name in (*NATIVE, *sorted(name for name in demand if name.startswith(_HUGE_PAGES))):
            amount, whole = demand.get(name, 0), node.allocatable(name)
            if amount > 0 and amount > whole - node.requested(name) + counted.get(name, 0):
                reasons.append(f"Insufficient {name}")
                is_final = is_final or amount > whole
        if not reasons:
            return None
        return Rejection(PLUGIN, Code.UNRESOLVABLE if is_final else Code.UNSCHEDULABLE, tuple(reasons))


def _statuses(known: DeviceState, pod: PodInfo, taken: Taken) -> tuple[ClaimStatus, ...]:
    """Return what each claim takes of the node's resources, sorted by the claims' names. Raises _UnknownAmount."""
    used_by: dict[str, tuple[str, ...]] | None = None
    found = []
    for claim in known.claims:
        devices = taken.get(claim.uid, ())
        if any(isinstance(each.device, Device) and each.device.node_allocatable_resources for each in devices):
            used_by = _containers(pod.pod) if used_by is None else used_by
            status = _status(claim, devices, used_by.get(claim.metadata.name, ()))
            if status is not None:
                found.append(status)
    return tuple(sorted(found, key=lambda status: status.resource_claim_name))


def _consumed(capacities: Mapping[str, Quantity] | None) -> Consumed:
    return None if capacities is None else {name: amount.nano for name, amount in capacities.items()}


def _containers(pod: Pod) -> dict[str, tuple[str, ...]]:
    """Return for each claim of the pod the containers that use it, init containers first."""
    users: dict[str, list[str]] = {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for name in dict.fromkeys(each.name for each in container.resources.claims):
            users.setdefault(name, []).append(container.name)
    of_claim: dict[str, dict[str, None]] = {}
    for entry in pod.spec.resource_claims:
        try:
            claim, _ = claim_name(pod, entry)
        except Unresolved:
            continue
        if claim is not None:
            of_claim.setdefault(claim, {}).update(dict.fromkeys(users.get(entry.name, ())))
    return {claim: tuple(found) for claim, found in of_claim.items()}


def _status(claim: ResourceClaim, devices: Iterable[TakenDevice], containers: tuple[str, ...]) -> ClaimStatus | None:
    """Return what the claim takes; None if it takes nothing. Raises _UnknownAmount."""
    mapped: Requests = {}
    overhead: dict[str, tuple[int | None, int | None]] = {}
    for taken in devices:
        if isinstance(taken.device, str):
            driver = taken.id.driver
            raise _UnknownAmount(f"claim {claim.key}, device {taken.id.device}, driver {driver}: {taken.device}")
        for name, each in taken.device.node_allocatable_resources.items():
            if each.mapping is not None:
                amount = _mapped(each.mapping, taken, claim, name)
                if amount is not None:
                    mapped[name] = mapped.get(name, 0) + amount
            if each.overhead is not None and (each.overhead.per_pod or each.overhead.per_container):
                per_pod, per_container = overhead.get(name, (None, None))
                overhead[name] = (
                    _plus(per_pod, each.overhead.per_pod),
                    _plus(per_container, each.overhead.per_container),
                )
    if not mapped and not overhead:
        return None
    return ClaimStatus(
        claim.metadata.name,
        containers,
        tuple(MappedResource(name, Quantity(amount)) for name, amount in sorted(mapped.items())),
        tuple(
            OverheadResource(name, *(None if amount is None else Quantity(amount) for amount in amounts))
            for name, amounts in sorted(overhead.items())
        ),
    )


def _mapped(mapping: NodeAllocatableMapping, taken: TakenDevice, claim: ResourceClaim, name: str) -> int | None:
    """Return the amount that a device stands for, in billionths; None if its mapping says nothing about it."""
    if not mapping.capacity_key:
        return None if mapping.device_multiplier is None else mapping.device_multiplier.nano
    if taken.consumed is None:
        raise _UnknownAmount(
            f"claim {claim.key}, device {taken.id.device}: ConsumedCapacity is nil, but Capacity key "
            f"'{mapping.capacity_key}' is set in NodeAllocatableResources for resource {name}"
        )
    consumed = taken.consumed.get(mapping.capacity_key)
    if consumed is None or mapping.capacity_multiplier is None:
        return consumed
    return -(-consumed * mapping.capacity_multiplier.nano // _NANO)


def _plus(sum_: int | None, more: Quantity | None) -> int | None:
    return sum_ if more is None else (sum_ or 0) + more.nano


def _pod_level_problem(pod: Pod, statuses: Iterable[ClaimStatus], claims: Requests) -> str:
    """Return why the amounts for the pod as a whole do not cover its containers and devices; "" if they do."""
    whole = pod.spec.resources
    if whole.requests:
        sums = container_amounts(pod, claims, "requests")
        for name, quantity in sorted(pod_level(whole.requests).items()):
            if sums.get(name, 0) > quantity.nano:
                return f"pod level request for {name} {_INSUFFICIENT} the {_AGGREGATED} requests"
    if whole.limits:
        sums = container_amounts(pod, claims, "limits")
        for name, quantity in sorted(whole.limits.items()):
            if name.startswith(_HUGE_PAGES) and sums.get(name, 0) > quantity.nano:
                return f"pod level limit for {name} {_INSUFFICIENT} the {_AGGREGATED} limits"
        for container in pod.spec.containers:
            own = _of_container(container.name, statuses)
            for name, limit in sorted(container.resources.limits.items()):
                if name.startswith(_HUGE_PAGES) or name not in whole.limits:
                    continue
                if limit.nano + own.get(name, 0) > whole.limits[name].nano:
                    return f"pod level limit for {name} {_INSUFFICIENT} the limit and DRA overhead for container {container.name}"
    return ""


def _of_container(name: str, statuses: Iterable[ClaimStatus]) -> Requests:
    """Return what the claims that the container uses take, in billionths."""
    return claim_amounts(
        msgspec.structs.replace(status, containers=(name,)) for status in statuses if name in status.containers
    )
