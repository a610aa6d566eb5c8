"""Texts are plain English: the words and the length of sentences that `tests.tools.language` refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tools.language import ROOT, files_of, findings, identifier_findings

NOT_READ = (
    "tests/parity/recordings/",
    "tests/parity/pins/",
    "tests/parity/scenarios/",
    "tests/parity/differences.yaml",
    "tests/parity/extenders.yaml",
    "tests/parity/profiles.yaml",
    "tests/unit/groups/upstream_rows.yaml",
    "tests/deploy/snapshots/",
    "requirements/",
    "tests/tools/language.py",
    "tests/check/test_language.py",
)
"""Recordings, names of Kubernetes, generated files, and the list of refused words."""


def test_texts_are_plain_english() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = [name for name in listed if not name.startswith(NOT_READ)]

    assert [str(each) for path in files_of([ROOT / name for name in wanted]) for each in findings(path)] == []


@pytest.mark.parametrize(("name", "text", "found"), [
    pytest.param("a.md", "The plugin returns the node.\n", [], id="plain English"),
    pytest.param("a.md", "Nobody is told.\n", ["nobody", "told"], id="a person and a verb"),
    pytest.param("a.md", "Run `who` and `asked`.\n", [], id="code"),
    pytest.param("a.md", "```\nwho is it\n```\n", [], id="a code block"),
    pytest.param("a.md", "word " * 31 + ".\n", ["31 words: word word word word word word word word…"],
        id="a long sentence"),
    pytest.param("a.md", "word " * 20 + "; " + "word " * 20, [], id="two clauses"),
    pytest.param("a.py", '"""Whoever calls."""\n', ["whoever"], id="a docstring"),
    pytest.param("a.py", "x = 1  # nobody\n", ["nobody"], id="a comment"),
    pytest.param("a.py", 'log("for somebody", "`asked`", "told")\n', ["somebody"], id="a text in code, and a key"),
    pytest.param("a.py", "def test_nobody_waits(): ...\n", ["nobody"], id="the name of a test"),
    pytest.param("a.py", "class TinyBrain: ...\n", ["brain"], id="the name of a class"),
    pytest.param("a.yaml", "# whoever\nkey: value\n", ["whoever"], id="YAML"),
])  # fmt: skip
def test_findings(tmp_path: Path, name: str, text: str, found: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text)

    assert [each.text for each in findings(path)] == found


def test_identifiers_are_nouns_of_the_trade() -> None:
    modules = [path for path in files_of([ROOT / "kubestow", ROOT / "scheduler"]) if path.suffix == ".py"]
    found = [each for path in modules for each in identifier_findings(path.read_text(), str(path.relative_to(ROOT)))]

    assert [str(each) for each in found] == []


@pytest.mark.parametrize(("source", "found"), [
    pytest.param("def claims(pod): ...", [], id="nouns"),
    pytest.param("def told(): ...", ["told"], id="a function"),
    pytest.param("class A:\n    def _look_at(self): ...", ["_look_at"], id="a method"),
    pytest.param("def f(*, known): ...", ["known"], id="a parameter"),
    pytest.param("def f():\n    for no, out in x: ...", ["no", "out"], id="locals of a loop"),
    pytest.param("self._left = 1", ["_left"], id="an attribute"),
    pytest.param("if (here := f()): ...", ["here"], id="an assignment in an expression"),
    pytest.param("SPARED = 1", ["SPARED"], id="a constant"),
    pytest.param("_logged_as_told_at = 1", ["_logged_as_told_at"], id="a word within"),
    pytest.param("NO_LIMIT = known_class = 1", [], id="good names with such a word"),
    pytest.param("def same(left, right): ...", [], id="left and right"),
    pytest.param("f(left=1).known", [], id="names that another module defines"),
])  # fmt: skip
def test_identifier_findings(source: str, found: list[str]) -> None:
    assert [each.text for each in identifier_findings(source, "a.py")] == found
