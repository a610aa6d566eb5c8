"""The utilization of a node's volumes and pools: StorageCapacityScoring (docs/spec/volumes.md §4).

Off unless that feature gate is on. If a node has a volume for any claim, only such volumes count. Otherwise the
pools count from which the claims would be provisioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.cache.storage.capacity import ClassPools
from scheduler.config.args import ShapePoint
from scheduler.framework.scoring import broken_line
from scheduler.plugins.volumebinding.pod_volumes import PodVolumes


class CapacityScore:
    """Scores from 0 to 100 by the shape of the plugin's arguments.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/scorer.go buildScorerFunction
    """

    def __init__(self, shape: Sequence[ShapePoint]) -> None:
        self._curve = broken_line(shape)

    def of(self, volumes: PodVolumes) -> int:
        """Return the score of the volumes that a node would use for a pod."""
        return self.average(_classes(volumes).values())

    def of_bound(
        self, claims: Iterable[PersistentVolumeClaim], pools_of: Callable[[str], ClassPools | None], slot: int
    ) -> int:
        """Return the score of a node's capacity for claims whose volumes exist (§12.1 B-22).

        Of several pools of a class the largest counts. A class without a pool on the node does not count.
        """
        out: dict[str, tuple[int, int]] = {}
        for claim in claims:
            pools = pools_of(claim.storage_class)
            here = (
                [pool.obj.capacity.value for pool in pools.at(slot) if pool.obj.capacity] if pools is not None else []
            )
            if here and claim.request is not None:
                requested, _ = out.get(claim.storage_class, (0, 0))
                out[claim.storage_class] = requested + claim.request.value, max(here)
        return self.average(out.values())

    def average(self, classes: Iterable[tuple[int, int]]) -> int:
        """Return the mean score of (requested, capacity) in bytes per class: equal weights, halves are rounded up."""
        scores = [self._curve[_utilization(requested, capacity)] for requested, capacity in classes]
        return (2 * sum(scores) + len(scores)) // (2 * len(scores)) if scores else 0


def _utilization(requested: int, capacity: int) -> int:
    return 100 if capacity == 0 or requested > capacity else requested * 100 // capacity


def _classes(volumes: PodVolumes) -> dict[str, tuple[int, int]]:
    """Return class → requested and capacity. A pool's capacity counts once for all claims that use it."""
    out: dict[str, tuple[int, int]] = {}
    for binding in volumes.static:
        request, name = binding.claim.request, binding.volume.spec.storage_class_name
        requested, capacity = out.get(name, (0, 0))
        own = request.value if request is not None else 0
        out[name] = requested + own, capacity + binding.volume.capacity.value
    if volumes.static:
        return out
    for claim, pool in volumes.dynamic:
        if pool is None or claim.request is None:
            continue
        requested, _ = out.get(claim.storage_class, (0, 0))
        available = pool.obj.capacity
        out[claim.storage_class] = requested + claim.request.value, available.value if available is not None else 0
    return out
