"""The external provisioners of a simulation: their capacity, and the nodes that reach their volumes."""

from __future__ import annotations

from typing import Any, Final

from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.controllers import ExternalProvisioner
from simulator.controllers.controller import annotations_of
from simulator.controllers.persistent_volume import PROVISIONED_BY, provisioner_of

_PUBLISHED_EVERY_S: Final = 0.05
"""Delay of publication. An object that is written before the claim shows its volume would not count that volume."""
_RETRY_S: Final = 0.5
"""Shorter than the time without any write after which a simulation ends."""
_HOSTNAME: Final = ("kubernetes.io/hostname",)
LOCAL_PROVISIONERS: Final = frozenset({"rancher.io/local-path", "openebs.io/local"})
"""Provisioners without a CSI driver, whose volumes are directories of one node: no CSINode lists them."""


def provisioner(server: ApiServer, driver: str, clock: Clock) -> ExternalProvisioner:
    """Return the provisioner for all classes of the driver, with the capacity of the CSIStorageCapacity objects."""
    return ExternalProvisioner(
        server,
        driver,
        clock=clock,
        topology_keys=_topology_keys(server, driver),
        retry_s=_RETRY_S,
        publishes_every_s=_PUBLISHED_EVERY_S,
    )


def _topology_keys(server: ApiServer, driver: str) -> tuple[str, ...] | None:
    """Return None where a CSINode lists topology keys for the driver: the CSINode of each node counts then.

    Without any key the labels of the capacity objects count, then those of a volume that the provisioner made before.
    Without all of them every node reaches the volumes, except those of local provisioners.
    """
    listed = [
        each.get("topologyKeys")
        for csi_node in server.objects("csinodes")
        for each in csi_node["spec"].get("drivers") or ()
        if each["name"] == driver
    ]
    if any(listed):
        return None
    if keys := _keys_of_capacities(server, driver):
        return keys
    for volume in server.objects("persistentvolumes"):
        if annotations_of(volume).get(PROVISIONED_BY) == driver and (keys := _keys_of(volume)):
            return keys
    return _HOSTNAME if driver in LOCAL_PROVISIONERS else ()


def _keys_of_capacities(server: ApiServer, driver: str) -> tuple[str, ...]:
    """Return the labels by which all capacity objects of the driver select nodes; none if they differ."""
    classes = {each["metadata"]["name"] for each in server.objects("storageclasses") if provisioner_of(each) == driver}
    keys = {
        tuple(sorted((each.get("nodeTopology") or {}).get("matchLabels") or ()))
        for each in server.objects("csistoragecapacities")
        if each["storageClassName"] in classes
    }
    return keys.pop() if len(keys) == 1 else ()


def _keys_of(volume: dict[str, Any]) -> tuple[str, ...]:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    return tuple(str(each["key"]) for each in terms[0].get("matchExpressions") or () if each.get("operator") == "In")
