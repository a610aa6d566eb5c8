"""The writes that join a claim and a volume, or part them, in the order in which the PV controller makes them."""

from __future__ import annotations

from scheduler.core.decode import from_manifest
from scheduler.core.volumes import BIND_COMPLETED, BOUND_BY_CONTROLLER, PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.testing.actors.acting import Object, annotations_of
from scheduler.testing.apiserver import ApiServer

_CLAIMS = "persistentvolumeclaims"
_VOLUMES = "persistentvolumes"


def bind(server: ApiServer, volume: Object, claim: Object) -> None:
    """The volume first: claimRef, then its phase; then the claim: volumeName with bind-completed, then its phase."""
    meant = claim_ref(volume, claim)
    if meant is not None:
        if not _is_for(volume, claim):
            volume["metadata"]["annotations"] = annotations_of(volume) | {BOUND_BY_CONTROLLER: "yes"}
        volume["spec"]["claimRef"] = meant
        volume = server.update(_VOLUMES, volume)
    volume = set_phase(server, volume, "Bound")
    name = volume["metadata"]["name"]
    if claim["spec"].get("volumeName") != name or BIND_COMPLETED not in annotations_of(claim):
        marks = {BIND_COMPLETED: "yes"}
        if claim["spec"].get("volumeName") != name:
            marks[BOUND_BY_CONTROLLER] = "yes"
        claim["spec"]["volumeName"] = name
        claim["metadata"]["annotations"] = marks | annotations_of(claim)
        claim = server.update(_CLAIMS, claim)
    _set_bound(server, claim, volume)


def is_unfinished(volume: Object, claim: Object) -> bool:
    """Whether `bind` would still write the claim's name or the volume's."""
    return claim_ref(volume, claim) is not None or BIND_COMPLETED not in annotations_of(claim)


def claim_ref(volume: Object, claim: Object) -> Object | None:
    """What the volume's claimRef should become; None if it is right already."""
    metadata, reference = claim["metadata"], volume["spec"].get("claimRef") or {}
    if all(reference.get(field) == metadata[field] for field in ("name", "namespace", "uid")):
        return None
    fields = ("namespace", "name", "uid", "resourceVersion")
    return {"kind": "PersistentVolumeClaim", "apiVersion": "v1"} | {field: metadata[field] for field in fields}


def unbind(server: ApiServer, volume: Object) -> None:
    """A claimRef of the controller's or the scheduler's goes; of a user's only the uid does."""
    if BOUND_BY_CONTROLLER in annotations_of(volume):
        del volume["spec"]["claimRef"]
        del volume["metadata"]["annotations"][BOUND_BY_CONTROLLER]
    else:
        volume["spec"]["claimRef"].pop("uid", None)
    set_phase(server, server.update(_VOLUMES, volume), "Available")


def set_phase(server: ApiServer, volume: Object, phase: str, message: str = "") -> Object:
    """The volume with this phase; written only if it has another."""
    if volume["status"].get("phase") == phase:
        return volume
    status = {key: value for key, value in volume["status"].items() if key != "message"} | {"phase": phase}
    volume["status"] = status | ({"message": message} if message else {})
    return server.update(_VOLUMES, volume, subresource="status")


def _set_bound(server: ApiServer, claim: Object, volume: Object) -> None:
    status, spec = claim["status"], volume["spec"]
    wanted = {"phase": "Bound", "accessModes": spec["accessModes"]}
    if status.get("phase") != "Bound":
        wanted["capacity"] = spec["capacity"]
        if status.get("phase") == "Pending" and spec.get("volumeAttributesClassName") is not None:
            wanted["currentVolumeAttributesClassName"] = spec["volumeAttributesClassName"]
    if status | wanted != status:
        claim["status"] = status | wanted
        server.update(_CLAIMS, claim, subresource="status")


def _is_for(volume: Object, claim: Object) -> bool:
    return is_for(from_manifest(PersistentVolume, volume), from_manifest(PersistentVolumeClaim, claim))
