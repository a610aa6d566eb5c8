"""What is known so far about the types of an expression, and which overloads that leaves."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.cel.types import DYN, Overload, Type
from scheduler.cel.unify import Bindings, assign, is_dyn, substitute, variable


class Inference:
    """Type variables, and what they turned out to be."""

    __slots__ = ("_fresh", "bound")

    def __init__(self) -> None:
        self.bound: Bindings = {}
        self._fresh = 0

    def assign(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Whether all of `given` fit `wanted`; if so, that is how it is from now on."""
        bound = assign(self.bound, given, wanted)
        if bound is None:
            return False
        self.bound = bound
        return True

    def new_variable(self) -> Type:
        """A type that is not known yet."""
        self._fresh += 1
        return variable(self._fresh - 1)

    def known(self, type_: Type, *, to_dyn: bool = False) -> Type:
        """The type, with what is known by now."""
        return substitute(self.bound, type_, to_dyn=to_dyn)

    def fitting(
        self, overloads: Sequence[Overload], given: Sequence[Type], *, is_member: bool
    ) -> tuple[list[Overload], Type | None]:
        """All overloads that these arguments may mean, and what that gives: dyn if they do not agree."""
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
        return fitting, result

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
