"""Complete objects of a user to objects that an API server accepts.

Finished pods are removed, and priorities get their classes. The API server sets the defaults of new objects;
`admission` does the work of admission plugins. Every object is decoded once, so that mistakes are found before the
simulation starts.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.core_v1 import Namespace, Node, Pod, ResourceMap
from scheduler.api.meta import Frozen
from scheduler.api.storage_v1 import (
    NO_PROVISIONER,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduler.core.clock import Clock
from scheduler.manifests.defaults import SYSTEM_PRIORITIES
from simulator.apiserver import ApiServer
from simulator.controllers import (
    Actor,
    DRADriver,
    EphemeralVolumeController,
    PersistentVolumeController,
    ResourceClaimController,
)
from simulator.controllers.controller import is_finished
from simulator.controllers.kubelet import running_conditions
from simulator.controllers.persistent_volume import provisioner_of
from simulator.simulate.input.admission import ADMITTING, Admission, Classes, MissingClass
from simulator.simulate.input.manifests import SERVER_FIELDS, Found, InputError, Manifest, decoded
from simulator.simulate.input.provisioners import provisioner
from simulator.simulate.input.references import MissingObject, missing_references
from simulator.workloads.controllers import RESOURCES, TYPES
from simulator.workloads.specs import MOST_PODS

_CHECKED: Final[dict[str, type[object]]] = {
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "PersistentVolume": PersistentVolume,
    "StorageClass": StorageClass,
    "CSIDriver": CSIDriver,
    "CSINode": CSINode,
    "CSIStorageCapacity": CSIStorageCapacity,
    "VolumeAttachment": VolumeAttachment,
    "Namespace": Namespace,
}
POD_SCHEDULED: Final = "PodScheduled"
_SELECTING: Final = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Deployment")
MOST_SHOWN: Final = 50
"""Mistakes that are listed."""
_PODS_OF_A_NODE: Final = "110"
"""The kubelet's default, for nodes without a number of pods."""


class _Limits(Frozen, frozen=True):
    limits: ResourceMap = {}


class _Limited(Frozen, frozen=True):
    resources: _Limits = _Limits()


class _LimitedSpec(_Limited, frozen=True):
    containers: tuple[_Limited, ...] = ()
    init_containers: tuple[_Limited, ...] = ()


class _LimitedPod(Frozen, frozen=True):
    """A pod with limits. Schedulers do not read limits, but a server derives requests from them."""

    spec: _LimitedSpec


@dataclass(frozen=True, slots=True)
class Completed:
    """The objects for the API server, and other results for the controllers."""

    objects: tuple[Found, ...]
    left_out: tuple[Found, ...]
    """Pods that have finished or are being deleted: they use no resources and are never scheduled."""
    missing: tuple[MissingObject, ...]
    """Objects that are missing in the input."""
    admit: Callable[[Found], Found]
    """Admits a pod that a controller creates. Raises InputError."""


def complete(found: Sequence[Found]) -> Completed:
    """Give pods, nodes and workloads the defaults of an API server. Raises InputError."""
    classes, admission = Classes(found), Admission(found)

    def admit(pod: Found) -> Found:
        return _pod(pod, classes, admission)

    kept = [each for each in found if not _is_dropped(each)]
    left_out = tuple(each for each in kept if each.kind == "Pod" and is_leaving(each))
    gone = {id(each) for each in left_out}
    completed, mistakes = _all_completed((each for each in kept if id(each) not in gone), admit)
    missing = missing_references(completed, known=(*found, *classes.made_up()))
    if mistakes:
        raise InputError("\n".join([*mistakes[:MOST_SHOWN], *map(str, missing[:MOST_SHOWN])]))
    return Completed((*classes.made_up(), *completed), left_out, missing, admit)


def _all_completed(found: Iterable[Found], admit: Callable[[Found], Found]) -> tuple[list[Found], list[str]]:
    """Return the completed objects, and one mistake of each object that has any."""
    completed, mistakes = [], []
    for each in found:
        try:
            completed.append(_completed(each, admit))
        except InputError as mistake:
            mistakes.append(str(mistake))
    return completed, mistakes


def _is_dropped(found: Found) -> bool:
    """Return whether the object is not needed after admission.

    Some kinds only matter for admission, and every server has the `system-` classes.
    """
    return found.name in SYSTEM_PRIORITIES if found.kind == "PriorityClass" else found.kind in ADMITTING


def is_leaving(found: Found) -> bool:
    """Return whether the pod has finished or is being deleted."""
    return is_finished(found.value) or found.value["metadata"].get("deletionTimestamp") is not None


