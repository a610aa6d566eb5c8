"""Extended resources that device classes serve (docs/spec/dra.md §3.12).

What the claim for a pod's extended resources asks for, and which container gets what of it (docs/spec/dra.md §3.12).

Containers are numbered through, init containers first. Those that run as long as the pod does (sidecars and regular ones)
each have a request of their own; those that only run first borrow from containers behind them, and what is then still
missing the most is asked for once, for all of them.

Extended resources that devices stand behind, decided: which nodes, and what the claim would ask for there (docs/spec/dra.md §3.12).

Nodes are told apart only by which of the pod's resources they have themselves: a few groups, however many nodes there are.
The claim lives in memory until PreBind makes it.
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
from scheduler.plugins.dra.requests import ClaimParser
from scheduler.plugins.dra.state import PLUGIN, DeviceState, Variant

_ONE: Final = 10**9
"""In nano units."""


class MappedRequests(NamedTuple):
    """Both are empty if no container wants anything."""

    requests: tuple[DeviceRequest, ...] = ()
    mappings: tuple[Mapped, ...] = ()


class _Request(NamedTuple):
    name: str
    amount: int


@dataclass(slots=True)
class _Share:
    """What one container gets: whose requests it may use, and what it has to ask for itself."""

    own: _Request | None = None
    mappings: list[Mapped] = field(default_factory=list)


def asked(pod: Pod, classes: Mapping[str, str]) -> MappedRequests:
    """`classes` has the names of the classes by the resources that they are to serve."""
    requests: list[DeviceRequest] = []
    mappings: list[Mapped] = []
    for resource in sorted(classes):
        found, mapped = _of_resource(pod, resource)
        requests += (DeviceRequest(each.name, _exactly(classes[resource], each.amount)) for each in found)
        mappings += mapped
    return MappedRequests(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))


def _exactly(device_class: str, count: int) -> ExactDeviceRequest:
    return ExactDeviceRequest(device_class_name=device_class, allocation_mode=EXACT_COUNT, count=count)


def _of_resource(pod: Pod, resource: str) -> tuple[list[_Request], list[Mapped]]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    first = len(pod.spec.init_containers)
    is_long = [at >= first or each.restart_policy == "Always" for at, each in enumerate(containers)]
    long = {at: _share(at, each, resource) for at, each in enumerate(containers) if is_long[at]}
    lasting = [long[at].own if is_long[at] else None for at in range(len(containers))]
    short = [
        _share(at, each, resource, reusable=[request for request in lasting[at:] if request is not None])
        for at, each in enumerate(containers)
        if not is_long[at]
    ]
    extra = _largest(share.own for share in short)
    mappings = [each for share in long.values() for each in share.mappings]
    mappings += _renamed(short, extra)
    requests = [request for request in (extra, *lasting) if request is not None]
    return requests, mappings


def _share(at: int, container: Container, resource: str, *, reusable: Sequence[_Request] = ()) -> _Share:
    """What is there is used in order until it is enough; the rest is asked for."""
    wanted = _whole(container, resource)
    share = _Share()
    if not wanted:
        return share
    for request in reusable:
        share.mappings.append(Mapped(container.name, resource, request.name))
        wanted -= request.amount
        if wanted <= 0:
            return share
    number = sorted(container.resources.requests).index(resource)
    share.own = _Request(f"container-{at}-request-{number}", wanted)
    share.mappings.append(Mapped(container.name, resource, share.own.name))
    return share


def _whole(container: Container, resource: str) -> int:
    """How many devices; none for what is no whole number, which a server refuses."""
    amount = container.resources.requests.get(resource)
    if amount is None or amount.nano % _ONE:
        return 0
    return max(amount.nano // _ONE, 0)


def _largest(requests: Iterable[_Request | None]) -> _Request | None:
    """The first of those that count most."""
    return max((each for each in requests if each is not None), key=lambda request: request.amount, default=None)


def _renamed(shares: Iterable[_Share], extra: _Request | None) -> Iterator[Mapped]:
    """Whoever asked for something more uses the one request that is made for all of them."""
    for share in shares:
        for mapped in share.mappings:
            if extra is not None and share.own is not None and mapped.request_name == share.own.name:
                yield msgspec.structs.replace(mapped, request_name=extra.name)
            else:
                yield mapped


IN_MEMORY: Final = "<extended-resources>"
"""The name of the claim before it is made. No server takes it, so no other claim is called that."""
_numbers: Final = itertools.count()
STALE: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("cannot schedule extended resource claim",))
NO_SUCH_RESOURCE: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("cannot fit resource",))


def is_in_memory(claim: ResourceClaim) -> bool:
    """Whether it is the claim for extended resources before it is made."""
    return claim.metadata.name == IN_MEMORY


def own_claims(known: DeviceState) -> tuple[ResourceClaim, ...]:
    """Those of an attempt that the pod's entries name: all but the one for extended resources."""
    made = known.made.uid if known.made is not None else ""
    return tuple(claim for claim in known.claims if not is_in_memory(claim) and claim.uid != made)


