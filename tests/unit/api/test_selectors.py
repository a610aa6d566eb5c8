"""Names, label selectors and their anchors in indexes; tolerations and node affinity (docs/spec/core.md §A.6, §5.4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from scheduler.api.core_v1 import NodeSelectorTerm
from scheduler.api.decode import from_manifest
from scheduler.api.meta import c_identifier, dns_label, label_key, label_value, subdomain
from scheduler.api.node_affinity import (
    required_affinity_matches,
    term_matches,
    term_problem,
)
from scheduler.api.selectors import (
    LabelSelector,
    LabelSelectorRequirement,
    anchors,
    integer,
    probes,
    requirement_matches,
)
from tests.unit.objects import pod

LABELS = {"app": "web", "rank": "7", "odd": "1_000", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        pytest.param("none", "In", ("web",), False, id="In needs the key"),
        pytest.param("empty", "In", ("",), True, id="an empty value is a value"),
        pytest.param("none", "NotIn", ("web",), True, id="NotIn matches without the key"),
        pytest.param("none", "NotIn", (), False, id="NotIn without values is broken"),
        pytest.param("app", "Exists", ("web",), False, id="Exists with values is broken"),
        pytest.param("app", "DoesNotExist", (), False, id="key is there but unwanted"),
        pytest.param("none", "DoesNotExist", ("x",), False, id="DoesNotExist with values is broken"),
        pytest.param("rank", "Gt", ("7",), False, id="equal is not greater"),
        pytest.param("rank", "Lt", ("8",), True, id="less"),
        pytest.param("app", "Gt", ("1",), False, id="a label that is no integer (row 156)"),
        pytest.param("odd", "Gt", ("1",), False, id="an underscore is no part of an integer"),
        pytest.param("rank", "Gt", ("1", "2"), False, id="Gt takes one value"),
        pytest.param("rank", "Gt", ("x",), False, id="Gt takes an integer"),
        pytest.param("none", "Lt", ("1",), False, id="Lt needs the key"),
        pytest.param("app", "Near", ("web",), False, id="an unknown operator matches nothing"),
    ],
)
def test_requirements(key: str, operator: str, values: tuple[str, ...], matches: bool) -> None:
    """Each operator says what upstream's says."""
    assert matches is requirement_matches(key, operator, values, LABELS)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        ("", None),
        ("1_0", None),
        (" 1", None),
        ("1.0", None),
        ("\u0661", None),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("0" * 60 + "7", 7),
        ("9" * 63, None),
        ("9" * 5000, None),
    ],
)
def test_integers(text: str, number: int | None) -> None:
    """Go's reading of integers, not Python's."""
    assert number == integer(text)


def test_selector_needs_all_parts() -> None:
    selector = from_manifest(
        LabelSelector, {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "rank", "operator": "Exists"}]}
    )

    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web"})
    assert not selector.matches({"rank": "7"})
    assert LabelSelector().matches({})


@pytest.mark.parametrize(
    "requirement",
    [
        {"key": "a", "operator": "Gt", "values": ["1"]},
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["x"]},
    ],
)
def test_broken_selector_is_named(requirement: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"matchExpressions\[0\]"):
        from_manifest(LabelSelector, {"matchExpressions": [requirement]})


_KEYS = st.sampled_from(["app", "tier", "track"])
_VALUES = st.sampled_from(["a", "b", "c"])
_NAMESPACES = st.sampled_from(["default", "team", "other"])


@st.composite
def selectors(draw):
    expressions = []
    for key in draw(st.lists(_KEYS, max_size=2)):
        operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))
        values = tuple(draw(st.lists(_VALUES, min_size=1, max_size=2))) if operator.endswith("In") else ()
        expressions.append(LabelSelectorRequirement(key, operator, values))
    return LabelSelector(draw(st.dictionaries(_KEYS, _VALUES, max_size=2)), tuple(expressions))


@given(
    namespaces=st.none() | st.frozensets(_NAMESPACES, max_size=2),
    selector=selectors(),
    namespace=_NAMESPACES,
    labels=st.dictionaries(_KEYS, _VALUES, max_size=3),
)
def test_a_selector_that_matches_a_pod_is_filed_where_the_pod_looks(namespaces, selector, namespace, labels):
    matches = (namespaces is None or namespace in namespaces) and selector.matches(labels)
    shared = set(anchors(namespaces, selector)) & set(probes(namespace, labels))

    assert shared or not matches


@given(namespaces=st.none() | st.frozensets(_NAMESPACES, max_size=2), selector=selectors())
def test_no_anchor_comes_twice(namespaces, selector):
    assert len(anchors(namespaces, selector)) == len(set(anchors(namespaces, selector)))


