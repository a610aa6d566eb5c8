"""The device kinds as resource.k8s.io/v1beta1 has them: flat requests, devices inside `basic`. Stored is what v1 has.

Gives new objects where something differs, and never changes what it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Object = dict[str, Any]
_Change = Callable[[Object], Object]


def to_v1beta1(resource: str, obj: Object) -> Object:
    """Return a stored object as v1beta1 shows it."""
    return _changed(resource, obj, _flat_request, _basic_device)


def from_v1beta1(resource: str, obj: Object) -> Object:
    """Return what a client of v1beta1 sends, as it is stored."""
    return _changed(resource, obj, _nested_request, _plain_device)


def _changed(resource: str, obj: Object, request: _Change, device: _Change) -> Object:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    if resource == "resourceclaims":
        return obj | {"spec": _claim(spec, request)}
    if resource == "resourceclaimtemplates" and isinstance(spec.get("spec"), dict):
        return obj | {"spec": spec | {"spec": _claim(spec["spec"], request)}}
    if resource == "resourceslices":
        empty = [key for key in ("nodeName", "allNodes") if spec.get(key) in ("", False)]
        spec = {key: value for key, value in spec.items() if key not in empty}
        if spec.get("devices"):
            spec["devices"] = [device(each) for each in spec["devices"]]
        return obj | {"spec": spec}
    return obj


def _claim(spec: Object, change: _Change) -> Object:
    devices = spec.get("devices") or {}
    requests = devices.get("requests")
    return spec | {"devices": devices | {"requests": [change(each) for each in requests]}} if requests else spec


def _flat_request(request: Object) -> Object:
    rest = {key: value for key, value in request.items() if key != "exactly"}
    return {"deviceClassName": ""} | rest | (request.get("exactly") or {})


def _nested_request(request: Object) -> Object:
    kept = {key: value for key, value in request.items() if key in _OF_REQUEST}
    asked = {key: value for key, value in request.items() if key in _OF_EXACTLY and _says_something(value)}
    return kept | ({"exactly": asked} if asked else {})


def _says_something(value: Any) -> bool:
    return value is False or value not in ("", None, 0)


def _basic_device(device: Object) -> Object:
    return {"name": device.get("name", ""), "basic": {key: value for key, value in device.items() if key != "name"}}


def _plain_device(device: Object) -> Object:
    return {"name": device.get("name", "")} | (device.get("basic") or {})


_OF_REQUEST: Final = frozenset({"name", "firstAvailable"})
_OF_EXACTLY: Final = frozenset(
    {"deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"}
)
