"""Normalization of scores and scoring of resources, for several plugins.

Rules: docs/spec/core.md §3.6 (normalization), §5.5 (which amounts count for which resource), docs/spec/dra.md §3.12
(resources served by devices). A node that offers the resource itself counts as usual. On other nodes the devices of
the class count, and those of them that are in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import CPU, MEMORY, PodInfo
from scheduler.api.quantity import NATIVE, is_scalar
from scheduler.api.resource_v1 import DeviceClass
from scheduler.cache.devices.device_counts import DeviceCounts
from scheduler.cache.devices.manager import NONE_SERVED, ServedResources
from scheduler.cache.nodes.nodes import CPU_ROW, MEMORY_ROW, Matrix, Nodes
from scheduler.config.args import ShapePoint
from scheduler.framework.handle import Handle
from scheduler.framework.interface import MAX_NODE_SCORE, Scores
from scheduler.framework.memo import Index

_SHAPE_SCALE: Final = 10
"""The scale of configured shapes is 0..10."""
_NON_ZERO_ROWS: Final = {CPU: CPU_ROW, MEMORY: MEMORY_ROW}


def default_normalize(scores: Scores, slots: npt.NDArray[np.intp], *, reverse: bool = False) -> Scores:
    """Scale scores to 0..100 by the highest one among `slots`; `reverse` inverts them. Other slots have no meaning.

    If the highest score is 0, all scores stay 0, or become 100 with `reverse`.

    Upstream: pkg/scheduler/framework/plugins/helper/normalize_score.go DefaultNormalizeScore
    """
    highest = int(scores[slots].max()) if slots.size else 0
    if highest <= 0:
        return np.full_like(scores, MAX_NODE_SCORE) if reverse else scores
    # Slots that are not candidates may exceed the highest score; the minimum keeps them in the checked range.
    stretched = np.minimum(scores * MAX_NODE_SCORE // highest, MAX_NODE_SCORE)
    return MAX_NODE_SCORE - stretched if reverse else stretched


def broken_line(shape: Sequence[ShapePoint]) -> tuple[int, ...]:
    """Return the scores 0..100 at 0..100 percent.

    They are linear between the points, with integer division towards zero, and constant outside.

    Upstream: pkg/scheduler/framework/plugins/helper/shape_score.go BuildBrokenLinearFunction
    """
    points = [(point.utilization, point.score * _SHAPE_SCALE) for point in shape]
    return tuple(_at(points, utilization) for utilization in range(101))


def _at(points: list[tuple[int, int]], utilization: int) -> int:
    for at, (right, high) in enumerate(points):
        if utilization <= right:
            if at == 0:
                return high
            left, low = points[at - 1]
            rise = (high - low) * (utilization - left)
            step = abs(rise) // (right - left)
            return low + (step if rise >= 0 else -step)
    return points[-1][1]


class Demand(msgspec.Struct, frozen=True):
    """One configured resource, and the amount that the pod requests.

    Upstream: pkg/scheduler/framework/plugins/noderesources/resource_allocation.go calculateResourceAllocatableRequest
    """

    resource: str
    amount: int
    weight: int
    non_zero_row: int | None = None
    """The row of `nodes.non_zero` with the used amounts; None means `nodes.requested`."""

    def columns(self, nodes: Nodes, index: Index) -> tuple[Matrix, Matrix] | None:
        """Return allocatable and used amounts of these slots; None for a resource that no node offers."""
        row = nodes.resources().get(self.resource)
        if row is None:
            return None
        used = nodes.requested[row] if self.non_zero_row is None else nodes.non_zero[self.non_zero_row]
        return nodes.allocatable[row][index], used[index]

    def of(self, nodes: Nodes, slot: int) -> tuple[int, int]:
        """Return the same for one slot, as plain integers."""
        row = nodes.resources().get(self.resource)
        if row is None:
            return 0, 0
        if self.non_zero_row is None:
            return nodes.allocatable.item(row, slot), nodes.requested.item(row, slot)
        return nodes.allocatable.item(row, slot), nodes.non_zero.item(self.non_zero_row, slot)


def demands(pod: PodInfo, resources: Iterable[tuple[str, int]], *, non_zero: bool) -> tuple[Demand, ...]:
    """Return the pod's demands for `(resource, weight)` pairs.

    A scalar resource that the pod does not request is left out. With `non_zero`, cpu and memory count as in §A.2, for
    the pod and for the nodes.
    """
    columns = []
    for name, weight in resources:
        if non_zero and name in _NON_ZERO_ROWS:
            amount = pod.non_zero_milli_cpu if name == CPU else pod.non_zero_memory_bytes
            columns.append(Demand(name, amount, weight, _NON_ZERO_ROWS[name]))
            continue
        amount = pod.requests.get(name, 0)
        if name in NATIVE or (amount and is_scalar(name)):
            columns.append(Demand(name, amount, weight))
    return tuple(columns)


class DeviceDemand(Demand, frozen=True):
    """A configured resource that a device class serves."""

    counts: DeviceCounts | None = None
    device_class: DeviceClass | None = None

    def columns(self, nodes: Nodes, index: Index) -> tuple[Matrix, Matrix] | None:
        """Return allocatable and used amounts, with devices where the node does not offer the resource itself."""
        assert self.counts is not None
        assert self.device_class is not None
        whole, used = self.counts.columns(self.device_class)
        whole, used = whole[index], used[index]
        row = nodes.resources().get(self.resource)
        if row is None:
            return whole, used
        own = nodes.allocatable[row][index]
        return np.where(own > 0, own, whole), np.where(own > 0, nodes.requested[row][index], used)

    def of(self, nodes: Nodes, slot: int) -> tuple[int, int]:
        """Return the same for one slot."""
        columns = self.columns(nodes, slice(slot, slot + 1))
        assert columns is not None
        return columns[0].item(), columns[1].item()


class ScoredDevices:
    """The scored resources of a profile that are devices for a pod. `names` are the scored resources."""

    def __init__(self, handle: Handle, names: Iterable[str]) -> None:
        devices = handle.cluster.devices
        self._classes = devices.classes
        self._served = ServedResources(devices.classes, handle.feature_gates)
        self._names = frozenset(name for name in names if "/" in name)
        self._counts = DeviceCounts(handle.cluster.nodes, devices)

    def among(self, pod: PodInfo) -> frozenset[str]:
        """Return the scored resources that devices serve for this pod; usually none.

        For these resources, results must not be cached by requests alone, because devices change.
        """
        if not self._names:
            return NONE_SERVED
        return self._served.among(pod.requests) & self._names

    def counted(self, demands: Iterable[Demand], served: frozenset[str]) -> tuple[Demand, ...]:
        """Return the same demands; those of `served` also count devices."""
        return tuple(self._counted(demand) if demand.resource in served else demand for demand in demands)

    def _counted(self, demand: Demand) -> Demand:
        found = self._classes.for_resource(demand.resource)
        return DeviceDemand(demand.resource, demand.amount, demand.weight, counts=self._counts, device_class=found)
