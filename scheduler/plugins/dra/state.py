"""The state of DynamicResources in one attempt (docs/spec/dra.md §3.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scheduler.api.core_v1 import ContainerExtendedResourceRequest
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import AllocationResult, ResourceClaim
from scheduler.core.nodeset import NodeSet
from scheduler.framework.interface import CycleState, StateKey
from scheduler.framework.status import Groups
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate

PLUGIN: Final = "DynamicResources"


class Variant(NamedTuple):
    """The claims to allocate on a group of nodes. Without extended resources there is one group of all nodes.

    `special` is the claim for extended resources as it would be on these nodes. It is the last of `claims`.
    """

    nodes: NodeSet
    claims: tuple[ResourceClaim, ...]
    demand: ClaimsToAllocate | None
    special: ResourceClaim | None = None
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    """What each container gets of the claim `special`."""

    @property
    def names(self) -> tuple[str, ...]:
        """The claims' names in messages."""
        return tuple(claim.key for claim in self.claims)


@dataclass(slots=True, eq=False)
class DeviceState:
    """One attempt.

    `claims` has all claims of the pod, also allocated ones. The claim for extended resources is the last.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go stateData
    """

    claims: tuple[ResourceClaim, ...] = ()
    variants: tuple[Variant, ...] = ()
    unfit: Groups = field(default_factory=dict)
    """Nodes rejected because of extended resources, before any search for devices."""
    usable_on: dict[int, NodeSet] = field(default_factory=dict)
    """Index of an allocated claim → nodes where its devices can be used."""
    unavailable_claims: tuple[int, ...] = ()
    """Indexes of allocated claims whose devices have failed to become ready, or took too long."""
    node_name: str = ""
    allocations: dict[str, AllocationResult] = field(default_factory=dict)
    """Claim uid → the allocation that Reserve has decided."""
    special: ResourceClaim | None = None
    """The claim for extended resources on the reserved node; None if that node needs no such claim."""
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    """What each container gets of the claim `special`."""
    stale: ResourceClaim | None = None
    """A claim for extended resources that an earlier attempt has left."""
    made: ResourceClaim | None = None
    """The claim that this attempt has created; it is deleted if the pod is not bound."""
    nominated: dict[int, list[PodInfo]] | None = None
    """Slot → nominated pods of equal or higher priority; None until it is computed."""
    held: dict[int, tuple[AllocationResult, ...]] = field(default_factory=dict)
    """Slot → devices that are held for these pods."""
    held_shared: dict[int, tuple[AllocationResult, ...]] = field(default_factory=dict)
    """Slot → those of them that other nodes see too."""
    shared: tuple[ResourceClaim, ...] = ()
    """Claims with the allocation that they have in flight for other pods of the same plan, which this pod shares."""
    signalled: tuple[str, ...] = ()
    """Uids of claims that are in flight for this attempt."""
    searched_s: float = 0.0
    """Time that this attempt has spent on searches, also in dry runs."""

    def variant(self, slot: int) -> Variant | None:
        """Return the node's variant; None if the node is rejected before any search for devices."""
        return next((variant for variant in self.variants if variant.nodes >> slot & 1), None)


STATE: Final[StateKey[DeviceState]] = StateKey(PLUGIN)


def state_of(state: CycleState) -> DeviceState | None:
    """Return the state of an attempt; None if PreFilter has not run."""
    return state.get(STATE) if state.has(STATE) else None
