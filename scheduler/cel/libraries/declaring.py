"""Shorthands for declarations, cost measures, and a cache of parsed texts.

Shorthands for declarations, and the measures that costs are made of.

A cost is called with the arguments and then the result, which is None if the call failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any, Final, TypeAlias, TypeVar

from scheduler.cel.check.types import Overload, Type
from scheduler.cel.eval.logic import OF_ONE, size
from scheduler.cel.eval.running import work
from scheduler.cel.values import Value, unkey

Cost: TypeAlias = Callable[..., int] | int | None
Call: TypeAlias = Callable[..., Value]
Signature: TypeAlias = tuple[tuple[Type, ...], Type]

_PER_CHARACTER: Final = 0.1
_PER_PATTERN_CHARACTER: Final = 0.25


def member(name: str, id: str, signature: Signature, call: Call, cost: Cost = None) -> Overload:  # noqa: A002
    """`target.name(...)`: the target is the first parameter."""
    return Overload(id, name, *signature, call, member=True, cost=cost)


def function(name: str, id: str, signature: Signature, call: Call, cost: Cost = None) -> Overload:  # noqa: A002
    """`name(...)`."""
    return Overload(id, name, *signature, call, cost=cost)


def characters(count: int, times: float = 1) -> int:
    """What it costs to walk along so many characters."""
    return math.ceil(count * times * _PER_CHARACTER)


def traversal(text: Value, *_: Any) -> int:
    """Cost of walking once along the first argument."""
    return characters(size(text))


def double_traversal(text: Value, *_: Any) -> int:
    """Cost of walking along the first argument and building something as long."""
    return characters(size(text), 2)


def shorter(one: Value, other: Value, *_: Any) -> int:
    """Cost of walking along both until the shorter ends."""
    return characters(min(size(one), size(other)))


def both(one: Value, other: Value, *_: Any) -> int:
    """Cost of walking along both to their ends."""
    return characters(size(one) + size(other))


def matching(text: Value, pattern: Value, *_: Any) -> int:
    """Cost of a regular expression: text times pattern."""
    return pattern_cost(size(text), size(pattern))


def pattern_cost(text_size: int, pattern_size: int) -> int:
    """As `matching`, of sizes."""
    return math.ceil((1.0 + text_size) * _PER_CHARACTER) * math.ceil(pattern_size * _PER_PATTERN_CHARACTER)


def deep_traversal(value: Value, *_: Any) -> int:
    """Kubernetes' cost of visiting all there is in a value; texts count by bytes, and are rounded down."""
    return _deep(value, {})


def _deep(value: Value, known: dict[int, int]) -> int:
    """What is held more than once counts each time, and is walked along once."""
    if isinstance(value, str):
        return int((len(value) if value.isascii() else len(value.encode())) * _PER_CHARACTER)
    if isinstance(value, bytes):
        return int(len(value) * _PER_CHARACTER)
    if not isinstance(value, list | tuple | Mapping):
        return 1
    cost = known.get(id(value))
    if cost is None:
        work(1 + len(value) // 16)
        if isinstance(value, Mapping):
            cost = sum(_deep(unkey(name), known) + _deep(each, known) for name, each in value.items())
        elif OF_ONE.issuperset(map(type, value)):
            cost = len(value)
        elif {*map(type, value)} == {str} and all(map(str.isascii, value)):
            cost = sum([len(each) // 10 for each in value])
        else:
            cost = sum([_deep(each, known) for each in value])
        known[id(value)] = cost
    return cost


_Read = TypeVar("_Read")
_KEPT: Final = 4096
_LONGEST: Final = 128
"""Of longer texts nothing is remembered, so that all that is stays small."""


def remembered(read: Callable[[str], _Read]) -> Callable[[str], _Read]:
    """The function, which must give what nobody changes; its errors must be values."""
    known = lru_cache(maxsize=_KEPT)(read)

    @wraps(read)
    def recall(text: str) -> _Read:
        return known(text) if len(text) <= _LONGEST else read(text)

    return recall
