"""Objects as a user writes them → objects as an API server takes them, and its controllers would have made them.

Workloads get their pods, finished pods go, priorities get their classes. What an API server itself does to a new
object is left to it, but for `admission`. What a scheduler reads is decoded once, so that a mistake is found before anything runs.
"""

from __future__ import annotations

import copy
import datetime as dt
from typing import Final

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.core_v1 import Namespace, Node, Pod, ResourceMap
from scheduler.api.meta import Frozen
from scheduler.api.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduler.testing.simulate.admission import ADMITTING, SYSTEM_CLASSES, Admission, Classes
from scheduler.testing.simulate.manifests import Found, Manifest, decoded
from scheduler.testing.simulate.workloads import SELECTING, with_children

_CHECKED: Final[dict[str, type[object]]] = {
    **SELECTING,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "PersistentVolume": PersistentVolume,
    "StorageClass": StorageClass,
    "CSIDriver": CSIDriver,
    "CSINode": CSINode,
    "CSIStorageCapacity": CSIStorageCapacity,
    "VolumeAttachment": VolumeAttachment,
    "Namespace": Namespace,
}
_RESIZED: Final = ("name", "allocatedResources", "resources")
_PODS_OF_A_NODE: Final = "110"
"""The kubelet's default, for nodes that do not say."""


class _Limits(Frozen, frozen=True):
    limits: ResourceMap = {}


class _Limited(Frozen, frozen=True):
    resources: _Limits = _Limits()


class _LimitedSpec(_Limited, frozen=True):
    containers: tuple[_Limited, ...] = ()
    init_containers: tuple[_Limited, ...] = ()


class _LimitedPod(Frozen, frozen=True):
    """No scheduler reads limits, but a server makes requests of them."""

    spec: _LimitedSpec


def complete(found: list[Found]) -> list[Found]:
    """Workloads get their pods, finished pods go, pods and nodes get what a new one needs. Raises InputError."""
    objects = with_children(found)
    classes, admission = Classes(objects), Admission(objects)
    completed = [_completed(each, classes, admission) for each in objects if not _is_over(each)]
    return [*classes.made_up(), *completed]


def _is_over(found: Found) -> bool:
    """Finished pods hold nothing, and unbound ones that are being deleted will never be scheduled; servers make `system-`."""
    if found.kind == "PriorityClass":
        return found.name in SYSTEM_CLASSES
    if found.kind in ADMITTING:
        return True
    is_deleted = found.value["metadata"].pop("deletionTimestamp", None) is not None
    if found.kind != "Pod":
        return False
    phase = (found.value.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed") or (is_deleted and not (found.value.get("spec") or {}).get("nodeName"))


def _completed(found: Found, classes: Classes, admission: Admission) -> Found:
    match found.kind:
        case "Node":
            return _node(found)
        case "Pod":
            return _pod(found, classes, admission)
        case "PodDisruptionBudget":
            return _budget(found)
        case _:
            if found.kind in _CHECKED:
                decoded(found, _CHECKED[found.kind], found.value)
            return found


def _node(found: Found) -> Found:
    status = found.value.get("status") or {}
    allocatable = status.get("allocatable") or status.get("capacity")
    if not isinstance(allocatable, dict):
        raise found.wrong("status.allocatable", "is required: it says how much the node holds")
    value = copy.deepcopy(found.value)
    value["status"] = {**status, "allocatable": {"pods": _PODS_OF_A_NODE, **allocatable}}
    labels = value["metadata"]["labels"] = value["metadata"].get("labels") or {}
    if isinstance(labels, dict):
        labels.setdefault("kubernetes.io/hostname", found.name)
    decoded(found, Node, value)
    return Found(value, found.where)


def _pod(found: Found, classes: Classes, admission: Admission) -> Found:
    if not isinstance(found.value.get("spec"), dict):
        raise found.wrong("spec", "is required")
    value = {key: part for key, part in copy.deepcopy(found.value).items() if key != "status"}
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
    if spec.get("nodeName") and (status := _status(found, value)):
        value["status"] = status
    return Found(value, found.where)


def _status(found: Found, pod: Manifest) -> Manifest:
    """Of a pod on a node: since when it runs, and what in-place resize has made of it (docs/spec/core.md §A.1)."""
    given = found.value.get("status") or {}
    kept = {field: given[field] for field in ("allocatedResources", "resources") if field in given}
    for field in ("containerStatuses", "initContainerStatuses"):
        listed = [each for each in _listed(given, field) if "resources" in each]
        kept |= {field: [{key: each[key] for key in _RESIZED if key in each} for each in listed]} if listed else {}
    pending = [each for each in _listed(given, "conditions") if each.get("type") == "PodResizePending"]
    kept |= {"conditions": pending} if pending else {}
    decoded(found, Pod, {**pod, "status": kept})
    if given.get("startTime") is not None:
        kept["startTime"] = _time(found, given["startTime"])
    return kept


def _listed(status: Manifest, field: str) -> list[Manifest]:
    return [each for each in status.get(field) or () if isinstance(each, dict)]


def _time(found: Found, given: object) -> str:
    try:
        moment = dt.datetime.fromisoformat(str(given))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise found.wrong("status.startTime", f"must be a time such as 2026-01-01T00:00:00Z, got {given!r}")
    return str(given)


def _budget(found: Found) -> Found:
    spec = found.value.get("spec") or {}
    for limit in ("minAvailable", "maxUnavailable"):
        given = spec.get(limit, 0)
        if not isinstance(given, (int, str)) or isinstance(given, bool):
            raise found.wrong(f"spec.{limit}", f"must be a number or a percentage, got {given!r}")
    decoded(found, PodDisruptionBudget, found.value)
    return found
