"""Operators, loops and literals as closures.

The operators `&&`, `||`, `?:`, `==` and `orValue` decide which of their operands count. `false && error` is false in
both orders, and `true || error` is true. All other operators pass an error on.

Each step costs one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from scheduler.cel.errors import EvalError
from scheduler.cel.eval.attributes import UNSET, grown
from scheduler.cel.eval.running import Code, Failed, Run, go_type
from scheduler.cel.go_format import scalar
from scheduler.cel.values import (
    Optional,
    Value,
    equal,
    key,
    same,
    type_name,
    unkey,
)

NO_SUCH_OVERLOAD: Final = "no such overload"


def junction(terms: tuple[Code, ...], *, decisive: bool) -> Code:
    """Return the code of `&&` (False is decisive) or `||` (True is decisive)."""

    def evaluate(run: Run) -> Value:
        error: EvalError | None = None
        for term in terms:
            try:
                value = term(run)
            except EvalError as raised:
                error = error or raised
                continue
            if value is decisive:
                return decisive
            if value is not (not decisive):
                error = error or EvalError(NO_SUCH_OVERLOAD)
        if error is not None:
            raise error
        return not decisive

    return evaluate


def conditional(condition: Code, truthy: Code, falsy: Code) -> Code:
    """Return the code of `condition ? truthy : falsy`."""

    def evaluate(run: Run) -> Value:
        chosen = condition(run)
        if chosen is True:
            return truthy(run)
        if chosen is False:
            return falsy(run)
        raise EvalError(NO_SUCH_OVERLOAD)

    return evaluate


def equality(left: Code, right: Code) -> Code:
    """Return the code of `left == right`."""

    def evaluate(run: Run) -> Value:
        run.cost += 1
        return equal(left(run), right(run))

    return evaluate


def inequality(left: Code, right: Code) -> Code:
    """Return the code of `left != right`, which is also true for values that cannot be compared."""

    def evaluate(run: Run) -> Value:
        run.cost += 1
        return not same(left(run), right(run))

    return evaluate


def not_strictly_false(argument: Code) -> Code:
    """Return the code of a test that is false only for false, so that `all` and `exists` continue after an error."""

    def evaluate(run: Run) -> Value:
        run.cost += 1
        try:
            return argument(run) is not False
        except EvalError:
            return True

    return evaluate


def negation(argument: Code) -> Code:
    """Return the code of `!argument`."""

    def evaluate(run: Run) -> Value:
        run.cost += 1
        value = argument(run)
        if value is True or value is False:
            return not value
        raise EvalError(NO_SUCH_OVERLOAD)

    return evaluate


def first_present(left: Code, right: Code, *, unwraps: bool) -> Code:
    """Return the code of `left.or(right)`, or of `left.orValue(right)` with `unwraps`.

    `right` is evaluated only if needed.
    """

    def evaluate(run: Run) -> Value:
        value = left(run)
        if not isinstance(value, Optional):
            return value
        if not value.present:
            return right(run)
        return value.value if unwraps else value

    return evaluate


class Loop(NamedTuple):
    """The range of a loop, and the slots of its variables."""

    over: Code
    first: int
    second: int | None = None


class LoopParts(NamedTuple):
    """The code of a loop's parts, and the slot of its accumulator."""

    accu: int
    condition: Code
    step: Code
    result: Code


def fold(loop: Loop, parts: LoopParts) -> Code:
    """Return the code of cel-go's loop: an error in a step is stored, and a later step may replace it."""
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


_STEPS_PER_TURN: Final = 3
"""The condition of the loop, its test, and the new value of its accumulator."""


def quantifier(loop: Loop, test: Code, *, decisive: bool) -> Code:
    """Return the code of `all` (False is decisive) or `exists` (True is decisive).

    It is `fold` without the detours.
    """
    over, turns = loop.over, _turns(loop)

    def evaluate(run: Run) -> Value:
        error: str | None = None
        is_decided = False
        for _turn in turns(run, over(run)):
            if is_decided:
                break
            run.cost += _STEPS_PER_TURN
            try:
                value = test(run)
            except EvalError as raised:
                error = error or str(raised)
            else:
                is_decided = value is decisive
                if not is_decided and value is not (not decisive):
                    error = error or NO_SUCH_OVERLOAD
            run.looped()
        if error is not None and not is_decided:
            raise EvalError(error)
        return decisive if is_decided else not decisive

    return evaluate


def binding(slot: int, result: Code) -> Code:
    """Return the code of `cel.bind`, whose value is computed at the first read."""

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
    """Return a function that sets the loop's variables, item by item."""
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
    """Return the items for a loop with one variable."""
    if not isinstance(items, list | tuple | Mapping) or hasattr(items, "cel_type"):
        raise EvalError(f"got '{go_type(type_name(items))}', expected iterable type")
    return map(unkey, items) if isinstance(items, Mapping) else items


def pairs_of(items: Value) -> Iterable[tuple[Value, Value]]:
    """Return the pairs for a loop with two variables."""
    if isinstance(items, Mapping):
        return ((unkey(name), items[name]) for name in items)
    if isinstance(items, list | tuple):
        return enumerate(items)
    raise EvalError(f"unsupported comprehension range type: {go_type(type_name(items))}")


def built_list(elements: Sequence[Code], optional: frozenset[int]) -> Code:
    """Return the code of `[a, ?b]`."""

    def evaluate(run: Run) -> Value:
        made: list[Value] = []
        run.cost += 1
        for index, element in enumerate(elements):
            value = element(run)
            if index not in optional:
                made.append(value)
            elif not isinstance(value, Optional):
                text = f"cannot initialize optional list element from non-optional value {scalar(value)}"
                raise EvalError(text)
            elif value.present:
                made.append(value.value)
        return made

    return evaluate


def built_map(entries: Sequence[tuple[Code, Code]], optional: frozenset[int]) -> Code:
    """Return the code of `{k: v, ?k: v}`."""

    def evaluate(run: Run) -> Value:
        made: dict[Value, Value] = {}
        run.cost += 1
        for index, (name_code, value_code) in enumerate(entries):
            name = name_code(run)
            value = value_code(run)
            if index in optional:
                if not isinstance(value, Optional):
                    start = f"cannot initialize optional entry '{scalar(name)}'"
                    raise EvalError(f"{start} from non-optional value {scalar(value)}")
                if not value.present:
                    made.pop(key_of(name), None)
                    continue
                value = value.value
            made[key_of(name)] = value
        return made

    return evaluate


def key_of(name: Value) -> Value:
    """Return the internal key; raise upstream's error for an invalid one."""
    try:
        return key(name)
    except TypeError:
        raise EvalError(f"unsupported key type: {go_type(type_name(name))}") from None


def unbuildable(type_name: str, values: Sequence[Code]) -> Code:
    """Return the code of `a.B{f: v}`: object types cannot be constructed, which upstream detects at run time."""

    def evaluate(run: Run) -> Value:
        run.cost += 1
        for value in values:
            value(run)
        raise EvalError(f"unknown type '{type_name.removeprefix('.')}'")

    return evaluate


def is_among(element: Code, texts: frozenset[str]) -> Code:
    """Return the code of `element in ["a", "b"]`. As upstream it is free, so it must not be a linear search."""

    def evaluate(run: Run) -> Value:
        value = element(run)
        return type(value) is str and value in texts

    return evaluate
