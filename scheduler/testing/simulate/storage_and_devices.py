"""Volumes and devices of a simulation: what ties the objects of a dump together, and their controllers.

The volumes of a simulation: what ties the objects of a dump together, and the controllers that act on them.

A provisioner runs for every driver that a class names. Its room is what the CSIStorageCapacity objects of its classes say,
per value of the one node label they select by; drivers without such objects have room for everything.

The devices of a simulation: what ties the claims of a dump to their pods, and the controllers that act on them.

Claims are made from templates and given back as in a cluster. The driver of every slice answers for its devices at once:
binding conditions become true.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.decode import from_manifest
from scheduler.api.storage_v1 import NO_PROVISIONER, CSIStorageCapacity
from scheduler.core.clock import Clock
from scheduler.testing.apiserver import ApiServer, Refused
from scheduler.testing.controllers import (
    Actor,
    DRADriver,
    EphemeralVolumeController,
    ExternalProvisioner,
    PersistentVolumeController,
    ResourceClaimController,
)
from scheduler.testing.controllers.persistent_volume import provisioner_of

Object = dict[str, Any]
_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_LET_GO: Final = frozenset({"Released", "Failed"})


def retie(server: ApiServer) -> None:
    """Objects got new uids when they were loaded: what names a claim or a pod by uid is to name the same one still."""
    for volume in server.objects(_VOLUMES):
        reference = volume["spec"].get("claimRef") or {}
        if reference.get("uid") and volume["status"].get("phase") not in _LET_GO:
            claim = find(server, _CLAIMS, reference["name"], reference.get("namespace", ""))
            if claim is not None and claim["spec"].get("volumeName", "") in {"", volume["metadata"]["name"]}:
                uid = {"spec": {"claimRef": {"uid": claim["metadata"]["uid"]}}}
                server.patch(_VOLUMES, volume["metadata"]["name"], uid)
    for claim in server.objects(_CLAIMS):
        metadata = claim["metadata"]
        owners = [with_uid(server, owner, metadata["namespace"]) for owner in metadata.get("ownerReferences") or ()]
        if owners:
            server.update(_CLAIMS, claim | {"metadata": metadata | {"ownerReferences": owners}})


def with_uid(server: ApiServer, owner: Object, namespace: str) -> Object:
    """An owner reference to the pod of that name as it is here; others as they are."""
    pod = find(server, "pods", owner.get("name", ""), namespace) if owner.get("kind") == "Pod" else None
    return owner if pod is None else owner | {"uid": pod["metadata"]["uid"]}


def find(server: ApiServer, resource: str, name: str, namespace: str) -> Object | None:
    """None if there is none."""
    try:
        return server.get(resource, name, namespace)
    except Refused:
        return None


def controllers(server: ApiServer, clock: Clock) -> list[Actor]:
    """Made once all objects are there, and run until nothing is left to do: claims that need no scheduler have volumes."""
    drivers = dict.fromkeys(provisioner_of(each) for each in server.objects("storageclasses"))
    made: list[Actor] = [
        EphemeralVolumeController(server, clock=clock),
        PersistentVolumeController(server, clock=clock, reclaims=True),
        *(_provisioner(server, driver, clock) for driver in drivers if driver != NO_PROVISIONER),
    ]
    while sum(actor.step() for actor in made):
        pass
    return made


def _provisioner(server: ApiServer, driver: str, clock: Clock) -> ExternalProvisioner:
    classes = {each["metadata"]["name"] for each in server.objects("storageclasses") if provisioner_of(each) == driver}
    capacities = [
        from_manifest(CSIStorageCapacity, each)
        for each in server.objects("csistoragecapacities")
        if each["storageClassName"] in classes
    ]
    key, space = _space(capacities)
    if space is None:
        return ExternalProvisioner(server, driver, clock=clock, topology_key=_topology_key(server, driver))
    return ExternalProvisioner(server, driver, clock=clock, topology_key=key, space=space, publishes_every_s=0)


def _space(capacities: list[CSIStorageCapacity]) -> tuple[str, dict[str, int] | None]:
    """The label and its values' bytes; None if the objects have no common label, or there are none.

    Classes of one driver share its room, so the largest number counts.
    """
    space: dict[str, int] = {}
    keys: set[str] = set()
    for each in capacities:
        topology = each.node_topology
        if topology is None:
            continue
        if topology.match_expressions or len(topology.match_labels) > 1:
            return "", None
        key, value = next(iter(topology.match_labels.items()), ("", ""))
        keys.add(key)
        amount = 0 if each.capacity is None else each.capacity.value
        space[value] = max(space.get(value, 0), amount)
    return (keys.pop(), space) if len(keys) == 1 else ("", None)


def _topology_key(server: ApiServer, driver: str) -> str:
    """As the nodes' drivers say; without, every node reaches the volumes."""
    for csi_node in server.objects("csinodes"):
        for each in csi_node["spec"].get("drivers") or ():
            if each["name"] == driver and each.get("topologyKeys"):
                return str(each["topologyKeys"][0])
    return ""


_RESOURCE_CLAIMS: Final = "resourceclaims"


def retie_claims(server: ApiServer) -> None:
    """Objects got new uids when they were loaded: owners and users of claims are to be the same pods still."""
    for claim in server.objects(_RESOURCE_CLAIMS):
        metadata, status = claim["metadata"], claim.get("status") or {}
        name, namespace = metadata["name"], metadata["namespace"]
        owners = [with_uid(server, owner, namespace) for owner in metadata.get("ownerReferences") or ()]
        if owners:
            server.update(_RESOURCE_CLAIMS, claim | {"metadata": metadata | {"ownerReferences": owners}})
        users = [user for each in status.get("reservedFor") or () if (user := _user(server, each, namespace))]
        if status.get("reservedFor"):
            now = server.get(_RESOURCE_CLAIMS, name, namespace)
            server.update(_RESOURCE_CLAIMS, now | {"status": status | {"reservedFor": users}}, subresource="status")


def _user(server: ApiServer, user: Object, namespace: str) -> Object | None:
    """The pod of that name as it is here; None if the dump has it no more."""
    if user.get("resource") != "pods":
        return user
    pod = find(server, "pods", user["name"], namespace)
    return None if pod is None else user | {"uid": pod["metadata"]["uid"]}


def device_controllers(server: ApiServer, clock: Clock) -> list[Actor]:
    """Made once all objects are there, and run until nothing is left to do: claims of templates are there at the start."""
    drivers = dict.fromkeys(each["spec"]["driver"] for each in server.objects("resourceslices"))
    made: list[Actor] = [
        ResourceClaimController(server, clock=clock),
        *(DRADriver(server, driver, clock=clock) for driver in drivers),
    ]
    while sum(actor.step() for actor in made):
        pass
    return made
