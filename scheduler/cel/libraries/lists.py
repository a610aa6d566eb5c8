"""Lists: version 3 of cel-go's lists extension, Kubernetes' list functions, sets, and `includes` of device selectors.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/lists.go Lists
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import pairwise, repeat
from typing import Any, Final

from scheduler.cel.check.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Overload,
    T,
    declared,
    list_of,
)
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.running import afford, fits, work
from scheduler.cel.libraries.declaring import function, member
from scheduler.cel.libraries.operators import int64, uint64
from scheduler.cel.values import Duration, Timestamp, UInt, Value, compare, contains, same

_LIST_CLASSES: Final = (list, tuple)
_COMPARABLES: Final = frozenset({int, UInt, float, bool, str, bytes, Timestamp, Duration})
_MOST_INCLUDED: Final = 48
_COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)


def _slice(values: Sequence[Value], start: int, end: int) -> list[Value]:
    why = None
    if start < 0 or end < 0:
        why = "negative indexes not supported"
    elif start > end:
        why = "start index must be less than or equal to end index"
    elif end > len(values):
        why = f"list is length {len(values)}"
    if why is not None:
        raise EvalError(f"cannot slice({start}, {end}), {why}")
    return list(values[start:end])


def _flat(values: Sequence[Value], depth: int = 1) -> list[Value]:
    if depth < 0:
        raise EvalError("level must be non-negative")
    flat: list[Value] = []
    for each in values:
        if depth and isinstance(each, _LIST_CLASSES):
            inner = each if depth == 1 else _flat(each, depth - 1)
            fits(len(flat) + len(inner))
            flat += inner
        else:
            flat.append(each)
    return flat


def _range(count: int) -> list[int]:
    afford(count)
    work(count)
    return list(range(count))


def _distinct(values: Sequence[Value]) -> list[Value]:
    kept: list[Value] = []
    for each in values:
        if not contains(kept, each):
            kept.append(each)
    return kept


def _sorted(values: Sequence[Value]) -> list[Value]:
    return _sorted_by(values, values)


def _sorted_by(values: Sequence[Value], keys: Sequence[Value]) -> list[Value]:
    if len(values) != len(keys):
        raise EvalError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(values)} and {len(keys)} elements respectively"
        )
    if keys and type(keys[0]) not in _COMPARABLES:
        raise EvalError("list elements must be comparable")
    if len({*map(type, keys)}) > 1:
        raise EvalError("list elements must have the same type")
    by_key = cmp_to_key(_order)
    return [values[at] for at in sorted(range(len(keys)), key=lambda at: by_key(keys[at]))]


def _comparable(value: Value) -> Value:
    """Return the value if its type has an order."""
    if type(value) not in _COMPARABLES:
        raise EvalError("no such overload")
    return value


def _order(one: Value, other: Value) -> int:
    """Compare two values; 0 for values without an order, because upstream only tests for greater or less."""
    work(1)
    try:
        return compare(one, other)
    except EvalError:
        return 0


def _is_sorted(values: Sequence[Value]) -> bool:
    return all(_order(one, other) <= 0 for one, other in pairwise(map(_comparable, values)))


def _extreme(word: str, replaced_if: int) -> Callable[[Sequence[Value]], Value]:
    """Return the function `min` or `max`."""

    def extreme(values: Sequence[Value]) -> Value:
        if not values:
            raise EvalError(f"{word} called on empty list")
        found = _comparable(values[0])
        for each in map(_comparable, values[1:]):
            if _order(found, each) == replaced_if:
                found = each
        return found

    return extreme


def _summing(zero: Value) -> Callable[[Sequence[Any]], Value]:
    """Return the sum function of one type, which rejects values of other types."""

    def total(values: Sequence[Any]) -> Value:
        found = zero
        for each in values:
            if type(each) is not type(zero):
                raise EvalError("no such overload")
            found = _plus(found, each)
        return found

    return total


def _plus(one: Any, other: Any) -> Value:
    if isinstance(one, UInt):
        return uint64(int(one) + int(other))
    if isinstance(one, Duration):
        return Duration(int64(one.nanos + other.nanos))
    return one + other if isinstance(one, float) else int64(one + other)


def _index_of(values: Sequence[Value], value: Value) -> int:
    return next((at for at, each in enumerate(map(same, values, repeat(value))) if each), -1)


def _last_index_of(values: Sequence[Value], value: Value) -> int:
    at = _index_of(values[::-1], value)
    return at if at < 0 else len(values) - 1 - at


def _includes_all(values: Sequence[Value], wanted: Sequence[Value]) -> bool:
    return all(contains(values, each) for each in wanted)


def _equivalent(one: Sequence[Value], other: Sequence[Value]) -> bool:
    return _includes_all(one, other) and _includes_all(other, one)


def _intersects(one: Sequence[Value], other: Sequence[Value]) -> bool:
    return any(contains(other, each) for each in one)


def _includes(holder: Value, value: Value) -> bool:
    """Return whether a list has the value among its first 48 elements, or any other holder equals the value."""
    if not isinstance(holder, list | tuple):
        return same(holder, value)
    if any(same(each, value) for each in holder[:_MOST_INCLUDED]):
        return True
    if len(holder) > _MOST_INCLUDED:
        raise EvalError(f"'includes' function cannot be applied to lists longer than {_MOST_INCLUDED} values")
    return False


_OF_T: Final = list_of(T)
_OF_A: Final = list_of(A)
_SET_PREDICATE: Final = ((_OF_T, _OF_T), BOOL)

SETS: Final[tuple[Overload, ...]] = (
    function("sets.contains", "list_sets_contains_list", _SET_PREDICATE, _includes_all),
    function("sets.equivalent", "list_sets_equivalent_list", _SET_PREDICATE, _equivalent),
    function("sets.intersects", "list_sets_intersects_list", _SET_PREDICATE, _intersects),
)

LISTS: Final[tuple[Overload, ...]] = (
    member("slice", "list_slice", ((_OF_T, INT, INT), _OF_T), _slice),
    member("flatten", "list_flatten", ((list_of(_OF_T),), _OF_T), _flat),
    member("flatten", "list_flatten_int", ((list_of(DYN), INT), list_of(DYN)), _flat),
    function("lists.range", "lists_range", ((INT,), list_of(INT)), _range),
    member("distinct", "list_distinct", ((_OF_T,), _OF_T), _distinct),
    member("reverse", "list_reverse", ((_OF_T,), _OF_T), lambda values: list(values[::-1])),
    *(
        member("sort", f"list_{declared(type_)}_sort", ((list_of(type_),), list_of(type_)), _sorted)
        for type_ in _COMPARABLE
    ),
    *(
        member(
            "@sortByAssociatedKeys",
            f"list_{declared(type_)}_sortByAssociatedKeys",
            ((_OF_T, list_of(type_)), _OF_T),
            _sorted_by,
        )
        for type_ in _COMPARABLE
    ),
)

_ZEROS: Final = ((INT, 0), (UINT, UInt(0)), (DOUBLE, 0.0), (DURATION, Duration(0)))

KUBERNETES_LISTS: Final[tuple[Overload, ...]] = (
    *(
        member("isSorted", f"list_{type_}_is_sorted_bool", ((list_of(type_),), BOOL), _is_sorted)
        for type_ in _COMPARABLE
    ),
    *(member("sum", f"list_{type_}_sum_{type_}", ((list_of(type_),), type_), _summing(zero)) for type_, zero in _ZEROS),
    *(
        member(
            word,
            f"list_{type_}_{word}_{type_}",
            ((list_of(type_),), type_),
            _extreme(word, replaced_if),
        )
        for word, replaced_if in (("max", -1), ("min", 1))
        for type_ in _COMPARABLE
    ),
    member("indexOf", "list_a_index_of_int", ((_OF_A, A), INT), _index_of),
    member("lastIndexOf", "list_a_last_index_of_int", ((_OF_A, A), INT), _last_index_of),
)

INCLUDES: Final[tuple[Overload, ...]] = (member("includes", "dra_includes_dyn_dyn", ((DYN, DYN), BOOL), _includes),)
