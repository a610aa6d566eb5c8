"""The JSON of `simulate`: its schema is that of the types, and refuses what is no answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.simulate.answer import schema
from tests.support.jsonschema import mistakes
from tools.simulate_schema import page

SCHEMA = Path(__file__).parents[4] / "docs" / "simulate.schema.json"
Object = dict[str, Any]


def valid() -> Object:
    """An answer with one object of each kind."""
    times = {"firstSeconds": 0.1, "lastSeconds": 0.2, "totalSeconds": 0.2, "podsPerSecond": None}
    counts = dict.fromkeys(("pods", "placed", "pending", "preempted", "nodes", "boundBefore", "leftAlone"), 1)
    missing = {"kind": "Node", "name": "n", "referrer": "x", "field": "spec.nodeName", "referrers": 1, "hint": ""}
    row = {"workload": "Job a/j", "replicas": None, "existing": 0, "created": 1, "deleted": ["p"], "ignored": 0}
    share = {"node": "n", "share": 0.5}
    cpu = {"resource": "cpu", "unit": "millicpu", "requested": 1, "allocatable": 2, "fullest": share, "emptiest": share}
    return {
        "ok": False,
        "settled": True,
        "problems": ["a/q was not placed"],
        "summary": counts | {"leftOut": {"RayCluster.ray.io": 1}},
        "timing": times,
        "pods": [
            {"pod": "a/p", "owner": "Job/j", "node": "n", "expectedPending": False},
            {"pod": "a/q", "owner": None, "node": None, "expectedPending": True, "reason": "r", "message": "m"},
        ],
        "preempted": [
            {"pod": "a/v", "priority": -1, "node": "n", "for": None, "forPriority": None, "forNode": None},
        ],
        "missingReferences": [missing],
        "workloads": [row | {"reason": "", "refused": ""}],
        "resources": [cpu],
    }


def test_the_file_is_that_of_the_types() -> None:
    """Else: python -m tools.simulate_schema > docs/simulate.schema.json"""
    assert SCHEMA.read_text() == page()


def test_an_answer_is_valid() -> None:
    assert list(mistakes(valid(), schema())) == []


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        pytest.param({"ok": None}, "$.ok: None: type boolean", id="another type"),
        pytest.param({"more": 1}, "$.more: is not in the schema", id="an unknown field"),
        pytest.param({"summary": {"pods": -1}}, "$.summary.pods: -1: minimum 0", id="a negative number"),
        pytest.param({"summary": {}}, "$.summary: pods is missing", id="a missing field"),
        pytest.param(
            {"pods": [valid()["pods"][0] | {"pod": "p"}]},
            "$.pods[0].pod: 'p': pattern ^[^/]+/[^/]+$",
            id="a name",
        ),
        pytest.param({"pods": [valid()["pods"][0] | {"node": ""}]}, "$.pods[0].node: '': anyOf", id="no node"),
        pytest.param(
            {"resources": [valid()["resources"][0] | {"unit": "core"}]},
            "$.resources[0].unit: 'core': enum ['1', 'millicpu']",
            id="a value that is not listed",
        ),
    ],
)
def test_what_is_no_answer(change: Object, mistake: str) -> None:
    """The schema names each place."""
    assert mistake in list(mistakes(valid() | change, json.loads(SCHEMA.read_text())))
