"""Save the objects of a cluster without secrets, and the kubectl command that reads the same kinds."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from scheduler.api.pod_group import TASK
from scheduler.kube.resources import POD_GROUPS
from simulator.simulate.input.from_cluster import KINDS_READ
from simulator.simulate.input.manifests import Found, InputError, Manifest

_SEPARATE: Final = ("DeviceTaintRule", *(spec.name for spec in POD_GROUPS))
"""Not served by default, and kubectl reads nothing if one kind is unknown."""
OURS: Final = re.compile(rf"(?:[^/]*\.)?(?:kubernetes\.io|k8s\.io|kubestow\.dev)/.*|{re.escape(TASK)}")
KUBECTL: Final = "kubectl.kubernetes.io/"
_LAST_APPLIED: Final = f"{KUBECTL}last-applied-configuration"
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_MESSAGE: Final = "message"
"""In a status: a text of a condition, an error or an ended container, which may be the tail of a log."""
_MAPS: Final = frozenset({"attachmentMetadata", "options", "parameters", "volumeAttributes"})
"""Fields for drivers whose values are replaced. Those of `opaque` are any JSON."""
_LISTS: Final = frozenset({"args", "command", "mountOptions"})
"""All of them are fields that no scheduler reads."""
_CHOSEN: Final = frozenset(
    {"allocatable", "attributes", "capacity", "consumedCapacity", "counters", "labels", "limits", "matchLabels"}
    | {"nodeSelector", "requests"}
)
"""Maps whose keys are chosen by users or drivers, so that a key may look like a field. They stay as they are."""


def dump_command() -> str:
    """Return two lines of comment and the kubectl command."""
    kinds = {kind.spec.name: kind.resource for kind in KINDS_READ}
    separate = [kinds.pop(name) for name in _SEPARATE]
    return "\n".join(
        (
            "# For Kubernetes 1.34 or later. Leave out the resources that end in .resource.k8s.io for older clusters.",
            f"# Add those of these that the cluster serves: ,{','.join(separate)}",
            f"kubectl get {','.join(kinds.values())} -A -o json > dump.json",
        )
    )


def save(objects: Iterable[Found], path: str) -> None:
    """Write a v1 List, compressed if the path ends in .gz. Equal objects give equal bytes. Raises InputError."""
    body = dumped(each.former for each in objects)
    try:
        Path(path).write_bytes(gzip.compress(body, mtime=0) if path.endswith(".gz") else body)
    except OSError as error:
        raise InputError(f"--save: {path}: {error.strerror}") from error


def dumped(objects: Iterable[Manifest]) -> bytes:
    """Return a v1 List of the objects without possible secrets, in JSON."""
    redacted = _Redacted()
    items = [redacted.value(each) for each in objects]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})


class _Redacted:
    """Replace possible secrets by `dropped-1`, `dropped-2` …, equal values by equal texts.

    Different templates therefore still differ, and a Deployment finds the ReplicaSet of its template.
    """

    def __init__(self) -> None:
        self._texts: dict[bytes, str] = {}
        self._is_in_status = False

    def value(self, value: Any) -> Any:
        """Return a copy of the value, at any depth."""
        if isinstance(value, dict):
            copied = {key: self._field(key, each) for key, each in value.items()}
            return {key: each for key, each in copied.items() if each is not None}
        return [self.value(each) for each in value] if isinstance(value, list) else value

    def _field(self, name: str, value: Any) -> Any:
        match value:
            case str() if name == _MESSAGE and self._is_in_status:
                return self._text(value) if value else value
            case str() if name == "repository":  # of a gitRepo volume: a URL that may have a password
                return self._text(value)
            case dict() if name in _CHOSEN:
                return value
            case dict() if name == "status":
                self._is_in_status = True
                replaced = self.value(value)
                self._is_in_status = False
                return replaced
            case dict():
                return self._map(name, value)
            case list() if name in _LISTS:
                return [self._text(value)]
            case list() if name == "env":
                return [self._variable(each) for each in value]
            case list() if name == "devices":
                return [self._device(each) for each in value]
            case _:
                return self.value(value)

    def _map(self, name: str, value: Manifest) -> Any:
        if name == "lifecycle":
            return {key: self._command(each) if isinstance(each, dict) else each for key, each in value.items()}
        if name in _PROBES:
            return self._command(value)
        if name == "opaque":
            return {**value, "parameters": {"dropped": self._text(value.get("parameters"))}}
        if name in _MAPS:
            return {key: self._text(each) for key, each in value.items()}
        if name == "annotations":
            return {key: self._annotation(key, each) for key, each in value.items() if key != _LAST_APPLIED} or None
        return self.value(value)

    def _device(self, each: Any) -> Any:
        """Return a device. Of the status of a claim, it may have data of the driver."""
        has_data = isinstance(each, dict) and "data" in each
        kept = self.value({key: value for key, value in each.items() if key != "data"} if has_data else each)
        return {**kept, "data": {"dropped": self._text(each["data"])}} if has_data else kept

    def _variable(self, each: Any) -> Any:
        has_value = isinstance(each, dict) and "value" in each
        return {**each, "value": self._text(each["value"])} if has_value else each

    def _command(self, action: Any) -> Manifest:
        return {"exec": {"command": [self._text(action)]}}

    def _annotation(self, key: str, value: Any) -> Any:
        is_kept = OURS.fullmatch(key) and not key.startswith(KUBECTL)
        return value if is_kept else self._text(value)

    def _text(self, value: Any) -> str:
        encoded = msgspec.json.encode(value, order="sorted")
        return self._texts.setdefault(encoded, f"dropped-{len(self._texts) + 1}")
