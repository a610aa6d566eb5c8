"""Values of expressions as text, in which values of different types always differ."""

import json
from collections.abc import Mapping
from functools import singledispatch

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


@singledispatch
def shown(value: Value) -> str:
    return f"<{value.cel_type}>"


@shown.register
def _(value: None) -> str:
    return "null"


@shown.register
def _(value: bool) -> str:
    return "true" if value else "false"


@shown.register
def _(value: int) -> str:
    return str(value)


@shown.register
def _(value: UInt) -> str:
    return f"{int(value)}u"


@shown.register
def _(value: float) -> str:
    return f"d{value:.17e}" if abs(value) < float("inf") else f"d{value:+}".replace("inf", "Inf").replace("+nan", "NaN")


@shown.register
def _(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


@shown.register
def _(value: bytes) -> str:
    return f"b{value.hex()}"


@shown.register
def _(value: Timestamp) -> str:
    return f"ts{timestamp_text(value)}"


@shown.register
def _(value: Duration) -> str:
    return f"dur{value.nanos}"


@shown.register
def _(value: TypeValue) -> str:
    return f"type {value.name}"


@shown.register
def _(value: Optional) -> str:
    return f"opt({shown(value.value)})" if value.present else "none"


@shown.register(list)
@shown.register(tuple)
def _(value: Value) -> str:
    return f"[{', '.join(map(shown, value))}]"


@shown.register(Mapping)
def _(value: Value) -> str:
    entries = sorted(f"{shown(unkey(name))}: {shown(each)}" for name, each in value.items())
    return "{" + ", ".join(entries) + "}"
