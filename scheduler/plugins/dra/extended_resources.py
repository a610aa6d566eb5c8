"""Extended resources that device classes serve: the nodes, and the claim on each of them (docs/spec/dra.md §3.12).

Containers have consecutive numbers, init containers first. Each sidecar and regular container has its own request.
Init containers that end first borrow from the containers after them. One more request covers the largest amount
that one of them still lacks.

Nodes differ only in which of the pod's resources they have themselves, so there are few groups of nodes. The claim
exists only in memory until PreBind creates it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import msgspec

from scheduler.api.core_v1 import Container, ContainerExtendedResourceRequest as Mapped, Pod
from scheduler.api.meta import OwnerReference
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import (
    EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM,
    ClaimMetadata,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from scheduler.cache.devices.manager import ServedResources, SharedDRAManager, may_be_devices
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.memo import BySlots
from scheduler.framework.status import Code, Rejection
from scheduler.plugins.dra.state import PLUGIN, DeviceState, Variant
from scheduler.plugins.dra.structured.requests import ClaimParser

_ONE: Final = 10**9
"""In nano units."""


class MappedRequests(NamedTuple):
    """The requests of the claim, and the containers that use them. Both are empty if no container requests anything."""

    requests: tuple[DeviceRequest, ...] = ()
    mappings: tuple[Mapped, ...] = ()


class _Request(NamedTuple):
    name: str
    amount: int


@dataclass(slots=True)
class _Share:
    """The requests that one container uses, and its own request."""

    own: _Request | None = None
    mappings: list[Mapped] = field(default_factory=list)


def mapped_requests(pod: Pod, classes: Mapping[str, str]) -> MappedRequests:
    """Return the requests for the pod's extended resources. `classes` maps resources to the classes that serve them."""
    requests: list[DeviceRequest] = []
    mappings: list[Mapped] = []
    for resource in sorted(classes):
        found, mapped = _of_resource(pod, resource)
        mappings += mapped
        for each in found:
            exactly = ExactDeviceRequest(
                device_class_name=classes[resource], allocation_mode=EXACT_COUNT, count=each.amount
            )
            requests.append(DeviceRequest(each.name, exactly))
    return MappedRequests(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))


def _of_resource(pod: Pod, resource: str) -> tuple[list[_Request], list[Mapped]]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    first = len(pod.spec.init_containers)
    # Sidecars are init containers that stay. They need their devices at the same time as the regular containers.
    is_long = [at >= first or each.restart_policy == "Always" for at, each in enumerate(containers)]
    long = {at: _share(at, each, resource) for at, each in enumerate(containers) if is_long[at]}
    lasting = [long[at].own if is_long[at] else None for at in range(len(containers))]
    short = [
        _share(at, each, resource, reusable=[request for request in lasting[at:] if request is not None])
        for at, each in enumerate(containers)
        if not is_long[at]
    ]
    own = (share.own for share in short if share.own is not None)
    # Init containers run one after the other, so the largest lack covers all of them.
    extra = max(own, key=lambda request: request.amount, default=None)  # the first of the largest
    mappings = [each for share in long.values() for each in share.mappings]
    mappings += _renamed(short, extra)
    requests = [request for request in (extra, *lasting) if request is not None]
    return requests, mappings


def _share(at: int, container: Container, resource: str, *, reusable: Sequence[_Request] = ()) -> _Share:
    """Use the reusable requests in order until they suffice, and request the rest."""
    wanted = _whole(container, resource)
    share = _Share()
    if not wanted:
        return share
    for request in reusable:
        share.mappings.append(Mapped(container.name, resource, request.name))
        wanted -= request.amount
        if wanted <= 0:
            return share
    # The name of the request is upstream's: by container and by the index of the resource. The kubelet finds the
    # devices of a container by it.
    number = sorted(container.resources.requests).index(resource)
    share.own = _Request(f"container-{at}-request-{number}", wanted)
    share.mappings.append(Mapped(container.name, resource, share.own.name))
    return share


def _whole(container: Container, resource: str) -> int:
    """Return the number of devices; 0 for a fraction, which an API server refuses."""
    amount = container.resources.requests.get(resource)
    if amount is None or amount.nano % _ONE:
        return 0
    return max(amount.nano // _ONE, 0)


def _renamed(shares: Iterable[_Share], extra: _Request | None) -> Iterator[Mapped]:
    """Yield the mappings, with the containers' own requests replaced by the one request for all of them."""
    for share in shares:
        for mapped in share.mappings:
            if extra is not None and share.own is not None and mapped.request_name == share.own.name:
                yield msgspec.structs.replace(mapped, request_name=extra.name)
            else:
                yield mapped


IN_MEMORY: Final = "<extended-resources>"
"""The name of the claim before it is created. API servers refuse this name, so no other claim has it."""
_numbers: Final = itertools.count()
STALE: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("cannot schedule extended resource claim",))
NO_SUCH_RESOURCE: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("cannot fit resource",))


def is_in_memory(claim: ResourceClaim) -> bool:
    """Return whether this is the claim for extended resources before it is created."""
    return claim.metadata.name == IN_MEMORY


def own_claims(device_state: DeviceState) -> tuple[ResourceClaim, ...]:
    """Return the claims of an attempt that the pod's entries name: all but the one for extended resources."""
    made = device_state.made.uid if device_state.made is not None else ""
    return tuple(claim for claim in device_state.claims if not is_in_memory(claim) and claim.uid != made)


