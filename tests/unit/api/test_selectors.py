"""Label selectors, and the anchors under which they are indexed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from scheduler.api.decode import from_manifest
from scheduler.api.selectors import (
    LabelSelector,
    LabelSelectorRequirement,
    anchors,
    integer,
    probes,
    requirement_matches,
)

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


@pytest.mark.parametrize(
    ("selector", "labels", "found"),
    [
        pytest.param(None, {"app": "a"}, False, id="a nil selector is not found"),
        pytest.param(LabelSelector(), {}, True, id="an empty selector is found by all pods"),
        pytest.param(LabelSelector({"app": "a"}), {"app": "b"}, False, id="another value of the label finds nothing"),
        pytest.param(
            LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", ("a", "b")),)),
            {"app": "b"},
            True,
            id="any of the values of In finds it",
        ),
    ],
)
def test_what_finds_a_selector(selector, labels, found):
    namespaces = frozenset({"default"})

    assert found == bool(set(anchors(namespaces, selector)) & set(probes("default", labels)))
    assert not set(anchors(namespaces, selector)) & set(probes("elsewhere", labels))
