"""YAML and JSON texts as values, durations as Go writes them, and rules for names."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, strategies as st

from scheduler.config.document import format_duration, parse_duration_s, read_document, write_document
from scheduler.config.errors import ConfigErrors
from scheduler.config.fields import csi_driver, extended_resource, resource_group


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("", None, id="an empty text is nothing"),
        pytest.param(
            "a: true\nb: False\nc: ~\nd:\n", {"a": True, "b": False, "c": None, "d": None}, id="true and null"
        ),
        pytest.param("---\na: 5\n---\n# no more\n", {"a": 5}, id="what is empty is no second document"),
        pytest.param("a: !!int '5'\n", {"a": 5}, id="a tag may say what the quotes hide"),
        pytest.param("a: 5\nb: -3\nc: 0.5\nd: 1e3\n", {"a": 5, "b": -3, "c": 0.5, "d": 1000.0}, id="JSON's numbers"),
        pytest.param(
            "a: 010\nb: 0x10\nc: 1:30\nd: 1_000\ne: 2001-01-01\nf: .inf\n",
            {"a": "010", "b": "0x10", "c": "1:30", "d": "1_000", "e": "2001-01-01", "f": ".inf"},
            id="numbers and dates that only some YAML readers see are texts",
        ),
        pytest.param("a: 'no'\nb: \"on\"\n", {"a": "no", "b": "on"}, id="quoted words are texts"),
        pytest.param("on: 1\n", {"on": 1}, id="a key is a text, whatever the word"),
        pytest.param("a: &x [1]\nb: *x\n", {"a": [1], "b": [1]}, id="an alias repeats"),
        pytest.param(
            "a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n",
            {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}},
            id="a merged mapping gives way to own keys",
        ),
        pytest.param("a:\n  <<: [{p: 1}, {p: 2}]\n", {"a": {"p": 1}}, id="of merged mappings the first wins"),
        pytest.param('{\n\t"a": "x\\ty"\n}', {"a": "x\ty"}, id="JSON may be indented with tabs"),
        pytest.param("a: " + "9" * 5000, {"a": float("inf")}, id="an endless number is no integer"),
    ],
)
def test_a_text_means_one_thing(text: str, value: object) -> None:
    """Scalars are typed as JSON would type them."""
    assert read_document(text).value == value


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        pytest.param("a: 1\nb:\n  c: 1\n  c: 2\n", "b.c: duplicate key in line 4", 3, id="a key twice"),
        pytest.param('{"a": 1,\n "a": 2}', "a: duplicate key in line 2", 1, id="a key twice in JSON"),
        pytest.param("a:\n- b: 1\n  b: 2\n", "a[0].b: duplicate key in line 3", 2, id="a key twice inside a list"),
        pytest.param(
            "a: off\n",
            "a: the bare word off is a boolean to some: write true or false, or quote it",
            1,
            id="a word that is a boolean to some",
        ),
        pytest.param(
            "a: 1\n--- \nb: 2\n", "a second document starts in line 3; one is expected", 3, id="two documents"
        ),
        pytest.param(
            "a: 1\nb: [1\n",
            "line 3, column 1: is not YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
            3,
            id="a list that never ends",
        ),
        pytest.param("a: &x [*x]\n", "a[0]: is an alias of something that contains it", 1, id="an endless alias"),
        pytest.param(
            "a: !!set {b}\n", "a: has the YAML tag tag:yaml.org,2002:set, which means nothing here", 1, id="a tag"
        ),
        pytest.param(
            "a: !!int b\n", "a: has the YAML tag int, and is no such number", 1, id="a number by its tag only"
        ),
        pytest.param("a: !!float nan\n", "a: has the YAML tag float, and is no such number", 1, id="not a number"),
        pytest.param("a: !x b\n", "a: has the YAML tag !x, which means nothing here", 1, id="an unknown tag"),
        pytest.param("? [a]\n: 1\n", "a key must be a word", 1, id="a list as a key"),
        pytest.param("a:\n  <<: 1\n", "a: << must be followed by mappings", 1, id="merging a number"),
        pytest.param("[" * 5000, "is nested too deeply", 0, id="nested without end"),
        pytest.param("a: \x00\n", "is not YAML: unacceptable character", 0, id="a NUL"),
    ],
)
def test_what_is_ambiguous_is_refused(text: str, said: str, line: int) -> None:
    try:
        document = read_document(text)
    except ConfigErrors as broken:
        found, at = str(broken), broken.line
    else:
        [(path, message)] = document.mistakes
        found, at = f"{path}: {message}", document.lines[path]

    assert found.removeprefix(": ").startswith(said)
    assert at == line


def test_aliases_cannot_blow_up() -> None:
    levels = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 11)]

    with pytest.raises(ConfigErrors, match="has more than 100000 values"):
        read_document("\n".join(levels))


def test_every_field_has_a_line() -> None:
    lines = read_document("a:\n  - b: 1\n    c: 2\n  - 3\nd/e: 4\n").lines

    assert {path: line for path, line in lines.items() if path} == {
        "a": 1,
        "a[0]": 2,
        "a[0].b": 2,
        "a[0].c": 3,
        "a[1]": 4,
        "[d/e]": 5,
    }


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab#: 'é\\\t"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab: ", max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_json_is_read_as_json(value: object, indent: int | str | None) -> None:
    assert read_document(json.dumps({"v": value}, indent=indent)).value == {"v": value}


@given(JSON | st.from_regex(r"[-+.0-9yYnNoO~<:ef_]{1,6}", fullmatch=True))
def test_what_is_written_is_read(value: object) -> None:
    text = write_document({"v": value})

    assert read_document(text).value == {"v": value}
    assert yaml.safe_load(text) == {"v": value}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h0m0.5s", 3600.5),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("-2s", -2.0),
        ("+1h", 3600.0),
        ("0", 0.0),
        ("10us", 0.00001),
        ("1.5h", 5400.0),
    ],
)
def test_reading(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "15", "s", "1 m", "1d", ".s", "1.2.3s", "1m-3s", "abc", "٣s", "--1s", "99999999h"]
)
def test_refusing(text: str) -> None:
    """A number needs a unit; there are no days; Go's limit holds."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (15.0, "15s"),
        (600.0, "10m0s"),
        (5400.25, "1h30m0.25s"),
        (0.3, "300ms"),
        (0.0000015, "1.5µs"),
        (7e-9, "7ns"),
        (-90.0, "-1m30s"),
    ],
)
def test_writing(seconds: float, text: str) -> None:
    """As Go's Duration.String."""
    assert format_duration(seconds) == text


@given(st.integers(-(10**15), 10**15))
def test_written_and_read_is_the_same(nanoseconds: int) -> None:
    seconds = nanoseconds / 1_000_000_000

    assert parse_duration_s(format_duration(seconds)) == seconds


LONG = "a" * 250 + ".b/x"
BAD = ["cpu", "kubernetes.io/x", "sub.kubernetes.io/x", "requests.example.com/x", LONG, "example.com/"]


@pytest.mark.parametrize("name", ["example.com/gpu", *BAD])
def test_extended_resources(name: str) -> None:
    assert (extended_resource(name) == []) is (name not in BAD)


@pytest.mark.parametrize(("group", "complaints"), [("example.com", 0), ("example.com/", 3), ("a b", 1)])
def test_resource_groups(group: str, complaints: int) -> None:
    assert len(resource_group(group)) == complaints


@pytest.mark.parametrize("name", ["ebs.csi.aws.com", "Upper.Example", "", "a/b", "a_b", "a" * 64])
def test_csi_drivers(name: str) -> None:
    assert (csi_driver(name) == []) is ("." in name)
