"""Compilation of a source to a program that can be evaluated many times.

A program may be shared between threads. Nothing here waits or writes. The parser rejects expressions that are nested
too deeply, as cel-go does. Other expressions are never too deep for Python's stack.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.cel.check.checker import check
from scheduler.cel.check.types import Env, Type
from scheduler.cel.check.validators import validate
from scheduler.cel.errors import CompileError, CostExceeded
from scheduler.cel.eval.plan import plan
from scheduler.cel.eval.running import COST_LIMIT, DEADLINE_NANOS, Code, Run, current
from scheduler.cel.syntax.ast import depth, stack_for
from scheduler.cel.syntax.parser import parse
from scheduler.cel.values import Value

_BYTES_PER_NODE: Final = 600
"""At most this much memory belongs to a node of the tree: its closure, its cells and its constants, but for texts."""
_SHALLOW: Final = 40
"""Levels that fit for any current depth of the stack."""
_CHEAP: Final = 2000
"""The cost limit of an evaluation on the event loop."""
_CHEAP_NANOS: Final = 5_000_000
"""The limit of processor time of an evaluation on the event loop."""
TOO_DEEP: Final = "ERROR: <input>:-1:0: max recursion depth exceeded"
"""Upstream's text for an expression that is nested too deeply."""


class TooCostly(Exception):
    """The evaluation takes too long for the event loop: call `Program.evaluate` in another thread."""


@dataclass(slots=True, eq=False)
class Program:
    """A compiled expression."""

    _code: Code
    result: Type
    """The type of the value; dyn if it is known only at run time."""
    _slots: int
    _levels: int
    _limit: int
    size_bytes: int
    """An upper bound of the memory that the program keeps alive, in bytes."""
    is_costly: bool = False
    """Whether an evaluation was too costly for the event loop, so that later ones are not started there."""

    def evaluate(self, bindings: Mapping[str, Value]) -> Value:
        """Return the value; raise EvalError, or CostExceeded above the cost limit or 50 ms of processor time."""
        return self._run(bindings, self._limit, DEADLINE_NANOS)

    def evaluate_cheaply(self, bindings: Mapping[str, Value]) -> Value:
        """Return the value, on the event loop; raise TooCostly instead of taking more than a few milliseconds."""
        if self.is_costly:
            raise TooCostly
        try:
            return self._run(bindings, min(_CHEAP, self._limit), _CHEAP_NANOS)
        except CostExceeded:
            self.is_costly = True
            raise TooCostly from None

    def _run(self, bindings: Mapping[str, Value], limit: int, nanos: int) -> Value:
        run = current.run = Run(bindings, self._slots, limit=limit, nanos=nanos)
        try:
            if self._levels <= _SHALLOW:
                value = self._code(run)
            else:
                with stack_for(self._levels):
                    value = self._code(run)
        finally:
            current.run = None
        run.afford(0)  # steps outside of loops are not checked before
        return value


def compile_expression(source: str, env: Env, *, cost_limit: int = COST_LIMIT) -> Program:
    """Compile an expression; raise CompileError with the text after `compilation failed: `, or NotInstantiable."""
    root = parse(source)
    levels = depth(root)
    try:
        with stack_for(levels):
            checked = check(root, source, env)
            validate(checked)
            code, slots = plan(checked, env)
    except RecursionError:
        raise CompileError(TOO_DEEP) from None
    size_bytes = _BYTES_PER_NODE * len(checked.types) + sys.getsizeof(source)
    return Program(code, checked.result, slots, levels, cost_limit, size_bytes)
