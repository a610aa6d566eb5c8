"""Helpers for declarations, cost functions, and a cache of parsed texts.

A cost function is called with the arguments and then the result, which is None if the call failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from scheduler.cel.check.types import Overload, Type
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.logic import size
from scheduler.cel.eval.running import work
from scheduler.cel.values import Value, unkey

Cost: TypeAlias = Callable[..., int] | int | None
Call: TypeAlias = Callable[..., Value]
Signature: TypeAlias = tuple[tuple[Type, ...], Type]

_PER_CHARACTER: Final = 0.1
_PER_PATTERN_CHARACTER: Final = 0.25


def member(name: str, id: str, signature: Signature, call: Call, cost: Cost = None) -> Overload:  # noqa: A002
    """Declare `target.name(...)`; the target is the first parameter."""
    return Overload(id, name, *signature, call, member=True, cost=cost)


def function(name: str, id: str, signature: Signature, call: Call, cost: Cost = None) -> Overload:  # noqa: A002
    """Declare `name(...)`."""
    return Overload(id, name, *signature, call, cost=cost)


def characters(count: int, times: float = 1) -> int:
    """Return the cost of traversing this number of characters."""
    return math.ceil(count * times * _PER_CHARACTER)


def traversal(text: Value, *_: Any) -> int:
    """Return the cost of traversing the first argument once."""
    return characters(size(text))


def double_traversal(text: Value, *_: Any) -> int:
    """Return the cost of traversing the first argument and creating a result of the same length."""
    return characters(size(text), 2)


def shorter(one: Value, other: Value, *_: Any) -> int:
    """Return the cost of traversing both until the shorter one ends."""
    return characters(min(size(one), size(other)))


def both(one: Value, other: Value, *_: Any) -> int:
    """Return the cost of traversing both completely."""
    return characters(size(one) + size(other))


def matching(text: Value, pattern: Value, *_: Any) -> int:
    """Return the cost of a regular expression: text times pattern."""
    return pattern_cost(size(text), size(pattern))


def pattern_cost(text_size: int, pattern_size: int) -> int:
    """Return the cost of a regular expression from the sizes of text and pattern."""
    return math.ceil((1.0 + text_size) * _PER_CHARACTER) * math.ceil(pattern_size * _PER_PATTERN_CHARACTER)


def deep_traversal(value: Value, *_: Any) -> int:
    """Return Kubernetes' cost of traversing a value with all its parts; texts count by bytes, rounded down."""
    return _deep(value, {})


def _deep(value: Value, known: dict[int, int]) -> int:
    """Return the cost of a value. A shared part counts each time, but is traversed only once."""
    if isinstance(value, str):
        return int((len(value) if value.isascii() else len(value.encode())) * _PER_CHARACTER)
    if isinstance(value, bytes):
        return int(len(value) * _PER_CHARACTER)
    if not isinstance(value, list | tuple | Mapping):
        return 1
    cost = known.get(id(value))
    if cost is None:
        work(1 + len(value))
        if isinstance(value, Mapping):
            cost = sum(_deep(unkey(name), known) + _deep(each, known) for name, each in value.items())
        else:
            cost = sum(_deep(each, known) for each in value)
        known[id(value)] = cost
    return cost


def of_the_plan(*values: Value) -> NoReturn:
    """Stand for the call of an overload that `plan` evaluates itself, or whose argument types no value has."""
    raise AssertionError(f"this overload is only declared: {values}")


_Read = TypeVar("_Read")
_KEPT: Final = 4096
_LONGEST: Final = 128
"""Longer texts are not cached, so that the cache stays small."""


class _Refused(str):
    """The text of an error."""

    __slots__ = ()


class Remembered(Generic[_Read]):
    """A function of a text whose results and errors (EvalError, ValueError) are cached. The results must be immutable."""

    def __init__(self, read: Callable[[str], _Read]) -> None:
        self._read = read
        self._known = lru_cache(maxsize=_KEPT)(self._tried)

    def __call__(self, text: str) -> _Read:
        """Return the result, or raise EvalError."""
        found = self._found(text)
        if isinstance(found, _Refused):
            raise EvalError(found)
        return found

    def accepts(self, text: str) -> bool:
        """Return whether there is a result."""
        return not isinstance(self._found(text), _Refused)

    def _found(self, text: str) -> _Read | _Refused:
        return self._known(text) if len(text) <= _LONGEST else self._tried(text)

    def _tried(self, text: str) -> _Read | _Refused:
        try:
            return self._read(text)
        except (EvalError, ValueError) as error:
            return _Refused(error)
