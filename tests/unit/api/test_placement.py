"""Tolerations and node affinity of one pod and one node: docs/spec/core.md §A.6, §5.4."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core_v1 import NodeSelector, NodeSelectorTerm, Taint, Toleration
from scheduler.api.decode import from_manifest
from scheduler.api.node_affinity import (
    required_affinity_matches,
    selector_matches,
    term_matches,
    term_problem,
    tolerates,
    untolerated,
)
from tests.unit.objects import pod

TAINT = Taint(key="team", value="a", effect="NoSchedule")
LABELS = {"zone": "z1", "disk": "ssd", "rank": "5"}


@pytest.mark.parametrize(
    ("toleration", "accepts"),
    [
        pytest.param({"key": "team", "value": "a"}, True, id="equal by default, any effect"),
        pytest.param({"key": "team", "value": "b"}, False, id="other value"),
        pytest.param({"operator": "Exists"}, True, id="exists without key takes everything"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="other effect"),
        pytest.param({"key": "team", "operator": "Lt", "value": "9"}, False, id="alpha operators never match"),
        pytest.param({"operator": "Equal", "value": "a"}, False, id="no key needs Exists"),
    ],
)
def test_tolerates(toleration: dict[str, str], accepts: bool) -> None:
    """One toleration, one taint."""
    assert accepts is tolerates(from_manifest(Toleration, toleration), TAINT)


def test_untolerated_is_the_first_hard_one() -> None:
    """Soft taints refuse nobody."""
    soft = Taint(key="soft", effect="PreferNoSchedule")
    gone = Taint(key="gone", effect="NoExecute")

    assert gone == untolerated((), (soft, gone, TAINT))
    assert untolerated((), (soft,)) is None
    assert untolerated((Toleration(operator="Exists"),), (gone, TAINT)) is None


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
    """One term, one node."""
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
    """A term that cannot be parsed says where."""
    assert term_problem(from_manifest(NodeSelectorTerm, term)).startswith(place)


def test_good_terms_have_no_problem() -> None:
    """Names as Kubernetes spells them."""
    keys = ["zone", "topology.kubernetes.io/zone", "a/B_c.d-1"]
    term = {"matchExpressions": [expression(key, "In", "", "v1", "A_b.c-d") for key in keys]}

    assert term_problem(from_manifest(NodeSelectorTerm, term)) == ""


def test_terms_are_alternatives() -> None:
    """Any term may hold; no terms match nothing."""
    ssd, hdd = ({"matchExpressions": [expression("disk", "In", kind)]} for kind in ("ssd", "hdd"))
    either = from_manifest(NodeSelector, {"nodeSelectorTerms": [hdd, ssd]})

    assert selector_matches(either, "n1", LABELS)
    assert not selector_matches(NodeSelector(), "n1", LABELS)


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
