"""Manifest files to objects, each with its place.

Manifest files → objects, each with its place.

Takes multi-document YAML or JSON, Lists, and what `kubectl get -o yaml` prints. A mistake is an `InputError` that names
file, document and field. Knows nothing of what the kinds mean: see `complete`.

Manifests read as the scheduler will read them, so that a mistake is found before anything runs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import yaml

from scheduler.api.decode import from_manifest

Manifest: TypeAlias = dict[str, Any]

_CLUSTER_SCOPED: Final = frozenset(
    {
        "CSIDriver",
        "CSINode",
        "DeviceClass",
        "DeviceTaintRule",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "ResourceSlice",
        "RuntimeClass",
    }
    | {"StorageClass", "VolumeAttachment"}
)
_NATIVE_GROUPS: Final = re.compile(r"[a-z]*|.+\.k8s\.io")
"""Of kinds that Kubernetes itself serves: Volcano's Job and Knative's Service are others of the same name."""
_DEEPEST: Final = 100
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Of generated names, as a server makes them."""
_SERVER_FIELDS: Final = ("resourceVersion", "uid", "managedFields", "selfLink", "generation", "creationTimestamp")


class InputError(Exception):
    """A file cannot be used. The message starts with the place: `demo.yaml: document 3: spec.replicas: …`."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object, and where it stands."""

    value: Manifest
    where: str
    former: Manifest = dataclasses.field(default_factory=dict)
    """The object as the file has it, with the uid, times and status of its cluster; empty for one that was made here."""

    @property
    def kind(self) -> str:
        """Kubernetes' own kinds by name, others as `Kind.group`."""
        kind, group = str(self.value["kind"]), str(self.value["apiVersion"]).rpartition("/")[0]
        return kind if _NATIVE_GROUPS.fullmatch(group) else f"{kind}.{group}"

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
    if document["kind"] == "List" or (document["kind"].endswith("List") and "items" in document):
        items = document.get("items") or []
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


def _without_nulls(value: Any, where: str, deeper: int = _DEEPEST) -> Any:
    """To a server, null is the same as nothing. An alias of something that contains it has no end."""
    if deeper == 0:
        raise InputError(f"{where}: is nested too deeply")
    if isinstance(value, dict):
        return {key: _without_nulls(part, where, deeper - 1) for key, part in value.items() if part is not None}
    return [_without_nulls(part, where, deeper - 1) for part in value] if isinstance(value, list) else value


def _generated(prefix: Any, where: str) -> str:
    """`generateName` and five characters: the same for the same place, so that a simulation can be repeated."""
    if not isinstance(prefix, str) or not prefix:
        return ""
    digest = hashlib.sha256(where.encode()).digest()
    return prefix + "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in digest[:5])


def _cleaned(document: Manifest, where: str) -> Found:
    document = _without_nulls(document, where)
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise InputError(f"{where}: metadata: is required")
    metadata = {key: value for key, value in metadata.items() if key not in _SERVER_FIELDS}
    name = metadata["name"] = metadata.get("name") or _generated(metadata.pop("generateName", None), where)
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: metadata.name: is required, as a text")
    for field in ("spec", "status"):
        if not isinstance(document.get(field) or {}, dict):
            raise InputError(f"{where}: {field}: must be an object")
    if not isinstance(metadata.get("namespace") or "", str):
        raise InputError(f"{where}: metadata.namespace: must be a text")
    if not isinstance(metadata.get("ownerReferences") or [], list):
        raise InputError(f"{where}: metadata.ownerReferences: must be a list")
    if document["kind"] not in _CLUSTER_SCOPED:
        metadata["namespace"] = metadata.get("namespace") or "default"
    key = f"{metadata['namespace']}/{name}" if "namespace" in metadata else name
    return Found({**document, "metadata": metadata}, f"{where} ({document['kind']} {key})", document)


T = TypeVar("T")


def decoded(found: Found, typ: type[T], value: Manifest) -> T:
    """`value` is the object, perhaps completed. Raises InputError with the field."""
    try:
        return from_manifest(typ, value)
    except (msgspec.ValidationError, ValueError) as error:
        message, _, path = str(error).rpartition(" - at `$.")
        raise (found.wrong(path.rstrip("`"), message) if message else InputError(f"{found.where}: {error}")) from error
