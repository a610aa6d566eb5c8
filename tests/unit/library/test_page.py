"""The examples of docs/library.md run."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

import kubestow
from kubestow.result import _TABLES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/library.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(4))
def test_an_example_runs(number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(sys.modules, "pandas", MagicMock())

    exec(compile(EXAMPLES[number], f"example {number}", "exec"), {})

    printed = capsys.readouterr().out
    assert number or ("9 of 12 pods placed on 4 nodes\n" in printed and "'demo/database-0'" in printed)


def test_all_examples_run() -> None:
    assert len(EXAMPLES) == 4


def test_all_options_and_columns_are_listed() -> None:
    parameters = inspect.signature(kubestow.simulate).parameters.values()
    options = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    rows = {table: next(row for row in PAGE.splitlines() if row.startswith(f"| `{table}` |")) for table in _TABLES}

    assert re.findall(r"^\| `(\w+)` \|.*\| `--", PAGE, re.MULTILINE) == options
    assert [c for table, row in rows.items() for c in _TABLES[table][0] if f"`{c}`" not in row] == []
