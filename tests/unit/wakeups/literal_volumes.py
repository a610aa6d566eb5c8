"""VolumeBinding's Filter, written down as it is specified: one pod, one node, every volume looked at.

For laws: what indexes answer for all nodes must be what this says of each (docs/spec/volumes.md §3). It is slow, keeps
nothing, and shares only the decoded objects and the check whether a selector can be parsed with what it judges.
In-tree volumes are taken as they are; `LiteralVolumes.translated` stands in for §3.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.api.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from scheduler.api.node_affinity import term_problem
from scheduler.api.selectors import LabelSelector
from scheduler.api.storage_v1 import (
    ClaimSelector,
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)

Labels = Mapping[str, str]

BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
NOT_EXISTING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


class Failure(Exception):
    """The attempt ends with an error of this text."""


# -- labels ------------------------------------------------------------------------------------------------------------


def holds(requirement: NodeSelectorRequirement, labels: Labels) -> bool:
    """One expression that can be parsed."""
    have, values = labels.get(requirement.key), requirement.values
    if requirement.operator == "In":
        return have is not None and have in values
    if requirement.operator == "NotIn":
        return have is None or have not in values
    if requirement.operator == "Exists":
        return have is not None
    if requirement.operator == "DoesNotExist":
        return have is None
    try:
        left, right = int(have or ""), int(values[0])
    except ValueError:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def all_hold(requirements: Iterable[NodeSelectorRequirement], labels: Labels) -> bool:
    """All of them can be parsed, and hold."""
    requirements = tuple(requirements)
    if term_problem(NodeSelectorTerm(match_expressions=requirements)):
        return False
    return all(holds(requirement, labels) for requirement in requirements)


def affinity_admits(required: NodeSelector | None, labels: Labels) -> bool:
    """§3.5: fields are ignored, except that a term with wrong ones cannot be parsed."""
    if required is None:
        return True
    for term in required.node_selector_terms:
        if not term.match_expressions and not term.match_fields:
            continue
        if not term_problem(term) and all_hold(term.match_expressions, labels):
            return True
    return False


def topologies_admit(terms: Sequence[TopologySelectorTerm], labels: Labels) -> bool:
    """§3.4."""
    if not terms:
        return True
    return any(
        term.match_label_expressions
        and all_hold((NodeSelectorRequirement(e.key, "In", e.values) for e in term.match_label_expressions), labels)
        for term in terms
    )


def selector_admits(selector: LabelSelector | ClaimSelector | None, labels: Labels) -> bool:
    """§3.4, node access: none is nowhere."""
    if selector is None:
        return False
    exact = [NodeSelectorRequirement(key, "In", (value,)) for key, value in selector.match_labels.items()]
    more = [NodeSelectorRequirement(r.key, r.operator, r.values) for r in selector.match_expressions]
    if any(requirement.operator in {"Gt", "Lt"} for requirement in more):
        return False
    return all_hold([*exact, *more], labels)


# -- one claim ---------------------------------------------------------------------------------------------------------


def size_of(claim: PersistentVolumeClaim) -> int:
    """Return the request in nano-bytes; an absent request is 0."""
    return claim.request.nano if claim.request is not None else 0


def is_meant(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Gate 2: the claimRef is for this claim."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and (ref.namespace, ref.name) == (claim.metadata.namespace, claim.metadata.name)
        and (not ref.uid or ref.uid == claim.metadata.uid)
    )


def _problem(selector: ClaimSelector) -> str:
    """Why a claim's selector is none."""
    for requirement in selector.match_expressions:
        if requirement.operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
            return f"{requirement.operator} is no operator"
    exact = tuple(NodeSelectorRequirement(key, "In", (value,)) for key, value in selector.match_labels.items())
    more = tuple(NodeSelectorRequirement(r.key, r.operator, r.values) for r in selector.match_expressions)
    return term_problem(NodeSelectorTerm(match_expressions=exact + more))


def matching_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], labels: Labels, *, excluded: Iterable[str] = ()
) -> PersistentVolume | None:
    """§3.3.2, gate by gate; of equally small ones the first."""
    selector = claim.spec.selector
    if selector is not None and _problem(selector):
        raise Failure(f"error creating internal label selector for claim: {claim.key}")
    smallest: PersistentVolume | None = None
    for volume in volumes:
        if volume.key in excluded or not _passes_first_gates(volume, claim):
            continue
        affinity = volume.spec.node_affinity
        is_near = affinity_admits(affinity.required if affinity is not None else None, labels)
        if is_meant(volume, claim):
            return volume if is_near else None
        is_fit = is_near and _passes_last_gates(volume, claim)
        if is_fit and (smallest is None or volume.capacity.nano < smallest.capacity.nano):
            smallest = volume
    return smallest


