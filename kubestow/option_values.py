"""Check the values that a program passes to the library, before a simulation starts.

A type checker finds most of these mistakes. The message of an error names the option, and no text is taken for a list of
its characters.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from simulator.simulate.planning.nodes_needed import NODES_MAX

__all__ = ["amounts", "integer", "node_counts", "path", "seconds", "switch", "text", "texts", "whole"]


def text(option: str, value: object) -> str:
    """Return a text. Raises TypeError."""
    if not isinstance(value, str):
        raise _wrong(option, "must be a text", value)
    return value


def texts(option: str, value: object) -> tuple[str, ...]:
    """Return the texts of a list. Raises TypeError, also for one text."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _wrong(option, "must be a list of texts", value)
    return tuple(text(option, each) for each in value)


def switch(option: str, value: object) -> bool:
    """Return True or False. Raises TypeError for other values, such as the text "no", which is true."""
    if not isinstance(value, bool):
        raise _wrong(option, "must be True or False", value)
    return value


def integer(option: str, value: Any) -> int:
    """Return a whole number. Raises TypeError, also for True and False."""
    if isinstance(value, bool):
        raise _wrong(option, "must be a whole number", value)
    try:
        return operator.index(value)
    except TypeError:
        raise _wrong(option, "must be a whole number", value) from None


def whole(option: str, value: Any, *, most: int | None = None) -> int:
    """Return a whole number from 0 on. Raises TypeError, or ValueError for a number that is out of range."""
    number = integer(option, value)
    if number < 0 or (most is not None and number > most):
        allowed = "from 0 on" if most is None else f"from 0 to {most}"
        raise ValueError(f"{option}: must be a whole number {allowed}, got {number}")
    return number


def seconds(option: str, value: object) -> float:
    """Return a time above 0. Raises TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(option, "must be a number of seconds", value)
    if not value > 0:  # also false for NaN
        raise ValueError(f"{option}: must be more than 0 seconds, got {value}")
    return float(value)


def node_counts(option: str, value: object) -> dict[str, int]:
    """Return numbers of nodes by name. Raises TypeError or ValueError."""
    return {name: whole(f"{option}[{name!r}]", count, most=NODES_MAX) for name, count in _items(option, value)}


def amounts(option: str, value: object) -> dict[str, Any]:
    """Return values by text. Raises TypeError."""
    return dict(_items(option, value))


def path(option: str, value: object, expected: str = "must be a path or a dictionary") -> str:
    """Return the path of a file or directory. Raises TypeError, and ValueError for the empty path."""
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(found, str):
        raise _wrong(option, expected, value)
    if not found:
        raise ValueError(f"{option}: must not be an empty path")
    return found


def _items(option: str, value: object) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise _wrong(option, "must be a dictionary", value)
    return [(text(f"{option}: a key", key), each) for key, each in value.items()]


def _wrong(option: str, expected: str, value: object) -> TypeError:
    shown = repr(value)
    return TypeError(f"{option}: {expected}, got {type(value).__name__} {shown[:60]}{'…' if len(shown) > 60 else ''}")
