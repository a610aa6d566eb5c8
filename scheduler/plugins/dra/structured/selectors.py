"""Devices that a request can have: the selectors of its class, then its own (docs/spec/dra.md §4.6, §5).

The result depends on the kind of device alone and is cached per kind: a thousand pods with equal requests for
devices of one kind cost one evaluation. An error is a result too. It is raised only when a search reaches a device
of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.devices.selectors import CompileProblem, MissingKey
from scheduler.core.cooperative import Work, finish

Holding: TypeAlias = Callable[[str, DeviceKind], Work["bool | str"]]
"""(expression, kind) → whether it holds, or `CEL compile error: …` or `CEL runtime error: …`."""
_SETS_MAX: Final = 4096
_CHARACTERS_MAX: Final = 2**24
"""Limit of the characters in the expressions of all sets: a claim may have a thousand selectors of 10 KiB."""


@dataclass(frozen=True, slots=True)
class SelectorFault:
    """A selector that cannot be evaluated. `of_class`: it is the class's; `at` is its index."""

    of_class: bool
    at: int
    text: str
    is_of_device: bool = True
    """The expression fails on this device; otherwise it does not compile."""
    is_missing: bool = False
    """The expression reads an attribute that the device does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class Selectors:
    """The selectors of one class and one request, in order. Equal ones are one object. Results are kept by the kind."""

    _expressions: tuple[tuple[bool, int, str], ...]
    _holding: Holding

    def of(self, kind: DeviceKind) -> bool | SelectorFault:
        """Return whether all selectors hold; the first one that does not hold, or fails, decides."""
        known: bool | SelectorFault | None = kind.memo.get(self)
        if known is None:
            known = kind.memo[self] = finish(self._evaluating(kind))
        return known

    def evaluating(self, kinds: Iterable[DeviceKind]) -> Work[None]:
        """Evaluate these kinds in steps, so that `of` is fast for them: compiling and evaluating can take long."""
        for kind in kinds:
            if kind.memo.get(self) is None:
                kind.memo[self] = yield from self._evaluating(kind)
                yield

    def _evaluating(self, kind: DeviceKind) -> Work[bool | SelectorFault]:
        for of_class, at, expression in self._expressions:
            holds = yield from self._holding(expression, kind)
            if isinstance(holds, str):
                return SelectorFault(
                    of_class,
                    at,
                    holds,
                    is_of_device=not isinstance(holds, CompileProblem),
                    is_missing=isinstance(holds, MissingKey),
                )
            if not holds:
                return False
        return True


class SelectorSets:
    """All `Selectors` in use. `evaluated` is called per result with whether it was cached."""

    def __init__(self, holding: Holding, *, evaluated: Callable[[bool], None] | None = None) -> None:
        self._holding = holding
        self._evaluated = evaluated
        self._sets: dict[Hashable, Selectors] = {}
        self._characters = 0

    def of(self, expressions: tuple[tuple[bool, int, str], ...]) -> Selectors:
        """Return the one object for these expressions (is of the class, index, expression)."""
        found = self._sets.get(expressions)
        if found is None:
            self._characters += sum(len(text) for _, _, text in expressions)
            if len(self._sets) >= _SETS_MAX or self._characters > _CHARACTERS_MAX:
                self._sets.clear()
                self._characters = 0
            found = self._sets[expressions] = Selectors(expressions, self._answering)
        return found

    def _answering(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        """Evaluate an expression for a kind, or return the cached result.

        Sets share expressions, mostly those of classes.
        """
        known: bool | str | None = kind.memo.get((self._holding, expression))
        if self._evaluated is not None:
            self._evaluated(known is not None)
        if known is None:
            known = kind.memo[self._holding, expression] = yield from self._holding(expression, kind)
        return known