def _workload(found: Found, admit: Callable[[Found], Found]) -> Found:
    """Check the workload, and its template by a pod from it."""
    value = _with_selector(found)
    spec = value["spec"]
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise found.wrong("spec.template.spec", "is required")
    if not isinstance(template["spec"].get("volumes") or [], list):
        raise found.wrong("spec.template.spec.volumes", "must be a list")
    decoded(found, TYPES[RESOURCES[found.kind]], {"status": {}, **value})
    for field in ("replicas", "parallelism", "completions"):
        if spec.get(field, 0) > MOST_PODS:
            raise found.wrong(f"spec.{field}", f"is more than can be simulated ({MOST_PODS}), got {spec[field]}")
    if not all(
        isinstance((each.get("metadata") or {}).get("name"), str) for each in spec.get("volumeClaimTemplates") or ()
    ):
        raise found.wrong("spec.volumeClaimTemplates", "must be a list of claims with names")
    if spec.get("replicas", 1):
        metadata = {**(template.get("metadata") or {}), "name": f"{found.name}-0", "namespace": found.namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        with contextlib.suppress(MissingClass):  # the workload exists without its pods, as in a cluster
            admit(Found(pod, f"{found.where}: spec.template"))
    return Found(value, found.where, found.former)


def _with_selector(found: Found) -> Manifest:
    """Add a missing selector: that of its pods."""
    spec = found.value.get("spec") or {}
    if found.kind not in _SELECTING or "selector" in spec:
        return {**found.value, "spec": spec}
    template = spec.get("template")
    metadata = template.get("metadata") if isinstance(template, dict) else None
    labels = metadata.get("labels") or {} if isinstance(metadata, dict) else {}
    selector = labels if found.kind == "ReplicationController" else {"matchLabels": labels}
    return {**found.value, "spec": {**spec, "selector": selector}}


def _completed(found: Found, admit: Callable[[Found], Found]) -> Found:
    match found.kind:
        case "Node":
            return completed_node(found)
        case "Pod":
            return admit(found)
        case kind if kind in RESOURCES and kind != "CronJob":
            return _workload(found, admit)
        case "PodDisruptionBudget":
            return _budget(found)
        case _:
            if found.kind in _CHECKED:
                decoded(found, _CHECKED[found.kind], found.value)
            return found


def completed_node(found: Found) -> Found:
    """Give a node that was written by hand its defaults. Raises InputError."""
    status = found.value.get("status") or {}
    allocatable = status.get("allocatable") or status.get("capacity")
    if not isinstance(allocatable, dict):
        raise found.wrong("status.allocatable", "is required: it says how much the node holds")
    value = copy.deepcopy(found.value)
    if not _is_reported(found):
        value["status"] = {**status, "allocatable": {"pods": _PODS_OF_A_NODE, **allocatable}}
        labels = value["metadata"]["labels"] = value["metadata"].get("labels") or {}
        if isinstance(labels, dict):
            labels.setdefault("kubernetes.io/hostname", found.name)
    decoded(found, Node, value)
    return Found(value, found.where, found.former)


def _is_reported(found: Found) -> bool:
    """Return whether the node is of a cluster: a server or its kubelet wrote fields that hand-written nodes lack."""
    metadata, status = found.former.get("metadata") or {}, found.value.get("status") or {}
    return any(metadata.get(field) for field in SERVER_FIELDS) or len(status) > 1


def _pod(found: Found, classes: Classes, admission: Admission) -> Found:
    if not isinstance(found.value.get("spec"), dict):
        raise found.wrong("spec", "is required")
    value = {key: part for key, part in copy.deepcopy(found.value).items() if key != "status"}
    if status := _status(found, value):
        value["status"] = status
    decoded(found, Pod, value)
    decoded(found, _LimitedPod, value)
    spec = value["spec"]
    if not spec.get("containers"):
        raise found.wrong("spec.containers", "is required")
    admission.admit(found, spec)
    classes.settle(found, spec)
    if spec.get("hostNetwork"):
        for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port.get("containerPort", 0))
    return Found(value, found.where, found.former)


def _status(found: Found, pod: Manifest) -> Manifest:
    """Return the status of a pod of a dump.

    A pod on a node runs and is ready. The scheduler's last verdict on a pod without a node is removed: the simulation
    gives a new one.
    """
    given = dict(found.value.get("status") or {})
    if not given:
        return given
    conditions = [each for each in given.pop("conditions", None) or () if isinstance(each, dict)]
    if pod["spec"].get("nodeName"):
        since = "" if given.get("startTime") is None else time_of(found, "status.startTime", given["startTime"])
        running = running_conditions(since)
        ready = {each["type"] for each in running}
        conditions = [*running, *(each for each in conditions if each.get("type") not in ready)]
        given["phase"] = "Running"
    else:
        conditions = [each for each in conditions if each.get("type") != POD_SCHEDULED]
    return given | ({"conditions": conditions} if conditions else {})


