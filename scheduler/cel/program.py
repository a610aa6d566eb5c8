"""Source to something that can be evaluated many times.

A program may be shared. Nothing here waits or writes. Deep expressions are refused by the parser, as cel-go refuses
them; what it lets through is never too deep for Python's stack.

The closures of `plan` know every answer. What is evaluated often, or costs much, is also generated as Python source,
which is many times faster, but does not know every answer: it leaves some errors to the closures, and all where it need
not count costs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.cel.ast import Node
from scheduler.cel.checker import Checked, check
from scheduler.cel.fast.compiling import Fast, generate
from scheduler.cel.fast.support import Stopped, ticking
from scheduler.cel.footprint import footprint
from scheduler.cel.parser import parse
from scheduler.cel.plan import Plan, plan_all
from scheduler.cel.running import COST_LIMIT, EXCEEDED, Run
from scheduler.cel.tree import depth
from scheduler.cel.types import Env
from scheduler.cel.validators import validate
from scheduler.cel.values import CompileError, CostExceeded, EvalError, Value

_FRAMES_PER_LEVEL: Final = 6
_SHALLOW: Final = 40
"""Levels that fit whatever the stack already holds."""
_SEEN_OFTEN: Final = 8
"""Evaluations after which an expression is worth generating code for."""
_MUCH: Final = 2000
"""Cost at which closures stop, for generated code to take over."""
_PATIENCE: Final = 16
"""How often generated code may leave the answer to the closures, beyond how often it has one."""


_GENERATED_NODES: Final = 1000
"""The largest tree that code is generated for. Larger ones stay with closures: their code would take long to make."""
_SOON_GENERATED_NODES: Final = 200
"""The largest tree that code is generated for in some milliseconds."""
TOO_DEEP: Final = "ERROR: <input>:-1:0: max recursion depth exceeded"
"""Upstream's text for an expression that is nested too deeply."""

_UNLIMITED: Final = (COST_LIMIT, int)


class TooCostly(Exception):
    """The evaluation is no work for the event loop: `Program.evaluate` it elsewhere."""


class _Undecided(Exception):
    """Generated code does not know the answer."""


def _refuse(_cost: int) -> int:
    raise Stopped(TooCostly())


class Outcome(NamedTuple):
    """A value, and what it cost to compute it."""

    value: Value
    cost: int


@dataclass(frozen=True, slots=True)
class _Compiled:
    """What programs are made of."""

    checked: Checked
    env: Env
    plans: Mapping[Node, Plan]
    slots: int
    levels: int


