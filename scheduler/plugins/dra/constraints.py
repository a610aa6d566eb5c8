"""What the devices of a claim must have in common, or must not (docs/spec/dra.md §4.10).

A constraint is asked with what it knows so far and answers with what it knows then: nothing is changed in place, so to
undo is to go back to the value before. List attributes are sets; a plain value is a set of one.

Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/internal/stable/allocator_stable.go constraint
"""

from __future__ import annotations

from typing import Final, TypeAlias

from scheduler.api.resource_v1 import Device, DeviceAttribute, DeviceConstraint
from scheduler.cache.devices.pools import DeviceKind

Values: TypeAlias = frozenset[tuple[str, object]]
"""(type, value) each: values of different types are never equal. None at all: they have a form that is not understood."""
Known: TypeAlias = tuple[Values, ...]
"""What a constraint has seen: one entry for match (what is common to all), one per device for distinct."""

NOTHING_SEEN: Final[Known] = ()
_SCALARS: Final = (("bool", "bool_"), ("int", "int_"), ("string", "string"), ("version", "version"))
_LISTS: Final = (("bool", "bools"), ("int", "ints"), ("string", "strings"), ("version", "versions"))


class AllocationConstraint:
    """One entry of `constraints[]`, for devices of the requests that it names."""

    __slots__ = ("_lists", "_requests", "attribute", "is_match")

    def __init__(self, constraint: DeviceConstraint, *, lists: bool) -> None:
        """The constraint names one attribute of either kind; `lists` is whether list attributes are understood."""
        self.is_match = constraint.match_attribute is not None
        self.attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._requests = frozenset(constraint.requests)
        self._lists = lists

    def concerns(self, request: str, full_name: str) -> bool:
        """Whether devices of this request must satisfy it; `full_name` is `R/S` for an alternative."""
        return not self._requests or request in self._requests or full_name in self._requests

    def add(self, known: Known, kind: DeviceKind) -> Known | None:
        """What is known with one more such device; None if it must not be added."""
        values = self.values(kind)
        if values is None or (not values and (known or (self.is_match and self._lists))):
            return None
        if not known:
            return (values,)
        if self.is_match:
            common = known[0] & values
            return (common,) if common else None
        return None if any(values & seen for seen in known) else (*known, values)

    def values(self, kind: DeviceKind) -> Values | None:
        """The attribute's values; None if the device lacks it."""
        return attribute_values(kind.driver, kind.device, self.attribute, lists=self._lists)


def attribute_values(driver: str, device: Device, name: str, *, lists: bool) -> Values | None:
    """A bare name counts for the device's own driver only."""
    found = device.attributes.get(name)
    if found is None:
        domain, _, bare = name.partition("/")
        if domain == driver:
            found = device.attributes.get(bare)
    return None if found is None else _values(found, lists=lists)


def _values(attribute: DeviceAttribute, *, lists: bool) -> Values:
    for kind, field in _SCALARS:
        value = getattr(attribute, field)
        if value is not None:
            return frozenset(((kind, value),))
    if lists:
        for kind, field in _LISTS:
            several = getattr(attribute, field)
            if several is not None:
                return frozenset((kind, value) for value in several)
    return frozenset()
