"""Loops: what the macros over lists and maps become, and `cel.bind`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from scheduler.cel.attributes import UNSET, Growing
from scheduler.cel.logic import NO_SUCH_OVERLOAD
from scheduler.cel.running import Code, Failed, Run, go_type
from scheduler.cel.values import EvalError, Value, type_name


@dataclass(frozen=True, slots=True)
class Fold:
    """The parts of a loop, and where its variables live."""

    over: Code
    condition: Code
    step: Code
    result: Code
    accu: int
    first: int
    second: int | None = None


def fold(parts: Fold) -> Code:
    """cel-go's loop: an error in a step is kept, and may be forgotten by a later one."""
    over, condition, step, result, accu = parts.over, parts.condition, parts.step, parts.result, parts.accu
    turns = _turns(parts)

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
                slots[accu] = Failed(error)
            run.looped()
        value = result(run)
        return list(value) if type(value) is Growing else value

    return evaluate


def quantifier(parts: Fold, test: Code, *, decisive: bool) -> Code:
    """`all` if one false decides, `exists` if one true does: as `fold`, without the detours and with the same costs."""
    over, turns = parts.over, _turns(parts)
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


def binding(init_slot: int, result: Code) -> Code:
    """`cel.bind`: the value is computed when it is first looked at, if ever."""

    def evaluate(run: Run) -> Value:
        run.slots[init_slot] = UNSET
        return result(run)

    return evaluate


def _goes_on(condition: Code, run: Run) -> bool:
    try:
        return condition(run) is not False
    except EvalError:
        return True


def _turns(parts: Fold) -> Callable[[Run, Value], Iterable[None]]:
    """Sets the loop's variables, item by item."""
    first, second = parts.first, parts.second

    def one(run: Run, items: Value) -> Iterable[None]:
        if not isinstance(items, list | tuple | Mapping) or hasattr(items, "cel_type"):
            raise EvalError(f"got '{go_type(type_name(items))}', expected iterable type")
        slots = run.slots
        for slots[first] in items:
            yield

    def two(run: Run, items: Value) -> Iterable[None]:
        slots = run.slots
        for slots[first], slots[second] in _pairs(items):
            yield

    return one if second is None else two


def _pairs(items: Value) -> Iterable[tuple[Value, Value]]:
    if isinstance(items, Mapping):
        return items.items()
    if isinstance(items, list | tuple):
        return enumerate(items)
    raise EvalError(f"unsupported comprehension range type: {go_type(type_name(items))}")

