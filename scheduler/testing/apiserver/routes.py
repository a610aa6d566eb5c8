"""Paths and methods → which verb on what, as RBAC names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler.testing.apiserver.faults import Request
from scheduler.testing.apiserver.resources import Resource, Served
from scheduler.testing.apiserver.status import Refused, method_not_allowed, no_such_resource

_ON_COLLECTION: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_ON_OBJECT: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_STATUS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch"}
_ON_BINDING: Final = {"POST": "create"}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. `namespace` is empty for all namespaces and for cluster-scoped kinds."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    def request(self, method: str, *, watch: bool) -> Request:
        """The request as fault rules and the log see it. Raises 405."""
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


def _has(resource: Resource, subresource: str) -> bool:
    return (subresource == "status" and resource.has_status) or (subresource == "binding" and resource.name == "pods")


def denied(request: Request, resource: Resource) -> Refused:
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
