"""What calls cost at run time, beyond what an overload says of itself: cel-go's run-time cost with Kubernetes' additions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from scheduler.cel.types import Overload
from scheduler.cel.values import Duration, Optional, Timestamp, TypeValue, UInt, Value

LIST_COST: Final = 10
MAP_COST: Final = 30
OBJECT_COST: Final = 40

OF_ONE: Final = frozenset({int, float, bool, type(None), UInt, Timestamp, Duration, TypeValue})
"""Classes whose values have no length."""
_OF_LENGTH: Final = frozenset({str, bytes, list, tuple, dict})

Cost: TypeAlias = int | Callable[..., int]
"""A number, or what gives it for the arguments and the result."""

_COSTED_BY_OVERLOAD: Final = frozenset(
    {"startsWith", "endsWith", "contains", "matches", "string", "bytes", "strings.quote", "format", "_+_", "@in"}
    | {"_<_", "_<=_", "_>_", "_>=_", "sort", "@sortByAssociatedKeys"}
)
"""Upstream knows their costs by overload: where it does not know which one it will be, they cost 1."""


def size(value: Value) -> int:
    """How large upstream takes a value to be: the length of what has one, else 1."""
    class_ = type(value)
    if class_ in OF_ONE:
        return 1
    if class_ in _OF_LENGTH:
        return len(value)
    if isinstance(value, list | tuple):
        return len(value)
    if isinstance(value, Mapping) and not hasattr(value, "cel_type"):
        return len(value)
    if isinstance(value, Optional) and value.present:
        return size(value.value)
    own = getattr(value, "cost_size", None)
    return 1 if own is None else int(own)


def call_cost(overload: Overload, *, is_resolved: bool) -> Cost:
    """Of a call; `is_resolved` is whether the checker knew which overload it would be."""
    if overload.cost is None or (not is_resolved and overload.name in _COSTED_BY_OVERLOAD):
        return 1
    return overload.cost
