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
from scheduler.cel.libraries.classes import CLASSES
from scheduler.cel.libraries.regex import is_word, nanos_beyond_cost, nanos_of_parts, nanos_to_read
from scheduler.cel.recollections import LONG, recollected
from scheduler.cel.running import MOST_NANOS, Run
from scheduler.cel.types import Overload
from scheduler.cel.values import UInt, Value

_TOO_MANY: Final = 1_000_000
_PLAIN: Final = OF_ONE | {str, bytes}
_SOON_WRITTEN: Final = frozenset({int, bool, UInt, type(None)})
_PER_HOLDER: Final = 20
_PER_WRITTEN_HOLDER: Final = 10
_LOOKED_AT_MOST: Final = MOST_NANOS // 300
"""Elements of a `format`: more cannot be written in the time that an evaluation may take."""
MUCH: Final = 256
_PER_TEXT: Final = 100
_TEXTS: Final = frozenset({str, bytes})
_LISTS: Final = (list, tuple)
_HOLDERS: Final = frozenset({list, tuple, dict})


class Ahead(NamedTuple):
    """How much of it there is, nanoseconds for each, and whether so much must be affordable too.

    `nanos` may be what gives all of them, by how much there is and the arguments. `after`: more, by result and arguments.
    """

    measure: Callable[..., int]
    nanos: int | Callable[..., int]
    is_costly: bool = True
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


def _nanos_of_joint(_: int, texts: Sequence[Value], *__: Value) -> int:
    return 20 * len(texts)


def _of_flat(values: Sequence[Value], depth: int = 1) -> int:
    count, level = 0, values
    while depth > 0 and count <= _TOO_MANY:
        inner = [each for each in level if isinstance(each, _LISTS)]
        count += sum(map(len, inner))
        if not inner or count > _TOO_MANY or depth == 1:
            break
        depth, level = depth - 1, list(chain.from_iterable(inner))
    return count


def _of_text(template: str, values: Sequence[Value]) -> int:
    """Lists may hold each other so often that counting their elements takes too long: then there are too many."""
    if len(values) == 1 and type(values[0]) in OF_ONE:
        return len(template) // 10 + 1
    count, pending = len(template) // 10, [values]
    looked_at = 0
    while pending and count <= _TOO_MANY:
        held = pending.pop()
        count += len(held)
        looked_at += len(held) + _PER_WRITTEN_HOLDER
        if looked_at > _LOOKED_AT_MOST:
            return _TOO_MANY + 1
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


def _nanos_of_text(amount: int, _: str, values: Sequence[Value]) -> int:
    """Lists of integers and the like are soon written; to look for them in short texts would take as long."""
    is_soon = amount > MUCH and all(type(each) is list and {*map(type, each)} <= _SOON_WRITTEN for each in values)
    return (300 if is_soon else 400) * amount


def depths(value: Value) -> int:
    """How many values there are in it at all levels but the first; what is held more than once is compared once.

    A list or map more takes as long as some values more.
    """
    if type(value) not in _HOLDERS:
        return 0
    if len(value) < LONG and _HOLDERS.isdisjoint(map(type, value.values() if type(value) is dict else value)):
        return 0
    return _depths(value)


@recollected
def _depths(value: Value) -> int:
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
    """A value against those in a list: none can be compared further than both go. `includes` also takes what is no list."""
    if type(values) not in _HOLDERS:
        return 0
    if type(value) in _SLOW:
        return _PER_SLOW * len(values) // EQUALITY_NANOS
    if type(value) not in _HOLDERS:
        return 0
    return min((len(value) + depths(value) + _PER_HOLDER) * len(values), depths(values))


def _of_texts(values: Sequence[Value]) -> int:
    """Of elements: short texts cost nothing, and yet each is looked at."""
    return 0 if _TEXTS.isdisjoint(map(type, values)) else len(values)


def _of_index(values: Sequence[Value], value: Value, *_: int) -> int:
    """Nanoseconds. A search in a text is never for nothing."""
    if type(values) is str:
        return 0
    return _of_texts(values) * _PER_TEXT + _of_search(value, values) * EQUALITY_NANOS


def _of_sets(one: Sequence[Value], other: Sequence[Value]) -> int:
    """Each value of a list against each of another."""
    return min(depths(one) * len(other), depths(other) * len(one))


_PER_ORDER: Final = 6000
_PER_ORDERED: Final = 300
_PER_UNORDERED: Final = 10_000