def time_of(found: Found, field: str, given: object) -> str:
    """Return a time as a server writes it. Raises InputError."""
    try:
        moment = dt.datetime.fromisoformat(str(given))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise found.wrong(field, f"must be a time such as 2026-01-01T00:00:00Z, got {given!r}")
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _budget(found: Found) -> Found:
    spec = found.value.get("spec") or {}
    for limit in ("minAvailable", "maxUnavailable"):
        given = spec.get(limit, 0)
        if not isinstance(given, (int, str)) or isinstance(given, bool):
            raise found.wrong(f"spec.{limit}", f"must be a number or a percentage, got {given!r}")
    decoded(found, PodDisruptionBudget, found.value)
    return found


Object = dict[str, Any]
_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_LET_GO: Final = frozenset({"Released", "Failed"})


def retie(server: ApiServer, stated: Container[str] = ()) -> None:
    """Correct references by uid to objects that had no uid in the input: claims and pods must keep their owners.

    A uid of the input (`stated`) is left alone: a reference with another uid means another object of that name.
    """
    for volume in server.objects(_VOLUMES):
        reference = volume["spec"].get("claimRef") or {}
        if reference.get("uid") and volume["status"].get("phase") not in _LET_GO:
            claim = server.find(_CLAIMS, reference["name"], reference.get("namespace", ""))
            if (
                claim is not None
                and claim["metadata"]["uid"] not in stated
                and claim["spec"].get("volumeName", "") in {"", volume["metadata"]["name"]}
            ):
                uid = {"spec": {"claimRef": {"uid": claim["metadata"]["uid"]}}}
                server.patch(_VOLUMES, volume["metadata"]["name"], uid)
    for claim in server.objects(_CLAIMS):
        _retie_owners(server, _CLAIMS, claim, stated)


def _retie_owners(server: ApiServer, resource: str, claim: Object, stated: Container[str]) -> None:
    """Give references to pods without a uid in the input the uid of the loaded pod."""
    metadata = claim["metadata"]
    before = metadata.get("ownerReferences") or []
    owners = [_with_uid(server, owner, metadata["namespace"], stated) for owner in before]
    if owners != before:
        server.update(resource, claim | {"metadata": metadata | {"ownerReferences": owners}})


def _with_uid(server: ApiServer, owner: Object, namespace: str, stated: Container[str]) -> Object:
    pod = server.find("pods", owner.get("name", ""), namespace) if owner.get("kind") == "Pod" else None
    return owner if pod is None or pod["metadata"]["uid"] in stated else owner | {"uid": pod["metadata"]["uid"]}


def controllers(server: ApiServer, clock: Clock) -> list[Actor]:
    """Return the controllers. They run until claims that need no scheduler have volumes."""
    drivers = dict.fromkeys(provisioner_of(each) for each in server.objects("storageclasses"))
    made: list[Actor] = [
        EphemeralVolumeController(server, clock=clock),
        PersistentVolumeController(server, clock=clock, reclaims=True),
        *(provisioner(server, driver, clock) for driver in drivers if driver != NO_PROVISIONER),
    ]
    while sum(actor.step() for actor in made):
        pass
    return made


_RESOURCE_CLAIMS: Final = "resourceclaims"


def retie_claims(server: ApiServer, leaving: Container[tuple[str, str]], stated: Container[str] = ()) -> None:
    """Correct owners and users of claims that had no uid in the input.

    `leaving` has namespace and name of pods that were not loaded because they end. They stay users of their claims, so
    that the claim controller takes the devices back. Other pods that the input does not have are removed.
    """
    for claim in server.objects(_RESOURCE_CLAIMS):
        metadata, status = claim["metadata"], claim.get("status") or {}
        name, namespace = metadata["name"], metadata["namespace"]
        _retie_owners(server, _RESOURCE_CLAIMS, claim, stated)
        reserved = status.get("reservedFor") or []
        users = [user for each in reserved if (user := _user(server, each, namespace, leaving, stated))]
        if users != reserved:
            now = server.get(_RESOURCE_CLAIMS, name, namespace)
            server.update(_RESOURCE_CLAIMS, now | {"status": status | {"reservedFor": users}}, subresource="status")


def _user(
    server: ApiServer, user: Object, namespace: str, leaving: Container[tuple[str, str]], stated: Container[str]
) -> Object | None:
    """Return the loaded pod of that name; None if the dump no longer has it."""
    if user.get("resource") != "pods" or (namespace, user["name"]) in leaving:
        return user
    pod = server.find("pods", user["name"], namespace)
    if pod is None:
        return None
    return user if pod["metadata"]["uid"] in stated else user | {"uid": pod["metadata"]["uid"]}


def device_controllers(server: ApiServer, clock: Clock) -> list[Actor]:
    """Return the controllers. They run until claims of templates exist."""
    drivers = dict.fromkeys(each["spec"]["driver"] for each in server.objects("resourceslices"))
    made: list[Actor] = [
        ResourceClaimController(server, clock=clock),
        *(DRADriver(server, driver, clock=clock) for driver in drivers),
    ]
    while sum(actor.step() for actor in made):
        pass
    return made
