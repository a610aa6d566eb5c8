"""Which volume the PV controller gives a claim (docs/spec/volumes.md §3.3.2 without nodes)."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.labels import LabelSelector
from scheduler.core.volumes import FILESYSTEM, PersistentVolume, PersistentVolumeClaim, is_for


def best_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, waits: bool
) -> PersistentVolume | None:
    """The one that names the claim, else the smallest that will do; of fewer access modes before of more.

    A claim that waits for its first consumer gets only one that names it.
    """
    groups: dict[tuple[str, ...], list[PersistentVolume]] = {}
    for volume in volumes:
        if set(volume.spec.access_modes) >= set(claim.spec.access_modes) and _may_hold(volume, claim):
            groups.setdefault(tuple(sorted(volume.spec.access_modes)), []).append(volume)
    selector = _selector(claim)
    for modes in sorted(groups, key=lambda modes: (len(modes), modes)):
        named = next((volume for volume in groups[modes] if is_for(volume, claim)), None)
        if named is not None:
            return named
        free = [] if waits else [volume for volume in groups[modes] if _is_free(volume, claim, selector)]
        if free:
            return min(free, key=lambda volume: (volume.capacity.nano, volume.key))
    return None


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Why a volume that a claim asks for by name cannot be its volume; empty if it can."""
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.key}"'
    if claim.request is not None and volume.capacity.value < claim.request.value:
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


def _selector(claim: PersistentVolumeClaim) -> LabelSelector | None:
    given = claim.spec.selector
    return (
        None
        if given is None
        else LabelSelector(match_labels=given.match_labels, match_expressions=given.match_expressions)
    )
