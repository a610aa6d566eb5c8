"""Which devices a request may have at all: the selectors of its class, then its own (docs/spec/dra.md §4.6, §5).

The answer depends on the kind of device alone, so it is remembered per kind: a thousand pods that ask alike for devices
that are alike cost one evaluation. An error is an answer too, and is raised only by who comes to that very device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.cache.devicekinds import DeviceKind

Holds: TypeAlias = Callable[[str, DeviceKind], "bool | str"]
"""(expression, kind) → whether it holds, or `CEL compile error: …` or `CEL runtime error: …`."""
_SETS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Fault:
    """A selector could not be evaluated. `of_class` says whose it is, `at` which of them."""

    of_class: bool
    at: int
    text: str


class Selectors:
    """Those of one class and one request, in order. Equal ones are one object."""

    __slots__ = ("_expressions", "_holds", "_known")

    def __init__(self, expressions: tuple[tuple[bool, int, str], ...], holds: Holds) -> None:
        self._expressions = expressions
        self._holds = holds
        self._known: dict[DeviceKind, bool | Fault] = {}

    def of(self, kind: DeviceKind) -> bool | Fault:
        """Whether all hold; the first that does not, or that fails, decides."""
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._evaluate(kind)
        return known

    def _evaluate(self, kind: DeviceKind) -> bool | Fault:
        for of_class, at, expression in self._expressions:
            holds = kind.verdicts.get(expression)
            if holds is None:
                holds = kind.verdicts[expression] = self._holds(expression, kind)
            if isinstance(holds, str):
                return Fault(of_class, at, holds)
            if not holds:
                return False
        return True


class SelectorSets:
    """All in use. One per process: kinds of devices are, too."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._sets: dict[Hashable, Selectors] = {}

    def of(self, expressions: tuple[tuple[bool, int, str], ...]) -> Selectors:
        """The one set of these (is of the class, number, expression)."""
        found = self._sets.get(expressions)
        if found is None:
            if len(self._sets) >= _SETS_MAX:
                self._sets.clear()
            found = self._sets[expressions] = Selectors(expressions, self._holds)
        return found
