"""Scoring of resources, shared by the plugins that score them.

What several scoring plugins share: normalisation, and the resources of a pod beside those of the nodes.

Rules: docs/spec/core.md §3.6 (normalisation), §5.5 (which amounts count for which resource).

Resources that devices stand behind, beside those of the nodes: what scores count of them (docs/spec/dra.md §3.12).

A node that has some of the resource itself counts as ever. On the others the devices of the class count, and those of them
that are in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

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
"""Shapes are written on a scale of 0..10."""
_NON_ZERO_ROWS: Final = {CPU: CPU_ROW, MEMORY: MEMORY_ROW}


def default_normalize(scores: Scores, slots: npt.NDArray[np.intp], *, reverse: bool = False) -> Scores:
    """Stretch to 0..100 by the highest score among `slots`; `reverse` turns it round. Other slots mean nothing.

    If the highest is 0 everybody keeps 0, or gets 100 when reversed.

    Upstream: pkg/scheduler/framework/plugins/helper/normalize_score.go DefaultNormalizeScore
    """
    highest = int(scores[slots].max()) if slots.size else 0
    if highest <= 0:
        return np.full_like(scores, MAX_NODE_SCORE) if reverse else scores
    # Slots outside the candidates may hold more than the highest; cut, they stay in the range that is checked.
    stretched = np.minimum(scores * MAX_NODE_SCORE // highest, MAX_NODE_SCORE)
    return MAX_NODE_SCORE - stretched if reverse else stretched


def broken_line(shape: Sequence[ShapePoint]) -> tuple[int, ...]:
    """Scores, 0..100, at 0..100 percent: straight between the points, integer division towards zero, flat outside.

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


@dataclass(frozen=True, slots=True)
class Demand:
    """One configured resource, and how much of it the pod asks for.

    Upstream: pkg/scheduler/framework/plugins/noderesources/resource_allocation.go calculateResourceAllocatableRequest
    """

    resource: str
    amount: int
    weight: int
    non_zero_row: int | None = None
    """The row of `nodes.non_zero` that counts what is used; None: `nodes.requested`."""

    def columns(self, nodes: Nodes, index: Index) -> tuple[Matrix, Matrix] | None:
        """Allocatable and used of these slots; None for a resource that no node offers."""
        row = nodes.resources().get(self.resource)
        if row is None:
            return None
        used = nodes.requested[row] if self.non_zero_row is None else nodes.non_zero[self.non_zero_row]
        return nodes.allocatable[row][index], used[index]

    def of(self, nodes: Nodes, slot: int) -> tuple[int, int]:
        """The same for one slot, as plain integers."""
        row = nodes.resources().get(self.resource)
        if row is None:
            return 0, 0
        if self.non_zero_row is None:
            return nodes.allocatable.item(row, slot), nodes.requested.item(row, slot)
        return nodes.allocatable.item(row, slot), nodes.non_zero.item(self.non_zero_row, slot)


def demands(pod: PodInfo, resources: Iterable[tuple[str, int]], *, non_zero: bool) -> tuple[Demand, ...]:
    """What a pod asks of `(resource, weight)` pairs.

    A scalar resource that the pod does not request is left out. `non_zero`: cpu and memory as §A.2 counts them,
    for the pod and for the nodes.
    """
    out = []
    for name, weight in resources:
        if non_zero and name in _NON_ZERO_ROWS:
            amount = pod.non_zero_milli_cpu if name == CPU else pod.non_zero_memory_bytes
            out.append(Demand(name, amount, weight, _NON_ZERO_ROWS[name]))
            continue
        amount = pod.requests.get(name, 0)
        if name in NATIVE or (amount and is_scalar(name)):
            out.append(Demand(name, amount, weight))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class DeviceDemand(Demand):
    """A configured resource that a class serves."""

    counts: DeviceCounts | None = None
    device_class: DeviceClass | None = None

    def columns(self, nodes: Nodes, index: Index) -> tuple[Matrix, Matrix] | None:
        """As of any resource, with devices where the node has none itself."""
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
        """As `columns`."""
        columns = self.columns(nodes, slice(slot, slot + 1))
        assert columns is not None
        return columns[0].item(), columns[1].item()


class ScoredDevices:
    """Which of the resources that a profile scores are devices for a pod. `names` are those resources."""

    def __init__(self, handle: Handle, names: Iterable[str]) -> None:
        devices = handle.cluster.devices
        self._classes = devices.classes
        self._served = ServedResources(devices.classes, handle.feature_gates)
        self._names = frozenset(name for name in names if "/" in name)
        self._counts = DeviceCounts(handle.cluster.nodes, devices)

    def among(self, pod: PodInfo) -> frozenset[str]:
        """Mostly none. What is remembered by requests alone does not hold for the others: devices come and go."""
        if not self._names:
            return NONE_SERVED
        return self._served.among(pod.requests) & self._names

    def counted(self, demands: Iterable[Demand], served: frozenset[str]) -> tuple[Demand, ...]:
        """The same demands, those of `served` counting devices as well."""
        return tuple(self._counted(demand) if demand.resource in served else demand for demand in demands)

    def _counted(self, demand: Demand) -> Demand:
        found = self._classes.for_resource(demand.resource)
        return DeviceDemand(demand.resource, demand.amount, demand.weight, counts=self._counts, device_class=found)
