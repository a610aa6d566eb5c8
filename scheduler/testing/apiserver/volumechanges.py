"""What may change of volumes and their neighbours once they are there.

Where a real server prints the difference of two objects, this one only says what may not differ; it lets any bound claim
grow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.status import Refused, invalid
from scheduler.testing.apiserver.volumechecks import (
    check_claim,
    check_volume,
    checked_csi_node,
    forbidden_field,
    quantity,
    sources,
)

Object = dict[str, Any]
_CLAIM_FIXED: Final = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
_SOURCE_FIXED: Final = "Forbidden: spec.persistentvolumesource is immutable after creation"
_AFFINITY_FIXED: Final = "field is immutable, except for updating from beta label to GA"


def with_changes(resource: Resource, old: Object, new: Object) -> Object:
    """What is stored when `new` comes in place of `old`, other than through /status. Raises 422."""
    change = _CHANGES.get(resource.name)
    return new if change is None else change(resource, old, new)


def _changed_volume(resource: Resource, old: Object, new: Object) -> Object:
    check_volume(resource, new)
    name, before, after = new["metadata"]["name"], old["spec"], new["spec"]
    if sources(before) != sources(after):
        raise forbidden_field(resource, name, "spec.persistentvolumesource", _SOURCE_FIXED)
    if before["volumeMode"] != after["volumeMode"]:
        raise _immutable(resource, name, "volumeMode", after["volumeMode"])
    if before.get("nodeAffinity") and before["nodeAffinity"] != after.get("nodeAffinity"):
        raise invalid(resource, name, "nodeAffinity", f"Invalid value: {_AFFINITY_FIXED}")
    return new


def _changed_claim(resource: Resource, old: Object, new: Object) -> Object:
    check_claim(resource, new)
    name, before, after = new["metadata"]["name"], dict(old["spec"]), dict(new["spec"])
    is_bound = (old.get("status") or {}).get("phase") == "Bound"
    free = set()
    if not before.get("volumeName"):
        free.add("volumeName")
    if before.get("storageClassName") is None and after.get("storageClassName") is not None:
        free.add("storageClassName")
    if is_bound:
        _check_size(resource, old, new)
        free |= {"resources", "volumeAttributesClassName"}
    for field in free:
        before.pop(field, None)
        after.pop(field, None)
    if before != after:
        raise forbidden_field(resource, name, "spec", _CLAIM_FIXED)
    return new


def _check_size(resource: Resource, old: Object, new: Object) -> None:
    before, after = (quantity(resource, each["spec"]["resources"]["requests"]["storage"]) for each in (old, new))
    has = (old["status"].get("capacity") or {}).get("storage", "0")
    if after.nano < before.nano and after.nano <= quantity(resource, has).nano:
        why = "Forbidden: field can not be less than status.capacity"
        raise forbidden_field(resource, new["metadata"]["name"], "spec.resources.requests.storage", why)


def _changed_class(resource: Resource, old: Object, new: Object) -> Object:
    for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        if old.get(field) != new.get(field):
            raise _immutable(resource, new["metadata"]["name"], field, new.get(field, ""))
    return new


def _changed_driver(resource: Resource, old: Object, new: Object) -> Object:
    for field, called in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
        if old["spec"][field] != new["spec"].get(field):
            raise _immutable(resource, new["metadata"]["name"], f"spec.{called}", new["spec"].get(field))
    return new


def _changed_csi_node(resource: Resource, old: Object, new: Object) -> Object:
    """A driver may come, go, and change its limit; nothing else of it."""
    spec = checked_csi_node(resource, new)
    before = {driver["name"]: driver for driver in old["spec"].get("drivers") or ()}
    for driver in spec["drivers"] or ():
        was = before.get(driver["name"], driver)
        if _unlimited(was) != _unlimited(driver):
            raise invalid(resource, new["metadata"]["name"], "spec.drivers", "Invalid value: field is immutable")
    return new | {"spec": spec}


def _unlimited(driver: Object) -> Object:
    return {key: value for key, value in driver.items() if key != "allocatable"}


def _changed_capacity(resource: Resource, old: Object, new: Object) -> Object:
    for field in ("nodeTopology", "storageClassName"):
        if old.get(field) != new.get(field):
            raise _immutable(resource, new["metadata"]["name"], field, new.get(field))
    return new


_CHANGES: Final[dict[str, Callable[[Resource, Object, Object], Object]]] = {
    "persistentvolumes": _changed_volume,
    "persistentvolumeclaims": _changed_claim,
    "storageclasses": _changed_class,
    "csidrivers": _changed_driver,
    "csinodes": _changed_csi_node,
    "csistoragecapacities": _changed_capacity,
}


def _immutable(resource: Resource, name: str, field: str, value: object) -> Refused:
    shown = json.dumps(value, separators=(",", ":"))
    return invalid(resource, name, field, f"Invalid value: {shown}: field is immutable")


def with_transition_time(old: Object, new: Object, now: str) -> None:
    """A volume's status says since when it has its phase. Replaces the status, never edits it."""
    before, after = old.get("status") or {}, new.get("status") or {}
    since, told = before.get("lastPhaseTransitionTime"), after.get("lastPhaseTransitionTime")
    if before.get("phase") == after.get("phase"):
        if told is None and since is not None:
            new["status"] = after | {"lastPhaseTransitionTime": since}
    elif told in (None, since):
        new["status"] = after | {"lastPhaseTransitionTime": now}
