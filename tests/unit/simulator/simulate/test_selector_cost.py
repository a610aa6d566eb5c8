"""The estimated cost of selectors equals kube-apiserver's, which was recorded (`tests/unit/cel/goldens/estimates.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from scheduler.cache.devices.selectors import environment
from scheduler.cel.errors import CompileError
from simulator.simulate.input.rules.selector_cost import COST_LIMIT, estimated_cost
from tests.unit.cel.goldens.estimates import USED

_RECORDED: Final = Path(__file__).parents[2] / "cel" / "goldens" / "estimates.jsonl"
_ROWS: Final = [json.loads(line) for line in _RECORDED.read_text().split("\n") if line]
_ENVIRONMENTS: Final = {lists: environment(list_attributes=lists) for lists in (False, True)}
_NOT_READ: Final = {"device.`driver` == 'x'"}
"""Syntax of v1.37 that this compiler does not have."""


def cost(expression: str, *, lists: bool = False) -> int:
    return estimated_cost(expression, _ENVIRONMENTS[lists])


def test_costs_are_those_of_the_recording() -> None:
    """The costs of v1.37.2 are equal to the unit."""
    others = []
    for expression, lists, recorded, *_ in _ROWS:
        if expression in _NOT_READ:
            with pytest.raises(CompileError):
                cost(expression, lists=lists)
        elif (ours := cost(expression, lists=lists)) != recorded:
            others.append((expression, lists, ours, recorded))
    assert others == []


def test_the_recording_has_selectors_on_both_sides_of_the_limit() -> None:
    refused = [row for row in _ROWS if row[2] > COST_LIMIT]
    assert len(_ROWS) > 1500
    assert 300 < len(refused) < len(_ROWS) - 300
    assert set(USED) <= {row[0] for row in _ROWS}


def test_the_version_changes_no_verdict_but_that_of_a_match_without_size() -> None:
    """v1.36 charges one unit for the function `matches`, whatever its text is."""
    changed = [
        row[0]
        for row in _ROWS
        if len(row) > 3 and row[3] is not None and (row[2] > COST_LIMIT) != (row[3] > COST_LIMIT)
    ]
    assert all("matches(" in each or ".includes(" in each for each in changed), changed


def test_targets_that_upstream_repeats_cost_as_often() -> None:
    """Costs double with each optMap inside the target of another, and the estimate takes no longer for it."""
    expression = "device.attributes['a'].?b" + ".optMap(x, x)" * 40 + ".hasValue()"
    assert cost(expression) > 2**40


def test_a_nested_selector_needs_no_deep_stack() -> None:
    assert cost("(" * 100 + "true" + " && true)" * 100) == 0
    assert cost("[1].all(x, " * 40 + "true" + ")" * 40) < COST_LIMIT
