"""Resources that devices stand behind, beside those of the nodes: what scores count of them (docs/spec/dra.md §3.12).

A node that has some of the resource itself counts as ever. On the others the devices of the class count, and those of them
that are in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scheduler.cache.devicecounts import DeviceCounts
from scheduler.cache.extendedresources import NONE_SERVED, ServedResources
from scheduler.cache.nodes import Matrix, Nodes
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import DeviceClass
from scheduler.framework.memo import Index
from scheduler.framework.ports import Handle
from scheduler.framework.scoring import Demand


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
