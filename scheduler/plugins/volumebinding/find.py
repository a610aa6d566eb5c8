"""Volumes for a pod's claims, on all nodes at once or on one node (docs/spec/volumes.md §3).

Checks on all nodes use sets of nodes: where bound volumes are, how many free volumes of which size there are, and
where a claim can be provisioned. A claim costs some look-ups and set operations, whatever the number of volumes,
capacity objects and nodes.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.api.quantity import Quantity
from scheduler.api.storage_v1 import FILESYSTEM, PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.capacity import CapacityCheck
from scheduler.cache.storage.capacity_pools import uneven
from scheduler.cache.storage.class_volumes import (
    ClassVolumes,
    FittingVolumes,
    VolumeRequirements,
    requirements_of,
    selector_of,
    together,
)
from scheduler.cache.storage.persistent_volumes import AVAILABLE
from scheduler.cache.storage.reachability import VolumeReachability
from scheduler.cache.storage.volumes import KnownClass, Volumes
from scheduler.core import nodeset
from scheduler.core.errors import VolumeError
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.plugins.volumebinding.pod_volumes import (
    BIND_CONFLICT,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    VOLUME_NOT_EXIST,
    Conflicts,
    PodVolumeClaims,
    PodVolumes,
    Provision,
    Reasons,
    StaticBinding,
    StorageResource,
)


class VolumeMismatch(enum.Enum):
    """The first rule that a volume breaks, in order of §3.3.2; `value` completes a sentence about the volume."""

    TAKEN = "belongs to another claim"
    SIZE = "is too small"
    MODE = "has another volume mode"
    ATTRIBUTES = "has other attributes"
    DELETING = "is being deleted"
    STORAGE_CLASS = "is of another class"
    PHASE = "is not available"
    SELECTOR = "is not selected"
    ACCESS_MODES = "lacks an access mode"


def first_miss(volume: PersistentVolume, claim: PersistentVolumeClaim) -> VolumeMismatch | None:
    """Return the rule that the volume breaks, or None. A volume pre-bound to the claim need not pass the last three.

    Upstream: staging/src/k8s.io/component-helpers/storage/volume/pv_helpers.go FindMatchingVolume
    """
    spec, requirements = volume.spec, requirements_of(claim)
    is_meant = is_for(volume, claim)
    if spec.claim_ref is not None and not is_meant:
        return VolumeMismatch.TAKEN
    if volume.capacity.nano < claim.size_nano:
        return VolumeMismatch.SIZE
    if (spec.volume_mode or FILESYSTEM) != requirements.volume_mode:
        return VolumeMismatch.MODE
    if (spec.volume_attributes_class_name or "") != requirements.attributes_class:
        return VolumeMismatch.ATTRIBUTES
    if volume.metadata.deletion_timestamp is not None:
        return VolumeMismatch.DELETING
    if volume.storage_class != claim.storage_class:
        return VolumeMismatch.STORAGE_CLASS
    return None if is_meant else _miss_of_any(volume, claim)


def _miss_of_any(volume: PersistentVolume, claim: PersistentVolumeClaim) -> VolumeMismatch | None:
    requirements = requirements_of(claim)
    if volume.status.phase != AVAILABLE:
        return VolumeMismatch.PHASE
    if requirements.selector and not selector_of(requirements).matches(volume.metadata.labels):
        return VolumeMismatch.SELECTOR
    return None if requirements.access_modes <= frozenset(volume.spec.access_modes) else VolumeMismatch.ACCESS_MODES


_SUBSETS: Final = 3
_COMPARED: Final = 6
"""Limits of `_too_few`: it compares this many claims of a class, in subsets of up to `_SUBSETS`."""
_ORDER = (NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, VOLUME_NOT_EXIST)


class VolumeFinder:
    """Finds volumes in the caches; has no state.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go FindPodVolumes, findMatchingVolumes
    """

    def __init__(self, nodes: Nodes, volumes: Volumes, *, together: bool) -> None:
        """Take the caches. `together`: claims of one pod share capacity, and reserved capacity is not free (B-1)."""
        self._nodes = nodes
        self._volumes = volumes
        self._reach = VolumeReachability(nodes, volumes)
        self._together = together

    # -- all nodes -----------------------------------------------------------------------------------------------------

    def conflicts(self, claims: PodVolumeClaims, nodes: NodeSet) -> Conflicts:
        """Implement `VolumeBinder.eligible_nodes`."""
        volumes = self._volumes
        volumes.groups.catch_up()
        away, unknown = self._check_bound_claims(claims, nodes)
        if not claims.delayed:
            return _grouped({NODE_CONFLICT: away, VOLUME_NOT_EXIST: unknown})
        selected: list[PersistentVolumeClaim] = []
        usable = nodes
        for claim in claims.delayed:
            if claim.selected_node is not None:
                slot = self._nodes.present_slot(claim.selected_node)
                usable &= 1 << slot if slot is not None else EMPTY
                selected.append(claim)
        elsewhere = nodes & ~usable  # these nodes have no other reason (§3.2)
        conflict, full = EMPTY, EMPTY
        if usable:
            matched = sorted((c for c in claims.delayed if c.selected_node is None), key=attrgetter("size_nano"))
            missing = self._nodes_without_match(matched, usable, is_entangled=claims.is_entangled)
            with volumes.reservations.without(claim.metadata.uid for claim in claims.delayed):
                wanted = [(claim, usable) for claim in selected] + list(zip(matched, missing))
                conflict, full = self._not_provisioned(wanted, usable)
                if claims.is_entangled:
                    # An unknown class is an error only where its claim finds no volume: then all nodes are tried.
                    are_known = all(claim.storage_class in volumes.classes for claim in matched)
                    in_doubt = usable & (away | unknown | conflict | full) if are_known else usable
                    contested = _contested(matched, missing, in_doubt)
                    conflict, full = self._exact(claims, contested, conflict=conflict, full=full)
            if claims.is_entangled:
                conflict |= usable & self._too_few(matched) & ~(conflict | full)
        return _grouped(
            {
                NODE_CONFLICT: away,
                BIND_CONFLICT: elsewhere | conflict,
                NOT_ENOUGH_SPACE: full,
                VOLUME_NOT_EXIST: unknown,
            }
        )

    def _check_bound_claims(self, claims: PodVolumeClaims, nodes: NodeSet) -> tuple[NodeSet, NodeSet]:
        """Return where a bound volume cannot be used, and where the check stopped at an unknown volume (§3.1).

        Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go checkBoundClaims
        """
        usable = nodes
        for claim in (*claims.bound, *claims.followed):
            volume = self._volumes.volumes.get(claim.spec.volume_name)
            if volume is None:
                return nodes & ~usable, usable
            usable = self._reach.nodes_of(volume, usable)
        return nodes & ~usable, EMPTY

    def _nodes_without_match(
        self, claims: Sequence[PersistentVolumeClaim], nodes: NodeSet, *, is_entangled: bool
    ) -> list[NodeSet]:
        """Return per claim, smallest first, the nodes that have no volume for it (§3.3).

        Claims of a class that differ only in size take the smallest fitting volume one after the other. So the
        number of volumes of each size decides which claims get none. Entangled claims are counted one by one.
        """
        without_match: list[NodeSet] = []
        queues: dict[str, _Queue] = {}
        for claim in claims:
            requirements = requirements_of(claim)
            _check_selector(claim, requirements)
            class_volumes = self._volumes.volumes.class_volumes(claim.storage_class)
            meant = self._meant(claim)
            if meant is not None:
                without_match.append(nodes & ~self._volumes.volumes.where(meant.key).nodes)
            elif class_volumes is None:
                without_match.append(nodes)
            else:
                queue = queues.setdefault(claim.storage_class, _Queue(class_volumes))
                without_match.append(nodes & ~queue.served(requirements, claim.size_nano, alone=is_entangled))
        return without_match

    def _not_provisioned(
        self, wanted: Sequence[tuple[PersistentVolumeClaim, NodeSet]], nodes: NodeSet
    ) -> tuple[NodeSet, NodeSet]:
        """Return where provisioning fails because of provisioner or topology, and where because of capacity (§3.4)."""
        conflict, full, alive = EMPTY, EMPTY, nodes
        checks: dict[str, CapacityCheck] = {}
        for claim, where in wanted:
            possible = where & alive
            if not possible:
                continue
            storage_class = self._class_of(claim)
            if storage_class.is_static:
                conflict |= possible
                alive &= ~possible
                continue
            barred = possible & ~storage_class.allowed.nodes
            conflict |= barred
            possible &= ~barred
            alive &= ~barred
            lacking = possible & ~self._has_enough_capacity(claim, storage_class, possible, checks)
            full |= lacking
            alive &= ~lacking
        return conflict, full

    def _too_few(self, claims: Sequence[PersistentVolumeClaim]) -> NodeSet:
        """Return the nodes where claims of a static class have fewer volumes together than claims (Hall's theorem).

        Other nodes may still lack a volume for each claim, but mostly do not: few nodes are left to be tried.
        """
        refused = EMPTY
        by_class: dict[str, list[FittingVolumes]] = {}
        for claim in claims:
            class_volumes = self._volumes.volumes.class_volumes(claim.storage_class)
            storage_class = self._volumes.classes.get(claim.storage_class)
            if (
                storage_class is not None
                and storage_class.is_static
                and class_volumes is not None
                and self._meant(claim) is None
            ):
                by_class.setdefault(claim.storage_class, []).append(
                    class_volumes.fits(requirements_of(claim), claim.size_nano)
                )
        for fits in by_class.values():
            few = fits[:_COMPARED]
            for many in range(2, min(len(few), _SUBSETS) + 1):
                for some in itertools.combinations(few, many):
                    refused |= nodeset.from_mask(together(some) < many)
        return refused

    def _exact(
        self, claims: PodVolumeClaims, contested: NodeSet, *, conflict: NodeSet, full: NodeSet
    ) -> tuple[NodeSet, NodeSet]:
        """Return the failing nodes after trying each contested node, where counts of single claims do not decide."""
        classes = [self._volumes.classes.get(claim.storage_class) for claim in claims.delayed]
        if all(storage_class is not None and storage_class.is_static for storage_class in classes):
            contested &= ~conflict  # a static class has no other reason
        for slot in nodeset.each(contested):
            _, wanted = self._find_matching_volumes(claims.delayed, slot)
            reason = self._check_volume_provisions(wanted, slot)
            conflict, full = conflict & ~(1 << slot), full & ~(1 << slot)
            conflict |= (reason == BIND_CONFLICT) << slot
            full |= (reason == NOT_ENOUGH_SPACE) << slot
        return conflict, full

    def _has_enough_capacity(
        self, claim: PersistentVolumeClaim, storage_class: KnownClass, nodes: NodeSet, checks: dict[str, CapacityCheck]
    ) -> NodeSet:
        size = self._tracked_size(claim, storage_class)
        if size is None:
            return nodes
        check = self._capacity_check(storage_class.obj.key, checks)
        return check.next(size.value, nodes, nano=uneven(size)) if check is not None else EMPTY

    def _tracked_size(self, claim: PersistentVolumeClaim, storage_class: KnownClass) -> Quantity | None:
        """Return the size to reserve; None if the driver does not track capacity, or the claim requests none."""
        request, driver = claim.request, self._volumes.drivers.get(storage_class.obj.provisioner)
        is_tracked = driver is not None and driver.tracks_capacity and self._volumes.capacities.is_served
        return request if is_tracked else None

    def _capacity_check(self, storage_class: str, checks: dict[str, CapacityCheck]) -> CapacityCheck | None:
        check = checks.get(storage_class)
        if check is None:
            pools = self._volumes.capacities.of(storage_class)
            if pools is None:
                return None
            pools.catch_up()
            check = CapacityCheck(pools, together=self._together)
            sharing = self._volumes.capacities.sharing
            for other, other_check in checks.items() if sharing.is_any else ():
                if sharing.shares(storage_class, other):
                    check.share(other_check)
            checks[storage_class] = check
        return check

    def storage_resources(self, claims: PodVolumeClaims, nodes: NodeSet) -> tuple[list[StorageResource], NodeSet]:
        """Implement `VolumeBinder.storage_resources`."""
        # Two claims of a class may want the same volume, and the volumes of two classes may count as one class.
        to_try, static = EMPTY, EMPTY
        found: list[tuple[PersistentVolumeClaim, NodeSet]] = []
        for claim in claims.delayed:
            with_volume = nodes & self._nodes_with_match(claim)
            to_try |= static & with_volume
            static |= with_volume
            found.append((claim, with_volume))
        nodes &= ~to_try
        for failing in self.conflicts(claims, nodes).values() if nodes else ():
            nodes &= ~failing
        resources = [
            StorageResource(claim.size_bytes, self._smallest_volumes(claim), with_volume & nodes)
            for claim, with_volume in found
            if with_volume & nodes
        ]
        dynamic = nodes & ~static
        requested: dict[str, int] = {}
        for claim in claims.delayed if dynamic else ():
            if self._tracked_size(claim, self._class_of(claim)) is not None:
                requested[claim.storage_class] = requested.get(claim.storage_class, 0) + claim.size_bytes
        for storage_class, size_bytes in requested.items():
            pools = self._volumes.capacities.of(storage_class)
            assert pools is not None, "no node takes a volume of a class without pools"
            to_try |= dynamic & pools.crowded
            resources.append(StorageResource(size_bytes, pools.published, dynamic & ~pools.crowded))
        return resources, to_try

    def _nodes_with_match(self, claim: PersistentVolumeClaim) -> NodeSet:
        """Return the nodes with a volume that the claim would take if it were alone."""
        if claim.selected_node is not None:
            return EMPTY  # it is provisioned there, whatever volumes the node has
        meant = self._meant(claim)
        if meant is not None:
            return self._volumes.volumes.where(meant.key).nodes
        class_volumes, requirements = self._volumes.volumes.class_volumes(claim.storage_class), requirements_of(claim)
        _check_selector(claim, requirements)
        return class_volumes.fits(requirements, claim.size_nano).nodes if class_volumes is not None else EMPTY

    def _smallest_volumes(self, claim: PersistentVolumeClaim) -> npt.NDArray[np.int64]:
        """Return by slot the bytes of that volume."""
        meant = self._meant(claim)
        if meant is not None:
            return np.full(self._nodes.capacity, meant.capacity.value, dtype=np.int64)
        class_volumes = self._volumes.volumes.class_volumes(claim.storage_class)
        assert class_volumes is not None
        return class_volumes.fits(requirements_of(claim), claim.size_nano).smallest_bytes()

    # -- one node ------------------------------------------------------------------------------------------------------

    def find(self, claims: PodVolumeClaims, slot: int) -> PodVolumes | Reasons:
        """Implement `VolumeBinder.find_pod_volumes`."""
        self._volumes.groups.catch_up()
        bit = 1 << slot
        away, unknown = self._check_bound_claims(claims, bit)
        reasons = {name for name, nodes in ((NODE_CONFLICT, away), (VOLUME_NOT_EXIST, unknown)) if nodes}
        name = self._nodes.name(slot)
        if any(claim.selected_node not in {None, name} for claim in claims.delayed):
            return tuple(reason for reason in _ORDER if reason in reasons | {BIND_CONFLICT})
        static, wanted = self._find_matching_volumes(claims.delayed, slot)
        with self._volumes.reservations.without(claim.metadata.uid for claim in claims.delayed):
            dynamic = self._check_volume_provisions(wanted, slot)
        if isinstance(dynamic, str):
            reasons.add(dynamic)
        if reasons or isinstance(dynamic, str):
            return tuple(reason for reason in _ORDER if reason in reasons)
        return PodVolumes(tuple(static), tuple(dynamic), claims.followed)

    def _find_matching_volumes(
        self, delayed: Sequence[PersistentVolumeClaim], slot: int
    ) -> tuple[list[StaticBinding], list[PersistentVolumeClaim]]:
        """Return a volume for each claim that finds one, and the claims to provision, in order."""
        static: list[StaticBinding] = []
        taken: set[str] = set()
        wanted = [claim for claim in delayed if claim.selected_node is not None]
        for claim in sorted((c for c in delayed if c.selected_node is None), key=attrgetter("size_nano")):
            volume = self._match(claim, slot, taken)
            if volume is None:
                wanted.append(claim)
            else:
                taken.add(volume.key)
                static.append(StaticBinding(claim, volume))
        return static, wanted

    def _match(self, claim: PersistentVolumeClaim, slot: int, taken: set[str]) -> PersistentVolume | None:
        requirements = requirements_of(claim)
        _check_selector(claim, requirements)
        meant = self._meant(claim)
        if meant is not None:
            return meant if self._volumes.volumes.where(meant.key).nodes >> slot & 1 else None
        class_volumes = self._volumes.volumes.class_volumes(claim.storage_class)
        name = class_volumes.smallest(slot, claim, requirements, excluded=taken) if class_volumes is not None else None
        return self._volumes.volumes.get(name) if name is not None else None

    def _check_volume_provisions(self, wanted: Sequence[PersistentVolumeClaim], slot: int) -> list[Provision] | str:
        bit = 1 << slot
        checks: dict[str, CapacityCheck] = {}
        drawn: list[tuple[PersistentVolumeClaim, CapacityCheck | None]] = []
        for claim in wanted:
            storage_class = self._class_of(claim)
            if storage_class.is_static or not storage_class.allowed.nodes & bit:
                return BIND_CONFLICT
            size = self._tracked_size(claim, storage_class)
            check = None
            if size is not None:
                check = self._capacity_check(storage_class.obj.key, checks)
                if check is None or not check.at(slot, size.value, nano=uneven(size)):
                    return NOT_ENOUGH_SPACE
            drawn.append((claim, check))
        pools = {name: iter(check.taken_from.get(slot, ())) for name, check in checks.items()}
        return [
            Provision(claim, next(pools[claim.storage_class]) if check is not None else None) for claim, check in drawn
        ]

    def _meant(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the fitting volume that is pre-bound to this claim: rules 2–6. Then no other volume is tried."""
        for volume in self._volumes.volumes.meant_for(claim.key):
            if first_miss(volume, claim) is None:
                return volume
        return None

    def _class_of(self, claim: PersistentVolumeClaim) -> KnownClass:
        name = claim.storage_class
        if not name:
            raise VolumeError(f'no class for claim "{claim.key}"')
        storage_class = self._volumes.classes.get(name)
        if storage_class is None:
            raise VolumeError(f'failed to find storage class "{name}"')
        return storage_class


class _Queue:
    """Claims of one class with equal requirements, served smallest first; counts the volumes that are taken."""

    def __init__(self, class_volumes: ClassVolumes) -> None:
        self._class_volumes = class_volumes
        self._before: npt.NDArray[np.int32] | None = None
        self._taken: npt.NDArray[np.int32] | None = None

    def served(self, requirements: VolumeRequirements, size: int, *, alone: bool) -> NodeSet:
        """Return the nodes that still have a volume of at least this size. Sizes must not decrease."""
        fits = self._class_volumes.fits(requirements, size)
        if alone:
            return fits.nodes
        counts = fits.counts
        if self._before is None or self._taken is None:
            self._before, self._taken = counts, np.minimum(counts, 1)
            return fits.nodes
        # Smaller claims took the smallest volumes first. Only those that found no smaller volume took one of this size.
        taken = np.maximum(self._taken - (self._before - counts), 0)
        is_served = counts > taken
        self._before, self._taken = counts, taken + is_served
        return nodeset.from_mask(is_served)


def _contested(claims: Sequence[PersistentVolumeClaim], missing: Sequence[NodeSet], nodes: NodeSet) -> NodeSet:
    """Return the nodes where two claims of one class each find a volume alone."""
    contested, once = EMPTY, dict[str, NodeSet]()
    for claim, lacking in zip(claims, missing):
        found, before = nodes & ~lacking, once.get(claim.storage_class, EMPTY)
        contested |= found & before
        once[claim.storage_class] = before | found
    return contested


def _check_selector(claim: PersistentVolumeClaim, requirements: VolumeRequirements) -> None:
    if requirements.selector:
        try:
            selector_of(requirements)
        except ValueError as error:
            raise VolumeError(f"error creating internal label selector for claim: {claim.key}: {error}") from error


def _grouped(flags: dict[str, NodeSet]) -> Conflicts:
    """Turn reason → nodes into the reasons of each node → nodes."""
    remaining = EMPTY
    for nodes in flags.values():
        remaining |= nodes
    parts: list[tuple[Reasons, NodeSet]] = [((), remaining)] if remaining else []
    for reason in _ORDER:
        flagged = flags.get(reason, EMPTY)
        split = []
        for reasons, nodes in parts:
            if nodes & flagged:
                split.append(((*reasons, reason), nodes & flagged))
            if nodes & ~flagged:
                split.append((reasons, nodes & ~flagged))
        parts = split
    return dict(parts)