class ExtendedResources:
    """Decides the nodes and the claim for extended resources; one per profile.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go filterExtendedResources
    """

    def __init__(self, nodes: Nodes, devices: SharedDRAManager, demands: ClaimParser, *, gates: frozenset[str]) -> None:
        self._nodes = nodes
        self._devices = devices
        self._parser = demands
        self._served = ServedResources(devices.classes, gates)
        self._named: BySlots[_Named] = BySlots(nodes)

    def served(self, pod: PodInfo) -> frozenset[str]:
        """Return the pod's resources that classes serve on nodes without these resources; mostly none."""
        return self._served.among(pod.requests)

    def lay_out(
        self,
        device_state: DeviceState,
        pod: PodInfo,
        served: frozenset[str],
        *,
        claims: Sequence[ResourceClaim],
        nodes: NodeSet,
    ) -> None:
        """Set the variant of each group of nodes. `claims` are the pod's own."""
        # The claim was made for another node or other classes. Its spec is immutable, so it cannot be adapted.
        stale = self._devices.claims.made_for(pod.pod)
        if stale is not None:  # left by a failed attempt: it may be outdated, so it is deleted first
            device_state.stale = stale
            device_state.unfit = {STALE: nodes}
            device_state.claims = (*claims, stale)
            return
        special = _in_memory(pod.pod)
        lacking = self._lacking(pod, served, nodes)
        if lacking:
            device_state.unfit = {NO_SUCH_RESOURCE: lacking}
        to_allocate = tuple(claim for claim in claims if not claim.is_allocated)
        device_state.variants = tuple(
            self._variant(pod.pod, special, by_devices, to_allocate=to_allocate, nodes=group)
            for by_devices, group in self._groups(served, nodes & ~lacking)
        )
        device_state.claims = (*claims, special)

    def _groups(self, served: frozenset[str], nodes: NodeSet) -> Iterator[tuple[frozenset[str], NodeSet]]:
        """Yield the resources that devices must serve, and the nodes where they must."""
        # A node with a device plugin serves the resource itself, and needs no claim for it. During a migration both
        # kinds of nodes exist.
        groups: dict[frozenset[str], NodeSet] = {frozenset(): nodes}
        for resource in sorted(served):
            own = self._offering(resource)
            split = [
                (key, some)
                for so_far, group in groups.items()
                for key, some in ((so_far, group & own), (so_far | {resource}, group & ~own))
            ]
            groups = {key: some for key, some in split if some}
        return iter(groups.items())

    def _variant(
        self,
        pod: Pod,
        special: ResourceClaim,
        by_devices: frozenset[str],
        *,
        to_allocate: tuple[ResourceClaim, ...],
        nodes: NodeSet,
    ) -> Variant:
        """Return the variant of these nodes. Nodes that have all resources themselves need no claim for them."""
        # These nodes have all resources themselves, so only the pod's own claims are allocated.
        if not by_devices:
            return Variant(nodes, to_allocate, self._parser.of(to_allocate) if to_allocate else None)
        classes = {
            name: found.metadata.name for name in by_devices if (found := self._devices.classes.for_resource(name))
        }
        wanted = mapped_requests(pod, classes)
        spec = ResourceClaimSpec(DeviceClaim(requests=wanted.requests))
        special = msgspec.structs.replace(special, spec=spec)
        claims = (*to_allocate, special)
        return Variant(nodes, claims, self._parser.of(claims), special, wanted.mappings)

    def _lacking(self, pod: PodInfo, served: frozenset[str], nodes: NodeSet) -> NodeSet:
        """Return the nodes that do not list a resource that no class serves."""
        lacking = EMPTY
        for resource, amount in pod.requests.items():
            # NodeResourcesFit ignores resources that classes may serve. A node that does not list such a resource and
            # has no class for it would pass both.
            if amount > 0 and resource not in served and may_be_devices(resource):
                named = self._named.get(resource, partial(_Named, self._nodes, resource))
                lacking |= nodes & ~named.nodes
        return lacking

    def _offering(self, resource: str) -> NodeSet:
        """Return the nodes that have some of the resource themselves."""
        row = self._nodes.resources().get(resource)
        return EMPTY if row is None else nodeset.from_mask(self._nodes.allocatable[row] > 0)


class _Named:
    """Nodes that list a resource, also with amount 0; the cache's columns do not distinguish 0 from missing."""

    __slots__ = ("_nodes", "_resource", "nodes")

    def __init__(self, nodes: Nodes, resource: str) -> None:
        self._nodes = nodes
        self._resource = resource
        self.nodes: NodeSet = EMPTY
        self.refresh(range(nodes.present.bit_length()))

    def refresh(self, slots: Sequence[int]) -> None:
        """Update the nodes that changed."""
        nodes = ((slot, self._nodes.node(slot)) for slot in slots)
        there = [slot for slot, node in nodes if node is not None and self._resource in node.status.allocatable]
        self.nodes = self.nodes & ~nodeset.of(slots) | nodeset.of(there)


def _in_memory(pod: Pod) -> ResourceClaim:
    """Return a claim with a uid that is unique in this process and that no API server gives."""
    owner = OwnerReference("v1", "Pod", pod.metadata.name, pod.metadata.uid, controller=True)
    return ResourceClaim(
        ClaimMetadata(
            name=IN_MEMORY,
            namespace=pod.metadata.namespace,
            uid=f"{IN_MEMORY}-{next(_numbers)}",
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            owner_references=(owner,),
        )
    )
