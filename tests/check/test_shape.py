"""What `make stats` must print nothing about: import circles, and class names with two meanings. Also the share of comments."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path
from typing import Final

import pytest

from tests.tools import stats
from tests.tools.stats import ROOT, circles, import_graph, shared_class_names

NARRATED: Final = (
    "scheduler/cache/storage",
    "scheduler/controllers",
    "scheduler/kube/reflector.py",
    "scheduler/plugins/dra",
    "scheduler/preemption.py",
)
"""Where the story is hard to see in the code: at least a twentieth of the lines are comments that give reasons."""
_NO_REASON: Final = ("# --", "# noqa", "# fmt:", "# type:")


def narration(source: str) -> tuple[int, int]:
    """Return the number of comments that are neither headings nor directives, and the number of lines."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not each.startswith(_NO_REASON) for each in comments), len(source.splitlines())


@pytest.mark.parametrize("name", NARRATED)
def test_hard_stories_are_narrated(name: str) -> None:
    modules = sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / name]
    counted = [narration(module.read_text(encoding="utf-8")) for module in modules]

    assert sum(comments for comments, _ in counted) >= 0.05 * sum(lines for _, lines in counted)


def test_headings_and_directives_are_no_narration() -> None:
    assert narration("# -- a --\nx = 1  # noqa: S101\n# Because.\n") == (1, 3)


def test_no_modules_import_each_other() -> None:
    """Imports within functions count, too."""
    assert circles(import_graph()) == []


@pytest.mark.parametrize("tree", ["kubestow", "scheduler", "simulator"])
def test_a_class_name_has_one_meaning(tree: str) -> None:
    assert shared_class_names((ROOT / tree).rglob("*.py")) == []


@pytest.mark.parametrize(
    ("imports", "found"),
    [
        pytest.param({"a": {"b"}, "b": set()}, [], id="a line"),
        pytest.param({"a": {"b"}, "b": {"a"}}, [["a", "b"]], id="two modules"),
        pytest.param({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]], id="a longer way back"),
    ],
)
def test_circles_are_found(imports: dict[str, set[str]], found: list[list[str]]) -> None:
    assert circles(imports) == found


def test_a_name_that_two_modules_define_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "ROOT", tmp_path)
    for module in ("a", "b"):
        text = f"class Reference: ...\nclass Only{module}: ...\nclass _Hidden: ...\n"
        (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")

    assert shared_class_names(sorted(tmp_path.iterdir())) == ["Reference: a.py b.py"]
