"""Label selectors."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.api.decode import from_manifest
from scheduler.api.selectors import LabelSelector, integer, requirement_matches

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
    """Labels and expressions are joined by and; the empty selector matches everything."""
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
    """A selector that cannot be parsed is refused where it is decoded, with its place."""
    with pytest.raises(msgspec.ValidationError, match=r"matchExpressions\[0\]"):
        from_manifest(LabelSelector, {"matchExpressions": [requirement]})
