"""Why a claim may not have a volume, wherever both are: the gates of docs/spec/volumes.md §3.3.2 but for node affinity."""

from __future__ import annotations

import enum

from scheduler.cache.pvs import AVAILABLE
from scheduler.cache.shelves import selector_of, wish_of
from scheduler.core.volumes import FILESYSTEM, PersistentVolume, PersistentVolumeClaim, is_for


class Miss(enum.Enum):
    """What is in the way, in the order of the gates; `value` is the rest of a sentence about the volume."""

    TAKEN = "belongs to another claim"
    SIZE = "is too small"
    MODE = "has another volume mode"
    ATTRIBUTES = "has other attributes"
    DELETING = "is being deleted"
    STORAGE_CLASS = "is of another class"
    PHASE = "is not available"
    SELECTOR = "is not selected"
    ACCESS_MODES = "lacks an access mode"


def first_miss(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Miss | None:
    """None for a volume that will do. One that is meant for the claim need not pass the last three gates."""
    spec, wish, request = volume.spec, wish_of(claim), claim.request
    is_meant = is_for(volume, claim)
    if spec.claim_ref is not None and not is_meant:
        return Miss.TAKEN
    if volume.capacity.nano < (request.nano if request is not None else 0):
        return Miss.SIZE
    if (spec.volume_mode or FILESYSTEM) != wish.volume_mode:
        return Miss.MODE
    if (spec.volume_attributes_class_name or "") != wish.attributes_class:
        return Miss.ATTRIBUTES
    if volume.metadata.deletion_timestamp is not None:
        return Miss.DELETING
    if volume.storage_class != claim.storage_class:
        return Miss.STORAGE_CLASS
    return None if is_meant else _miss_of_any(volume, claim)


def _miss_of_any(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Miss | None:
    wish = wish_of(claim)
    if volume.status.phase != AVAILABLE:
        return Miss.PHASE
    if wish.selector and not selector_of(wish).matches(volume.metadata.labels):
        return Miss.SELECTOR
    return None if wish.access_modes <= frozenset(volume.spec.access_modes) else Miss.ACCESS_MODES
