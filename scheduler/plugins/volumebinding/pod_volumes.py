"""The sorted claims of a pod, and the plan of their volumes (docs/spec/volumes.md §2)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import (
    WAIT_FOR_FIRST_CONSUMER,
    ClaimUse,
    PersistentVolume,
    PersistentVolumeClaim,
    not_owned,
)
from scheduler.cache.storage.capacity_pools import CapacityPool
from scheduler.cache.storage.class_volumes import requirements_of
from scheduler.cache.storage.volumes import CLAIM, VOLUME, Volumes
from scheduler.core.errors import VolumeError
from scheduler.core.nodeset import NodeSet

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_NOT_EXIST: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"
CAUSES: Final = {
    NODE_CONFLICT: "VolumeElsewhere",
    BIND_CONFLICT: "NoMatchingVolume",
    NOT_ENOUGH_SPACE: "NotEnoughStorage",
    VOLUME_NOT_EXIST: "VolumeMissing",
}
"""Reason → its stable code (docs/explain.md)."""
STORAGE_IN_FLIGHT: Final = "StorageInFlight"

Reasons: TypeAlias = tuple[str, ...]
"""Why a node cannot serve the claims, in upstream's order: NodeConflict, BindConflict, NotEnoughSpace, PVNotExist."""

Conflicts: TypeAlias = Mapping[Reasons, NodeSet]
"""Reasons → the nodes that fail for them. The sets are disjoint."""


class NotWritten(Exception):
    """Another pod's plan ended before it wrote a claim that both pods use: this plan writes it."""


@dataclass(frozen=True, slots=True)
class PodVolumeClaims:
    """A pod's claims by binding state, each once, in the order of the volumes (§2.3).

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go PodVolumeClaims
    """

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()
    followed: tuple[PersistentVolumeClaim, ...] = ()
    """Claims with a volume that another pod's plan is binding: this pod goes where the volume is, and waits."""
    unusable: str = ""
    """Why the pod fits no node, whatever the nodes are; "" for no such reason (§2.2)."""
    is_entangled: bool = False
    """Some delayed claims of one class have different requirements: whether a node serves all must be tried."""


class StaticBinding(NamedTuple):
    """A claim and the volume found for it."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume


class Provision(NamedTuple):
    """A claim to provision on the node, and the pool that provides the capacity if it is known."""

    claim: PersistentVolumeClaim
    pool: CapacityPool | None


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The volumes that one node would use for one pod.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go PodVolumes
    """

    static: tuple[StaticBinding, ...] = ()
    dynamic: tuple[Provision, ...] = ()
    followed: tuple[PersistentVolumeClaim, ...] = ()


@dataclass(slots=True, eq=False)
class StaticStep:
    """A volume to write for a claim: as assumed, and then as the server answered."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    is_dirty: bool
    marks: bool
    """Add the annotation that a controller bound it, so that the PV controller may undo the binding."""
    written: PersistentVolume | None = None
    is_left: bool = False
    """The plan of another pod is to write it, and the watch has not shown it yet."""


@dataclass(slots=True, eq=False)
class DynamicStep:
    """A claim to write with its node: as assumed, and then as the server answered."""

    claim: PersistentVolumeClaim
    written: PersistentVolumeClaim | None = None
    is_left: bool = False
    """The plan of another pod is to write it, and the watch has not shown it yet."""


@dataclass(slots=True, eq=False)
class BindingPlan:
    """The assumed writes for a pod on its node. Identified by its pod's uid."""

    pod: PodInfo
    node_name: str
    static: list[StaticStep] = field(default_factory=list)
    dynamic: list[DynamicStep] = field(default_factory=list)
    followed: list[PersistentVolumeClaim] = field(default_factory=list)

    def claims(self) -> list[PersistentVolumeClaim]:
        """Return all claims that are not bound yet."""
        return [*(step.claim for step in self.static), *(step.claim for step in self.dynamic), *self.followed]


class StorageResource(NamedTuple):
    """What some claims of a pod request on some nodes, and the capacity of the volume or pool that serves them there.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go StorageResource
    """

    requested: int
    """In bytes."""
    capacity: npt.NDArray[np.int64]
    """In bytes, by slot."""
    nodes: NodeSet


def sort_claims(volumes: Volumes, pod: PodInfo, *, under_way: Container[str]) -> PodVolumeClaims:
    """Sort each claim once. `under_way`: claims that a plan of this process is binding. Raises VolumeError.

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
    """Return why the claim on the API server cannot be used; "" if it can (§2.2)."""
    claim = volumes.claims.get_api(use.key)
    if claim is None:
        if use.is_ephemeral and (CLAIM, use.key) not in volumes.broken:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return volumes.absent(CLAIM, use.key)
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    return not_owned(pod.pod, claim) if use.is_ephemeral else ""


def _unreadable(volumes: Volumes, groups: Mapping[str, Sequence[PersistentVolumeClaim]]) -> str:
    """Return the text for an object that the claims need and that cannot be read; "" if there is none."""
    if not volumes.broken:
        return ""
    needed = [(VOLUME, claim.spec.volume_name) for claim in (*groups["bound"], *groups["followed"])]
    needed += [("StorageClass", claim.storage_class) for claim in groups["immediate"]]
    found = next((broken for need in needed if (broken := volumes.broken.get(need)) is not None), None)
    return f'{found.kind.lower()} "{found.key}" cannot be read: {found.why}' if found is not None else ""


def _each_once(uses: tuple[ClaimUse, ...]) -> tuple[ClaimUse, ...]:
    """Drop repeated claims: a claim of two volumes is one claim (B-16)."""
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
    """Return whether the claim's class waits for a pod; a missing class does not. Raises VolumeError (§2.3)."""
    name = claim.storage_class
    storage_class = volumes.classes.get(name) if name else None
    if storage_class is None:
        return False
    mode = storage_class.obj.volume_binding_mode
    if mode is None:
        raise VolumeError(f'VolumeBindingMode not set for StorageClass "{name}"')
    return mode == WAIT_FOR_FIRST_CONSUMER


def _is_entangled(delayed: tuple[PersistentVolumeClaim, ...]) -> bool:
    requirements: dict[str, object] = {}
    return any(
        requirements.setdefault(claim.storage_class, requirements_of(claim)) != requirements_of(claim)
        for claim in delayed
    )
