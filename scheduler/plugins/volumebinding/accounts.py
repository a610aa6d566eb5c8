"""Why a claim found nothing, in numbers, for the log (docs/spec/volumes.md §12.4 B-20). O(volumes): only for who asks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from scheduler.cache.shelves import selector_of, wish_of
from scheduler.cache.volumes import Volumes
from scheduler.core.volumes import FILESYSTEM, PersistentVolume, PersistentVolumeClaim, is_for


def account_of(volumes: Volumes, claim: PersistentVolumeClaim) -> dict[str, Any]:
    """The claim, and how many volumes and capacity objects of its class will do, or why not. Wherever they are."""
    request = claim.request
    known = volumes.classes.get(claim.storage_class)
    pools = volumes.capacities.of(claim.storage_class)
    limits = [pool.limit for pool in pools.pools.values()] if pools is not None else []
    of_class = (
        found
        for volume in volumes.volumes
        if volume.storage_class == claim.storage_class and (found := volumes.volumes.get(volume.key)) is not None
    )
    return {
        "claim": claim.key,
        "storageClass": claim.storage_class,
        "bytes": request.value if request is not None else 0,
        "selectedNode": claim.selected_node,
        "volumes": dict(Counter(_verdict(volume, claim) for volume in of_class)),
        "provisioner": known.obj.provisioner if known is not None else None,
        "capacityObjects": len(limits),
        "largestBytes": max(limits, default=None),
    }


def _verdict(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """By the gates of §3.3.2, in their order."""
    wish, spec, request = wish_of(claim), volume.spec, claim.request
    is_meant = is_for(volume, claim)
    if spec.claim_ref is not None and not is_meant:
        return "taken"
    if volume.capacity.nano < (request.nano if request is not None else 0):
        return "too small"
    if (spec.volume_mode or FILESYSTEM) != wish.volume_mode:
        return "other mode"
    if (spec.volume_attributes_class_name or "") != wish.attributes_class:
        return "other attributes"
    if volume.metadata.deletion_timestamp is not None:
        return "deleting"
    if is_meant:
        return "meant for it"
    if volume.status.phase != "Available":
        return "not available"
    if wish.selector and not selector_of(wish).matches(volume.metadata.labels):
        return "not selected"
    return "fitting" if wish.access_modes <= frozenset(spec.access_modes) else "lacking an access mode"
