"""Devices that a request can have: the selectors of its class, then its own (docs/spec/dra.md §4.6, §5).

The result depends on the kind of device alone and is cached per kind: a thousand pods with equal requests for
devices of one kind cost one evaluation. An error is a result too. It is raised only when a search reaches a device
of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.cache.devices.memos import Limit, Memo
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.devices.selectors import CompileProblem, MissingKey
from scheduler.core.cooperative import Work, finish

Holding: TypeAlias = Callable[[str, DeviceKind], Work["bool | str"]]
"""(expression, kind) → whether it holds, or `CEL compile error: …` or `CEL runtime error: …`."""
_SETS_MAX: Final = 4096
_CHARACTERS_MAX: Final = 2**24
"""Limit of the characters in the expressions of all sets: a claim may have a thousand selectors of 10 KiB."""
_ANSWERS_MAX: Final = 262_144
"""Limit of cached results of expressions, and of sets: kinds can be as many as devices (`memos`)."""


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


class Selectors:
    """The selectors of one class and one request, in order. Equal ones are one object."""

    __slots__ = ("_expressions", "_holding", "_known")

    def __init__(self, expressions: tuple[tuple[bool, int, str], ...], holding: Holding, known: Memo) -> None:
        self._expressions = expressions
        self._holding = holding
        self._known = known

    def of(self, kind: DeviceKind) -> bool | SelectorFault:
        """Return whether all selectors hold; the first one that does not hold, or fails, decides."""
        known: bool | SelectorFault | None = self._known.get(kind.number)
        if known is None:
            known = self._known[kind.number] = finish(self._evaluating(kind))
        return known

    def evaluating(self, kinds: Iterable[DeviceKind]) -> Work[None]:
        """Evaluate these kinds in steps, so that `of` is fast for them: compiling and evaluating can take long."""
        for kind in kinds:
            if self._known.get(kind.number) is None:
                self._known[kind.number] = yield from self._evaluating(kind)
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
        self._answers = Memo(Limit(_ANSWERS_MAX))
        self._limit = Limit(_ANSWERS_MAX)

    def of(self, expressions: tuple[tuple[bool, int, str], ...]) -> Selectors:
        """Return the one object for these expressions (is of the class, index, expression)."""
        found = self._sets.get(expressions)
        if found is None:
            self._characters += sum(len(text) for _, _, text in expressions)
            if len(self._sets) >= _SETS_MAX or self._characters > _CHARACTERS_MAX:
                self._sets.clear()
                self._characters = 0
            found = self._sets[expressions] = Selectors(expressions, self._answering, Memo(self._limit))
        return found

    def _answering(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        """Evaluate an expression for a kind, or return the cached result.

        Sets share expressions, mostly those of classes.
        """
        known: bool | str | None = self._answers.get((expression, kind.number))
        if self._evaluated is not None:
            self._evaluated(known is not None)
        if known is None:
            known = self._answers[expression, kind.number] = yield from self._holding(expression, kind)
        return known
