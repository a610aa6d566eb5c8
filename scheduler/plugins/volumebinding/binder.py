"""What the plugin asks of whoever knows volumes: six operations, so that plugin and algorithm are tested apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from scheduler.cache.sharedpools import Pool
from scheduler.core.nodeset import NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.volumes import PersistentVolume, PersistentVolumeClaim

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_NOT_EXIST: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"

Reasons: TypeAlias = tuple[str, ...]
"""Why a node cannot serve a pod's claims, in upstream's order: NodeConflict, BindConflict, NotEnoughSpace, PVNotExist."""

Conflicts: TypeAlias = Mapping[Reasons, NodeSet]
"""The nodes that are out, by their reasons. Disjoint."""


class VolumeError(Exception):
    """A failure of ours or of what we were told, as opposed to an answer: the attempt ends. The message is upstream's."""


class NotWritten(Exception):
    """Another pod's plan was to write a claim that both pods use, and ended before it did: this plan writes it."""


@dataclass(frozen=True, slots=True)
class PodVolumeClaims:
    """A pod's claims by what is still to be done for them, each once, in the order of the volumes (§2.3)."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()
    followed: tuple[PersistentVolumeClaim, ...] = ()
    """Their volume is chosen and another pod of ours is binding them: this pod goes where that volume is, and waits."""
    unusable: str = ""
    """Why the pod cannot be placed whatever the nodes are; "" for no such reason (§2.2)."""
    is_entangled: bool = False
    """Some delayed claims of one class wish for different volumes: which node serves all must be tried node by node."""


class StaticBinding(NamedTuple):
    """A volume for a claim, as it is found."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume


class Provision(NamedTuple):
    """A claim that is to be provisioned for the node, and where the room comes from, if anybody knows."""

    claim: PersistentVolumeClaim
    pool: Pool | None


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """What one node would do for one pod."""

    static: tuple[StaticBinding, ...] = ()
    dynamic: tuple[Provision, ...] = ()
    followed: tuple[PersistentVolumeClaim, ...] = ()


@dataclass(slots=True, eq=False)
class StaticStep:
    """A volume to be written for a claim: as assumed, and as the server answered once it is written."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    is_dirty: bool
    marks: bool
    """Say that we bound it, so that the PV controller undoes all of it if it has to."""
    written: PersistentVolume | None = None
    is_left: bool = False
    """The plan of another pod is to write it, and it has not been seen yet."""


@dataclass(slots=True, eq=False)
class DynamicStep:
    """A claim to be written with its node: as assumed, and as the server answered."""

    claim: PersistentVolumeClaim
    written: PersistentVolumeClaim | None = None
    is_left: bool = False
    """The plan of another pod is to write it, and it has not been seen yet."""


@dataclass(slots=True, eq=False)
class Plan:
    """What is to be written for a pod on its node, all of it assumed. Known by its pod's uid."""

    pod: PodInfo
    node_name: str
    static: list[StaticStep] = field(default_factory=list)
    dynamic: list[DynamicStep] = field(default_factory=list)
    followed: list[PersistentVolumeClaim] = field(default_factory=list)

    def claims(self) -> list[PersistentVolumeClaim]:
        """All that are not bound yet."""
        return [*(step.claim for step in self.static), *(step.claim for step in self.dynamic), *self.followed]


class VolumeBinder(Protocol):
    """Plain calls on the caches, but for `bind`. All raise VolumeError."""

    def pod_volume_claims(self, pod: PodInfo) -> PodVolumeClaims:
        """Sort the pod's claims. Nothing is raised for a claim that is missing or wrong: see `unusable`."""

    def eligible_nodes(self, claims: PodVolumeClaims, nodes: NodeSet) -> Conflicts:
        """Which of the nodes are out, and why: exact, or for entangled claims a part of them."""

    def find(self, claims: PodVolumeClaims, slot: int) -> PodVolumes | Reasons:
        """What this node would do for the pod; else why it cannot. Exact."""

    def assume(self, pod: PodInfo, node_name: str, volumes: PodVolumes) -> Plan | None:
        """Count all of it as done before it is written, or nothing; None if every claim is bound by now (§5.2)."""

    def revert(self, plan: Plan) -> None:
        """Undo `assume`, but for what others assumed as well and what is written. Safe to repeat (§5.4)."""

    async def bind(self, plan: Plan) -> None:
        """Write it, and return when every claim is bound (§6). Cancelling acts between writes.

        What is written shows in the plan, also if this raises.
        """
