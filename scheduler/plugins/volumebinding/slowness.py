"""Bindings that take long say what they wait for (docs/spec/volumes.md §12.2 B-21)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scheduler.cache.volumes import Volumes
from scheduler.core.volumes import PersistentVolumeClaim
from scheduler.framework.ports import Recorder, VolumeMetrics
from scheduler.plugins.volumebinding.binder import Plan

MARKS_S: Final = (30, 60, 300)
"""An event and a count after so much waiting; the last is a warning."""


class Slowness:
    """Tells the pod's user; the binding goes on."""

    def __init__(self, volumes: Volumes, recorder: Recorder, metrics: VolumeMetrics, *, scheduler_name: str) -> None:
        self._volumes = volumes
        self._recorder = recorder
        self._metrics = metrics
        self._scheduler_name = scheduler_name

    def tell(self, plan: Plan, after_s: int) -> None:
        """The plan is not carried out after so long; nothing if it is by now."""
        waits = "; ".join(self._waits(plan))
        if not waits:
            return
        self._metrics.long_wait(after_s)
        self._recorder.event(
            plan.pod.pod,
            controller=self._scheduler_name,
            type_="Warning" if after_s == MARKS_S[-1] else "Normal",
            reason="WaitForVolumeBinding",
            action="Binding",
            note=f"volumes are not bound after {after_s} s: {waits}",
        )

    def _waits(self, plan: Plan) -> Iterator[str]:
        for claim in plan.claims():
            now = self._volumes.claims.get_api(claim.key) or claim
            if not now.is_fully_bound:
                yield f'claim "{now.metadata.name}" waits for {self._whom(plan, now)}'

    def _whom(self, plan: Plan, claim: PersistentVolumeClaim) -> str:
        meant = next((step.volume.key for step in plan.static if step.claim.key == claim.key), claim.spec.volume_name)
        if meant:
            return f'the PV controller to bind it to volume "{meant}"'
        known = self._volumes.classes.get(claim.storage_class)
        provisioner = known.obj.provisioner if known is not None else "nobody (its class is gone)"
        return f'{provisioner} to provision it for node "{plan.node_name}"'
