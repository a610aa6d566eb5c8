"""What is known so far about the types of an expression, and which overloads that leaves."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from scheduler.cel.types import DYN, Overload, Type
from scheduler.cel.unify import assign, is_closed, is_dyn, substitute, variable


class Inference:
    """Type variables, and what they turned out to be."""

    __slots__ = ("_fresh", "_known_calls", "bound")

    def __init__(self) -> None:
        self.bound: dict[str, Type] = {}
        self._fresh = 0
        self._known_calls: dict[Hashable, tuple[tuple[Overload, ...], Type | None]] = {}

    def assign(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Whether all of `given` fit `wanted`; if so, that is how it is from now on."""
        return assign(self.bound, given, wanted)

    def new_variable(self) -> Type:
        """A type that is not known yet."""
        self._fresh += 1
        return variable(self._fresh - 1)

    def known(self, type_: Type, *, to_dyn: bool = False) -> Type:
        """The type, with what is known by now."""
        return substitute(self.bound, type_, to_dyn=to_dyn)

    def fitting(
        self, overloads: tuple[Overload, ...], given: Sequence[Type], *, is_member: bool
    ) -> tuple[tuple[Overload, ...], Type | None]:
        """All overloads that these arguments may mean, and what that gives: dyn if they do not agree.

        Calls with equal arguments without type variables share one answer: a source may hold thousands of them.
        """
        asked = (overloads, is_member, *given)
        known = self._known_calls.get(asked)
        if known is not None:
            return known
        found = self._fitting(overloads, given, is_member=is_member)
        if (found[1] is None or is_closed(found[1])) and all(map(is_closed, given)):
            self._known_calls[asked] = found
        return found

    def _fitting(
        self, overloads: Sequence[Overload], given: Sequence[Type], *, is_member: bool
    ) -> tuple[tuple[Overload, ...], Type | None]:
        fitting: list[Overload] = []
        result: Type | None = None
        for overload in overloads:
            if overload.member != is_member:
                continue
            wanted, gives = self._instance(overload)
            if not self.assign(given, wanted):
                continue
            fitting.append(overload)
            this = self.known(gives)
            if result is None:
                result = this
            elif not is_dyn(result) and this != result:
                result = DYN
        return tuple(fitting), result

    def _instance(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """Its parameters and result, with type variables of their own."""
        fresh: dict[str, Type] = {}
        for each in (overload.result, *overload.params):
            self._freshen(each, fresh)
        if not fresh:
            return overload.params, overload.result
        return tuple(substitute(fresh, each) for each in overload.params), substitute(fresh, overload.result)

    def _freshen(self, type_: Type, fresh: dict[str, Type]) -> None:
        if type_.is_parameter and type_.name not in fresh:
            fresh[type_.name] = self.new_variable()
        for each in type_.params:
            self._freshen(each, fresh)
