"""Answers and costs that were recorded when two evaluators agreed on them: errors in loops, edges of arithmetic and order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import DYN, INT, STRING, list_of, map_of, optional_of
from scheduler.cel.errors import CostExceeded, EvalError
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.values import Optional, Value

ENV = KUBERNETES.extended(
    {"m": map_of(STRING, DYN), "x": DYN, "n": INT, "l": list_of(INT), "s": STRING, "o": optional_of(DYN)}
)
M = {"a": 1, "b": True, "c": "text", "l": [1, 2], "k": "a", "d": {"e": "f"}}
BINDINGS: dict[str, Any] = {"m": M, "x": 1.5, "n": 7, "l": [1, 2, 3], "s": "some text", "o": Optional({"k": 5})}
ROWS = list(map(json.loads, (Path(__file__).parent / "goldens" / "recorded.jsonl").read_text().splitlines()))


def strict(value: Value) -> object:
    """The value with the types of all its parts: 1, 1u, 1.0 and true are four values."""
    if isinstance(value, list | tuple):
        return ["list", [strict(each) for each in value]]
    if isinstance(value, Mapping):
        return ["map", [[strict(name), strict(each)] for name, each in value.items()]]
    if hasattr(value, "nanos"):
        return [type(value).__name__, str(value)]
    return [type(value).__name__, repr(getattr(value, "value", value))]


@pytest.mark.parametrize(("source", "more", "answer", "cost"), [(*row, None)[:4] for row in ROWS])
def test_recorded_answers(source: str, more: dict[str, Any], answer: object, cost: int | None) -> None:
    """The value or error; the cost of a value is enough as limit, and one unit less is too little."""
    bindings = BINDINGS | more
    if cost is None:
        with pytest.raises(EvalError) as caught:
            compile_expression(source, ENV).evaluate(bindings)
        assert answer == f"EvalError: {caught.value}"
        return
    found = compile_expression(source, ENV, cost_limit=cost).measure(bindings)
    assert (answer, cost) == (strict(found.value), found.cost)
    if cost:
        with pytest.raises(CostExceeded):
            compile_expression(source, ENV, cost_limit=cost - 1).evaluate(bindings)


def test_there_is_something_recorded() -> None:
    """An empty file would pass too."""
    assert len(ROWS) > 500
