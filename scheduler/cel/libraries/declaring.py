"""Helpers for declarations, and a cache of parsed texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, NoReturn, TypeAlias, TypeVar

from scheduler.cel.check.types import Overload, Type
from scheduler.cel.errors import EvalError
from scheduler.cel.values import Value

Call: TypeAlias = Callable[..., Value]
Signature: TypeAlias = tuple[tuple[Type, ...], Type]


def member(name: str, id: str, signature: Signature, call: Call) -> Overload:  # noqa: A002
    """Declare `target.name(...)`; the target is the first parameter."""
    return Overload(id, name, *signature, call, member=True)


def function(name: str, id: str, signature: Signature, call: Call) -> Overload:  # noqa: A002
    """Declare `name(...)`."""
    return Overload(id, name, *signature, call)


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
        self._cached = lru_cache(maxsize=_KEPT)(self._tried)

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
        return self._cached(text) if len(text) <= _LONGEST else self._tried(text)

    def _tried(self, text: str) -> _Read | _Refused:
        try:
            return self._read(text)
        except (EvalError, ValueError) as error:
            return _Refused(error)
