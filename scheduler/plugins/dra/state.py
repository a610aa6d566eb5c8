"""What DynamicResources knows of one attempt (docs/spec/dra.md §3.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scheduler.api.core_v1 import ContainerExtendedResourceRequest
from scheduler.api.resource_v1 import AllocationResult, ResourceClaim
from scheduler.core.nodeset import NodeSet
from scheduler.framework.interface import StateKey
from scheduler.framework.status import Groups
from scheduler.plugins.dra.requests import ClaimsToAllocate

PLUGIN: Final = "DynamicResources"


class Variant(NamedTuple):
    """What these nodes are asked for. Without extended resources there is one, for all nodes.

    `special` is the claim for extended resources as it would be on these nodes, last of `claims`.
    """

    nodes: NodeSet
    claims: tuple[ResourceClaim, ...]
    demand: ClaimsToAllocate | None
    special: ResourceClaim | None = None
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    """What its containers get of that claim."""

    @property
    def names(self) -> tuple[str, ...]:
        """As messages call them."""
        return tuple(claim.key for claim in self.claims)


@dataclass(slots=True, eq=False)
class DeviceState:
    """One attempt. `claims` are all of the pod's, those allocated already included, the special one last.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go stateData
    """

    claims: tuple[ResourceClaim, ...] = ()
    variants: tuple[Variant, ...] = ()
    unfit: Groups = field(default_factory=dict)
    """Nodes that are out for their extended resources, before any device is looked at."""
    usable_on: dict[int, NodeSet] = field(default_factory=dict)
    """Number of an allocated claim → where its devices can be used."""
    worn_out: tuple[int, ...] = ()
    """Allocated claims whose devices have failed to become ready, or took too long."""
    node_name: str = ""
    allocations: dict[str, AllocationResult] = field(default_factory=dict)
    """Claim uid → what Reserve has decided on."""
    special: ResourceClaim | None = None
    """The claim for extended resources, on the node that was reserved; None if that one needs none."""
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    """What the containers get of that claim."""
    stale: ResourceClaim | None = None
    """A claim for extended resources that an attempt before this one has left."""
    made: ResourceClaim | None = None
    """What this attempt has made in the cluster, and has to remove if the pod does not get there."""
    kept: dict[int, tuple[AllocationResult, ...]] = field(default_factory=dict)
    """Node → what pods nominated to it, to which this one must yield, will have of its devices."""
    kept_elsewhere: dict[int, tuple[AllocationResult, ...]] | None = None
    """The same, of shared pools only, for all nodes; None before anybody asks."""
    signalled: tuple[str, ...] = ()
    """Uids under which claims are in flight for this attempt."""
    blocked_s: float = 0.0
    """Time that this attempt has blocked the event loop to find what nominated pods will have."""
    searched_s: float = 0.0
    """Time that this attempt has spent on searches, its trials included."""

    def variant(self, slot: int) -> Variant | None:
        """What this node is asked for; None if it is out before any device is looked at."""
        return next((variant for variant in self.variants if variant.nodes >> slot & 1), None)


STATE: Final[StateKey[DeviceState]] = StateKey(PLUGIN)
EMPTY_STATE: Final = DeviceState()
