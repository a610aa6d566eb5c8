"""Volumes that somebody meant for a claim and that it will not get as it was meant (docs/spec/volumes.md §12.3 B-25)."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.cache.volumes import Volumes
from scheduler.core.log_once import LogOnce
from scheduler.core.pod import Pod
from scheduler.core.podinfo import PodInfo
from scheduler.core.volumes import PersistentVolumeClaim, is_for
from scheduler.framework.ports import Recorder
from scheduler.plugins.volumebinding.binder import PodVolumeClaims


class Misfits:
    """Warns once for each claim; a look-up for each claim that waits for its pod."""

    def __init__(self, volumes: Volumes, recorder: Recorder, *, scheduler_name: str) -> None:
        self._volumes = volumes
        self._recorder = recorder
        self._scheduler_name = scheduler_name
        self._told = LogOnce()

    def look(self, pod: PodInfo, claims: PodVolumeClaims) -> None:
        """Tell the pod and the claim what is odd about the volumes that are meant for the claim."""
        for claim in claims.delayed:
            note = "; ".join(self._odd(claim))
            if not note or not self._told.is_new(claim.metadata.uid):
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

    def _odd(self, claim: PersistentVolumeClaim) -> Iterator[str]:
        meant = [volume for volume in self._volumes.volumes.meant_for(claim.key) if is_for(volume, claim)]
        for volume in meant:
            if volume.storage_class != claim.storage_class:
                yield f"pre-bound PV {volume.key} has class {volume.storage_class}, claim wants {claim.storage_class}"
        if len(meant) > 1:
            yield f"PVs {', '.join(volume.key for volume in meant)} are all pre-bound to claim {claim.metadata.name}"
