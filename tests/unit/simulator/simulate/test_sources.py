"""Paths become texts: files, directories, standard input, with and without gzip; and the output during the reading."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from simulator import simulate
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


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"a: \xff", "in.yaml: is not UTF-8: byte 3", id="no text"),
        pytest.param(b"a" * 101, "in.yaml: has more than 100 bytes", id="too large"),
        pytest.param(gzip.compress(b"a" * 101), "in.yaml: has more than 100 bytes", id="too large when decompressed"),
        pytest.param(gzip.compress(b"a: 1")[:-9], "in.yaml: cannot be decompressed: Compressed file ended", id="cut"),
        pytest.param(b"\x1f\x8b\x07abcdefgh", "in.yaml: cannot be decompressed: Unknown compression", id="no gzip"),
        pytest.param(
            gzip.compress(b"a: 1")[:10] + b"\xff" * 20, "in.yaml: cannot be decompressed: Error -3", id="broken gzip"
        ),
    ],
)
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

    found = simulate._read(asked, errors)

    assert len(found) == 2
    assert out.getvalue().count(f"hint: {tmp_path}/a.yaml is large; JSON") == hinted
    assert out.getvalue().count("hint:") == hinted
    assert ("reading: 2 objects from 2 files in" in out.getvalue()) >= is_terminal