def _of_order(*values_and_keys: Sequence[Value]) -> int:
    """Nanoseconds. Python knows the order of all but doubles that have none."""
    keys = values_and_keys[-1]
    if type(keys) not in _HOLDERS:
        return 0
    is_slow = any(type(each) is float and each != each for each in keys)  # noqa: PLR0124
    return _PER_ORDER + len(keys) * (_PER_UNORDERED if is_slow else _PER_ORDERED)


_SEARCH: Final = Ahead(lambda values, value, *_: _of_search(value, values), 30, is_costly=False)
_SETS: Final = Ahead(_of_sets, 30, is_costly=False)
AHEAD: Final[Mapping[str, Ahead]] = {
    "lists.range": Ahead(_of_range, 0),
    "replace": Ahead(_of_replacement, 2),
    "join": Ahead(_of_joint, _nanos_of_joint),
    "matches": Ahead(nanos_beyond_cost, 2, is_costly=False),
    "find": Ahead(nanos_beyond_cost, 2, is_costly=False),
    "findAll": Ahead(nanos_beyond_cost, 2, is_costly=False, after=nanos_of_parts),
    "flatten": Ahead(_of_flat, 10),
    "format": Ahead(_of_text, _nanos_of_text),
    "@in": Ahead(_of_search, 30, is_costly=False),
    "distinct": Ahead(lambda values: depths(values) * len(values), 30, is_costly=False),
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), _SETS),
    "includes": _SEARCH,
    **dict.fromkeys(("indexOf", "lastIndexOf"), Ahead(_of_index, 1, is_costly=False)),
    **dict.fromkeys(("sort", "@sortByAssociatedKeys"), Ahead(_of_order, 1, is_costly=False)),
    **dict.fromkeys(("isSorted", "min", "max"), Ahead(_of_texts, _PER_TEXT, is_costly=False)),
}
"""By the name of the function."""
PATTERNED: Final = frozenset({"matches", "find", "findAll"})
"""Functions whose second argument is a pattern."""
_PATTERNS: Final = 512
"""Half of those that stay compiled."""


def read(run: Run, pattern: str) -> None:
    """To be called before a pattern is used that was not known before the evaluation: it may have to be compiled."""
    if is_word(pattern) or pattern in run.patterns:
        return
    if len(run.patterns) >= _PATTERNS:
        run.patterns.clear()
    run.patterns.add(pattern)
    run.strain(nanos_to_read(pattern))


_ZONE_NANOS: Final = 60_000
"""What it takes to look for a time zone in files."""


def look_up(run: Run, zone: str) -> None:
    """To be called before a time zone is used that was not known before the evaluation."""
    name = f"{zone}\0"
    if name not in run.patterns:
        run.patterns.add(name)
        run.strain(_ZONE_NANOS)


def first_use(overload: Overload) -> Callable[[Run, str], None] | None:
    """What is to be called with the second argument of a call, if that may take long unless it was known before."""
    if overload.name in PATTERNED:
        return read
    return look_up if overload.id.endswith("_tz") else None


SUM_NANOS: Final = 5
"""For each element of the sum of two lists."""
TEXT_SUM_NANOS: Final = 4
"""For each character: as many may be joined in all as upstream's costs allow where the checker knows that these are texts."""


def strain_of_sum(run: Run, one: Value, other: Value) -> None:
    """To be called before `one + other`: a copy of a copy of a copy would soon fill the memory. Raises CostExceeded.

    Upstream takes one for the sum of two lists, and for that of two texts that the checker does not know as such.
    """
    if type(one) is list:
        count = len(one) + size(other)
        run.strain(count * SUM_NANOS)
        run.afford(count)
    elif type(one) in _TEXTS and type(one) is type(other):
        count = len(one) + len(other)
        if count > MUCH:
            run.strain(count * TEXT_SUM_NANOS)
            run.afford(count // 10)


EQUALITY_NANOS: Final = 30
_PER_EQUALITY: Final = 1000
_SLOW: Final = frozenset(CLASSES.values()) - OF_ONE
"""Of which Python itself does not know how to compare the values."""
_PER_SLOW: Final = 200


def nanos_of_equality(value: Value) -> int:
    """About how long it takes to compare it with another, where that is no matter of moments."""
    class_ = type(value)
    if class_ in _HOLDERS:
        return _PER_EQUALITY + depths(value) * EQUALITY_NANOS
    return _PER_SLOW if class_ in _SLOW else 0
