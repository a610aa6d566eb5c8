"""CSIStorageCapacity objects: one per class and segment, found or made once and then kept up."""

from __future__ import annotations

import contextlib
from typing import Final

from scheduler.testing.actors.acting import Object
from scheduler.testing.apiserver import ApiServer, Refused

_CAPACITIES: Final = "csistoragecapacities"


class Published:
    """Objects that are there already, under whatever name, are taken over. Segments are values of one node label.

    Without a label there is one segment, "", which is everywhere.
    """

    def __init__(self, server: ApiServer, topology_key: str, *, namespace: str) -> None:
        self._server = server
        self._topology_key = topology_key
        self._namespace = namespace
        self._names: dict[tuple[str, str], tuple[str, str]] = {}
        for each in server.objects(_CAPACITIES):
            segment = self._segment(each.get("nodeTopology"))
            if segment is not None:
                metadata = each["metadata"]
                self._names[each["storageClassName"], segment] = metadata["namespace"], metadata["name"]

    def publish(self, class_name: str, segment: str, free_bytes: int) -> None:
        """So much is free there for volumes of this class."""
        capacity = {"capacity": str(max(0, free_bytes))}
        known = self._names.get((class_name, segment))
        if known is not None:
            with contextlib.suppress(Refused):  # somebody has deleted it
                self._server.patch(_CAPACITIES, known[1], capacity, namespace=known[0])
                return
        where: Object = {"matchLabels": {self._topology_key: segment}} if self._topology_key else {}
        metadata = {"generateName": "csisc-", "namespace": self._namespace}
        made = {"metadata": metadata, "nodeTopology": where, "storageClassName": class_name} | capacity
        name = self._server.create(_CAPACITIES, made)["metadata"]["name"]
        self._names[class_name, segment] = self._namespace, name

    def _segment(self, topology: Object | None) -> str | None:
        """The one an object is for; None if it is for nodes that are no segment of ours."""
        if topology is None or topology.get("matchExpressions"):
            return None
        labels: dict[str, str] = topology.get("matchLabels") or {}
        if not self._topology_key:
            return None if labels else ""
        return labels.get(self._topology_key) if len(labels) == 1 else None
