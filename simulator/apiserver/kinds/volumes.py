"""Defaults and validation of volumes, claims and their neighbours, when they are created and changed.

What of a volume, a claim and their neighbours a server refuses whenever they are written.

Checked are the fields that schedulers and the controllers of volumes read and write.

What may change of volumes and their neighbours once they are there.

Where a real server prints the difference of two objects, this one only says what may not differ; it lets any bound claim
grow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from scheduler.api.meta import NAME, NAME_RULE, label_key
from scheduler.api.quantity import Quantity, parse
from scheduler.api.storage_v1 import CLASS_ANNOTATION
from simulator.apiserver.kinds.defaults import Rule, fill
from simulator.apiserver.resources import ApiResource, Served
from simulator.apiserver.status import (
    Problems,
    Refused,
    Unreadable,
    in_each,
    invalid,
    refuse,
    required as missing,
    twice,
    wrong,
    wrong_each,
)
from simulator.apiserver.storage import Storage

Object = dict[str, Any]
_NOT_SOURCES: Final = frozenset(
    {"capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName", "mountOptions"}
    | {"volumeMode", "nodeAffinity", "volumeAttributesClassName"}
)
_ONCE_POD: Final = "ReadWriteOncePod"
_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _ONCE_POD)
_VOLUME_MODES: Final = ("Block", "Filesystem")
BINDING_MODES: Final = ("Immediate", "WaitForFirstConsumer")
RECLAIM: Final = ("Delete", "Retain")
_RECLAIM_OR_RECYCLE: Final = ("Delete", "Recycle", "Retain")


def check_volume(resource: ApiResource, volume: Object) -> None:
    """Raise 422 for a PersistentVolume that cannot be."""
    name, spec = volume["metadata"]["name"], volume["spec"]
    if not spec.get("accessModes"):
        raise required(resource, name, "spec.accessModes")
    _access_modes(resource, name, spec["accessModes"])
    capacity = spec.get("capacity") or {}
    if "storage" not in capacity:
        raise required(resource, name, "spec.capacity")
    _positive(resource, name, "spec.capacity[storage]", capacity["storage"])
    supported(
        resource,
        name,
        "spec.persistentVolumeReclaimPolicy",
        spec["persistentVolumeReclaimPolicy"],
        _RECLAIM_OR_RECYCLE,
    )
    supported(resource, name, "spec.volumeMode", spec["volumeMode"], _VOLUME_MODES)
    given = list(sources(spec))
    if not given:
        raise required(resource, name, "spec", "must specify a volume type")
    if len(given) > 1:
        raise forbidden_field(resource, name, f"spec.{given[1]}", "Forbidden: may not specify more than 1 volume type")
    if "local" in given and not (spec.get("nodeAffinity") or {}).get("required"):
        raise required(resource, name, "spec.nodeAffinity", "Local volume requires node affinity")
    for field in ("driver", "volumeHandle"):
        if "csi" in given and not spec["csi"].get(field):
            raise required(resource, name, f"spec.csi.{field}")
    _class_name(resource, name, "spec.storageClassName", spec.get("storageClassName"))


def check_claim(resource: ApiResource, claim: Object) -> None:
    """Raise 422 for a PersistentVolumeClaim that cannot be."""
    name, spec = claim["metadata"]["name"], claim["spec"]
    if not spec.get("accessModes"):
        raise required(resource, name, "spec.accessModes", "at least 1 access mode is required")
    _access_modes(resource, name, spec["accessModes"])
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        raise required(resource, name, "spec.resources[storage]")
    _positive(resource, name, "spec.resources[storage]", requests["storage"])
    _class_name(resource, name, "spec.storageClassName", spec.get("storageClassName"))
    supported(resource, name, "spec.volumeMode", spec["volumeMode"], _VOLUME_MODES)


def check_capacity(resource: ApiResource, capacity: Object) -> None:
    """Raise 422 for a CSIStorageCapacity that cannot be."""
    name, class_name = capacity["metadata"]["name"], capacity.get("storageClassName", "")
    if not NAME.fullmatch(class_name):
        raise invalid(resource, name, "storageClassName", f'Invalid value: "{class_name}": {NAME_RULE}')
    room = capacity.get("capacity")
    if room is not None and quantity(resource, room).nano < 0:
        raise invalid(resource, name, "capacity", f'Invalid value: "{room}": must be greater than or equal to 0')


def checked_csi_node(resource: ApiResource, csi_node: Object) -> Object:
    """Return the checked object, with the nulls that a real server writes for empty lists."""
    name, spec = csi_node["metadata"]["name"], csi_node.get("spec") or {}
    drivers = spec.get("drivers") or []
    found = in_each("spec.drivers", drivers, _csi_node_driver)
    names = [driver.get("name", "") for driver in drivers]
    found += [each._replace(field=f"{each.field}.name") for each in twice("spec.drivers", names)]
    refuse(resource, name, found)
    return spec | {"drivers": [{"topologyKeys": None} | driver for driver in drivers] or None}


def _csi_node_driver(field: str, driver: Object) -> Problems:
    """Return what is wrong with one driver.

    Upstream: pkg/apis/storage/validation/validation.go validateCSINodeDriver
    """
    found = [missing(f"{field}.{needed}") for needed in ("name", "nodeID") if not driver.get(needed)]
    count, keys = (driver.get("allocatable") or {}).get("count"), driver.get("topologyKeys") or []
    if count is not None and count < 0:
        found.append(wrong(f"{field}.allocatable.count", count, "must be greater than or equal to 0"))
    found += [each._replace(field=field) for each in twice(field, keys)]
    return found + [problem for key in keys for problem in wrong_each(field, key, label_key(key))]


def _access_modes(resource: ApiResource, name: str, modes: list[str]) -> None:
    for mode in modes:
        supported(resource, name, "spec.accessModes", mode, _ACCESS_MODES)
    if _ONCE_POD in modes and set(modes) != {_ONCE_POD}:
        why = f"Forbidden: may not use {_ONCE_POD} with other access modes"
        raise forbidden_field(resource, name, "spec.accessModes", why)


def supported(resource: ApiResource, name: str, field: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        choices = ", ".join(f'"{each}"' for each in known)
        why = f'Unsupported value: "{value}": supported values: {choices}'
        raise invalid(resource, name, field, why, cause="FieldValueNotSupported")


def _positive(resource: ApiResource, name: str, field: str, amount: Any) -> None:
    if quantity(resource, amount).nano <= 0:
        raise invalid(resource, name, field, f'Invalid value: "{amount}": must be greater than zero')


def quantity(resource: ApiResource, amount: Any) -> Quantity:
    """Raise 400 for an amount that is none."""
    try:
        return parse(amount)
    except ValueError as error:
        raise Unreadable(resource, str(error)) from error


def _class_name(resource: ApiResource, name: str, field: str, class_name: str | None) -> None:
    if class_name and not NAME.fullmatch(class_name):
        raise invalid(resource, name, field, f'Invalid value: "{class_name}": {NAME_RULE}')


def required(resource: ApiResource, name: str, field: str, why: str = "") -> Refused:
    message = f"Required value: {why}" if why else "Required value"
    return invalid(resource, name, field, message, cause="FieldValueRequired")


def forbidden_field(resource: ApiResource, name: str, field: str, why: str) -> Refused:
    return invalid(resource, name, field, why, cause="FieldValueForbidden")


def sources(spec: Object) -> Object:
    return {key: value for key, value in spec.items() if key not in _NOT_SOURCES and value is not None}


_CLAIM_FIXED: Final = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
_SOURCE_FIXED: Final = "Forbidden: spec.persistentvolumesource is immutable after creation"
_AFFINITY_FIXED: Final = "field is immutable, except for updating from beta label to GA"


def with_changes(resource: ApiResource, old: Object, new: Object) -> Object:
    """Return what is stored when `new` comes in place of `old`, other than through /status. Raises 422."""
    change = _CHANGES.get(resource.name)
    return new if change is None else change(resource, old, new)


def _changed_volume(resource: ApiResource, old: Object, new: Object) -> Object:
    check_volume(resource, new)
    name, before, after = new["metadata"]["name"], old["spec"], new["spec"]
    if sources(before) != sources(after):
        raise forbidden_field(resource, name, "spec.persistentvolumesource", _SOURCE_FIXED)
    if before["volumeMode"] != after["volumeMode"]:
        raise _immutable(resource, name, "volumeMode", after["volumeMode"])
    if before.get("nodeAffinity") and before["nodeAffinity"] != after.get("nodeAffinity"):
        raise invalid(resource, name, "nodeAffinity", f"Invalid value: {_AFFINITY_FIXED}")
    return new


def _changed_claim(resource: ApiResource, old: Object, new: Object) -> Object:
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


def _check_size(resource: ApiResource, old: Object, new: Object) -> None:
    before, after = (quantity(resource, each["spec"]["resources"]["requests"]["storage"]) for each in (old, new))
    has = (old["status"].get("capacity") or {}).get("storage", "0")
    if after.nano < before.nano and after.nano <= quantity(resource, has).nano:
        why = "Forbidden: field can not be less than status.capacity"
        raise forbidden_field(resource, new["metadata"]["name"], "spec.resources.requests.storage", why)


def _changed_class(resource: ApiResource, old: Object, new: Object) -> Object:
    for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        if old.get(field) != new.get(field):
            raise _immutable(resource, new["metadata"]["name"], field, new.get(field, ""))
    return new


def _changed_driver(resource: ApiResource, old: Object, new: Object) -> Object:
    for field, called in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
        if old["spec"][field] != new["spec"].get(field):
            raise _immutable(resource, new["metadata"]["name"], f"spec.{called}", new["spec"].get(field))
    return new


def _changed_csi_node(resource: ApiResource, old: Object, new: Object) -> Object:
    """Check that drivers are only added, removed, or changed in their limit."""
    spec = checked_csi_node(resource, new)
    before = {driver["name"]: driver for driver in old["spec"].get("drivers") or ()}
    for driver in spec["drivers"] or ():
        was = before.get(driver["name"], driver)
        if _unlimited(was) != _unlimited(driver):
            raise invalid(resource, new["metadata"]["name"], "spec.drivers", "Invalid value: field is immutable")
    return new | {"spec": spec}


def _unlimited(driver: Object) -> Object:
    return {key: value for key, value in driver.items() if key != "allocatable"}


def _changed_capacity(resource: ApiResource, old: Object, new: Object) -> Object:
    for field in ("nodeTopology", "storageClassName"):
        if old.get(field) != new.get(field):
            raise _immutable(resource, new["metadata"]["name"], field, new.get(field))
    return new


_CHANGES: Final[dict[str, Callable[[ApiResource, Object, Object], Object]]] = {
    "persistentvolumes": _changed_volume,
    "persistentvolumeclaims": _changed_claim,
    "storageclasses": _changed_class,
    "csidrivers": _changed_driver,
    "csinodes": _changed_csi_node,
    "csistoragecapacities": _changed_capacity,
}


def _immutable(resource: ApiResource, name: str, field: str, value: object) -> Refused:
    shown = json.dumps(value, separators=(",", ":"))
    return invalid(resource, name, field, f"Invalid value: {shown}: field is immutable")


def with_transition_time(old: Object, new: Object, now: str) -> None:
    """Set the time of the phase in a volume's status. Replaces the status, never edits it."""
    before, after = old.get("status") or {}, new.get("status") or {}
    since, told = before.get("lastPhaseTransitionTime"), after.get("lastPhaseTransitionTime")
    if before.get("phase") == after.get("phase"):
        if told is None and since is not None:
            new["status"] = after | {"lastPhaseTransitionTime": since}
    elif told in (None, since):
        new["status"] = after | {"lastPhaseTransitionTime": now}


DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_ONE_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def rules(storage: Storage, served: Served) -> dict[str, Rule]:
    """Return the rule of each resource."""
    return {
        "persistentvolumes": with_volume,
        "persistentvolumeclaims": Claims(storage, served.named("storageclasses")),
        "storageclasses": with_class,
        "csidrivers": with_driver,
        "csinodes": with_csi_node,
        "csistoragecapacities": with_capacity,
        "volumeattachments": with_attachment,
    }


def with_volume(resource: ApiResource, volume: Object, now: str) -> None:
    """Return a new PersistentVolume. Raises 422."""
    spec = volume.setdefault("spec", {})
    fill(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    if isinstance(spec.get("hostPath"), dict):
        spec["hostPath"].setdefault("type", "")
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}
    _protect(volume, "kubernetes.io/pv-protection")
    check_volume(resource, volume)


class Claims:
    """New claims, which may get the default class."""

    def __init__(self, storage: Storage, classes: ApiResource) -> None:
        self._storage = storage
        self._classes = classes

    def __call__(self, resource: ApiResource, claim: Object, _: str) -> None:
        """Return a new PersistentVolumeClaim. Raises 422."""
        spec = claim.setdefault("spec", {})
        fill(spec, volumeMode="Filesystem")
        claim["status"] = {"phase": "Pending"}
        _protect(claim, "kubernetes.io/pvc-protection")
        has_class = CLASS_ANNOTATION in (claim["metadata"].get("annotations") or {})
        if spec.get("storageClassName") is None and not has_class and (default := self._default()):
            spec["storageClassName"] = default
        check_claim(resource, claim)

    def _default(self) -> str:
        """Return the newest of the default classes, of equally new ones the first by name."""
        found = ""
        newest = ""
        for entry in self._storage.bucket(self._classes).ordered():
            metadata = entry.obj["metadata"]
            annotations = metadata.get("annotations") or {}
            is_default = any(annotations.get(key) == "true" for key in DEFAULT_CLASS)
            if is_default and metadata["creationTimestamp"] > newest:
                found, newest = metadata["name"], metadata["creationTimestamp"]
        return found


