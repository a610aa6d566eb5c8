"""The storage behind an external provisioner, of which only the CSIStorageCapacity objects are known.

Rules: docs/spec/volumes.md §8.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.api.decode import from_manifest
from scheduler.api.selectors import LabelSelector
from scheduler.api.storage_v1 import CSIStorageCapacity, PersistentVolume
from simulator.apiserver import ApiServer, Refused
from simulator.controllers.controller import Object, read
from simulator.controllers.persistent_volume import provisioner_of
from simulator.controllers.volume_requests import driver_parameters

CAPACITIES: Final = "csistoragecapacities"


@dataclass(slots=True)
class _Pool:
    """One object, and the bytes of volumes that were created from it or deleted since."""

    obj: CSIStorageCapacity
    topology: LabelSelector
    parameters: frozenset[tuple[str, str]]
    """Those of its class for the driver."""
    used: int = 0
    is_changed: bool = False

    @property
    def capacity(self) -> int | None:
        """The bytes that are left, or None for an object without that number."""
        return None if self.obj.capacity is None else max(0, self.obj.capacity.value - self.used)

    @property
    def maximum(self) -> int | None:
        """The largest volume. A number that equals the capacity follows it."""
        largest, capacity = self.obj.maximum_volume_size, self.capacity
        if largest is None or capacity is None:
            return None if largest is None else largest.value
        return capacity if largest == self.obj.capacity else min(largest.value, capacity)

    @property
    def limit(self) -> int:
        """The largest volume that can be created."""
        sizes = [size for size in (self.capacity, self.maximum) if size is not None]
        return min(sizes, default=0)

    def shares(self, other: _Pool) -> bool:
        """Return whether both are known to show the same storage: drivers only see parameters and topology."""
        is_alike = bool(self.parameters) and self.parameters == other.parameters
        is_same_class = self.obj.storage_class_name == other.obj.storage_class_name
        return self.topology == other.topology and (is_same_class or is_alike)


class ReportedCapacity:
    """The capacity of a driver as the CSIStorageCapacity objects of the server report it.

    An object is kept as it is until a volume of its class and segment is created or deleted. Then it changes by the size
    of the volume, with the objects of the segment whose classes have the same parameters for the driver. Other classes
    are not known to share its storage. A class without an object is unlimited; a scheduler refuses its claims if the
    driver tracks capacity.
    """

    def __init__(self, server: ApiServer, driver: str) -> None:
        self._server = server
        self._taken: dict[str, tuple[list[_Pool], int]] = {}
        self._pools: list[_Pool] = []
        classes = {
            each["metadata"]["name"]: driver_parameters(each)
            for each in server.objects("storageclasses")
            if provisioner_of(each) == driver
        }
        for obj in (from_manifest(CSIStorageCapacity, each) for each in server.objects(CAPACITIES)):
            if obj.storage_class_name in classes and obj.node_topology is not None:
                self._pools.append(_Pool(obj, obj.node_topology, classes[obj.storage_class_name]))

    def largest(self, class_name: str, labels: Mapping[str, str]) -> int | None:
        """Return the largest volume of the class on a node with these labels; None if nothing limits it."""
        if not any(pool.obj.storage_class_name == class_name for pool in self._pools):
            return None
        return max((pool.limit for pool in self._matching(class_name, labels)), default=0)

    def roomiest(self, class_name: str) -> dict[str, str]:
        """Return the labels of the segment with the largest possible volume."""
        pools = [pool for pool in self._pools if pool.obj.storage_class_name == class_name]
        return max(pools, key=lambda pool: pool.limit).topology.match_labels if pools else {}

    def take(self, volume: str, class_name: str, labels: Mapping[str, str], size: int) -> bool:
        """Reserve capacity for a volume of this name. Idempotent. Returns False if there is not enough."""
        if volume in self._taken or self.largest(class_name, labels) is None:
            return True
        pool = next((pool for pool in self._matching(class_name, labels) if size <= pool.limit), None)
        if pool is None:
            return False
        self._taken[volume] = self._sharing(pool), size
        self._change(*self._taken[volume])
        return True

    def give_back(self, volume: Object) -> None:
        """Free the capacity of a deleted volume, also of one that existed before."""
        typed = read(PersistentVolume, volume)
        if typed is not None and typed.key not in self._taken:
            pool = next(self._matching(typed.storage_class, _labels_of(typed)), None)
            self._taken[typed.key] = self._sharing(pool), typed.capacity.value
        pools, size = self._taken.pop(volume["metadata"]["name"], ([], 0))
        self._change(pools, -size)

    def publish(self) -> None:
        """Write the objects that have changed since the last call."""
        for pool in self._pools:
            if pool.is_changed:
                pool.is_changed = False
                sizes = {"capacity": pool.capacity, "maximumVolumeSize": pool.maximum}
                patch = {field: str(size) for field, size in sizes.items() if size is not None}
                metadata = pool.obj.metadata
                with contextlib.suppress(Refused):  # it was deleted
                    self._server.patch(CAPACITIES, metadata.name, patch, namespace=metadata.namespace)

    def _matching(self, class_name: str, labels: Mapping[str, str]) -> Iterator[_Pool]:
        return (p for p in self._pools if p.obj.storage_class_name == class_name and p.topology.matches(labels))

    def _sharing(self, pool: _Pool | None) -> list[_Pool]:
        return [] if pool is None else [each for each in self._pools if each.shares(pool)]

    def _change(self, pools: Sequence[_Pool], size: int) -> None:
        for pool in pools:
            pool.used += size
            pool.is_changed = True


def _labels_of(volume: PersistentVolume) -> dict[str, str]:
    """Return the labels of the nodes that reach the volume, by its first term."""
    required = volume.required_nodes
    terms = () if required is None else required.node_selector_terms
    expressions = terms[0].match_expressions if terms else ()
    return {each.key: each.values[0] for each in expressions if each.operator == "In" and len(each.values) == 1}