@pytest.mark.parametrize(("selector", "labels", "found"), [
    pytest.param(None, {"app": "a"}, False, id="a nil selector is not found"),
    pytest.param(LabelSelector(), {}, True, id="an empty selector is found by all pods"),
    pytest.param(LabelSelector({"app": "a"}), {"app": "b"}, False, id="another value of the label finds nothing"),
    pytest.param(LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", ("a", "b")),)), {"app": "b"},
        True, id="any of the values of In finds it"),
])  # fmt: skip
def test_what_finds_a_selector(selector, labels, found):
    namespaces = frozenset({"default"})

    assert found == bool(set(anchors(namespaces, selector)) & set(probes("default", labels)))
    assert not set(anchors(namespaces, selector)) & set(probes("elsewhere", labels))


NODE_LABELS = {"zone": "z1", "disk": "ssd", "rank": "5"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def labels(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [expression(key, operator, *values)]}


def fields(name: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [expression(f"metadata.{name}", operator, *values)]}


@pytest.mark.parametrize(("term", "matches"), [
    pytest.param({}, False, id="155 an empty term matches nothing"),
    pytest.param(fields("name", "NotIn", "n1"), False, id="field excludes it"),
    pytest.param(fields("name", "In", "n1", "n2"), False, id="a field has one value"),
    pytest.param(fields("uid", "NotIn", "n1"), True, id="an empty field is not it"),
    pytest.param(labels("disk", "Gt", "4"), False, id="156 label is no integer"),
    pytest.param(labels("none", "NotIn"), False, id="values are missing"),
    pytest.param(labels("zone", "Near", "z1"), False, id="unknown operator"),
    pytest.param(labels("zone", "In", "z1") | fields("name", "In", "n2"), False,
        id="fields and expressions must both hold"),
    pytest.param(fields("name", "In", "n1"), True, id="field names the node"),
    pytest.param(fields("name", "Exists"), False, id="a field is In or NotIn"),
    pytest.param(fields("uid", "In", "n1"), False, id="another field is empty"),
])  # fmt: skip
def test_terms(term: dict[str, Any], matches: bool) -> None:
    assert matches is term_matches(from_manifest(NodeSelectorTerm, term), "n1", NODE_LABELS)


@pytest.mark.parametrize(
    ("term", "place"),
    [
        ({"matchExpressions": [expression("a", "In", "x"), expression("a", "Gt", "x")]}, "matchExpressions[1].values"),
        (labels("a", "Near"), "matchExpressions[0].operator"),
        (labels("/a", "Exists"), "matchExpressions[0].key"),
        (labels("a" * 64, "Exists"), "matchExpressions[0].key"),
        (labels("a", "In", "x" * 64), "matchExpressions[0].values"),
        (fields("name", "In"), "matchFields[0].values"),
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
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [labels("disk", "In", "ssd")]}
        }
    }
    both = pod(nodeSelector={"zone": "z1"}, affinity=affinity)

    assert required_affinity_matches(both, "n1", NODE_LABELS)
    assert not required_affinity_matches(both, "n1", {"zone": "z1"})
    assert not required_affinity_matches(both, "n1", {"disk": "ssd"})


KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(("name", "said"), [
    pytest.param("a" * 63, [], id="as many as 63 characters"),
    pytest.param("a" * 64, ["name part must be no more than 63 bytes"], id="as many as 64 characters"),
    pytest.param("x/", ["name part must be non-empty", f"name part {KEY}"], id="only a domain"),
    pytest.param("/x", ["prefix part must be non-empty"], id="a slash without a domain"),
    pytest.param("a/b/c",
        [f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"],
        id="two slashes"),
    pytest.param("-x", [f"name part {KEY}"], id="starts with a dash"),
    pytest.param("x\n", [f"name part {KEY}"], id="ends with a line break"),
    pytest.param("Example.com/x", [f"prefix part {SUBDOMAIN}"], id="an upper-case domain"),
    pytest.param("a" * 254 + "/" + "é" * 32,
        ["prefix part must be no more than 253 bytes", "name part must be no more than 63 bytes", f"name part {KEY}"],
        id="too long, counted in bytes"),
    pytest.param("\ud800", [f"name part {KEY}"], id="half a character, which JSON can write"),
])  # fmt: skip
def test_label_keys(name: str, said: list[str]) -> None:
    assert label_key(name) == said


@pytest.mark.parametrize(
    ("value", "good"), [("", True), ("a.b_c-1", True), ("a/b", False), ("é", False), ("a" * 64, False)]
)
def test_label_values(value: str, good: bool) -> None:
    assert (label_value(value) == []) is good


@pytest.mark.parametrize(
    ("name", "of_most_objects", "of_a_namespace"),
    [
        pytest.param("a.b-c", [], ["must not contain dots"], id="a dot"),
        pytest.param("a" * 64, [], ["must be no more than 63 characters"], id="too long for a label"),
    ],
)
def test_dns_names(name: str, of_most_objects: list[str], of_a_namespace: list[str]) -> None:
    assert (subdomain(name), dns_label(name)) == (of_most_objects, of_a_namespace)


def test_what_a_dns_name_must_not_be() -> None:
    assert subdomain("A") == [SUBDOMAIN]
    assert subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert c_identifier("a_1") == []
    assert len(c_identifier("1a")) == 1
