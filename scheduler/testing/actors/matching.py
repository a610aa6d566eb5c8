"""Which volume the PV controller gives a claim (docs/spec/volumes.md §3.3.2 without nodes)."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.decode import from_manifest
from scheduler.core.labels import LabelSelector
from scheduler.core.volumes import FILESYSTEM, PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.testing.actors.acting import Object


def best_volume(raw_claim: Object, raw_volumes: Iterable[Object], *, waits: bool) -> Object | None:
    """The one that names the claim, else the smallest that will do; of fewer access modes before of more.

    A claim that waits for its first consumer gets only one that names it.
    """
    claim = from_manifest(PersistentVolumeClaim, raw_claim)
    groups: dict[tuple[str, ...], list[tuple[PersistentVolume, Object]]] = {}
    for raw in raw_volumes:
        volume = from_manifest(PersistentVolume, raw)
        if set(volume.spec.access_modes) >= set(claim.spec.access_modes):
            groups.setdefault(tuple(sorted(volume.spec.access_modes)), []).append((volume, raw))
    selector = _selector(raw_claim)
    for modes in sorted(groups, key=lambda modes: (len(modes), modes)):
        best: tuple[PersistentVolume, Object] | None = None
        for volume, raw in groups[modes]:
            if not _may_hold(volume, claim):
                continue
            if is_for(volume, claim):
                return raw
            if waits or not _is_free(volume, claim, selector):
                continue
            if best is None or volume.capacity.nano < best[0].capacity.nano:
                best = volume, raw
        if best is not None:
            return best[1]
    return None


def mismatch(raw_volume: Object, raw_claim: Object) -> str:
    """Why a volume that a claim asks for by name cannot be its volume; empty if it can."""
    volume, claim = from_manifest(PersistentVolume, raw_volume), from_manifest(PersistentVolumeClaim, raw_claim)
    if raw_volume["metadata"].get("deletionTimestamp"):
        return f'the volume is marked for deletion "{volume.key}"'
    if claim.request is not None and volume.capacity.nano < claim.request.nano:
        return "requested PV is too small"
    if volume.storage_class != claim.storage_class:
        return "storageClassName does not match"
    if not _same_attributes(volume, claim):
        return "volumeAttributesClassName does not match"
    if not same_mode(volume, claim):
        return "incompatible volumeMode"
    if not set(volume.spec.access_modes) >= set(claim.spec.access_modes):
        return "incompatible accessMode"
    return ""


def same_mode(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Saying nothing means Filesystem."""
    return (volume.spec.volume_mode or FILESYSTEM) == (claim.spec.volume_mode or FILESYSTEM)


def _same_attributes(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (volume.spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")


def _may_hold(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Also a volume that names the claim must."""
    is_others = volume.spec.claim_ref is not None and not is_for(volume, claim)
    is_small = claim.request is not None and volume.capacity.nano < claim.request.nano
    fits = same_mode(volume, claim) and _same_attributes(volume, claim)
    return not is_others and not is_small and fits and volume.metadata.deletion_timestamp is None


def _is_free(volume: PersistentVolume, claim: PersistentVolumeClaim, selector: LabelSelector | None) -> bool:
    return (
        volume.status.phase == "Available"
        and volume.storage_class == claim.storage_class
        and (selector is None or selector.matches(volume.metadata.labels))
    )


def _selector(claim: Object) -> LabelSelector | None:
    raw = claim["spec"].get("selector")
    return None if raw is None else from_manifest(LabelSelector, raw)
