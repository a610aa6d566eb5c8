"""Objects as a user writes them → objects as an API server takes them, and its controllers would have made them.

Workloads become their pods, finished pods go, priorities get their classes. What an API server itself does to a new
object is left to it. What a scheduler reads is decoded once, so that a mistake is found before anything runs.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Iterator
from typing import Final

import msgspec

from scheduler.core.decode import from_manifest
from scheduler.core.disruption import PodDisruptionBudget
from scheduler.core.meta import Frozen
from scheduler.core.namespace import Namespace
from scheduler.core.node import Node
from scheduler.core.pod import Pod, ResourceMap
from scheduler.core.storage import CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment
from scheduler.core.volumes import PersistentVolume, PersistentVolumeClaim
from scheduler.testing.simulate.classes import SYSTEM_CLASSES, Classes
from scheduler.testing.simulate.manifests import Found, InputError, Manifest

WORKLOADS: Final = frozenset({"Deployment", "Job", "ReplicaSet", "StatefulSet"})
_CLAIM: Final = "PersistentVolumeClaim"
_CHECKED: Final[dict[str, type[object]]] = {
    _CLAIM: PersistentVolumeClaim,
    "PersistentVolume": PersistentVolume,
    "StorageClass": StorageClass,
    "CSIDriver": CSIDriver,
    "CSINode": CSINode,
    "CSIStorageCapacity": CSIStorageCapacity,
    "VolumeAttachment": VolumeAttachment,
    "Namespace": Namespace,
}
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
    """Workloads become their pods, finished pods go, pods and nodes get what a new one needs. Raises InputError."""
    owners = {_owner(each) for each in found}
    claims = {(each.namespace, each.name) for each in found if each.kind == _CLAIM}
    objects: list[Found] = []
    for each in found:
        if each.kind not in WORKLOADS:
            objects.append(each)
        elif (each.kind, each.namespace, each.name) not in owners:
            objects += _pods(each)
            objects += [claim for claim in _claims(each) if (claim.namespace, claim.name) not in claims]
    classes = Classes(objects)
    completed = [_completed(each, classes) for each in objects if not _is_over(each)]
    return [*classes.made_up(), *completed]


def _owner(found: Found) -> tuple[str, str, str] | None:
    """A dump that has a workload's children as well needs no others made."""
    for reference in found.value["metadata"].get("ownerReferences") or ():
        if isinstance(reference, dict) and reference.get("controller"):
            return str(reference.get("kind")), found.namespace, str(reference.get("name"))
    return None


def _is_over(found: Found) -> bool:
    """Finished pods hold nothing, and unbound ones that are being deleted will never be scheduled; servers make `system-`."""
    if found.kind == "PriorityClass":
        return found.name in SYSTEM_CLASSES
    is_deleted = found.value["metadata"].pop("deletionTimestamp", None) is not None
    if found.kind != "Pod":
        return False
    phase = (found.value.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed") or (is_deleted and not (found.value.get("spec") or {}).get("nodeName"))


def _pods(workload: Found) -> Iterator[Found]:
    """The pods that a controller would make, `name-0` onwards."""
    spec = workload.value.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise workload.wrong("spec.template.spec", "is required")
    claims = [str(template["metadata"]["name"]) for template in _claim_templates(workload)]
    for ordinal in range(_count(workload)):
        pod = copy.deepcopy(template)
        metadata = pod.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise workload.wrong("spec.template.metadata", "must be an object")
        metadata |= {"name": f"{workload.name}-{ordinal}", "namespace": workload.namespace}
        metadata["ownerReferences"] = [
            {
                "apiVersion": workload.value["apiVersion"],
                "kind": workload.kind,
                "name": workload.name,
                "controller": True,
            }
        ]
        for name in claims:
            source = {"claimName": f"{name}-{workload.name}-{ordinal}"}
            pod["spec"].setdefault("volumes", []).append({"name": name, "persistentVolumeClaim": source})
        yield Found(
            {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}, f"{workload.where}: spec.template"
        )


def _count(workload: Found) -> int:
    field = "parallelism" if workload.kind == "Job" else "replicas"
    count = workload.value["spec"].get(field)
    count = 1 if count is None else count
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise workload.wrong(f"spec.{field}", f"must be a number >= 0, got {count!r}")
    return count


def _claims(workload: Found) -> Iterator[Found]:
    """What the pods of a StatefulSet claim: `<template>-<pod>`, each of its own."""
    for ordinal in range(_count(workload)):
        for template in _claim_templates(workload):
            given = template["metadata"]
            metadata = {key: given[key] for key in ("labels", "annotations") if key in given}
            metadata |= {"name": f"{given['name']}-{workload.name}-{ordinal}", "namespace": workload.namespace}
            value = {"apiVersion": "v1", "kind": _CLAIM, "metadata": metadata}
            if "spec" in template:
                value["spec"] = copy.deepcopy(template["spec"])
            yield Found(value, f"{workload.where}: spec.volumeClaimTemplates")


def _claim_templates(workload: Found) -> list[Manifest]:
    templates = workload.value["spec"].get("volumeClaimTemplates") or []
    try:
        named = all(isinstance(template["metadata"]["name"], str) for template in templates)
    except (TypeError, KeyError):
        named = False
    if not isinstance(templates, list) or not named:
        raise workload.wrong("spec.volumeClaimTemplates", "must be a list of claims with names")
    return templates


def _completed(found: Found, classes: Classes) -> Found:
    match found.kind:
        case "Node":
            return _node(found)
        case "Pod":
            return _pod(found, classes)
        case "PodDisruptionBudget":
            return _budget(found)
        case _:
            if found.kind in _CHECKED:
                _check(found, _CHECKED[found.kind], found.value)
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
    _check(found, Node, value)
    return Found(value, found.where)


def _pod(found: Found, classes: Classes) -> Found:
    if not isinstance(found.value.get("spec"), dict):
        raise found.wrong("spec", "is required")
    value = {key: part for key, part in copy.deepcopy(found.value).items() if key != "status"}
    _check(found, Pod, value)
    _check(found, _LimitedPod, value)
    spec = value["spec"]
    if not spec.get("containers"):
        raise found.wrong("spec.containers", "is required")
    classes.settle(found, spec)
    if spec.get("hostNetwork"):
        for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port.get("containerPort", 0))
    if spec.get("nodeName") and (started := (found.value.get("status") or {}).get("startTime")) is not None:
        value["status"] = {"startTime": _time(found, started)}
    return Found(value, found.where)


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
    _check(found, PodDisruptionBudget, found.value)
    return found


def _check(found: Found, typ: type[object], value: Manifest) -> None:
    """Decode as the scheduler will, so that a mistake is found before anything runs."""
    try:
        from_manifest(typ, value)
    except (msgspec.ValidationError, ValueError) as error:
        message, _, path = str(error).rpartition(" - at `$.")
        raise (found.wrong(path.rstrip("`"), message) if message else InputError(f"{found.where}: {error}")) from error
