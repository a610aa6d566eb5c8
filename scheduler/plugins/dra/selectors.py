"""Which devices a request may have at all: the selectors of its class, then its own (docs/spec/dra.md §4.6, §5).

The answer depends on the kind of device alone, so it is remembered per kind: a thousand pods that ask alike for devices
that are alike cost one evaluation. An error is an answer too, and is raised only by who comes to that very device.
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
"""Of expressions in all sets: a claim may hold 10 KiB in each of a thousand selectors."""
_ANSWERS_MAX: Final = 262_144
"""Of expressions, and as many of sets; there may be as many kinds as devices, and a thousand sets (`memos`)."""


@dataclass(frozen=True, slots=True)
class SelectorFault:
    """A selector could not be evaluated. `of_class` says whose it is, `at` which of them."""

    of_class: bool
    at: int
    text: str
    is_of_device: bool = True
    """The expression fails on this device; else it does not compile."""
    is_missing: bool = False
    """The expression reads an attribute that the device does not have."""


class Selectors:
    """Those of one class and one request, in order. Equal ones are one object."""

    __slots__ = ("_expressions", "_holding", "_known")

    def __init__(self, expressions: tuple[tuple[bool, int, str], ...], holding: Holding, known: Memo) -> None:
        self._expressions = expressions
        self._holding = holding
        self._known = known

    def of(self, kind: DeviceKind) -> bool | SelectorFault:
        """Whether all hold; the first that does not, or that fails, decides."""
        known: bool | SelectorFault | None = self._known.get(kind.number)
        if known is None:
            known = self._known[kind.number] = finish(self._evaluating(kind))
        return known

    def evaluating(self, kinds: Iterable[DeviceKind]) -> Work[None]:
        """So that `of` is quick for these: an expression may take long to compile, and for each kind to evaluate."""
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
    """All in use. `evaluated` is told of each answer, and whether it was remembered."""

    def __init__(self, holding: Holding, *, evaluated: Callable[[bool], None] | None = None) -> None:
        self._holding = holding
        self._evaluated = evaluated
        self._sets: dict[Hashable, Selectors] = {}
        self._characters = 0
        self._answers = Memo(Limit(_ANSWERS_MAX))
        self._limit = Limit(_ANSWERS_MAX)

    def of(self, expressions: tuple[tuple[bool, int, str], ...]) -> Selectors:
        """The one set of these (is of the class, number, expression)."""
        found = self._sets.get(expressions)
        if found is None:
            self._characters += sum(len(text) for _, _, text in expressions)
            if len(self._sets) >= _SETS_MAX or self._characters > _CHARACTERS_MAX:
                self._sets.clear()
                self._characters = 0
            found = self._sets[expressions] = Selectors(expressions, self._answering, Memo(self._limit))
        return found

    def _answering(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        """Sets share expressions, above all those of classes."""
        known: bool | str | None = self._answers.get((expression, kind.number))
        if self._evaluated is not None:
            self._evaluated(known is not None)
        if known is None:
            known = self._answers[expression, kind.number] = yield from self._holding(expression, kind)
        return known