class ExtendedResources:
    """The deciding half, of one profile.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go filterExtendedResources
    """

    def __init__(self, nodes: Nodes, devices: SharedDRAManager, demands: ClaimParser, *, gates: frozenset[str]) -> None:
        self._nodes = nodes
        self._devices = devices
        self._demands = demands
        self._served = ServedResources(devices.classes, gates)
        self._named: BySlots[_Named] = BySlots(nodes)

    def served(self, pod: PodInfo) -> frozenset[str]:
        """The pod's resources that classes serve where a node has none of them itself; mostly none."""
        return self._served.among(pod.requests)

    def lay_out(
        self,
        known: DeviceState,
        pod: PodInfo,
        served: frozenset[str],
        *,
        claims: Sequence[ResourceClaim],
        nodes: NodeSet,
    ) -> None:
        """Say of each group of nodes what the pod is allocated there. `claims` are the pod's own."""
        stale = self._devices.claims.made_for(pod.pod)
        if stale is not None:  # of an attempt that failed: what it has may be out of date, so it goes first
            known.stale = stale
            known.unfit = {STALE: nodes}
            known.claims = (*claims, stale)
            return
        special = _in_memory(pod.pod)
        lacking = self._lacking(pod, served, nodes)
        if lacking:
            known.unfit = {NO_SUCH_RESOURCE: lacking}
        to_allocate = tuple(claim for claim in claims if not claim.is_allocated)
        known.variants = tuple(
            self._variant(pod.pod, special, by_devices, to_allocate=to_allocate, nodes=here)
            for by_devices, here in self._groups(served, nodes & ~lacking)
        )
        known.claims = (*claims, special)

    def _groups(self, served: frozenset[str], nodes: NodeSet) -> Iterator[tuple[frozenset[str], NodeSet]]:
        """What devices must stand in for, and on which nodes."""
        groups: dict[frozenset[str], NodeSet] = {frozenset(): nodes}
        for resource in sorted(served):
            own = self._offering(resource)
            split = [
                (key, some)
                for so_far, here in groups.items()
                for key, some in ((so_far, here & own), (so_far | {resource}, here & ~own))
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
        """A node that has everything itself needs no claim, whatever other claims the pod has."""
        if not by_devices:
            return Variant(nodes, to_allocate, self._demands.of(to_allocate) if to_allocate else None)
        classes = {
            name: found.metadata.name for name in by_devices if (found := self._devices.classes.for_resource(name))
        }
        wanted = asked(pod, classes)
        spec = ResourceClaimSpec(DeviceClaim(requests=wanted.requests))
        here = msgspec.structs.replace(special, spec=spec)
        claims = (*to_allocate, here)
        return Variant(nodes, claims, self._demands.of(claims), here, wanted.mappings)

    def _lacking(self, pod: PodInfo, served: frozenset[str], nodes: NodeSet) -> NodeSet:
        """Nodes that know nothing of a resource which no class serves either."""
        out = EMPTY
        for resource, amount in pod.requests.items():
            if amount > 0 and resource not in served and may_be_devices(resource):
                named = self._named.get(resource, partial(_Named, self._nodes, resource))
                out |= nodes & ~named.nodes
        return out

    def _offering(self, resource: str) -> NodeSet:
        """Nodes that have some of it themselves."""
        row = self._nodes.resources().get(resource)
        return EMPTY if row is None else nodeset.from_mask(self._nodes.allocatable[row] > 0)


class _Named:
    """Nodes that name a resource among theirs, be it none of it: no column tells."""

    __slots__ = ("_resource", "_seen", "nodes")

    def __init__(self, nodes: Nodes, resource: str) -> None:
        self._seen = nodes
        self._resource = resource
        self.nodes: NodeSet = EMPTY
        self.refresh(set(nodeset.each(nodes.present)))

    def refresh(self, slots: set[int]) -> None:
        """These nodes changed."""
        there = []
        for slot in slots:
            node = self._seen.node(slot)
            if node is not None and self._resource in node.status.allocatable:
                there.append(slot)
        self.nodes = self.nodes & ~nodeset.of(slots) | nodeset.of(there)


def _in_memory(pod: Pod) -> ResourceClaim:
    """Under a uid that no other claim of this process has, and no server gives."""
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
