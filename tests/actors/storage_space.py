"""The storage behind an external provisioner of a test, whose bytes are known, and the objects that show it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping

from simulator.apiserver import ApiServer, Refused
from simulator.controllers.controller import Object
from simulator.controllers.storage_space import CAPACITIES


class Space:
    """Segments and their bytes. A volume that was made keeps its share until it is given back."""

    def __init__(self, size_bytes: Mapping[str, int]) -> None:
        self.size_bytes = dict(size_bytes)
        """May be changed: storage is added, or lost."""
        self._shares: dict[str, tuple[str, int]] = {}
        self._used: Counter[str] = Counter()

    def free_bytes(self, segment: str) -> int:
        """Return the free bytes. The number is negative once storage was lost."""
        return self.size_bytes.get(segment, 0) - self._used[segment]

    def take(self, volume: str, segment: str, size: int) -> bool:
        """Reserve capacity for a volume of this name. Idempotent. Returns False if there is not enough."""
        if self._shares.get(volume) == (segment, size):
            return True
        self.give_back(volume)
        if size > self.free_bytes(segment):
            return False
        self._shares[volume] = (segment, size)
        self._used[segment] += size
        return True

    def give_back(self, volume: str) -> str:
        """Free the capacity of a deleted volume. Returns its segment, or "". Idempotent."""
        segment, size = self._shares.pop(volume, ("", 0))
        self._used[segment] -= size
        return segment

    def overdrawn(self) -> list[str]:
        """Never more made than there is: the segments of which that is not true."""
        return [
            f"segment {segment}: {used} bytes made, {self.size_bytes.get(segment, 0)} there"
            for segment, used in sorted(self._used.items())
            if used > self.size_bytes.get(segment, 0)
        ]


class CapacityPublisher:
    """Writes one object per class and segment, which is the nodes with one value of the label.

    The objects are as old as the last publication.
    """

    def __init__(self, server: ApiServer, label: str, *, namespace: str) -> None:
        self._server = server
        self._label = label
        self._namespace = namespace
        self._names: dict[tuple[str, str], str] = {}

    def publish(self, class_name: str, segment: str, free_bytes: int) -> None:
        """Write the bytes that are free there for volumes of this class."""
        capacity = {"capacity": str(max(0, free_bytes))}
        known = self._names.get((class_name, segment))
        if known is not None:
            with contextlib.suppress(Refused):  # it was deleted
                self._server.patch(CAPACITIES, known, capacity, namespace=self._namespace)
                return
        where: Object = {"matchLabels": {self._label: segment}}
        metadata = {"generateName": "csisc-", "namespace": self._namespace}
        made = {"metadata": metadata, "nodeTopology": where, "storageClassName": class_name} | capacity
        self._names[class_name, segment] = self._server.create(CAPACITIES, made)["metadata"]["name"]
