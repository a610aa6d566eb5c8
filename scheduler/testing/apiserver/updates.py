"""What an update may change: the two halves of kinds with a status, generation, immutable fields, finalizers' end."""

from __future__ import annotations

from typing import Any, Final

from scheduler.testing.apiserver.budgets import check_budget
from scheduler.testing.apiserver.defaults import with_condition_times, with_pod_defaults
from scheduler.testing.apiserver.podclaims import pod_claims, pod_status
from scheduler.testing.apiserver.problems import IS_FIXED, Problem, Problems, not_allowed, refuse, wrong
from scheduler.testing.apiserver.resources import DEVICES, Resource
from scheduler.testing.apiserver.status import MODIFIED, conflict, invalid
from scheduler.testing.apiserver.volumechanges import with_changes

Object = dict[str, Any]

_SYSTEM: Final = ("name", "namespace", "generateName", "creationTimestamp", "generation", "uid")
_DELETION: Final = ("deletionTimestamp", "deletionGracePeriodSeconds")
_BOOKS: Final = ("managedFields",)
_STATUS_KEEPS_METADATA: Final = frozenset(
    {"resourceclaims", "devicetaintrules", "namespaces", "volumeattachments", "schedulerprofiles"}
)
"""Kinds whose /status takes nothing of the metadata."""
_POD_FIXED: Final = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_NO_NEW_FINALIZERS: Final = "no new finalizers can be added if the object is being deleted"
_COUNTED_LATE: Final = frozenset({"csidrivers"})
"""Kinds that have a generation only once their spec has changed."""
_FIXED_SPEC: Final = frozenset({"volumeattachments"})


