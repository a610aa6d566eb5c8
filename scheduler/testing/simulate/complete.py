"""Objects as a user writes them → objects as an API server takes them, and its controllers would have made them.

Workloads become their pods, finished pods go, priorities get their classes. What an API server itself does to a new
object is left to it. Pods and nodes are decoded once, so that a mistake is found before anything runs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from scheduler.core.decode import from_manifest
from scheduler.core.node import Node
from scheduler.core.pod import Pod
from scheduler.testing.simulate.manifests import Found, InputError, Manifest

WORKLOADS: Final = frozenset({"Deployment", "Job", "ReplicaSet", "StatefulSet"})
SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that every cluster has."""
_PODS_OF_A_NODE: Final = "110"
"""The kubelet's default, for nodes that do not say."""


def complete(found: list[Found]) -> list[Found]:
    """Workloads become their pods, finished pods go, pods and nodes get what a new one needs. Raises InputError."""
    owners = {_owner(each) for each in found}
    objects: list[Found] = []
    for each in found:
        if each.kind not in WORKLOADS:
            objects.append(each)
        elif (each.kind, each.namespace, each.name) not in owners:
            objects += _pods(each)
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
    field = "parallelism" if workload.kind == "Job" else "replicas"
    count = 1 if spec.get(field) is None else spec[field]
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise workload.wrong(f"spec.{field}", f"must be a number >= 0, got {count!r}")
    claims = _claim_names(workload, spec.get("volumeClaimTemplates"))
    for ordinal in range(count):
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


def _claim_names(workload: Found, templates: Any) -> list[str]:
    try:
        return [each["metadata"]["name"] for each in templates or ()]
    except (TypeError, KeyError):
        raise workload.wrong("spec.volumeClaimTemplates", "must be a list of claims with names") from None


def _completed(found: Found, classes: Classes) -> Found:
    match found.kind:
        case "Node":
            return _node(found)
        case "Pod":
            return _pod(found, classes)
        case _:
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
    spec = value["spec"]
    if not spec.get("containers"):
        raise found.wrong("spec.containers", "is required")
    classes.settle(found, spec)
    if spec.get("hostNetwork"):
        for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port.get("containerPort", 0))
    return Found(value, found.where)


def _check(found: Found, typ: type[Node | Pod], value: Manifest) -> None:
    """Decode as the scheduler will, so that a mistake is found before anything runs."""
    try:
        from_manifest(typ, value)
    except (msgspec.ValidationError, ValueError) as error:
        message, _, path = str(error).rpartition(" - at `$.")
        raise (found.wrong(path.rstrip("`"), message) if message else InputError(f"{found.where}: {error}")) from error


class Classes:
    """The PriorityClasses there are. An API server computes each pod's priority from them, and takes no other.

    Dumps of pods alone have priorities without their classes: those are made up.
    """

    def __init__(self, objects: Iterable[Found]) -> None:
        self._values: dict[str, int] = dict(SYSTEM_CLASSES)
        self._default = 0
        self._made_up: dict[str, int] = {}
        for found in objects:
            if found.kind == "PriorityClass":
                value = found.value.get("value")
                if not isinstance(value, int):
                    raise found.wrong("value", f"must be a number, got {value!r}")
                self._values[found.name] = value
                if found.value.get("globalDefault"):
                    self._default = value

    def settle(self, found: Found, spec: Manifest) -> None:
        """Make the pod's class say what its priority says. Raises InputError for a class that nobody knows."""
        name, given = spec.get("priorityClassName"), spec.pop("priority", None)
        if name is not None and not isinstance(name, str):
            raise found.wrong("spec.priorityClassName", f"must be a text, got {name!r}")
        known = self._values.get(name) if name else self._default
        if given is None:
            if known is None:
                raise found.wrong("spec.priorityClassName", f"no PriorityClass {name!r} among the objects")
        elif given != known:
            chosen = name if name and known is None else f"priority-{given}".replace("--", "-minus-")
            self._values[chosen] = self._made_up[chosen] = given
            spec["priorityClassName"] = chosen

    def made_up(self) -> list[Found]:
        """The classes that had to be added, once every pod is settled."""
        return [
            Found(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                },
                f"PriorityClass {name}, made up for pods that have its priority",
            )
            for name, value in self._made_up.items()
        ]
