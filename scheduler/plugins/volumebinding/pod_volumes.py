"""The plan of a pod's volumes, and the classification of its claims.

What the plugin asks of whoever knows volumes: six operations, so that plugin and algorithm are tested apart.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import (
    WAIT_FOR_FIRST_CONSUMER,
    ClaimUse,
    PersistentVolume,
    PersistentVolumeClaim,
    not_owned,
)
from scheduler.cache.storage.capacity import CapacityPool
from scheduler.cache.storage.persistent_volumes import wish_of
from scheduler.cache.storage.volumes import CLAIM, VOLUME, Volumes, absent_claim
from scheduler.core.nodeset import NodeSet

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
    """A pod's claims by what is still to be done for them, each once, in the order of the volumes (§2.3).

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go PodVolumeClaims
    """

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
    pool: CapacityPool | None


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """What one node would do for one pod.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go PodVolumes
    """

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
class BindingPlan:
    """What is to be written for a pod on its node, all of it assumed. Known by its pod's uid."""

    pod: PodInfo
    node_name: str
    static: list[StaticStep] = field(default_factory=list)
    dynamic: list[DynamicStep] = field(default_factory=list)
    followed: list[PersistentVolumeClaim] = field(default_factory=list)

    def claims(self) -> list[PersistentVolumeClaim]:
        """All that are not bound yet."""
        return [*(step.claim for step in self.static), *(step.claim for step in self.dynamic), *self.followed]


_LOST = "Lost"


def sort_claims(volumes: Volumes, pod: PodInfo, *, under_way: Container[str]) -> PodVolumeClaims:
    """Each claim once. `under_way` are those that a binding of ours is working on. Raises VolumeError.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go GetPodVolumeClaims
    """
    for use in pod.claims:
        unusable = _unusable(volumes, pod, use)
        if unusable:
            return PodVolumeClaims(unusable=unusable)
    groups: dict[str, list[PersistentVolumeClaim]] = {"bound": [], "delayed": [], "immediate": [], "followed": []}
    for use in _each_once(pod.claims):
        claim = volumes.claims.get(use.key)
        if claim is None:
            raise VolumeError(f'error getting PVC "{use.key}": {volumes.claims.absence(use.key)}')
        if use.is_ephemeral and (foreign := not_owned(pod.pod, claim)):
            raise VolumeError(foreign)
        groups[_group(volumes, claim, under_way)].append(claim)
    unreadable = _unreadable(volumes, groups)
    if unreadable:
        return PodVolumeClaims(unusable=unreadable)
    delayed = tuple(groups["delayed"])
    return PodVolumeClaims(
        tuple(groups["bound"]),
        delayed,
        tuple(groups["immediate"]),
        tuple(groups["followed"]),
        is_entangled=len(delayed) > 1 and _is_entangled(delayed),
    )


def _unusable(volumes: Volumes, pod: PodInfo, use: ClaimUse) -> str:
    """§2.2, on what the API server has."""
    claim = volumes.claims.get_api(use.key)
    if claim is None:
        if use.is_ephemeral and (CLAIM, use.key) not in volumes.broken:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return absent_claim(volumes, use.key)
    if claim.status.phase == _LOST:
        return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    return not_owned(pod.pod, claim) if use.is_ephemeral else ""


def _unreadable(volumes: Volumes, groups: Mapping[str, Sequence[PersistentVolumeClaim]]) -> str:
    """What stands between the claims and nodes because nobody can read it: with it the claims may well be fine."""
    if not volumes.broken:
        return ""
    needed = [(VOLUME, claim.spec.volume_name) for claim in (*groups["bound"], *groups["followed"])]
    needed += [("StorageClass", claim.storage_class) for claim in groups["immediate"]]
    found = next((broken for need in needed if (broken := volumes.broken.get(need)) is not None), None)
    return f'{found.kind.lower()} "{found.key}" cannot be read: {found.why}' if found is not None else ""


def _each_once(uses: tuple[ClaimUse, ...]) -> tuple[ClaimUse, ...]:
    """A claim that two volumes name is one claim (B-16)."""
    return tuple({use.key: use for use in reversed(uses)}.values())[::-1]


def _group(volumes: Volumes, claim: PersistentVolumeClaim, under_way: Container[str]) -> str:
    if claim.is_fully_bound:
        return "bound"
    if not is_delayed(volumes, claim):
        return "immediate"
    if not claim.spec.volume_name:
        return "delayed"
    return "followed" if claim.key in under_way else "immediate"


def is_delayed(volumes: Volumes, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim's class waits for a pod. A class that is not there does not. Raises VolumeError (§2.3)."""
    name = claim.storage_class
    known = volumes.classes.get(name) if name else None
    if known is None:
        return False
    mode = known.obj.volume_binding_mode
    if mode is None:
        raise VolumeError(f'VolumeBindingMode not set for StorageClass "{name}"')
    return mode == WAIT_FOR_FIRST_CONSUMER


def _is_entangled(delayed: tuple[PersistentVolumeClaim, ...]) -> bool:
    wishes: dict[str, object] = {}
    return any(wishes.setdefault(claim.storage_class, wish_of(claim)) != wish_of(claim) for claim in delayed)
