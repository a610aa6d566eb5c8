"""Source to something that can be evaluated many times.

A program is immutable and may be shared. Nothing here waits or writes. Deep expressions are refused by the parser, as
cel-go refuses them; what it lets through is never too deep for Python's stack.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from scheduler.cel.checker import check
from scheduler.cel.parser import parse
from scheduler.cel.plan import plan
from scheduler.cel.running import COST_LIMIT, Code, Run
from scheduler.cel.tree import depth
from scheduler.cel.types import Env, Type
from scheduler.cel.validators import validate
from scheduler.cel.values import Value

_FRAMES_PER_LEVEL: Final = 6
_SHALLOW: Final = 40
"""Levels that fit whatever the stack already holds."""


class Outcome(NamedTuple):
    """A value, and what it cost to compute it."""

    value: Value
    cost: int


class Program:
    """A compiled expression."""

    __slots__ = ("_code", "_levels", "_limit", "_slots", "result")

    def __init__(self, code: Code, result: Type, *, slots: int, levels: int, limit: int) -> None:
        self._code = code
        self._slots = slots
        self._levels = levels
        self._limit = limit
        self.result = result
        """The type that the value will have; dyn if that is known only at run time."""

    def evaluate(self, bindings: Mapping[str, Value], *, check: Callable[[], None] | None = None) -> Value:
        """The value. Raises EvalError, CostExceeded, or what `check` raises: it is called now and then in loops."""
        return self._run(bindings, check)[0]

    def measure(self, bindings: Mapping[str, Value], *, check: Callable[[], None] | None = None) -> Outcome:
        """As `evaluate`, with the cost."""
        value, run = self._run(bindings, check)
        return Outcome(value, run.cost)

    def _run(self, bindings: Mapping[str, Value], check: Callable[[], None] | None) -> tuple[Value, Run]:
        run = Run(bindings, self._slots, limit=self._limit, check=check)
        if self._levels <= _SHALLOW:
            value = self._code(run)
        else:
            with _stack_for(self._levels):
                value = self._code(run)
        run.settle()
        return value, run


def compile_expression(source: str, env: Env, *, cost_limit: int = COST_LIMIT) -> Program:
    """Raises CompileError with the text that follows `compilation failed: `, or NotInstantiable."""
    root = parse(source)
    levels = depth(root)
    with _stack_for(levels):
        checked = check(root, source, env)
        validate(checked)
        code, slots = plan(checked, env)
    return Program(code, checked.result, slots=slots, levels=levels, limit=cost_limit)


@contextlib.contextmanager
def _stack_for(levels: int) -> Iterator[None]:
    """Lets Python nest calls deep enough for so many levels of the tree."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + levels * _FRAMES_PER_LEVEL)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
