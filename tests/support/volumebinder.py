"""A stand-in for what knows volumes: answers as it is told, and remembers what it was asked.

Implements `scheduler.plugins.volumebinding.binder.VolumeBinder`. For tests of the plugin, and of what calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.plugins.volumebinding.binder import (
    Conflicts,
    Plan,
    PodVolumeClaims,
    PodVolumes,
    Reasons,
    VolumeError,
)


@dataclass
class FakeVolumeBinder:
    """Sorts every pod's claims into `claims`, refuses no node, and binds at once, unless told otherwise."""

    claims: PodVolumeClaims = field(default_factory=PodVolumeClaims)
    conflicts: Conflicts = field(default_factory=dict)
    """Reasons → nodes; cut to the nodes that are asked about."""
    found: PodVolumes | Reasons = field(default_factory=PodVolumes)
    all_bound: bool = False
    """What `assume` finds: nothing is left to do."""
    errors: Mapping[str, Exception] = field(default_factory=dict)
    """Operation → what it raises."""
    calls: list[str] = field(default_factory=list)
    """Every operation, in order."""
    asked: list[PodVolumeClaims] = field(default_factory=list)
    """The claims that nodes were judged by."""
    plans: list[Plan] = field(default_factory=list)
    """What was assumed."""
    reverted: list[Plan] = field(default_factory=list)
    bound: list[Plan] = field(default_factory=list)

    def pod_volume_claims(self, pod: PodInfo) -> PodVolumeClaims:
        """As the protocol."""
        self._called("pod_volume_claims")
        return self.claims

    def eligible_nodes(self, claims: PodVolumeClaims, nodes: NodeSet) -> Conflicts:
        """As the protocol."""
        self._called("eligible_nodes")
        self.asked.append(claims)
        return {reasons: out & nodes for reasons, out in self.conflicts.items() if out & nodes != EMPTY}

    def find(self, claims: PodVolumeClaims, slot: int) -> PodVolumes | Reasons:
        """As the protocol."""
        self._called("find")
        self.asked.append(claims)
        return self.found

    def assume(self, pod: PodInfo, node_name: str, volumes: PodVolumes) -> Plan | None:
        """As the protocol."""
        self._called("assume")
        if self.all_bound:
            return None
        self.plans.append(Plan(pod, node_name))
        return self.plans[-1]

    def revert(self, plan: Plan) -> None:
        """As the protocol."""
        self._called("revert")
        self.reverted.append(plan)

    async def bind(self, plan: Plan) -> None:
        """As the protocol."""
        self._called("bind")
        self.bound.append(plan)

    def _called(self, operation: str) -> None:
        self.calls.append(operation)
        if operation in self.errors:
            raise self.errors[operation]


def refusing(operation: str, text: str) -> FakeVolumeBinder:
    """One of whose operations fails with this text."""
    return FakeVolumeBinder(errors={operation: VolumeError(text)})
