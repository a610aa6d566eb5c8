"""Discovery documents, not aggregated. Clients fall back to these."""

from __future__ import annotations

from typing import Any

from simulator.apiserver import reviews
from simulator.apiserver.resources import VERBS, ApiResource, Served

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "in-process",
}


def document(served: Served, path: str) -> dict[str, Any] | None:
    """Return the answer for `/api`, `/apis`, `/api/v1`, `/apis/<group>`, `/apis/<group>/<version>` or `/version`."""
    parts = [part for part in path.split("/") if part]
    if parts == ["version"]:
        return VERSION
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if parts == ["apis"]:
        groups = dict.fromkeys(gv.partition("/")[0] for gv in served.group_versions if "/" in gv)
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(served, group) for group in groups]}
    if parts == ["api", "v1"]:
        return _resources(served, "", "v1")
    if len(parts) == 2 and parts[0] == "apis" and _versions(served, parts[1]):
        return {"kind": "APIGroup", "apiVersion": "v1"} | _group(served, parts[1])
    if len(parts) == 3 and parts[0] == "apis" and parts[2] in _versions(served, parts[1]):
        return _resources(served, parts[1], parts[2])
    return None


def _versions(served: Served, group: str) -> list[str]:
    return [version for g, _, version in (gv.partition("/") for gv in served.group_versions) if version and g == group]


def _group(served: Served, group: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{group}/{v}", "version": v} for v in _versions(served, group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(served: Served, group: str, version: str) -> dict[str, Any]:
    rows = [row for resource in served.of(group, version) for row in _rows(resource)]
    kinds = [kind for path, kind in reviews.KINDS.items() if reviews.group_version(path) == f"{group}/{version}"]
    rows += [_row(f"{kind.lower()}s", kind, namespaced=False, verbs=["create"]) for kind in kinds]
    group_version = f"{group}/{version}" if group else version
    head: dict[str, Any] = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    return head | {"groupVersion": group_version, "resources": rows}


def _rows(resource: ApiResource) -> list[dict[str, Any]]:
    kind, namespaced = resource.kind, resource.namespaced
    rows = [_row(resource.name, kind, namespaced=namespaced, verbs=list(VERBS))]
    if resource.has_status:
        rows.append(_row(f"{resource.name}/status", kind, namespaced=namespaced, verbs=["get", "patch", "update"]))
    if resource.name == "pods":
        rows.append(_row("pods/binding", "Binding", namespaced=True, verbs=["create"]))
    return rows


def _row(name: str, kind: str, *, namespaced: bool, verbs: list[str]) -> dict[str, Any]:
    singular = "" if "/" in name else kind.lower()
    return {"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs}
