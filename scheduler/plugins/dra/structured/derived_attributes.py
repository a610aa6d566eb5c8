"""Attributes that a request computes for its constraints, by one expression each (docs/spec/changes-1.37-devices.md §4.2).

The value depends on the kind of device alone and is cached with the kind. An error is a result too. It is raised only when
a search adds such a device to a constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from scheduler.api.resource_v1 import DeviceAttribute
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.devices.selectors import CompileProblem
from scheduler.core.cooperative import Work, finish

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


class DerivedAttributeOf:
    """A derived attribute of one request."""

    __slots__ = ("_deriving", "_memo_key", "_name", "key")

    def __init__(self, name: str, expression: str, deriving: Deriving) -> None:
        self.key = name, expression
        """Equal for equal attributes."""
        self._name = name
        self._deriving = deriving
        self._memo_key = deriving, expression

    def of(self, kind: DeviceKind) -> DeviceAttribute | DerivedFault:
        """Return the attribute of such a device."""
        return self._named(finish(self._evaluating(kind)))

    def evaluating(self, kinds: Iterable[DeviceKind]) -> Work[None]:
        """Evaluate these kinds in steps, so that `of` is fast for them."""
        for kind in kinds:
            if kind.memo.get(self._memo_key) is None:
                yield from self._evaluating(kind)
                yield

    def _evaluating(self, kind: DeviceKind) -> Work[DeviceAttribute | str]:
        known: DeviceAttribute | str | None = kind.memo.get(self._memo_key)
        if known is None:
            known = kind.memo[self._memo_key] = yield from self._deriving(self.key[1], kind)
        return known

    def _named(self, found: DeviceAttribute | str) -> DeviceAttribute | DerivedFault:
        if isinstance(found, str):
            return DerivedFault(self._name, found, is_of_device=not isinstance(found, CompileProblem))
        return found