class Program:
    """A compiled expression."""

    __slots__ = (
        "_code",
        "_compiled",
        "_evaluations",
        "_fast",
        "_levels",
        "_limit",
        "_lock",
        "_slots",
        "_trust",
        "is_costly",
        "result",
    )

    def __init__(self, compiled: _Compiled, *, limit: int) -> None:
        self._compiled = compiled if len(compiled.plans) <= _GENERATED_NODES else None
        self._lock = threading.Lock()
        """Held while generated code counts, which it does in one place. Another thread takes the closures."""
        self.is_costly = False
        """Whether an evaluation cost much: the next ones are no work for the event loop."""
        self._code = compiled.plans[compiled.checked.root].code
        self._slots = compiled.slots
        self._levels = compiled.levels
        self._limit = limit
        self._fast: Fast | None = None
        self._evaluations = 0
        self._trust = _PATIENCE
        self.result = compiled.checked.result
        """The type that the value will have; dyn if that is known only at run time."""

    @property
    def is_generated(self) -> bool:
        """Whether there is generated code, and it is in use."""
        return self._fast is not None

    @property
    def footprint(self) -> int:
        """Bytes that the program keeps alive. Generated code takes less than what it is made from, which then goes."""
        return footprint(self._code, self._compiled, self._fast)

    def evaluate(self, bindings: Mapping[str, Value], *, check: Callable[[], None] | None = None) -> Value:
        """The value. Raises EvalError, CostExceeded, or what `check` raises: it is called now and then in loops."""
        if self._fast is None and self._compiled is not None:
            self._evaluations += 1
            if self._evaluations > _SEEN_OFTEN:
                self._generate()
            elif self._limit > _MUCH:
                with contextlib.suppress(CostExceeded):
                    return self._run(bindings, check, limit=_MUCH).value
                self.is_costly = True
                self._generate()
        fast = self._fast
        if fast is not None:
            bound, tick = ticking(self._limit, check) if fast.counts else _UNLIMITED
            try:
                return self._by_generated(fast, bindings, bound, tick)
            except _Undecided:
                pass
        return self._run(bindings, check, limit=self._limit).value

    def evaluate_cheaply(self, bindings: Mapping[str, Value]) -> Value:
        """As `evaluate`, for the event loop: raises TooCostly where that would take more than some milliseconds."""
        if self.is_costly:
            raise TooCostly
        compiled = self._compiled
        if self._fast is None and compiled is not None:
            self._evaluations += 1
            if self._evaluations > _SEEN_OFTEN:
                if len(compiled.plans) > _SOON_GENERATED_NODES:
                    raise TooCostly
                self._generate()
        fast = self._fast
        try:
            if fast is not None:
                try:
                    return self._by_generated(fast, bindings, _MUCH, _refuse)
                except _Undecided:
                    pass
            return self._run(bindings, None, limit=min(_MUCH, self._limit)).value
        except (CostExceeded, TooCostly):
            self.is_costly = True
            raise TooCostly from None

    def _by_generated(self, fast: Fast, bindings: Mapping[str, Value], bound: int, tick: Callable[[int], int]) -> Value:
        """Raises _Undecided where the closures have to give the answer."""
        if fast.counts and not self._lock.acquire(blocking=False):
            raise _Undecided
        try:
            value, cost = fast.function(bindings, bound, tick)
        except CostExceeded:
            raise
        except Stopped as stopped:
            raise stopped.error from None
        except EvalError:
            if fast.tells:
                raise
            self._distrust()
            raise _Undecided from None
        except Exception:  # noqa: BLE001  whatever it was: the closures know better
            self._distrust()
            raise _Undecided from None
        finally:
            if fast.counts:
                self._lock.release()
        self._trust += 1
        if cost > self._limit:
            raise CostExceeded(EXCEEDED)
        return value

    def measure(self, bindings: Mapping[str, Value], *, check: Callable[[], None] | None = None) -> Outcome:
        """As `evaluate`, with the cost."""
        return self._run(bindings, check, limit=self._limit)

    def _generate(self) -> None:
        """Once, as what it takes is not kept."""
        compiled, self._compiled = self._compiled, None
        if compiled is not None:
            with _stack_for(compiled.levels):
                self._fast = generate(compiled.checked, compiled.env, compiled.plans, limit=self._limit)

    def _distrust(self) -> None:
        self._trust -= 1
        if self._trust <= 0:
            self._fast = None

    def _run(self, bindings: Mapping[str, Value], check: Callable[[], None] | None, *, limit: int) -> Outcome:
        run = Run(bindings, self._slots, limit=limit, check=check)
        if self._levels <= _SHALLOW:
            value = self._code(run)
        else:
            with _stack_for(self._levels):
                value = self._code(run)
        run.settle()
        return Outcome(value, run.cost)


def compile_expression(source: str, env: Env, *, cost_limit: int = COST_LIMIT) -> Program:
    """Raises CompileError with the text that follows `compilation failed: `, or NotInstantiable."""
    root = parse(source)
    levels = depth(root)
    try:
        with _stack_for(levels):
            checked = check(root, source, env)
            validate(checked)
            plans, slots = plan_all(checked, env)
    except RecursionError:
        raise CompileError(TOO_DEEP) from None
    return Program(_Compiled(checked, env, plans, slots, levels), limit=cost_limit)


class _Stack:
    """Python's limit of nested calls, raised while expressions that need more are at work, in whichever threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0

    @contextlib.contextmanager
    def of(self, levels: int) -> Iterator[None]:
        """Let Python nest calls deep enough for so many levels of the tree."""
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
