"""Operators that decide which of their operands count: `&&`, `||`, `?:`, `==`, `orValue`.

`false && error` is false, whichever comes first, and `true || error` is true. Everything else passes an error on.
"""

from __future__ import annotations

from typing import Final

from scheduler.cel.costs import OF_ONE, size
from scheduler.cel.errors import EvalError
from scheduler.cel.running import Code, Run
from scheduler.cel.values import Optional, Value, equal, same

NO_SUCH_OVERLOAD: Final = "no such overload"


def junction(terms: tuple[Code, ...], *, decisive: bool) -> Code:
    """`&&` if one false decides, `||` if one true does."""

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
    """`condition ? truthy : falsy`: costs nothing itself."""

    def evaluate(run: Run) -> Value:
        chosen = condition(run)
        if chosen is True:
            return truthy(run)
        if chosen is False:
            return falsy(run)
        raise EvalError(NO_SUCH_OVERLOAD)

    return evaluate


def equality(left: Code, right: Code) -> Code:
    """`left == right`."""

    def evaluate(run: Run) -> Value:
        one, other = both(run, left, right, is_equality=True)
        if type(one) is str and type(other) is str:
            run.cost += -(-min(len(one), len(other)) // 10)
            return one == other
        run.cost += cost_of_equality(one, other, is_plain=True)
        return equal(one, other)

    return evaluate


def inequality(left: Code, right: Code) -> Code:
    """`left != right`: true also where the two cannot be compared."""

    def evaluate(run: Run) -> Value:
        one, other = both(run, left, right, is_equality=True)
        run.cost += cost_of_equality(one, other, is_plain=False)
        return not same(one, other)

    return evaluate


def both(run: Run, left: Code, right: Code, *, is_equality: bool = False) -> tuple[Value, Value]:
    """Both operands. Both are evaluated, and paid, even if the first one fails."""
    try:
        one = left(run)
    except EvalError:
        other = _tried(run, right)  # charges the run: not in one step with the next line
        run.cost += _is_paid(other, is_equality=is_equality)
        raise
    try:
        other = right(run)
    except EvalError:
        run.cost += _is_paid(one, is_equality=is_equality)
        raise
    return one, other


def _tried(run: Run, code: Code) -> Value:
    try:
        return code(run)
    except EvalError:
        return None


def _is_paid(value: Value, *, is_equality: bool) -> bool:
    """Whether a call costs one if this is its other operand. What is empty is equal or not for nothing."""
    return not is_equality or size(value) > 0


def cost_of_equality(one: Value, other: Value, *, is_plain: bool) -> int:
    """Of `==` if it is plain, else of `!=`."""
    if type(one) is type(other) is list:
        return -(-min(len(one), len(other)) // 10)
    if type(one) in OF_ONE and type(other) in OF_ONE:
        return 1
    if is_plain and getattr(one, "cel_type", "").startswith(("kubernetes.", "net.")):
        return 1
    return -(-min(size(one), size(other)) // 10)


def not_strictly_false(argument: Code) -> Code:
    """False only for false: what keeps `all` and `exists` going after an error."""

    def evaluate(run: Run) -> Value:
        run.cost += 1
        try:
            return argument(run) is not False
        except EvalError:
            return True

    return evaluate


def negation(argument: Code) -> Code:
    """`!argument`."""

    def evaluate(run: Run) -> Value:
        run.cost += 1
        value = argument(run)
        if value is True or value is False:
            return not value
        raise EvalError(NO_SUCH_OVERLOAD)

    return evaluate


def first_present(left: Code, right: Code, *, unwraps: bool) -> Code:
    """`left.or(right)`, or `left.orValue(right)` if it unwraps. The right one is looked at only if needed."""

    def evaluate(run: Run) -> Value:
        value = left(run)
        if not isinstance(value, Optional):
            return value
        if not value.present:
            return right(run)
        return value.value if unwraps else value

    return evaluate
