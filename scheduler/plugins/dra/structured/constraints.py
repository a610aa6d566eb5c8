"""Attribute values that the devices of a claim must, or must not, have in common (docs/spec/dra.md §4.10).

`add` takes the values seen so far and returns the new ones. Nothing is changed in place, so the search undoes a
step with the old value. List attributes are sets; a plain value is a set of one.

A request can compute attributes by expressions. A computed value depends on the kind of device alone and is cached with the
kind; an error is a result too, and is raised only when a search adds such a device (docs/spec/changes-1.37-devices.md §4.2).

Compatibility groups restrict the devices that draw from one counter set at the same time: all of them must have a group
in common, and a device without groups goes only with devices without groups (docs/spec/changes-1.37-devices.md §4.3).

Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/internal/stable/allocator_stable.go constraint
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from scheduler.api.resource_v1 import Device, DeviceAttribute, DeviceConstraint
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.devices.selectors import CompileProblem
from scheduler.core.cooperative import Work, finish

Values: TypeAlias = frozenset[tuple[str, object]]
"""(type, value) pairs: values of different types are never equal. Empty if the values' form is unknown."""
Known: TypeAlias = tuple[Values, ...]
"""The values that a constraint has seen: for match one entry with the common values, for distinct one per device."""

NOTHING_SEEN: Final[Known] = ()
_SCALARS: Final = (("bool", "bool_"), ("int", "int_"), ("string", "string"), ("version", "version"))
_LISTS: Final = (("bool", "bools"), ("int", "ints"), ("string", "strings"), ("version", "versions"))


Deriving: TypeAlias = Callable[[str, DeviceKind], Work["DeviceAttribute | str"]]
"""(expression, kind) → the attribute, or an error text; a `CompileProblem` does not depend on the device."""


@dataclass(frozen=True, slots=True)
class DerivedFault:
    """An expression that does not compile, or fails on a device."""

    attribute: str
    cause: str
    is_of_device: bool

    def text(self, device: str) -> str:
        """Return upstream's text for the device where the search ends."""
        if not self.is_of_device:
            return f"compile derived attribute {self.attribute} failed: {self.cause}"
        return f"evaluate derived attribute {self.attribute} on device {device} failed: {self.cause}"


@dataclass(frozen=True, slots=True)
class DerivedAttributeOf:
    """A derived attribute of a request; equal for equal attributes."""

    _name: str
    _expression: str
    _deriving: Deriving

    def of(self, kind: DeviceKind) -> DeviceAttribute | DerivedFault:
        """Return the attribute of such a device."""
        found = finish(self._evaluating(kind))
        if isinstance(found, str):
            return DerivedFault(self._name, found, is_of_device=not isinstance(found, CompileProblem))
        return found

    def evaluating(self, kinds: Iterable[DeviceKind]) -> Work[None]:
        """Evaluate these kinds in steps, so that `of` is fast for them."""
        for kind in kinds:
            if kind.memo.get((self._deriving, self._expression)) is None:
                yield from self._evaluating(kind)
                yield

    def _evaluating(self, kind: DeviceKind) -> Work[DeviceAttribute | str]:
        key = self._deriving, self._expression
        known: DeviceAttribute | str | None = kind.memo.get(key)
        if known is None:
            known = kind.memo[key] = yield from self._deriving(self._expression, kind)
        return known


class AllocationConstraint:
    """One entry of `constraints[]`, for devices of the requests that it names."""

    __slots__ = ("_lists", "_requests", "attribute", "derived", "is_match")

    def __init__(self, constraint: DeviceConstraint, *, lists: bool, derived: Mapping[str, DerivedAttributeOf]) -> None:
        """Take the one attribute of the constraint; `lists` is whether list attributes are understood."""
        self.is_match = constraint.match_attribute is not None
        self.attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._requests = frozenset(constraint.requests)
        self._lists = lists
        self.derived = derived
        """Full name of a request → how it computes the attribute; other requests read it from the device."""

    def concerns(self, request: str, full_name: str) -> bool:
        """Return whether the constraint is for devices of this request; `full_name` is `R/S` for an alternative."""
        return not self._requests or request in self._requests or full_name in self._requests

    def add(self, known: Known, kind: DeviceKind, full_name: str) -> Known | None:
        """Return the values seen with one more device of this kind; None if the device violates the constraint."""
        values = self.values(kind, full_name)
        if values is None or (not values and (known or self._lists)):
            return None
        if not known:
            return (values,)
        if self.is_match:
            common = known[0] & values
            return (common,) if common else None
        return None if any(values & seen for seen in known) else (*known, values)

    def fault(self, kind: DeviceKind, full_name: str) -> DerivedFault | None:
        """Return why the request cannot compute the attribute of such a device."""
        derived = self.derived.get(full_name)
        found = derived.of(kind) if derived is not None else None
        return found if isinstance(found, DerivedFault) else None

    def values(self, kind: DeviceKind, full_name: str) -> Values | None:
        """Return the attribute's values for this request; None if the device lacks the attribute."""
        derived = self.derived.get(full_name)
        if derived is not None:
            found = derived.of(kind)
            return None if isinstance(found, DerivedFault) else _values(found, lists=self._lists)
        return attribute_values(kind.driver, kind.device, self.attribute, lists=self._lists)


def attribute_values(driver: str, device: Device, name: str, *, lists: bool) -> Values | None:
    """Return the attribute's values; a name without a domain belongs to the device's own driver."""
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


# -- compatibility groups ------------------------------------------------------------------------------------------------


class Members(NamedTuple):
    """The devices that draw from one counter set: whether none of them has groups, and the groups of all of them."""

    have_none: bool
    groups: frozenset[str]

    def admits(self, groups: Iterable[str]) -> bool:
        """Return whether a device with these groups may be added."""
        wanted = frozenset(groups)
        return not self.have_none and bool(self.groups & wanted) if wanted else self.have_none


MembersOf: TypeAlias = Mapping[str, Members]
"""Counter set → the devices that draw from it; a set without such devices is left out."""
NO_MEMBERS: Final[MembersOf] = {}


def admits(members: MembersOf, device: Device) -> bool:
    """Return whether the device may be allocated next to the members of its counter sets."""
    return all(
        each.counter_set not in members or members[each.counter_set].admits(each.compatibility_groups)
        for each in device.consumes_counters
    )


def with_device(members: MembersOf, device: Device) -> MembersOf:
    """Return the members with one more device."""
    out = dict(members)
    for each in device.consumes_counters:
        groups, before = frozenset(each.compatibility_groups), out.get(each.counter_set)
        if before is None:
            out[each.counter_set] = Members(not groups, groups)
        elif groups and not before.have_none:
            out[each.counter_set] = Members(have_none=False, groups=before.groups & groups)
    return out
