"""How full a node's volumes and pools would be: StorageCapacityScoring (docs/spec/volumes.md §4).

Off unless that feature gate is on. Volumes that are there count alone if the node has one for any claim; else the pools
that claims would be provisioned from, as their objects tell them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.config.args import ShapePoint
from scheduler.framework.scoring import broken_line
from scheduler.plugins.volumebinding.pod_volumes import PodVolumes


class CapacityScore:
    """By the shape of the plugin's arguments, 0..100.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/scorer.go buildScorerFunction
    """

    def __init__(self, shape: Sequence[ShapePoint]) -> None:
        self._curve = broken_line(shape)

    def of(self, volumes: PodVolumes) -> int:
        """Of what a node would do for a pod."""
        return self.average(_classes(volumes).values())

    def average(self, classes: Iterable[tuple[int, int]]) -> int:
        """Of requested and capacity, in bytes, of each class: all weigh the same, halves are rounded up."""
        scores = [self._curve[_utilization(requested, capacity)] for requested, capacity in classes]
        return (2 * sum(scores) + len(scores)) // (2 * len(scores)) if scores else 0


def _utilization(requested: int, capacity: int) -> int:
    return 100 if capacity == 0 or requested > capacity else requested * 100 // capacity


def _classes(volumes: PodVolumes) -> dict[str, tuple[int, int]]:
    """Class → requested and capacity. A pool's capacity counts once, however many claims draw from it."""
    out: dict[str, tuple[int, int]] = {}
    for binding in volumes.static:
        request, name = binding.claim.request, binding.volume.spec.storage_class_name
        requested, capacity = out.get(name, (0, 0))
        asked = request.value if request is not None else 0
        out[name] = requested + asked, capacity + binding.volume.capacity.value
    if volumes.static:
        return out
    for claim, pool in volumes.dynamic:
        if pool is None or claim.request is None:
            continue
        requested, _ = out.get(claim.storage_class, (0, 0))
        told = pool.obj.capacity
        out[claim.storage_class] = requested + claim.request.value, told.value if told is not None else 0
    return out
