"""YAML has the values of Go's reader, and duplicate keys are found with their lines."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from simulator.simulate.input.documents import SyntaxMistake, documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("12", 12, id="an integer"),
        pytest.param("'12'", "12", id="quoted, a text"),
        pytest.param("1_000", 1000, id="underscores separate digits"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("-0b101", -5, id="binary"),
        pytest.param("0755", 493, id="octal with a zero in front"),
        pytest.param("0o755", 493, id="octal of YAML 1.2"),
        pytest.param("089", 89, id="no octal number, and therefore a float"),
        pytest.param("3.0", 3, id="a float without a fraction is written as an integer"),
        pytest.param("1e3", 1000, id="an exponent without a point"),
        pytest.param("0.5", 0.5, id="a fraction"),
        pytest.param(".5", 0.5, id="a fraction without a zero"),
        pytest.param("18446744073709551615", 2**64 - 1, id="the largest integer of 64 bits"),
        pytest.param("1" * 30, float("1" * 30), id="a larger one is a float"),
        pytest.param("12:30:45", "12:30:45", id="no number of base 60"),
        pytest.param("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", id="a timestamp is a text"),
        pytest.param("2026-01-01", "2026-01-01", id="and so is a date"),
        pytest.param("yes", True, id="yes is a boolean"),
        pytest.param("n", False, id="and so is n"),
        pytest.param("Null", None, id="null"),
        pytest.param("~", None, id="a tilde"),
        pytest.param("-", [None], id="a dash opens a list"),
        pytest.param("+", "+", id="a sign alone"),
        pytest.param("1.2.3", "1.2.3", id="a version"),
        pytest.param("100m", "100m", id="a quantity"),
        pytest.param("!!str 12", "12", id="tagged as a text"),
        pytest.param("!!int '12'", 12, id="tagged as an integer"),
        pytest.param("!!binary aGk=", "hi", id="tagged as base64"),
        pytest.param("!mine x", "x", id="an unknown tag says nothing"),
        pytest.param("{1: a, on: b, 1.5: c}", {"1": "a", "true": "b", "1.5": "c"}, id="keys"),
        pytest.param("[&a {x: 1}, *a]", [{"x": 1}, {"x": 1}], id="an alias"),
        pytest.param("[&a {x: 1, z: 2}, {z: 3, <<: *a}]", [{"x": 1, "z": 2}, {"x": 1, "z": 3}], id="a merge key"),
        pytest.param(
            "[&a {x: 1}, &b {x: 2, z: 3}, {<<: [*a, *b]}]",
            [{"x": 1}, {"x": 2, "z": 3}, {"x": 1, "z": 3}],
            id="of several merged objects the first wins",
        ),
        pytest.param("{'<<': 1}", {"<<": 1}, id="quoted, the merge key is a field"),
        pytest.param("|\n a\n b\n", "a\nb\n", id="a literal block"),
    ],
)
def test_values(text: str, value: Any) -> None:
    """As go.yaml.in/yaml/v2 and JSON make them."""
    (found,) = documents(text).values

    assert json.dumps(found, sort_keys=True) == json.dumps(value, sort_keys=True)


def test_infinite_numbers() -> None:
    low, high, nothing = documents("[-.inf, .Inf, .nan]").values[0]

    assert (low, high, math.isnan(nothing)) == (-math.inf, math.inf, True)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("a: 1\n---\n---\nb: 2\n", [{"a": 1}, None, {"b": 2}], id="YAML documents, one of them empty"),
        pytest.param('{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}], id="JSON values, one after the other"),
        pytest.param('{"a": 1}\n---\n{"b": 2}', [{"a": 1}, {"b": 2}], id="JSON in YAML documents"),
        pytest.param("{a: 1}", [{"a": 1}], id="YAML in flow style"),
        pytest.param("", [], id="nothing"),
        pytest.param("# a comment\n", [], id="a comment"),
    ],
)
def test_several_documents(text: str, values: list[Any]) -> None:
    assert documents(text).values == values


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        pytest.param("a: 1\nb: 2\na: 3\n", [("a", 3)], id="YAML, with the line"),
        pytest.param("a: 1\na: 1\na: 1\n", [("a", 2), ("a", 3)], id="three times"),
        pytest.param("a:\n- {x: 1}\n- {x: 1, x: 2}\n", [("a[1].x", 3)], id="in a list"),
        pytest.param('{"a": {"b": 1, "b": 2}}', [("a.b", None)], id="JSON"),
        pytest.param("1: a\n'1': b\n", [("1", 2)], id="keys that JSON spells alike"),
        pytest.param("a: &o {x: 1}\nb: {<<: *o, x: 2}\n", [], id="a merged field that the object has, too"),
        pytest.param("a: {b: 1}\nc: {b: 1}\n", [], id="the same key of two objects"),
        pytest.param("a: {x: 1, x: 2}\na: {y: 1}\n", [("a", 2)], id="in an object that was replaced"),
    ],
)
def test_duplicates(text: str, repeated: list[tuple[str, int | None]]) -> None:
    found = documents(text)

    assert found.repeated(found.values[0]) == repeated


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        pytest.param("a: 1\nb: }\n", "is not YAML: did not find expected node content", 2, id="a syntax error"),
        pytest.param("a: *b\n", "the alias *b has no anchor before it", 1, id="an alias of nothing"),
        pytest.param("a: &b [*b]\n", "or stands within it", 1, id="an alias of what contains it"),
        pytest.param("a: 1\n---\nb: &b 1\n---\nc: *b\n", "the alias *b", 5, id="an anchor of another document"),
        pytest.param("{[a]: 1}", "a key must be", 1, id="a list as a key"),
        pytest.param("{null: 1}", "a key must be", 1, id="null as a key"),
        pytest.param("{<<: 1}", "a merge key", 1, id="a merge of a number"),
        pytest.param("!!binary '?'", "!!binary needs base64", 1, id="bytes that are no base64"),
        pytest.param("!!when 1", "the tag tag:yaml.org,2002:when", 1, id="a tag of YAML that does not exist"),
        pytest.param("[" * 101 + "]" * 101, "is nested too deeply", None, id="nested without end"),
        pytest.param('{"a": ' * 2000 + "1" + "}" * 2000, "is nested too deeply", None, id="JSON nested without end"),
    ],
)
def test_mistakes(text: str, said: str, line: int | None) -> None:
    with pytest.raises(SyntaxMistake) as refused:
        documents(text)

    assert said in str(refused.value)
    assert refused.value.line == line


def test_aliases_do_not_explode() -> None:
    """Nine lines can stand for a billion values."""
    text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    text += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))

    with pytest.raises(SyntaxMistake, match="aliases stand for more than 1000000 values"):
        documents(text)


def test_progress_grows() -> None:
    parts: list[float] = []
    documents("- {a: 1, b: 2}\n" * 10_000, parts.append)

    assert len(parts) > 3
    assert parts == sorted(parts)
    assert 0 < parts[0] < parts[-1] <= 1
