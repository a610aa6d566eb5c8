"""Manifest files → the objects of a simulated cluster.

Takes multi-document YAML or JSON, Lists, and what `kubectl get -o yaml` prints. What controllers would have done on the
way is done here: workloads become their pods. What an API server does to a new object is left to it. A mistake is an
`InputError` that names file, document and field. Knows nothing of servers or schedulers.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import yaml

from scheduler.core.decode import from_manifest
from scheduler.core.node import Node
from scheduler.core.pod import Pod

Manifest: TypeAlias = dict[str, Any]

WORKLOADS: Final = frozenset({"Deployment", "Job", "ReplicaSet", "StatefulSet"})
_CLUSTER_SCOPED: Final = frozenset(
    {"CSIDriver", "CSINode", "DeviceClass", "Namespace", "Node", "PersistentVolume", "PriorityClass", "ResourceSlice"}
    | {"StorageClass", "VolumeAttachment"}
)
SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that every cluster has."""
_SERVER_FIELDS: Final = ("resourceVersion", "uid", "managedFields", "selfLink", "generation", "creationTimestamp")
_PODS_OF_A_NODE: Final = "110"
"""The kubelet's default, for nodes that do not say."""


class InputError(Exception):
    """A file cannot be used. The message starts with the place: `demo.yaml: document 3: spec.replicas: …`."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object, and where it stands."""

    value: Manifest
    where: str

    @property
    def kind(self) -> str:
        return str(self.value["kind"])

    @property
    def name(self) -> str:
        return str(self.value["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.value["metadata"].get("namespace", ""))

    def wrong(self, field: str, message: str) -> InputError:
        """The error for one of its fields."""
        return InputError(f"{self.where}: {field}: {message}")


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """Timestamps stay texts: the API has no other."""

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def load(paths: Iterable[str]) -> list[Found]:
    """Every object of the files, in order, cleaned of what a server had added. Raises InputError."""
    return [found for path in paths for found in _objects(path)]


def _objects(path: str) -> Iterator[Found]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8: byte {error.start}") from error
    number = 0
    for document in _documents(path, text):
        if document is not None:
            number += 1
            yield from _flat(document, f"{path}: document {number}")


def _documents(path: str, text: str) -> list[Any]:
    if text.lstrip().startswith("{"):
        try:
            return [json.loads(text)]
        except ValueError:
            pass  # YAML in flow style, or several documents; the YAML parser says what is wrong
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}: " if mark else ""
        raise InputError(f"{path}: {place}is not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error


def _flat(document: Any, where: str) -> Iterator[Found]:
    if not isinstance(document, dict):
        raise InputError(f"{where}: must be an object, got {type(document).__name__}")
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise InputError(f"{where}: {field}: is required")
    if document["kind"].endswith("List") and "items" in document:
        items = document["items"] or []
        if not isinstance(items, list):
            raise InputError(f"{where}: items: must be a list")
        for at, item in enumerate(items):
            yield from _flat(_typed(item, document), f"{where}: items[{at}]")
        return
    yield _cleaned(document, where)


def _typed(item: Any, parent: Manifest) -> Any:
    """An item of a typed list (PodList) need not repeat its kind."""
    kind = parent["kind"].removesuffix("List")
    if isinstance(item, dict) and kind:
        return {"apiVersion": parent["apiVersion"], "kind": kind} | item
    return item


def _cleaned(document: Manifest, where: str) -> Found:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise InputError(f"{where}: metadata: is required")
    metadata = {key: value for key, value in metadata.items() if key not in _SERVER_FIELDS}
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: metadata.name: is required, as a text")
    if document["kind"] not in _CLUSTER_SCOPED:
        metadata["namespace"] = metadata.get("namespace") or "default"
    key = f"{metadata['namespace']}/{name}" if "namespace" in metadata else name
    return Found({**document, "metadata": metadata}, f"{where} ({document['kind']} {key})")


# -- what a server and its controllers would have done -------------------------------------------------------------------


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
    return phase in {"Succeeded", "Failed"} or (is_deleted and not (found.value.get("spec") or {}).get("nodeName"))


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
