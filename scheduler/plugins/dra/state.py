"""What DynamicResources knows of one attempt (docs/spec/dra.md §3.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scheduler.core.nodeset import NodeSet
from scheduler.core.resourceclaims import AllocationResult, ResourceClaim
from scheduler.framework.state import StateKey
from scheduler.plugins.dra.demand import Demand

PLUGIN: Final = "DynamicResources"


class Variant(NamedTuple):
    """What these nodes are asked for. Without extended resources there is one, for all nodes.

    `special` is the claim for extended resources as it would be on these nodes, last of `claims`.
    """

    nodes: NodeSet
    claims: tuple[ResourceClaim, ...]
    demand: Demand | None
    special: ResourceClaim | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """As messages call them."""
        return tuple(claim.key for claim in self.claims)


@dataclass(slots=True, eq=False)
class DeviceState:
    """One attempt. `claims` are all of the pod's, those allocated already included, the special one last."""

    claims: tuple[ResourceClaim, ...] = ()
    variants: tuple[Variant, ...] = ()
    usable_on: dict[int, NodeSet] = field(default_factory=dict)
    """Number of an allocated claim → where its devices can be used."""
    worn_out: tuple[int, ...] = ()
    """Allocated claims whose devices have failed to become ready, or took too long."""
    unavailable: set[int] = field(default_factory=set)
    """Claims that kept the pod off some node on which everything else was fine."""
    node_name: str = ""
    allocations: dict[str, AllocationResult] = field(default_factory=dict)
    """Claim uid → what Reserve has decided on."""
    special: ResourceClaim | None = None
    """The claim for extended resources, on the node that was reserved."""
    signalled: tuple[str, ...] = ()
    """Uids under which claims are in flight for this attempt."""


STATE: Final[StateKey[DeviceState]] = StateKey(PLUGIN)
EMPTY_STATE: Final = DeviceState()
