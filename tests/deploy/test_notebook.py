"""The notebook of examples/: a kernel executes it, with the real pandas and polars, and its outputs are those in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.notebook import NOTEBOOK, executed

pytestmark = pytest.mark.timeout(600)


def outputs(notebook: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the source and the texts of each cell of code."""
    cells = [each for each in notebook["cells"] if each["cell_type"] == "code"]
    return [("".join(each["source"]), [text for output in each["outputs"] for text in texts(output)]) for each in cells]


def texts(output: dict[str, Any]) -> list[str]:
    shown = output.get("data") or {"text": output.get("text", "")}
    return [f"{kind}: {''.join(text)}" for kind, text in sorted(shown.items())]


def test_the_outputs_are_those_in_the_file(notebook_environment: Path, tmp_path: Path) -> None:
    """`python -m tests.deploy.notebook` writes them again."""
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    found = executed(notebook_environment, tmp_path)

    assert outputs(found) == outputs(kept)
    assert [source for source, shown in outputs(kept) if not shown and "print" in source] == []


def test_the_notebook_shows_the_library() -> None:
    source = "\n".join(source for source, _ in outputs(json.loads(NOTEBOOK.read_text(encoding="utf-8"))))
    names = (
        "simulate(",
        "Cluster()",
        "with_node(",
        "to_pandas(",
        "to_polars(",
        "nodes_needed(",
        "drain=",
        "assert_fits",
    )

    assert [name for name in names if name not in source] == []
