"""Why a claim found nothing, in numbers, for the log (docs/spec/volumes.md §12.4 B-20). O(volumes): only for who asks."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from scheduler.cache.volumes import Volumes
from scheduler.core.volumes import PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.plugins.volumebinding.gates import Miss, first_miss


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
    miss = first_miss(volume, claim)
    if miss is not None:
        return _WORDS[miss]
    return "meant for it" if is_for(volume, claim) else "fitting"


_WORDS: Final = {
    Miss.TAKEN: "taken",
    Miss.SIZE: "too small",
    Miss.MODE: "other mode",
    Miss.ATTRIBUTES: "other attributes",
    Miss.DELETING: "deleting",
    Miss.PHASE: "not available",
    Miss.SELECTOR: "not selected",
    Miss.ACCESS_MODES: "lacking an access mode",
}
"""Only volumes of the claim's class are looked at."""