def _passes_first_gates(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """2 to 6: what even a volume that is meant for the claim must pass."""
    if volume.spec.claim_ref is not None and not is_meant(volume, claim):
        return False
    if volume.capacity.nano < size_of(claim):
        return False
    if (volume.spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
        return False
    if (volume.spec.volume_attributes_class_name or "") != (claim.spec.volume_attributes_class_name or ""):
        return False
    return volume.metadata.deletion_timestamp is None


def _passes_last_gates(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """9, 10, 11 and 13."""
    selector = claim.spec.selector
    return (
        volume.status.phase == "Available"
        and (selector is None or selector_admits(selector, volume.metadata.labels))
        and volume.storage_class == claim.storage_class
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )


# -- one pod on one node -----------------------------------------------------------------------------------------------


@dataclass
class LiteralVolumes:
    """What Filter reads."""

    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    drivers: Mapping[str, CSIDriver] = field(default_factory=dict)
    capacities: Sequence[CSIStorageCapacity] = ()
    translated: Callable[[PersistentVolume, str], PersistentVolume] = lambda volume, node_name: volume


@dataclass(frozen=True)
class LiteralDecision:
    """What a node would do for the pod, or why not. Claims and volumes by key."""

    reasons: tuple[str, ...]
    static: tuple[tuple[str, str], ...] = ()
    dynamic: tuple[tuple[str, str | None], ...] = ()
    """Claim, and the capacity object that was found for it."""


def find(
    world: LiteralVolumes,
    bound: Sequence[PersistentVolumeClaim],
    delayed: Sequence[PersistentVolumeClaim],
    *,
    node_name: str,
    labels: Labels,
) -> LiteralDecision:
    """§3.1 to §3.4 and §3.7, each claim alone. Raises Failure."""
    is_conflict, is_unknown = _bound(world, bound, node_name=node_name, labels=labels)

    def outcome(*others: str) -> tuple[str, ...]:
        flags = {NODE_CONFLICT: is_conflict, NOT_EXISTING: is_unknown} | dict.fromkeys(others, True)
        return tuple(r for r in (NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, NOT_EXISTING) if flags.get(r))

    match, provision = [], []
    for claim in delayed:
        if claim.selected_node is None:
            match.append(claim)
        elif claim.selected_node == node_name:
            provision.append(claim)
        else:
            return LiteralDecision(outcome(BIND_CONFLICT))
    static: list[tuple[str, str]] = []
    for claim in sorted(match, key=size_of):
        of_class = [volume for volume in world.volumes.values() if volume.storage_class == claim.storage_class]
        found = matching_volume(claim, of_class, labels, excluded={name for _, name in static})
        if found is None:
            provision.append(claim)
        else:
            static.append((claim.key, found.key))
    dynamic: list[tuple[str, str | None]] = []
    for claim in provision:
        lacking = lacks(world, claim, labels)
        if lacking is not None:
            return LiteralDecision(outcome(lacking))
        dynamic.append((claim.key, capacity_for(world, claim, labels)[1]))
    reasons = outcome()
    return LiteralDecision(reasons) if reasons else LiteralDecision((), tuple(static), tuple(dynamic))


def _bound(
    world: LiteralVolumes, bound: Sequence[PersistentVolumeClaim], *, node_name: str, labels: Labels
) -> tuple[bool, bool]:
    """Whether a volume is out of reach, or not known; the first ends the look."""
    for claim in bound:
        volume = world.volumes.get(claim.spec.volume_name)
        if volume is None:
            return False, True
        affinity = world.translated(volume, node_name).spec.node_affinity
        if not affinity_admits(affinity.required if affinity is not None else None, labels):
            return True, False
    return False, False


def lacks(world: LiteralVolumes, claim: PersistentVolumeClaim, labels: Labels) -> str | None:
    """Why a claim cannot be provisioned here; None if it can (§3.4). Raises Failure."""
    name = claim.storage_class
    if not name:
        raise Failure(f'no class for claim "{claim.key}"')
    storage_class = world.classes.get(name)
    if storage_class is None:
        raise Failure(f'failed to find storage class "{name}"')
    if storage_class.provisioner in {"", "kubernetes.io/no-provisioner"}:
        return BIND_CONFLICT
    if not topologies_admit(storage_class.allowed_topologies, labels):
        return BIND_CONFLICT
    return None if capacity_for(world, claim, labels)[0] else NOT_ENOUGH_SPACE


def capacity_for(world: LiteralVolumes, claim: PersistentVolumeClaim, labels: Labels) -> tuple[bool, str | None]:
    """Return whether there is capacity for this claim alone, and the first object that has it; None without tracking."""
    storage_class = world.classes[claim.storage_class]
    driver = world.drivers.get(storage_class.provisioner)
    if claim.request is None or driver is None or not driver.spec.storage_capacity:
        return True, None
    for obj in world.capacities:
        limit = obj.maximum_volume_size if obj.maximum_volume_size is not None else obj.capacity
        if (
            obj.storage_class_name == storage_class.key
            and limit is not None
            and limit.nano >= claim.request.nano
            and selector_admits(obj.node_topology, labels)
        ):
            return True, obj.key
    return False, None
