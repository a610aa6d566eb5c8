"""Loops: what the macros over lists and maps become, and `cel.bind`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from scheduler.cel.attributes import UNSET, grown
from scheduler.cel.errors import EvalError
from scheduler.cel.logic import NO_SUCH_OVERLOAD
from scheduler.cel.running import Code, Failed, Run, go_type
from scheduler.cel.values import Value, type_name, unkey


class Loop(NamedTuple):
    """What is looped over, and the slots of the loop's variables."""

    over: Code
    first: int
    second: int | None = None


class Parts(NamedTuple):
    """What a loop does with them, and the slot of what it makes."""

    accu: int
    condition: Code
    step: Code
    result: Code


def fold(loop: Loop, parts: Parts) -> Code:
    """cel-go's loop: an error in a step is kept, and may be forgotten by a later one."""
    accu, condition, step, result = parts
    over, turns = loop.over, _turns(loop)

    def evaluate(run: Run) -> Value:
        slots = run.slots
        items = over(run)
        slots[accu] = UNSET
        for _turn in turns(run, items):
            if not _goes_on(condition, run):
                break
            try:
                slots[accu] = step(run)
            except EvalError as error:
                slots[accu] = Failed(str(error))
            run.looped()
        return grown(result(run))

    return evaluate


def quantifier(loop: Loop, test: Code, *, decisive: bool) -> Code:
    """`all` if one false decides, `exists` if one true does: as `fold`, without the detours and with the same costs."""
    over, turns = loop.over, _turns(loop)
    condition_cost = 3 if decisive else 2

    def evaluate(run: Run) -> Value:
        error: str | None = None
        is_decided = False
        for _turn in turns(run, over(run)):
            run.cost += condition_cost
            if is_decided:
                break
            run.cost += 1
            try:
                value = test(run)
            except EvalError as raised:
                error = error or str(raised)
            else:
                is_decided = value is decisive
                if not is_decided and value is not (not decisive):
                    error = error or NO_SUCH_OVERLOAD
            run.looped()
        run.cost += 1
        if error is not None and not is_decided:
            raise EvalError(error)
        return decisive if is_decided else not decisive

    return evaluate


def binding(slot: int, result: Code) -> Code:
    """`cel.bind`: the value is computed when it is first looked at, if ever."""

    def evaluate(run: Run) -> Value:
        run.slots[slot] = UNSET
        return result(run)

    return evaluate


def _goes_on(condition: Code, run: Run) -> bool:
    try:
        return condition(run) is not False
    except EvalError:
        return True


def _turns(loop: Loop) -> Callable[[Run, Value], Iterable[None]]:
    """Sets the loop's variables, item by item."""
    _, first, second = loop

    def one(run: Run, items: Value) -> Iterable[None]:
        slots = run.slots
        for slots[first] in items_of(items):
            yield

    if second is None:
        return one

    def two(run: Run, items: Value) -> Iterable[None]:
        slots = run.slots
        for slots[first], slots[second] in pairs_of(items):
            yield

    return two


def items_of(items: Value) -> Iterable[Value]:
    """What a loop of one variable goes over."""
    if not isinstance(items, list | tuple | Mapping) or hasattr(items, "cel_type"):
        raise EvalError(f"got '{go_type(type_name(items))}', expected iterable type")
    return map(unkey, items) if isinstance(items, Mapping) else items


def pairs_of(items: Value) -> Iterable[tuple[Value, Value]]:
    """What a loop of two variables goes over."""
    if isinstance(items, Mapping):
        return ((unkey(name), value) for name, value in items.items())
    if isinstance(items, list | tuple):
        return enumerate(items)
    raise EvalError(f"unsupported comprehension range type: {go_type(type_name(items))}")
