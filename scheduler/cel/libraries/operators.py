"""Operators on values: 64-bit arithmetic, order, membership, size.

`&&`, `||`, `?:`, `!` and equality are only declared here, for the checker. Their evaluation, which absorbs errors, is
in `logic`. The evaluation of an index is part of a chain of selections (`attributes`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from scheduler.cel.check.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Overload,
    list_of,
    map_of,
)
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.running import fits
from scheduler.cel.libraries.declaring import function, member, of_the_plan
from scheduler.cel.values import UInt, Value, compare, contains, key

_INT_MAX: Final = 2**63 - 1
_UINT_MAX: Final = 2**64 - 1


def int64(value: int) -> int:
    """Return the value; raise EvalError if it exceeds a signed 64-bit integer."""
    if not -_INT_MAX - 1 <= value <= _INT_MAX:
        raise EvalError("integer overflow")
    return value


def uint64(value: int) -> UInt:
    """Return the value; raise EvalError if it exceeds an unsigned 64-bit integer."""
    if not 0 <= value <= _UINT_MAX:
        raise EvalError("unsigned integer overflow")
    return UInt(value)


def _divided(one: int, other: int) -> int:
    """Divide with rounding towards zero."""
    if other == 0:
        raise EvalError("division by zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _remainder(one: int, other: int) -> int:
    """Return the remainder with the sign of the first operand."""
    if other == 0:
        raise EvalError("modulus by zero")
    if one == -_INT_MAX - 1 and other == -1:
        raise EvalError("integer overflow")
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


def _double_divided(one: float, other: float) -> float:
    if other:
        return one / other
    if one == 0 or math.isnan(one) or math.isnan(other):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1, other)


_ARITHMETIC: Final[tuple[tuple[str, str, Callable[[Any, Any], Any]], ...]] = (
    ("_+_", "add", operator.add),
    ("_-_", "subtract", operator.sub),
    ("_*_", "multiply", operator.mul),
    ("_/_", "divide", _divided),
)


def _arithmetic() -> list[Overload]:
    overloads = []
    for name, word, call in _ARITHMETIC:
        on_doubles = _double_divided if word == "divide" else call
        overloads += [
            function(name, f"{word}_double", ((DOUBLE, DOUBLE), DOUBLE), on_doubles),
            function(name, f"{word}_int64", ((INT, INT), INT), _checked(call, int64)),
            function(name, f"{word}_uint64", ((UINT, UINT), UINT), _checked(call, uint64)),
        ]
    return overloads


def _checked(call: Callable[[Any, Any], Any], in_range: Callable[[int], int]) -> Callable[[int, int], int]:
    return lambda one, other: in_range(call(one, other))


def _list_sum(one: Sequence[Value], other: Sequence[Value]) -> list[Value]:
    fits(len(one) + len(other))
    return [*one, *other]


_Holds: TypeAlias = Callable[[Any, Any], bool]
_ORDERS: Final[tuple[tuple[str, str, _Holds, _Holds], ...]] = (
    ("_<_", "less", operator.lt, lambda one, other: one.nanos < other.nanos),
    ("_<=_", "less_equals", operator.le, lambda one, other: one.nanos <= other.nanos),
    ("_>_", "greater", operator.gt, lambda one, other: one.nanos > other.nanos),
    ("_>=_", "greater_equals", operator.ge, lambda one, other: one.nanos >= other.nanos),
)
"""Comparisons of values with the same order in Python, and of times."""
_NUMBERS: Final = (("int64", INT), ("uint64", UINT), ("double", DOUBLE))
_ORDERED: Final = (BOOL, STRING, BYTES, TIMESTAMP, DURATION)


def _orders() -> list[Overload]:
    overloads = []
    for name, word, holds, of_times in _ORDERS:
        overloads += [
            function(name, f"{word}_{type_}", ((type_, type_), BOOL), of_times if type_ == TIMESTAMP else holds)
            for type_ in _ORDERED
        ]
        overloads += [
            function(
                name,
                f"{word}_{one}" if one == other else f"{word}_{one}_{other}",
                ((left, right), BOOL),
                _of_doubles(holds) if DOUBLE in {left, right} else holds,
            )
            for one, left in _NUMBERS
            for other, right in _NUMBERS
        ]
    return overloads


def _of_doubles(holds: _Holds) -> _Holds:
    """Return the comparison of numbers one of which is a double, so that it may be NaN, which has no order."""
    return lambda one, other: holds(compare(one, other), 0)


def _in_map(value: Value, entries: Mapping[Any, Value]) -> bool:
    """Return whether the map has the key; an invalid key is in no map."""
    if type(value) is str:
        return value in entries
    try:
        return key(value) in entries
    except TypeError:
        return False


_LIST: Final = list_of(A)
_MAP: Final = map_of(A, B)

OPERATORS: Final[tuple[Overload, ...]] = (
    *_arithmetic(),
    function("_+_", "add_string", ((STRING, STRING), STRING), operator.add),
    function("_+_", "add_bytes", ((BYTES, BYTES), BYTES), operator.add),
    function("_+_", "add_list", ((_LIST, _LIST), _LIST), _list_sum),
    function("_%_", "modulo_int64", ((INT, INT), INT), _remainder),
    function("_%_", "modulo_uint64", ((UINT, UINT), UINT), _checked(_remainder, uint64)),
    function("-_", "negate_double", ((DOUBLE,), DOUBLE), operator.neg),
    function("-_", "negate_int64", ((INT,), INT), lambda value: int64(-value)),
    *_orders(),
    function("@in", "in_list", ((A, _LIST), BOOL), lambda value, values: contains(values, value)),
    function("@in", "in_map", ((A, _MAP), BOOL), _in_map),
    function("_[_]", "index_list", ((_LIST, INT), A), of_the_plan),
    function("_[_]", "index_map", ((_MAP, A), B), of_the_plan),
    function("!_", "logical_not", ((BOOL,), BOOL), of_the_plan),
    function("@not_strictly_false", "not_strictly_false", ((BOOL,), BOOL), of_the_plan),
    function("_&&_", "logical_and", ((BOOL, BOOL), BOOL), of_the_plan),
    function("_||_", "logical_or", ((BOOL, BOOL), BOOL), of_the_plan),
    function("_?_:_", "conditional", ((BOOL, A, A), A), of_the_plan),
    function("_==_", "equals", ((A, A), BOOL), of_the_plan),
    function("_!=_", "not_equals", ((A, A), BOOL), of_the_plan),
    *(
        declare("size", id_, ((type_,), INT), len)
        for word, type_ in (("string", STRING), ("bytes", BYTES), ("list", _LIST), ("map", _MAP))
        for declare, id_ in ((function, f"size_{word}"), (member, f"{word}_size"))
    ),
)