def with_class(resource: ApiResource, storage_class: Object, _: str) -> None:
    """Return a new StorageClass. Raises 422."""
    fill(storage_class, reclaimPolicy="Delete", volumeBindingMode="Immediate")
    name = storage_class["metadata"]["name"]
    if not storage_class.get("provisioner"):
        raise required(resource, name, "provisioner")
    supported(resource, name, "reclaimPolicy", storage_class["reclaimPolicy"], RECLAIM)
    supported(resource, name, "volumeBindingMode", storage_class["volumeBindingMode"], BINDING_MODES)


def with_driver(_: ApiResource, driver: Object, __: str) -> None:
    """Return a new CSIDriver. `preventPodSchedulingIfMissing` is kept, as it is where VolumeLimitScaling is on."""
    spec = driver.setdefault("spec", {})
    defaults: Object = {
        "attachRequired": True,
        "podInfoOnMount": False,
        "volumeLifecycleModes": ["Persistent"],
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
    }
    for key, value in defaults.items():
        if spec.get(key) in (None, []):
            spec[key] = value


def with_csi_node(resource: ApiResource, csi_node: Object, _: str) -> None:
    """Return a new CSINode. Raises 422."""
    csi_node["spec"] = checked_csi_node(resource, csi_node)


def with_capacity(resource: ApiResource, capacity: Object, _: str) -> None:
    """Return a new CSIStorageCapacity. Raises 422."""
    check_capacity(resource, capacity)


def with_attachment(resource: ApiResource, attachment: Object, _: str) -> None:
    """Return a new VolumeAttachment, which nothing has attached yet. Raises 422."""
    name, spec = attachment["metadata"]["name"], attachment.setdefault("spec", {})
    if not spec.get("attacher"):
        raise required(resource, name, "spec.attacher")
    source = spec.get("source") or {}
    given = [key for key in ("persistentVolumeName", "inlineVolumeSpec") if source.get(key) is not None]
    if not given:
        raise required(resource, name, "spec.source", _ONE_SOURCE)
    if len(given) > 1:
        raise forbidden_field(resource, name, "spec.source", f"Forbidden: {_ONE_SOURCE}")
    attachment["status"] = {"attached": False}


def _protect(obj: Object, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    obj["metadata"]["finalizers"] = finalizers if finalizer in finalizers else [*finalizers, finalizer]
