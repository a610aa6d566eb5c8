"""Tolerations and node affinity of one pod and one node: docs/spec/core.md §A.6, §5.4."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core_v1 import NodeSelectorTerm
from scheduler.api.decode import from_manifest
from scheduler.api.node_affinity import (
    required_affinity_matches,
    term_matches,
    term_problem,
)
from tests.unit.objects import pod

LABELS = {"zone": "z1", "disk": "ssd", "rank": "5"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        pytest.param({}, False, id="155 an empty term matches nothing"),
        pytest.param({"matchFields": [expression("metadata.name", "NotIn", "n1")]}, False, id="field excludes it"),
        pytest.param(
            {"matchFields": [expression("metadata.name", "In", "n1", "n2")]}, False, id="a field has one value"
        ),
        pytest.param({"matchFields": [expression("metadata.uid", "NotIn", "n1")]}, True, id="an empty field is not it"),
        pytest.param({"matchExpressions": [expression("disk", "Gt", "4")]}, False, id="156 label is no integer"),
        pytest.param({"matchExpressions": [expression("none", "NotIn")]}, False, id="values are missing"),
        pytest.param({"matchExpressions": [expression("zone", "Near", "z1")]}, False, id="unknown operator"),
        pytest.param(
            {
                "matchExpressions": [expression("zone", "In", "z1")],
                "matchFields": [expression("metadata.name", "In", "n2")],
            },
            False,
            id="fields and expressions must both hold",
        ),
        pytest.param({"matchFields": [expression("metadata.name", "In", "n1")]}, True, id="field names the node"),
        pytest.param({"matchFields": [expression("metadata.name", "Exists")]}, False, id="a field is In or NotIn"),
        pytest.param({"matchFields": [expression("metadata.uid", "In", "n1")]}, False, id="another field is empty"),
    ],
)
def test_terms(term: dict[str, Any], matches: bool) -> None:
    assert matches is term_matches(from_manifest(NodeSelectorTerm, term), "n1", LABELS)


@pytest.mark.parametrize(
    ("term", "place"),
    [
        ({"matchExpressions": [expression("a", "In", "x"), expression("a", "Gt", "x")]}, "matchExpressions[1].values"),
        ({"matchExpressions": [expression("a", "Near")]}, "matchExpressions[0].operator"),
        ({"matchExpressions": [expression("/a", "Exists")]}, "matchExpressions[0].key"),
        ({"matchExpressions": [expression("a" * 64, "Exists")]}, "matchExpressions[0].key"),
        ({"matchExpressions": [expression("a", "In", "x" * 64)]}, "matchExpressions[0].values"),
        ({"matchFields": [expression("metadata.name", "In")]}, "matchFields[0].values"),
    ],
)
def test_problems_name_their_place(term: dict[str, Any], place: str) -> None:
    assert term_problem(from_manifest(NodeSelectorTerm, term)).startswith(place)


def test_good_terms_have_no_problem() -> None:
    """Names as Kubernetes spells them."""
    keys = ["zone", "topology.kubernetes.io/zone", "a/B_c.d-1"]
    term = {"matchExpressions": [expression(key, "In", "", "v1", "A_b.c-d") for key in keys]}

    assert term_problem(from_manifest(NodeSelectorTerm, term)) == ""


def test_selector_and_affinity_are_joined() -> None:
    """154: and between nodeSelector and affinity."""
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression("disk", "In", "ssd")]}]
            }
        }
    }
    both = pod(nodeSelector={"zone": "z1"}, affinity=affinity)

    assert required_affinity_matches(both, "n1", LABELS)
    assert not required_affinity_matches(both, "n1", {"zone": "z1"})
    assert not required_affinity_matches(both, "n1", {"disk": "ssd"})
