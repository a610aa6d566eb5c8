"""Values of expressions as text, in which values of different types always differ."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.errors import EvalError
from scheduler.cel.eval.plan import NotInstantiable
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.libraries.times import timestamp_text
from scheduler.cel.values import Duration, Optional, Timestamp, TypeValue, UInt, Value, unkey


def answer(expression: str) -> str:
    """`VALUE for COST`, or `error: TEXT`."""
    try:
        value, cost = compile_expression(expression, KUBERNETES).measure({})
    except (EvalError, NotInstantiable) as error:  # constants are computed by the compiler
        return f"error: {error}"
    return f"{shown(value)} for {cost}"


def _double(value: float) -> str:
    return f"d{value:.17e}" if abs(value) < float("inf") else f"d{value:+}".replace("inf", "Inf").replace("+nan", "NaN")


_JSON: Final = partial(json.dumps, ensure_ascii=False)
_SCALARS: Final[Mapping[type, Callable[[Any], str]]] = {
    type(None): _JSON,
    bool: _JSON,
    str: _JSON,
    int: str,
    UInt: lambda value: f"{int(value)}u",
    float: _double,
    bytes: lambda value: f"b{value.hex()}",
    Timestamp: lambda value: f"ts{timestamp_text(value)}",
    Duration: lambda value: f"dur{value.nanos}",
    TypeValue: lambda value: f"type {value.name}",
    Optional: lambda value: f"opt({shown(value.value)})" if value.present else "none",
}


def shown(value: Value) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{shown(unkey(name))}: {shown(each)}' for name, each in value.items()))}}}"
    write = _SCALARS.get(type(value))
    return f"<{value.cel_type}>" if write is None else write(value)
