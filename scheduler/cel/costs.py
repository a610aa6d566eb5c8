"""What calls cost at run time, beyond what an overload says of itself: cel-go's run-time cost with Kubernetes' additions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.cel.types import Overload
from scheduler.cel.values import Value

LIST_COST: Final = 10
MAP_COST: Final = 30
OBJECT_COST: Final = 40

_COSTED_BY_OVERLOAD: Final = frozenset(
    {"startsWith", "endsWith", "contains", "matches", "string", "bytes", "strings.quote", "format", "_+_", "@in"}
    | {"_<_", "_<=_", "_>_", "_>=_"}
)
"""Upstream knows their costs by overload: where it does not know which one it will be, they cost 1."""


def size(value: Value) -> int:
    """How large upstream takes a value to be: the length of what has one, else 1."""
    if isinstance(value, str | bytes | list | tuple):
        return len(value)
    if isinstance(value, Mapping) and not hasattr(value, "cel_type"):
        return len(value)
    own = getattr(value, "cost_size", None)
    return 1 if own is None else int(own)


def call_cost(overload: Overload, args: Sequence[Value], result: Value, *, is_resolved: bool) -> int:
    """Of one call; `is_resolved` is whether the checker knew which overload it would be."""
    cost = overload.cost
    if cost is None or (not is_resolved and overload.name in _COSTED_BY_OVERLOAD):
        return 1
    return cost if isinstance(cost, int) else cost(*args, result)
