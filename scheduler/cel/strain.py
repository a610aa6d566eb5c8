"""What calls take that upstream does not charge: what their results may be far longer than what they are made from.

Upstream would do it, and run out of memory or hold everybody up: it charges one for a sum of two lists, whatever their
length, and a tenth of the pattern's length for a `format`. Here the result must be affordable as if it were walked
along, and all such work of an evaluation together must take less than a tenth of a second, as it is estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from scheduler.cel.costs import LIST_COST, OF_ONE, size
from scheduler.cel.libraries.regex import nanos_beyond_cost, nanos_of_parts
from scheduler.cel.values import Value

_TOO_MANY: Final = 1_000_000
_PLAIN: Final = OF_ONE | {str, bytes}
_PER_HOLDER: Final = 20
_HOLDERS: Final = frozenset({list, tuple, dict})


class Ahead(NamedTuple):
    """How much of it there is, nanoseconds for each, and whether so much must be affordable too.

    `parts`: what the nanoseconds are for, if it is something else. `after`: nanoseconds more, by result and arguments.
    """

    measure: Callable[..., int]
    nanos: int
    is_costly: bool = True
    parts: Callable[..., int] | None = None
    after: Callable[..., int] | None = None


def _of_range(count: int) -> int:
    return LIST_COST + 1 + count


def _of_replacement(text: str, old: str, new: str, limit: int = -1) -> int:
    times = text.count(old) if limit < 0 else min(limit, text.count(old))
    return (len(text) + times * (len(new) - len(old))) // 10


def _of_joint(texts: Sequence[Value], separator: str = "") -> int:
    try:
        count = sum(map(len, texts))
    except TypeError:
        count = sum(map(size, texts))
    return (count + len(separator) * (len(texts) - 1)) // 10


def _of_parts(texts: Sequence[Value], *_: Value) -> int:
    return len(texts)


def _of_flat(values: Sequence[Value], depth: int = 1) -> int:
    count, level = 0, values
    while depth > 0 and count <= _TOO_MANY:
        inner = [each for each in level if isinstance(each, list | tuple)]
        count += sum(map(len, inner))
        if not inner or count > _TOO_MANY:
            break
        depth, level = depth - 1, list(chain.from_iterable(inner))
    return count


def _of_text(template: str, values: Sequence[Value]) -> int:
    """Lists may hold each other more often than anybody could count."""
    if OF_ONE.issuperset(map(type, values)):
        return len(template) // 10 + len(values)
    count, pending = len(template) // 10, [values]
    while pending and count <= _TOO_MANY:
        held = pending.pop()
        count += len(held)
        kinds = {*map(type, held)}
        if str in kinds:
            count += sum([len(each) for each in held if type(each) is str]) // 10
        if not kinds <= _PLAIN and any(issubclass(each, list | tuple | Mapping) for each in kinds):
            pending += [
                [*each, *each.values()] if isinstance(each, Mapping) else each
                for each in held
                if isinstance(each, list | tuple | Mapping)
            ]
    return count


def depths(value: Value) -> int:
    """How many values there are in it at all levels but the first; what is held more than once is compared once.

    A list or map more takes as long as some values more.
    """
    if type(value) not in _HOLDERS:
        return 0
    seen: set[int] = set()
    count, pending = 0, [value]
    while pending:
        held = pending.pop()
        inside = held.values() if type(held) is dict else held
        if not _HOLDERS.isdisjoint(map(type, inside)):
            for each in inside:
                if type(each) in _HOLDERS and id(each) not in seen:
                    seen.add(id(each))
                    pending.append(each)
                    count += len(each) + _PER_HOLDER
    return count


def _of_search(value: Value, values: Sequence[Value]) -> int:
    """A value against those in a list: none can be compared further than both go."""
    if type(value) not in _HOLDERS:
        return 0
    return min((len(value) + depths(value) + _PER_HOLDER) * len(values), depths(values))


def _of_sets(one: Sequence[Value], other: Sequence[Value]) -> int:
    """Each value of a list against each of another."""
    return min(depths(one) * len(other), depths(other) * len(one))


_SEARCH: Final = Ahead(lambda values, value, *_: _of_search(value, values), 30, is_costly=False)
_SETS: Final = Ahead(_of_sets, 30, is_costly=False)
AHEAD: Final[Mapping[str, Ahead]] = {
    "lists.range": Ahead(_of_range, 0),
    "replace": Ahead(_of_replacement, 2),
    "join": Ahead(_of_joint, 20, parts=_of_parts),
    "matches": Ahead(nanos_beyond_cost, 2, is_costly=False),
    "find": Ahead(nanos_beyond_cost, 2, is_costly=False),
    "findAll": Ahead(nanos_beyond_cost, 2, is_costly=False, after=nanos_of_parts),
    "flatten": Ahead(_of_flat, 10),
    "format": Ahead(_of_text, 400),
    "@in": Ahead(_of_search, 30, is_costly=False),
    "distinct": Ahead(lambda values: depths(values) * len(values), 30, is_costly=False),
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), _SETS),
    **dict.fromkeys(("indexOf", "lastIndexOf", "includes"), _SEARCH),
}
"""By the name of the function."""
SUM_NANOS: Final = 5
EQUALITY_NANOS: Final = 30
