"""Manifest files → the objects of a simulated cluster.

Takes multi-document YAML or JSON, Lists, and what `kubectl get -o yaml` prints. What an API server or a controller
would have done on the way is done here: workloads become pods, priorities come from their classes, requests from
limits. A mistake is an `InputError` that names file, document and field. Knows nothing of servers or schedulers.
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
    """Workloads become their pods, and pods and nodes get what admission and kubelet add. Raises InputError."""
    owners = {_owner(each) for each in found}
    objects: list[Found] = []
    for each in found:
        if each.kind not in WORKLOADS:
            objects.append(each)
        elif (each.kind, each.namespace, each.name) not in owners:
            objects += _pods(each)
    classes = {each.name: each for each in objects if each.kind == "PriorityClass"}
    return [_completed(each, classes) for each in objects if not _is_leaving(each)]


def _owner(found: Found) -> tuple[str, str, str] | None:
    """A dump that has a workload's children as well needs no others made."""
    for reference in found.value["metadata"].get("ownerReferences") or ():
        if isinstance(reference, dict) and reference.get("controller"):
            return str(reference.get("kind")), found.namespace, str(reference.get("name"))
    return None


def _is_leaving(found: Found) -> bool:
    """An unbound pod that is being deleted will never be scheduled."""
    is_deleted = found.value["metadata"].pop("deletionTimestamp", None) is not None
    return is_deleted and found.kind == "Pod" and not (found.value.get("spec") or {}).get("nodeName")


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


def _completed(found: Found, classes: dict[str, Found]) -> Found:
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


def _pod(found: Found, classes: dict[str, Found]) -> Found:
    if not isinstance(found.value.get("spec"), dict):
        raise found.wrong("spec", "is required")
    value = copy.deepcopy(found.value)
    spec = value["spec"]
    phase = (value.pop("status", None) or {}).get("phase")
    if spec.get("nodeName"):
        value["status"] = {"phase": phase or "Running"}
    elif phase in {"Succeeded", "Failed"}:
        value["status"] = {"phase": phase}
    _check(found, Pod, value)
    _prioritise(found, spec, classes)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
        for port in (container.get("ports") or ()) if spec.get("hostNetwork") else ():
            port.setdefault("hostPort", port.get("containerPort", 0))
    _check(found, Pod, value)
    return Found(value, found.where)


def _prioritise(found: Found, spec: Manifest, classes: dict[str, Found]) -> None:
    """As the Priority admission plugin: by class, by the global default, else 0."""
    name = spec.get("priorityClassName")
    if spec.get("priority") is not None:
        return
    system = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
    if name is not None and not isinstance(name, str):
        raise found.wrong("spec.priorityClassName", f"must be a text, got {name!r}")
    if name in system:
        spec["priority"] = system[name]
        return
    if name and name not in classes:
        raise found.wrong("spec.priorityClassName", f"no PriorityClass {name!r} among the objects")
    by_default = (each for each in classes.values() if each.value.get("globalDefault"))
    chosen = classes[name] if name else next(by_default, None)
    if chosen is not None:
        value = chosen.value.get("value")
        if not isinstance(value, int):
            raise chosen.wrong("value", f"must be a number, got {value!r}")
        spec["priority"] = value


def _check(found: Found, typ: type[Node | Pod], value: Manifest) -> None:
    """Decode as the scheduler will, so that a mistake is found before anything runs."""
    try:
        from_manifest(typ, value)
    except (msgspec.ValidationError, ValueError) as error:
        message, _, path = str(error).rpartition(" - at `$.")
        raise (found.wrong(path.rstrip("`"), message) if message else InputError(f"{found.where}: {error}")) from error
