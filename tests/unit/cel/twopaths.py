"""The two ways to evaluate an expression, told apart by what they give and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.cel.checker import check
from scheduler.cel.fast.compiling import Fast, generate
from scheduler.cel.fast.support import ticking
from scheduler.cel.parser import parse
from scheduler.cel.plan import plan_all
from scheduler.cel.running import COST_LIMIT, Run
from scheduler.cel.types import Env
from scheduler.cel.validators import validate
from scheduler.cel.values import CelError, CostExceeded, EvalError, Optional, Value

LEFT = "left to the closures"


def closures_of(source: str, env: Env, bindings: Mapping[str, Value], *, limit: int = COST_LIMIT) -> Any:
    """Value and cost, or the text of the error."""
    checked, plans, slots = _planned(source, env)
    run = Run(bindings, slots, limit=limit)
    try:
        value = plans[checked.root].code(run)
        run.settle()
    except CelError as error:
        return f"{type(error).__name__}: {error}"
    return strict(value), run.cost


def generated(source: str, env: Env, *, limit: int = COST_LIMIT, counts: bool = True) -> Fast | None:
    """The generated code, if there is any."""
    checked, plans, _ = _planned(source, env)
    return generate(checked, env, plans, limit=limit, counts=counts)


def answer(fast: Fast | None, bindings: Mapping[str, Value], *, limit: int = COST_LIMIT) -> Any:
    """As `closures_of`; LEFT if the generated code does not know."""
    if fast is None:
        return LEFT
    bound, tick = ticking(limit, None)
    try:
        value, cost = fast.function(bindings, bound, tick)
    except CostExceeded as error:
        return f"CostExceeded: {error}"
    except EvalError as error:
        return f"EvalError: {error}" if fast.tells else LEFT
    except Exception:  # noqa: BLE001  as Program does
        return LEFT
    if cost > limit:
        return "CostExceeded: operation cancelled: actual cost limit exceeded"
    return strict(value), cost


def _planned(source: str, env: Env) -> tuple[Any, Any, int]:
    checked = check(parse(source), source, env)
    validate(checked)
    return checked, *plan_all(checked, env)


def strict(value: Value) -> object:
    """The value with the types of all that is in it: 1, 1u, 1.0 and true are four things."""
    if isinstance(value, Optional):
        return ("optional", strict(value.value) if value.present else None, value.present)
    if isinstance(value, list | tuple):
        return ("list", [strict(each) for each in value])
    if isinstance(value, Mapping):
        return ("map", [(strict(name), strict(each)) for name, each in value.items()])
    if hasattr(value, "cel_type"):
        return (type(value).__name__, str(getattr(value, "nano", value)) if hasattr(value, "nano") else value)
    return (type(value).__name__, repr(getattr(value, "value", value)))