def updated(resource: Resource, old: Object, new: Object, *, subresource: str) -> Object:
    """What is stored when `new` is sent over `old`; equal to `old` when nothing changes. Raises 422."""
    result = new | {"metadata": _metadata(resource, old, new, subresource=subresource)}
    if resource.has_status:
        kept = "spec" if subresource else "status"
        result.pop(kept, None)
        if kept in old:
            result[kept] = old[kept]
    if subresource and resource.name == "pods":
        result["status"] = _without_empty(result.get("status") or {})
        _check_nomination(resource, old, result)
        refuse(resource, old["metadata"]["name"], pod_status(old["spec"], result["status"]))
    with_condition_times(resource, result)
    if resource.name == "poddisruptionbudgets":
        check_budget(resource, result)
    if not subresource:
        if resource.name == "pods" and isinstance(result.get("spec"), dict):
            result["spec"] = with_pod_defaults(result["spec"])
        _check_spec(resource, old, result)
        result = with_changes(resource, old, result)
    if (resource.has_generation or resource.name in _COUNTED_LATE) and _spec(result) != _spec(old):
        result["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    ordered = {key: result[key] for key in old if key in result}
    return ordered | result


def is_finished(obj: Object) -> bool:
    """Being deleted, past its grace, and nobody's finalizer left: the server removes it with this update."""
    metadata = obj["metadata"]
    is_graceful = bool(metadata.get("deletionGracePeriodSeconds"))
    return bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers") and not is_graceful


def _spec(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in {"metadata", "status", "kind", "apiVersion"}}


def check_version(resource: Resource, old: Object, new: Object) -> None:
    """Raises 409 for what was meant for another state of the object."""
    version = new["metadata"].get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise conflict(resource, old["metadata"]["name"], MODIFIED)


def check_metadata(resource: Resource, old: Object, new: Object, *, subresource: str) -> None:
    """Raises 422 for another object's uid, and for new finalizers of an object that is being deleted."""
    before, after = old["metadata"], new["metadata"]
    found: Problems = []
    is_kept = subresource and resource.name in _STATUS_KEEPS_METADATA
    added = sorted(set(after.get("finalizers") or []) - set(before.get("finalizers") or []))
    if added and before.get("deletionTimestamp") and not is_kept:
        listed = ", ".join(f'"{finalizer}"' for finalizer in added)
        why = f"{_NO_NEW_FINALIZERS}, found new finalizers []string{{{listed}}}"
        found.append(not_allowed("metadata.finalizers", why))
    if after.get("uid") and after["uid"] != before["uid"]:
        found.append(wrong("metadata.uid", after["uid"], IS_FIXED))
    is_checked_twice = resource.name == "pods" or resource.group == DEVICES
    refuse(resource, before["name"], found * (2 if is_checked_twice else 1))


def _metadata(resource: Resource, old: Object, new: Object, *, subresource: str) -> Object:
    before, after = old["metadata"], new["metadata"]
    if subresource and resource.name in _STATUS_KEEPS_METADATA:
        return dict(before)
    fixed = (*_SYSTEM, *_DELETION, *_BOOKS, "resourceVersion")
    result = {key: before[key] for key in fixed if key in before}
    result |= {key: value for key, value in after.items() if key not in fixed and value not in ({}, [], None)}
    if subresource and resource.name == "pods":
        result.pop("ownerReferences", None)
        if "ownerReferences" in before:
            result["ownerReferences"] = before["ownerReferences"]
    return {key: result[key] for key in before if key in result} | result


def _without_empty(value: Any) -> Any:
    """Go leaves out empty strings, and lists and maps that became empty."""
    if isinstance(value, dict):
        return {key: _without_empty(item) for key, item in value.items() if item not in ("", [])}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value


def _check_nomination(resource: Resource, old: Object, new: Object) -> None:
    nominated = new["status"].get("nominatedNodeName", "")
    if nominated and old["spec"].get("nodeName") and nominated != old["status"].get("nominatedNodeName", ""):
        why = "Forbidden: may not be set on pods that are already bound to a node"
        name = old["metadata"]["name"]
        raise invalid(resource, name, "status.nominatedNodeName", why, cause="FieldValueForbidden")


def _check_spec(resource: Resource, old: Object, new: Object) -> None:
    name = old["metadata"]["name"]
    if resource.name == "pods":
        _check_pod(resource, old["spec"], new.get("spec") or {}, name)
    elif resource.name in _FIXED_SPEC and old.get("spec") != new.get("spec"):
        raise invalid(resource, name, "spec", "Invalid value: field is immutable")


def _check_pod(resource: Resource, old: Object, new: Object, name: str) -> None:
    gates = {gate["name"] for gate in old.get("schedulingGates") or []}
    for i, gate in enumerate(new.get("schedulingGates") or []):
        if gate["name"] not in gates:
            why = f"Forbidden: only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            raise invalid(resource, name, f"spec.schedulingGates[{i}].name", why, cause="FieldValueForbidden")
    tolerated = [_untimed(toleration) for toleration in new.get("tolerations") or []]
    kept = all(_untimed(toleration) in tolerated for toleration in old.get("tolerations") or [])
    found = pod_claims(new)
    if not kept or _frozen(old, gated=bool(gates)) != _frozen(new, gated=bool(gates)):
        found.append(Problem("spec", "FieldValueForbidden", _POD_FIXED))
    refuse(resource, name, found)


def _untimed(toleration: Object) -> Object:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


_MUTABLE: Final = frozenset(
    {"schedulingGates", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"}
)
_MUTABLE_WHILE_GATED: Final = _MUTABLE | {"nodeSelector", "affinity"}


def _frozen(spec: Object, *, gated: bool) -> Object:
    """The part of a pod's spec that may not change. What a gated pod may narrow is not checked for narrowing."""
    mutable = _MUTABLE_WHILE_GATED if gated else _MUTABLE
    rest = {key: value for key, value in spec.items() if key not in mutable and value not in (None, [], {})}
    for name in ("containers", "initContainers"):
        if name in rest:
            rest[name] = [{k: v for k, v in c.items() if k != "image"} for c in rest[name]]
    return rest
