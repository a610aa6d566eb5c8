"""The external provisioners of a simulation: their capacity, and the nodes that reach their volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from scheduler.api.decode import from_manifest
from scheduler.api.storage_v1 import CSIStorageCapacity
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.controllers import ExternalProvisioner
from simulator.controllers.controller import annotations_of
from simulator.controllers.persistent_volume import PROVISIONED_BY, provisioner_of
from simulator.controllers.provisioner import segment_of

_PUBLISHED_EVERY_S: Final = 0.05
"""Interval of publication. An object that is written before the claim shows its volume would not count that volume."""
_HOSTNAME: Final = ("kubernetes.io/hostname",)
LOCAL_PROVISIONERS: Final = frozenset({"rancher.io/local-path", "openebs.io/local"})
"""Provisioners without a CSI driver, whose volumes are directories of one node: no CSINode lists them."""


def provisioner(server: ApiServer, driver: str, clock: Clock) -> ExternalProvisioner:
    """Return the provisioner for all classes of the driver, with the capacity of the CSIStorageCapacity objects."""
    classes = {each["metadata"]["name"] for each in server.objects("storageclasses") if provisioner_of(each) == driver}
    capacities = [
        from_manifest(CSIStorageCapacity, each)
        for each in server.objects("csistoragecapacities")
        if each["storageClassName"] in classes
    ]
    keys, space = _space(capacities)
    if space is None:
        return ExternalProvisioner(server, driver, clock=clock, topology_keys=_topology_keys(server, driver))
    return ExternalProvisioner(
        server, driver, clock=clock, topology_keys=keys, space=space, publishes_every_s=_PUBLISHED_EVERY_S
    )


def _space(capacities: Sequence[CSIStorageCapacity]) -> tuple[tuple[str, ...], dict[str, int] | None]:
    """Return the labels, and the bytes by segment; None if the objects have no common labels, or there are none.

    Classes of one driver share its capacity, so the largest number counts.
    """
    space: dict[str, int] = {}
    all_keys: set[tuple[str, ...]] = set()
    for each in capacities:
        topology = each.node_topology
        if topology is None:
            continue
        if topology.match_expressions:
            return (), None
        keys = tuple(sorted(topology.match_labels))
        all_keys.add(keys)
        segment = segment_of(topology.match_labels, keys)
        amount = 0 if each.capacity is None else each.capacity.value
        space[segment] = max(space.get(segment, 0), amount)
    return (all_keys.pop(), space) if len(all_keys) == 1 else ((), None)


def _topology_keys(server: ApiServer, driver: str) -> tuple[str, ...]:
    """Return the labels of the CSINodes, else those of a volume that the provisioner made before.

    Without both every node reaches the volumes, except those of local provisioners.
    """
    for csi_node in server.objects("csinodes"):
        for each in csi_node["spec"].get("drivers") or ():
            if each["name"] == driver and each.get("topologyKeys"):
                return tuple(map(str, each["topologyKeys"]))
    for volume in server.objects("persistentvolumes"):
        if annotations_of(volume).get(PROVISIONED_BY) == driver and (keys := _keys_of(volume)):
            return keys
    return _HOSTNAME if driver in LOCAL_PROVISIONERS else ()


def _keys_of(volume: dict[str, Any]) -> tuple[str, ...]:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    return tuple(str(each["key"]) for each in terms[0].get("matchExpressions") or () if each.get("operator") == "In")
