"""Output of the command while it reads, on a terminal and in a pipe."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from simulator import simulate

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
