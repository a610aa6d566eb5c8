"""Requests: what their paths and methods name, their callers, and the owners of the annotations of a claim.

`metadata.managedFields` is kept as far as Kubestow reads it: for annotations of claims. An annotation belongs to the
last writer that changed its value. A write of the same value changes nothing.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from simulator.apiserver.faults import Request
from simulator.apiserver.resources import ApiResource, Served
from simulator.apiserver.status import Refused, method_not_allowed, no_such_resource

_ON_COLLECTION: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_ON_OBJECT: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_STATUS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch"}
_ON_BINDING: Final = {"POST": "create"}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. `namespace` is empty for all namespaces and for cluster-scoped kinds."""

    resource: ApiResource
    namespace: str
    name: str
    subresource: str

    def request(self, method: str, *, watch: bool) -> Request:
        """Return the request as fault rules and the log see it. Raises 405."""
        if self.subresource:
            verbs = _ON_BINDING if self.subresource == "binding" else _ON_STATUS
        else:
            verbs = _ON_OBJECT if self.name else _ON_COLLECTION
        verb = verbs.get(method, "")
        needs_namespace = verb == "create" and self.resource.namespaced and not self.namespace
        if not verb or needs_namespace:
            raise method_not_allowed()
        if verb == "list" and watch:
            verb = "watch"
        return Request(verb, self.resource.name, self.namespace, self.name, self.subresource)


def target(served: Served, path: str) -> Target | None:
    """None for a path outside every served group. Raises 404 for an unknown kind inside one."""
    parts = path.strip("/").split("/")
    if parts[:2] == ["api", "v1"] and len(parts) > 2:
        group, version, rest = "", "v1", parts[2:]
        is_served = "v1" in served.group_versions
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
        is_served = f"{group}/{version}" in served.group_versions
    else:
        return None
    if not is_served:
        return None
    return _inside(served, group, version, rest)


def _inside(served: Served, group: str, version: str, rest: list[str]) -> Target:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    resource = served.at(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise no_such_resource()
    name, subresource = [*rest[1:], "", ""][:2]
    if subresource and not _has(resource, subresource):
        raise no_such_resource()
    if name and resource.namespaced and not namespace:
        raise no_such_resource()
    return Target(resource, namespace, name, subresource)


def _has(resource: ApiResource, subresource: str) -> bool:
    return (subresource == "status" and resource.has_status) or (subresource == "binding" and resource.name == "pods")


def denied(request: Request, resource: ApiResource) -> Refused:
    """403 as RBAC words it."""
    where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    what = request.resource + (f"/{request.subresource}" if request.subresource else "")
    subject = f'{resource.qualified} "{request.name}"' if request.name else resource.qualified
    message = (
        f'{subject} is forbidden: User "kubestow" cannot {request.verb} resource "{what}" '
        f'in API group "{resource.group}" {where}'
    )
    details = {"name": request.name} if request.name else {}
    group = {"group": resource.group} if resource.group else {}
    return Refused(403, "Forbidden", message, details=details | group | {"kind": resource.name})


Object = dict[str, Any]
UNKNOWN: Final = "unknown"
"""The field manager of a request without `fieldManager` and User-Agent."""
_KEPT_FOR: Final = "persistentvolumeclaims"
_PATH: Final = ("f:metadata", "f:annotations")


def with_owners(resource: ApiResource, old: Object | None, new: Object, *, manager: str, subresource: str = "") -> None:
    """Write into `new`, which is about to be stored over `old`, whose its annotations are from now on."""
    if resource.name != _KEPT_FOR:
        return
    before, now = _annotations(old), _annotations(new)
    changed = {key for key, value in now.items() if before.get(key) != value}
    gone = before.keys() - now.keys()
    if not changed and not gone:
        return
    entries = [_without(entry, changed | gone) for entry in new["metadata"].get("managedFields") or []]
    if changed:
        own = _taken_out(entries, manager, subresource) or _entry(resource, manager, subresource)
        kept = own["fieldsV1"][_PATH[0]][_PATH[1]]
        own["fieldsV1"] = _fields(kept.keys() | {f"f:{key}" for key in changed})
        entries.append(own)
    entries = [entry for entry in entries if entry["fieldsV1"][_PATH[0]][_PATH[1]]]
    new["metadata"].pop("managedFields", None)
    if entries:
        new["metadata"]["managedFields"] = entries


def _annotations(obj: Object | None) -> Object:
    return (obj["metadata"].get("annotations") or {}) if obj is not None else {}


def _without(entry: Object, keys: set[str]) -> Object:
    held = entry["fieldsV1"][_PATH[0]][_PATH[1]]
    return entry | {"fieldsV1": _fields(held.keys() - {f"f:{key}" for key in keys})}


def _taken_out(entries: list[Object], manager: str, subresource: str) -> Object | None:
    for at, entry in enumerate(entries):
        if (entry["manager"], entry.get("subresource", "")) == (manager, subresource):
            return entries.pop(at)
    return None


def _entry(resource: ApiResource, manager: str, subresource: str) -> Object:
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": resource.group_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(set()),
    }
    return entry | ({"subresource": subresource} if subresource else {})


def _fields(keys: set[str]) -> Object:
    return {_PATH[0]: {_PATH[1]: {key: {} for key in sorted(keys)}}}


__all__ = ["UNKNOWN", "Caller"]


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller with one request. In-process callers may do everything."""

    manager: str = UNKNOWN
    verb: str = "update"
    forbidden: AbstractSet[tuple[str, str]] = frozenset()
    """(verb, resource/subresource) pairs."""

    def denied(self, resource: ApiResource, subresource: str, *, verb: str, namespace: str = "", name: str = "") -> str:
        """Return why a subresource without a path may not be written, or ""."""
        if (verb, f"{resource.name}/{subresource}") not in self.forbidden:
            return ""
        return denied(Request(verb, resource.name, namespace, name, subresource), resource).message
