"""Extended resources that devices stand behind, decided: which nodes, and what the claim would ask for there (docs/spec/dra.md §3.12).

Nodes are told apart only by which of the pod's resources they have themselves: a few groups, however many nodes there are.
The claim lives in memory until PreBind makes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from scheduler.cache.devices import Devices
from scheduler.cache.extendedresources import ServedResources, may_be_devices
from scheduler.cache.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.meta import OwnerReference
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.pod import Pod
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import (
    EXTENDED_RESOURCE_CLAIM,
    ClaimMetadata,
    DeviceClaim,
    ResourceClaim,
    ResourceClaimSpec,
)
from scheduler.core.verdicts import Code, Rejection
from scheduler.framework.memo import BySlots
from scheduler.plugins.dra.demand import Demands
from scheduler.plugins.dra.extendedrequests import asked
from scheduler.plugins.dra.state import PLUGIN, DeviceState, Variant

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
    """The deciding half, of one profile."""

    def __init__(self, nodes: Nodes, devices: Devices, demands: Demands, *, gates: frozenset[str]) -> None:
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
