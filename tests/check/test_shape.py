"""What `make stats` must print nothing about: import circles, and class names with two meanings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import stats
from tests.tools.stats import ROOT, circles, import_graph, shared_class_names


def test_no_modules_import_each_other() -> None:
    """Imports within functions count, too."""
    assert circles(import_graph()) == []


@pytest.mark.parametrize("tree", ["scheduler", "simulator"])
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
