"""What of a volume, a claim and their neighbours a server refuses whenever they are written.

Checked are the fields that schedulers and the controllers of volumes read and write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from scheduler.core.names import NAME, NAME_RULE
from scheduler.core.quantity import Quantity, parse
from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.status import Refused, Unreadable, invalid

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


def check_volume(resource: Resource, volume: Object) -> None:
    """Raises 422 for a PersistentVolume that cannot be."""
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


def check_claim(resource: Resource, claim: Object) -> None:
    """Raises 422 for a PersistentVolumeClaim that cannot be."""
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


def check_capacity(resource: Resource, capacity: Object) -> None:
    """Raises 422 for a CSIStorageCapacity that cannot be."""
    name, class_name = capacity["metadata"]["name"], capacity.get("storageClassName", "")
    if not NAME.fullmatch(class_name):
        raise invalid(resource, name, "storageClassName", f'Invalid value: "{class_name}": {NAME_RULE}')
    room = capacity.get("capacity")
    if room is not None and quantity(resource, room).nano < 0:
        raise invalid(resource, name, "capacity", f'Invalid value: "{room}": must be greater than or equal to 0')


def checked_csi_node(resource: Resource, csi_node: Object) -> Object:
    """Checked, and with the nulls that a real server writes for empty lists."""
    name, spec = csi_node["metadata"]["name"], csi_node.get("spec") or {}
    drivers = []
    for at, driver in enumerate(spec.get("drivers") or ()):
        field = f"spec.drivers[{at}]"
        for needed in ("name", "nodeID"):
            if not driver.get(needed):
                raise required(resource, name, f"{field}.{needed}")
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            why = f"Invalid value: {count}: must be greater than or equal to 0"
            raise invalid(resource, name, f"{field}.allocatable.count", why)
        drivers.append({"topologyKeys": None} | driver)
    return spec | {"drivers": drivers or None}


def _access_modes(resource: Resource, name: str, modes: list[str]) -> None:
    for mode in modes:
        supported(resource, name, "spec.accessModes", mode, _ACCESS_MODES)
    if _ONCE_POD in modes and set(modes) != {_ONCE_POD}:
        why = f"Forbidden: may not use {_ONCE_POD} with other access modes"
        raise forbidden_field(resource, name, "spec.accessModes", why)


def supported(resource: Resource, name: str, field: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        choices = ", ".join(f'"{each}"' for each in known)
        why = f'Unsupported value: "{value}": supported values: {choices}'
        raise invalid(resource, name, field, why, cause="FieldValueNotSupported")


def _positive(resource: Resource, name: str, field: str, amount: Any) -> None:
    if quantity(resource, amount).nano <= 0:
        raise invalid(resource, name, field, f'Invalid value: "{amount}": must be greater than zero')


def quantity(resource: Resource, amount: Any) -> Quantity:
    """Raises 400 for an amount that is none."""
    try:
        return parse(amount)
    except ValueError as error:
        raise Unreadable(resource, str(error)) from error


def _class_name(resource: Resource, name: str, field: str, class_name: str | None) -> None:
    if class_name and not NAME.fullmatch(class_name):
        raise invalid(resource, name, field, f'Invalid value: "{class_name}": {NAME_RULE}')


def required(resource: Resource, name: str, field: str, why: str = "") -> Refused:
    message = f"Required value: {why}" if why else "Required value"
    return invalid(resource, name, field, message, cause="FieldValueRequired")


def forbidden_field(resource: Resource, name: str, field: str, why: str) -> Refused:
    return invalid(resource, name, field, why, cause="FieldValueForbidden")


def sources(spec: Object) -> Object:
    return {key: value for key, value in spec.items() if key not in _NOT_SOURCES and value is not None}
