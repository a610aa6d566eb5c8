"""Attribute values that the devices of a claim must, or must not, have in common (docs/spec/dra.md §4.10).

`add` takes the values seen so far and returns the new ones. Nothing is changed in place, so the search undoes a
step with the old value.

Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/internal/stable/allocator_stable.go constraint
"""

from __future__ import annotations

from typing import Final, TypeAlias

from scheduler.api.resource_v1 import Device, DeviceAttribute, DeviceConstraint
from scheduler.cache.devices.pools import DeviceKind

Values: TypeAlias = frozenset[tuple[str, object]]
"""At most one (type, value) pair: values of different types are never equal. Empty for an unsupported value."""
SeenValues: TypeAlias = tuple[Values, ...]
"""The values that a constraint has seen: for match one entry with the common value, for distinct one per device."""

NOTHING_SEEN: Final[SeenValues] = ()
_SCALARS: Final = (("bool", "bool_"), ("int", "int_"), ("string", "string"), ("version", "version"))


class AllocationConstraint:
    """One entry of `constraints[]`, for devices of the requests that it names."""

    __slots__ = ("_requests", "attribute", "is_match")

    def __init__(self, constraint: DeviceConstraint) -> None:
        self.is_match = constraint.match_attribute is not None
        self.attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._requests = frozenset(constraint.requests)

    def concerns(self, request: str, full_name: str) -> bool:
        """Return whether the constraint is for devices of this request; `full_name` is `R/S` for an alternative."""
        return not self._requests or request in self._requests or full_name in self._requests

    def add(self, seen_values: SeenValues, kind: DeviceKind) -> SeenValues | None:
        """Return the values seen with one more device of this kind; None if the device violates the constraint.

        A device with an unknown value is accepted only as the first one.
        """
        # Only bool, int, string and version are compared. A device with another type passes as the first one, because
        # there is nothing to compare it with yet.
        values = self.values(kind)
        if values is None or (not values and seen_values):
            return None
        if not seen_values:
            return (values,)
        # A match keeps the first device's value; equal devices add nothing. A distinct constraint must remember all
        # values.
        if self.is_match:
            return seen_values if seen_values[0] & values else None
        return None if any(values & seen for seen in seen_values) else (*seen_values, values)

    def values(self, kind: DeviceKind) -> Values | None:
        """Return the attribute's values; None if the device lacks the attribute."""
        return attribute_values(kind.driver, kind.device, self.attribute)


def attribute_values(driver: str, device: Device, name: str) -> Values | None:
    """Return the attribute's values; a name without a domain belongs to the device's own driver."""
    found = _attribute(driver, device, name)
    if found is None:
        return None
    for kind, field in _SCALARS:
        value = getattr(found, field)
        if value is not None:
            # Build metadata does not distinguish versions.
            return frozenset(((kind, value.partition("+")[0] if kind == "version" else value),))
    return frozenset()


def is_unsupported(kind: DeviceKind, name: str) -> bool:
    """Return whether such a device has the attribute with a value that no constraint can compare.

    These are lists, values of an unknown type, and versions that cannot be parsed.
    """
    found = _attribute(kind.driver, kind.device, name)
    if found is None or any(each is not None for each in (found.bool_, found.int_, found.string)):
        return False
    return found.version is None or not _is_version(found.version)


def _attribute(driver: str, device: Device, name: str) -> DeviceAttribute | None:
    found = device.attributes.get(name)
    if found is None:
        # Drivers may leave out their own domain in attribute names, and claims must always write it.
        domain, _, bare = name.partition("/")
        if domain == driver:
            found = device.attributes.get(bare)
    return found


def _is_version(text: str) -> bool:
    # The language is loaded with the first device class, because most clusters have none.
    from scheduler.cel.libraries.semvers import parse

    try:
        parse(text)
    except ValueError:
        return False
    return True
