"""`x.includes(v)`: of device selectors since 1.36, for attributes that may be lists."""

from __future__ import annotations

from typing import Final

from scheduler.cel.errors import EvalError
from scheduler.cel.libraries.declaring import member
from scheduler.cel.types import BOOL, DYN, Overload
from scheduler.cel.values import Value, same

_LONGEST: Final = 48


def _includes(holder: Value, value: Value) -> bool:
    """A list has the value among its first 48, anything else is the value."""
    if not isinstance(holder, list | tuple):
        return same(holder, value)
    if any(same(each, value) for each in holder[:_LONGEST]):
        return True
    if len(holder) > _LONGEST:
        raise EvalError(f"'includes' function cannot be applied to lists longer than {_LONGEST} values")
    return False


INCLUDES: Final[tuple[Overload, ...]] = (member("includes", "dra_includes_dyn_dyn", ((DYN, DYN), BOOL), _includes),)
