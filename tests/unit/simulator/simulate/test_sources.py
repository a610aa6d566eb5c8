"""Paths become texts, with and without gzip; YAML has the values of Go's reader, and duplicate keys are found with their lines."""

from __future__ import annotations

import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from simulator import simulate
from simulator.simulate.input.documents import SyntaxMistake, documents
from simulator.simulate.input.sources import InputError, Source, sources, text_of

TREE = ("b.yaml", "a.json", "c.yml.gz", "notes.txt", "sub/d.yaml", "sub/deep/e.json.gz")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory of empty files."""
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("recursive", "names"),
    [
        pytest.param(False, ["a.json", "b.yaml", "c.yml.gz"], id="only its own files"),
        pytest.param(True, ["a.json", "b.yaml", "c.yml.gz", "sub/d.yaml", "sub/deep/e.json.gz"], id="with -R all"),
    ],
)
def test_a_directory_stands_for_its_manifests(tree: Path, *, recursive: bool, names: list[str]) -> None:
    """Sorted; files of other names are not read."""
    found = sources([str(tree)], recursive=recursive)

    assert [str(Path(each.path).relative_to(tree)) for each in found] == names


def test_named_files_are_read_whatever_their_name(tree: Path) -> None:
    """In the order of the command line."""
    paths = [str(tree / name) for name in ("notes.txt", "b.yaml")]

    assert [each.path for each in sources(paths)] == paths


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        pytest.param([], "no input: name files or directories, or - for standard input", id="nothing is named"),
        pytest.param(["-", "-"], "-: standard input can be read only once", id="standard input twice"),
        pytest.param(["nowhere.yaml"], "nowhere.yaml: cannot be read: No such file", id="a file that is not there"),
        pytest.param(["."], ".: the directory has no manifests: no file *.json, *.yaml, *.yml", id="no manifests"),
    ],
)
def test_paths_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: list[str], said: str
) -> None:
    """The message names the path and what to do."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InputError) as refused:
        sources(paths)

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param("ä: 1".encode(), "ä: 1", id="plain"),
        pytest.param(b"\xef\xbb\xbfa: 1", "a: 1", id="with a byte order mark"),
        pytest.param(gzip.compress(b"a: 1"), "a: 1", id="compressed"),
        pytest.param(gzip.compress(b"a: 1\n") + gzip.compress(b"b: 2\n"), "a: 1\nb: 2\n", id="compressed in two parts"),
        pytest.param(b"", "", id="empty"),
    ],
)
@pytest.mark.parametrize("name", ["in.yaml", "-"])
def test_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, text: str) -> None:
    """The content decides whether it is decompressed, not the name; standard input is read alike."""
    file = tmp_path / "in.yaml"
    file.write_bytes(data)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    assert text_of(Source("-" if name == "-" else str(file))) == text


@pytest.mark.parametrize(("data", "said"), [
    pytest.param(b"a: \xff", "in.yaml: is not UTF-8: byte 3", id="no text"),
    pytest.param(b"a" * 101, "in.yaml: has more than 100 bytes", id="too large"),
    pytest.param(gzip.compress(b"a" * 101), "in.yaml: has more than 100 bytes", id="too large when decompressed"),
    pytest.param(gzip.compress(b"a: 1")[:-9], "in.yaml: cannot be decompressed: Compressed file ended", id="cut"),
    pytest.param(b"\x1f\x8b\x07abcdefgh", "in.yaml: cannot be decompressed: Unknown compression", id="no gzip"),
    pytest.param(gzip.compress(b"a: 1")[:10] + b"\xff" * 20, "in.yaml: cannot be decompressed: Error -3",
        id="broken gzip"),
])  # fmt: skip
def test_texts_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, said: str) -> None:
    """The message names the file."""
    monkeypatch.chdir(tmp_path)
    Path("in.yaml").write_bytes(data)

    with pytest.raises(InputError) as refused:
        text_of(Source("in.yaml"), max_bytes=100)

    assert said in str(refused.value)


def test_a_directory_that_cannot_be_entered_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its manifests would be left out silently."""

    def walk(_: object, onerror: object) -> list[object]:
        assert callable(onerror)
        onerror(PermissionError(13, "Permission denied", str(tree / "sub")))
        return []

    monkeypatch.setattr("os.walk", walk)

    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        sources([str(tree)], recursive=True)


# -- output while files are read ------------------------------------------------------------------------------------------


NOTE = "x" * 2_000_000


@pytest.mark.parametrize(
    ("is_terminal", "start", "note", "hinted"),
    [
        pytest.param(True, "---", NOTE, True, id="a large text on a terminal"),
        pytest.param(True, "---", "", False, id="a small text"),
        pytest.param(True, "", NOTE, False, id="a large text that is JSON"),
        pytest.param(False, "---", NOTE, False, id="a large text in a pipe"),
    ],
)
def test_json_is_recommended_for_large_yaml(
    tmp_path: Path, *, is_terminal: bool, start: str, note: str, hinted: bool
) -> None:
    metadata = {"name": "a", "annotations": {"note": note}}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(f"{start}\n{json.dumps(manifest)}")
    out = io.StringIO()
    errors = Console(file=out, force_terminal=is_terminal, width=100)
    asked = simulate.SimulateArguments((str(tmp_path),), "json", simulate.ReadOptions(("kubestow",)))

    found = simulate._read(asked, "1.36", errors)

    assert len(found) == 2
    assert out.getvalue().count(f"hint: {tmp_path}/a.yaml is large; JSON") == hinted
    assert out.getvalue().count("hint:") == hinted
    assert ("reading: 2 objects from 2 files in" in out.getvalue()) >= is_terminal


@pytest.mark.parametrize(("text", "value"), [
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
    pytest.param("[&a {x: 1}, &b {x: 2, z: 3}, {<<: [*a, *b]}]", [{"x": 1}, {"x": 2, "z": 3}, {"x": 1, "z": 3}],
        id="of several merged objects the first wins"),
    pytest.param("{'<<': 1}", {"<<": 1}, id="quoted, the merge key is a field"),
    pytest.param("|\n a\n b\n", "a\nb\n", id="a literal block"),
])  # fmt: skip
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


def test_paths_are_no_markup() -> None:
    out = io.StringIO()
    simulate._say(Console(file=out, width=100), "a:on:b[/red].yaml: cannot be read")

    assert out.getvalue() == "a:on:b[/red].yaml: cannot be read\n"
