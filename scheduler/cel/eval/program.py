"""Compilation of a source to a program that can be evaluated many times, and the memory of a program.

A program may be shared between threads. Nothing here waits or writes. The parser rejects expressions that are nested
too deeply, as cel-go does. Other expressions are never too deep for Python's stack.

The memory of a program is measured by following its references. Objects that all expressions share do not count:
overloads, invocations, the environment, modules, classes and the code of this package.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, TypeVar

from scheduler.cel.check.checker import Checked, check
from scheduler.cel.check.types import Env, ObjectType, Overload, Type
from scheduler.cel.check.validators import validate
from scheduler.cel.errors import CompileError, CostExceeded
from scheduler.cel.eval.calls import Invocation
from scheduler.cel.eval.plan import plan
from scheduler.cel.eval.running import COST_LIMIT, DEADLINE_NANOS, Code, Run, current
from scheduler.cel.syntax.ast import depth
from scheduler.cel.syntax.parser import parse
from scheduler.cel.values import Value

Result = TypeVar("Result")

_COLLECTED: Final = 16
"""Bytes that the garbage collector adds to a container."""
_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
_SHARED: Final = (Env, Invocation, ModuleType, ObjectType, Overload, Type, type, BuiltinFunctionType)


def footprint(*roots: Any) -> int:
    """Return the bytes of all objects that are reachable from these. It takes some hundred nanoseconds per object."""
    seen: set[int] = set()
    pending = list(roots)
    total = 0
    while pending:
        each = pending.pop()
        if id(each) in seen or isinstance(each, _SHARED):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if type(each) not in _PLAIN:
            total += _COLLECTED
            pending.extend(_held(each))
    return total


def _held(each: Any) -> Iterator[Any]:
    match each:
        case FunctionType():
            yield from each.__closure__ or ()
            yield from each.__defaults__ or ()
        case CellType():
            try:
                yield each.cell_contents
            except ValueError:  # empty
                return
        case MethodType():
            yield each.__self__
        case list() | tuple() | set() | frozenset():
            yield from each
        case Mapping():
            yield from each.keys()
            yield from each.values()
        case _:
            yield from vars(each).values() if hasattr(each, "__dict__") else ()
            for class_ in type(each).__mro__:
                slots = getattr(class_, "__slots__", ())
                yield from (getattr(each, name) for name in slots if hasattr(each, name))


_FRAMES_PER_LEVEL: Final = 6
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


class EvaluationResult(NamedTuple):
    """A value and the cost of its evaluation."""

    value: Value
    cost: int


@dataclass(slots=True, eq=False)
class Program:
    """A compiled expression."""

    _code: Code
    result: Type
    """The type of the value; dyn if it is known only at run time."""
    _slots: int
    _levels: int
    _limit: int
    is_costly: bool = False
    """Whether an evaluation was too costly for the event loop, so that later ones are not started there."""

    @property
    def footprint(self) -> int:
        """The bytes that the program keeps alive."""
        return footprint(self._code)

    def evaluate(self, bindings: Mapping[str, Value]) -> Value:
        """Return the value; raise EvalError, or CostExceeded above the cost limit or 50 ms of processor time."""
        return self._run(bindings, self._limit, DEADLINE_NANOS).value

    def evaluate_cheaply(self, bindings: Mapping[str, Value]) -> Value:
        """Return the value, on the event loop; raise TooCostly instead of taking more than a few milliseconds."""
        if self.is_costly:
            raise TooCostly
        try:
            return self._run(bindings, min(_CHEAP, self._limit), _CHEAP_NANOS).value
        except CostExceeded:
            self.is_costly = True
            raise TooCostly from None

    def measure(self, bindings: Mapping[str, Value]) -> EvaluationResult:
        """Return the value of `evaluate` and its cost."""
        return self._run(bindings, self._limit, DEADLINE_NANOS)

    def _run(self, bindings: Mapping[str, Value], limit: int, nanos: int) -> EvaluationResult:
        run = current.run = Run(bindings, self._slots, limit=limit, nanos=nanos)
        try:
            if self._levels <= _SHALLOW:
                value = self._code(run)
            else:
                with _stack_for(self._levels):
                    value = self._code(run)
        finally:
            current.run = None
        run.afford(0)  # the costs outside of loops are not checked before
        return EvaluationResult(value, run.cost)


def compile_expression(source: str, env: Env, *, cost_limit: int = COST_LIMIT) -> Program:
    """Compile an expression; raise CompileError with the text after `compilation failed: `, or NotInstantiable."""

    def program(checked: Checked, levels: int) -> Program:
        code, slots = plan(checked, env)
        return Program(code, checked.result, slots, levels, cost_limit)

    return analyzed(source, env, program)


def analyzed(source: str, env: Env, analysis: Callable[[Checked, int], Result]) -> Result:
    """Return what a recursive analysis makes of the checked tree and its number of levels; raise CompileError."""
    root = parse(source)
    levels = depth(root)
    try:
        with _stack_for(levels):
            checked = check(root, source, env)
            validate(checked)
            return analysis(checked, levels)
    except RecursionError:
        raise CompileError(TOO_DEEP) from None


class _Stack:
    """Python's recursion limit, raised in all threads while expressions that need more are compiled or evaluated."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0

    @contextlib.contextmanager
    def of(self, levels: int) -> Iterator[None]:
        """Allow enough nested calls for this number of levels of the tree."""
        with self._lock:
            limit = sys.getrecursionlimit()
            if not self._users:
                self._before = limit
            self._users += 1
            sys.setrecursionlimit(max(limit, self._before + levels * _FRAMES_PER_LEVEL))
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    sys.setrecursionlimit(self._before)


_stack_for = _Stack().of
