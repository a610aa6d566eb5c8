"""Attributes that a claim's request computes by CEL expressions (docs/spec/changes-1.37-devices.md §4.2).

Upstream: staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go EvaluateDerivedAttribute, valToDeviceAttribute
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler.api.resource_v1 import DeviceAttribute
from scheduler.cache.devices.selectors import DeviceExpressions
from scheduler.cel.check.types import ANY, BOOL, DYN, INT, SEMVER, STRING, Type, declared, list_of
from scheduler.cel.libraries.semvers import Semver
from scheduler.cel.values import Optional, TypeValue, Value, type_name

_ELEMENTS: Final = (BOOL, INT, STRING, ANY, DYN, SEMVER)
_ACCEPTED: Final = frozenset({*_ELEMENTS, *map(list_of, _ELEMENTS)})
_VALUES_MAX: Final = 1000
"""The longest list of values: each step of a search compares lists."""


class DerivedAttributes(DeviceExpressions[DeviceAttribute]):
    """Compiles and evaluates the expressions of derived attributes."""

    def __init__(self) -> None:
        super().__init__(list_attributes=True, refusal=_refusal, converted=attribute_of)


def _refusal(result: Type) -> str | None:
    if result in _ACCEPTED:
        return None
    scalars = "must evaluate to a primitive scalar (string, integer, boolean, semver)"
    return f"{scalars} or a list of these scalars, not {declared(result)}"


_ONE: Final = {"bool": "bool_", "int": "int_", "string": "string", "semver": "version"}
_SEVERAL: Final = {"bool": "bools", "int": "ints", "string": "strings", "semver": "versions"}


def attribute_of(value: Value) -> DeviceAttribute | str:
    """Return the attribute with this value, or upstream's error text."""
    found = value.value if isinstance(value, Optional) and value.present else value
    kind = _scalar(found)
    if kind is not None:
        return DeviceAttribute(**{_ONE[kind]: _plain(found)})
    if type_name(value) == "list":
        return _list_of(tuple(value))
    return f"unsupported CEL return type: {_go_type(found)}"


def _list_of(values: tuple[Value, ...]) -> DeviceAttribute | str:
    """Return a list attribute of the first element's type. An empty list is one of strings."""
    if not values:
        return DeviceAttribute(strings=())
    if len(values) > _VALUES_MAX:
        return f"a list of {len(values)} values; at most {_VALUES_MAX} can be compared"
    kind = _scalar(values[0])
    if kind is None:
        return f"unsupported list element type: {_go_type(values[0])}"
    for at, each in enumerate(values):
        if _scalar(each) != kind:
            return f"expected list element at index {at} to be {kind}, got {_go_type(each)}"
    several: dict[str, Any] = {_SEVERAL[kind]: tuple(map(_plain, values))}
    return DeviceAttribute(**several)


def _scalar(value: Value) -> str | None:
    """Return which of upstream's four types the value has."""
    if isinstance(value, Semver):
        return "semver"
    if isinstance(value, TypeValue):  # Go's value of a type is its name
        return "string"
    name = type_name(value)
    return name if name in _ONE else None


def _plain(value: Value) -> Value:
    if isinstance(value, TypeValue):
        return value.name
    return _text(value) if isinstance(value, Semver) else value


def _text(version: Semver) -> str:
    """Return the version's text. Build metadata is not kept."""
    identifiers = [str(each[1]) for each in version.prerelease if isinstance(each, tuple)]
    core = f"{version.major}.{version.minor}.{version.patch}"
    return f"{core}-{'.'.join(identifiers)}" if identifiers else core


_GO_TYPES: Final = {
    "bool": "bool",
    "int": "int64",
    "string": "string",
    "kubernetes.Semver": "semver.Version",
    "uint": "uint64",
    "double": "float64",
    "bytes": "[]uint8",
    "null_type": "structpb.NullValue",
    "list": "[]ref.Val",
    "map": "map[ref.Val]ref.Val",
    "google.protobuf.Duration": "time.Duration",
    "google.protobuf.Timestamp": "time.Time",
    "optional_type": "<nil>",
    "kubernetes.Quantity": "*resource.Quantity",
    "kubernetes.URL": "*url.URL",
    "net.IP": "netip.Addr",
    "net.CIDR": "netip.Prefix",
}


def _go_type(value: Value) -> str:
    """Return the name of the Go type that upstream's text has."""
    name = "map" if isinstance(value, Mapping) else type_name(value)
    if isinstance(value, tuple) and value:  # an attribute of the device; expressions make lists
        return "[]cel.Semver" if isinstance(value[0], Semver) else f"[]{_go_type(value[0])}"
    return _GO_TYPES.get(name, name)
