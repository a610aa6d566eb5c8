"""Say why a claim finds no volume: counts for a person (docs/spec/volumes.md §12.4 B-20), and warnings (§12.3 B-25)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.cache.storage.volumes import Volumes
from scheduler.core.caching import LogOnce
from scheduler.framework.handle import Handle
from scheduler.plugins.volumebinding.find import VolumeMismatch, first_miss
from scheduler.plugins.volumebinding.pod_volumes import PodVolumeClaims


class VolumeMismatches:
    """Warns once per claim; costs a look-up for each delayed claim."""

    def __init__(self, handle: Handle) -> None:
        self._volumes = handle.cluster.volumes
        self._recorder = handle.recorder
        self._scheduler_name = handle.scheduler_name
        self._warned = LogOnce()

    def look(self, pod: PodInfo, claims: PodVolumeClaims) -> None:
        """Record an event on pod and claim if volumes pre-bound to the claim do not match it."""
        for claim in claims.delayed:
            note = "; ".join(self._mismatches(claim))
            if not note or not self._warned.is_new(claim.metadata.uid):
                continue
            concerned: tuple[Pod | PersistentVolumeClaim, ...] = (pod.pod, claim)
            for about in concerned:
                self._recorder.event(
                    about,
                    controller=self._scheduler_name,
                    type_="Warning",
                    reason="PreBoundVolume",
                    action="Scheduling",
                    note=note,
                )

    def _mismatches(self, claim: PersistentVolumeClaim) -> Iterator[str]:
        meant = [volume for volume in self._volumes.volumes.meant_for(claim.key) if is_for(volume, claim)]
        for volume in meant:
            if volume.storage_class != claim.storage_class:
                yield f"pre-bound PV {volume.key} has class {volume.storage_class}, claim wants {claim.storage_class}"
        if len(meant) > 1:
            yield f"PVs {', '.join(volume.key for volume in meant)} are all pre-bound to claim {claim.metadata.name}"


def account_of(volumes: Volumes, claim: PersistentVolumeClaim) -> dict[str, Any]:
    """Return counts of the class's volumes and capacity objects in the whole cluster, for one claim."""
    storage_class = volumes.classes.get(claim.storage_class)
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
        "bytes": claim.size_bytes,
        "selectedNode": claim.selected_node,
        "volumes": dict(Counter(_verdict(volume, claim) for volume in of_class)),
        "provisioner": storage_class.obj.provisioner if storage_class is not None else None,
        "capacityObjects": len(limits),
        "largestBytes": max(limits, default=None),
    }


def _verdict(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    miss = first_miss(volume, claim)
    if miss is not None:
        return _WORDS[miss]
    return "meant for it" if is_for(volume, claim) else "fitting"


_WORDS: Final = {
    VolumeMismatch.TAKEN: "taken",
    VolumeMismatch.SIZE: "too small",
    VolumeMismatch.MODE: "other mode",
    VolumeMismatch.ATTRIBUTES: "other attributes",
    VolumeMismatch.DELETING: "deleting",
    VolumeMismatch.PHASE: "not available",
    VolumeMismatch.SELECTOR: "not selected",
    VolumeMismatch.ACCESS_MODES: "lacking an access mode",
}
"""Without STORAGE_CLASS, because only volumes of the claim's class are counted."""
