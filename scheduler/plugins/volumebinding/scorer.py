"""StorageCapacityScoring: scores of the utilization of a node's volumes and pools (docs/spec/volumes.md §4).

It is off unless that feature gate is on. If a node has a volume for any claim, only such volumes count. Otherwise the
pools count from which the claims would be provisioned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from scheduler.api.quantity import INT64_MAX
from scheduler.config.args import ShapePoint
from scheduler.core import nodeset
from scheduler.framework.interface import Scores
from scheduler.framework.scoring import broken_line
from scheduler.plugins.volumebinding.pod_volumes import PodVolumes, StorageResource


class CapacityScore:
    """Scores from 0 to 100 by the shape of the plugin's arguments.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/scorer.go buildScorerFunction
    """

    def __init__(self, shape: Sequence[ShapePoint]) -> None:
        self._curve = broken_line(shape)
        self._curve_column = np.array(self._curve, dtype=np.int64)

    def of(self, volumes: PodVolumes) -> int:
        """Return the score of the volumes that a node would use for a pod."""
        return self.average(_classes(volumes).values())

    def average(self, classes: Iterable[tuple[int, int]]) -> int:
        """Return the mean score of (requested, capacity) in bytes per class: equal weights, halves are rounded up."""
        scores = [self._curve[_utilization(requested, capacity)] for requested, capacity in classes]
        return (2 * sum(scores) + len(scores)) // (2 * len(scores)) if scores else 0

    def column(self, resources: Iterable[StorageResource], capacity: int) -> Scores:
        """Return the `average` of the resources of each of `capacity` slots; 0 for a slot without any."""
        total, count = np.zeros(capacity, dtype=np.int64), np.zeros(capacity, dtype=np.int64)
        for resource in resources:
            mask = nodeset.to_mask(resource.nodes, capacity)
            total[mask] += self._curve_column[_utilizations(resource.requested, resource.capacity[mask])]
            count[mask] += 1
        column: Scores = (2 * total + count) // np.maximum(2 * count, 1)
        return column


def _utilization(requested: int, capacity: int) -> int:
    return 100 if capacity == 0 or requested > capacity else requested * 100 // capacity


def _utilizations(requested: int, capacities: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    # A product of bytes and 100 may exceed int64, and float64 is not exact. So each percentage has the largest capacity of
    # which the request uses that much, in Python's integers, and the capacities are sorted in between.
    largest = [min(requested * 100 // percent, INT64_MAX) for percent in range(100, 0, -1)]
    return 100 - np.searchsorted(largest, capacities)


def _classes(volumes: PodVolumes) -> dict[str, tuple[int, int]]:
    """Return class → requested and capacity. A pool's capacity counts once for all claims that use it."""
    totals: dict[str, tuple[int, int]] = {}
    for binding in volumes.static:
        name = binding.volume.spec.storage_class_name
        requested, capacity = totals.get(name, (0, 0))
        totals[name] = requested + binding.claim.size_bytes, capacity + binding.volume.capacity.value
    if volumes.static:
        return totals
    for claim, pool in volumes.dynamic:
        if pool is None or claim.request is None:
            continue
        requested, _ = totals.get(claim.storage_class, (0, 0))
        totals[claim.storage_class] = requested + claim.request.value, pool.published
    return totals
