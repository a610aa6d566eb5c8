"""The objects that operators write, as files: each group starts whole, and not at all where it does not fit (docs/operators.md)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.integration.conftest import Simulation, placements

FOLDER: Final = Path(__file__).parents[1] / "operators"
PAGE: Final = (Path(__file__).parents[2] / "docs" / "operators.md").read_text()
FILES: Final = sorted(path for path in FOLDER.glob("*.yaml") if path.stem != "nodes")
(CONFIG,) = (text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "KubeSchedulerConfiguration" in text)


def flags() -> list[str]:
    """The configuration of the page, and a version whose server has Kubernetes' own groups."""
    Path("config.yaml").write_text(CONFIG)
    return ["--config=config.yaml", "--emulated-version=1.37"]


def pods_of(file: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(file.read_text()) if each and each["kind"] == "Pod"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_group_starts(simulate: Simulation, file: Path) -> None:
    code, shown, errors = simulate(str(FOLDER / "nodes.yaml"), str(file), *flags())

    assert (code, errors) == (0, "")
    assert all(node for node, _ in placements(shown).values())
    assert len(placements(shown)) == len(pods_of(file)) >= 3


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_group_does_not_start_in_part(simulate: Simulation, file: Path) -> None:
    """One CPU is missing for all of it."""
    cpu = sum(int(c["resources"]["requests"]["cpu"]) for pod in pods_of(file) for c in pod["spec"]["containers"])
    room = {"cpu": str(cpu - 1), "memory": "1Ti", "nvidia.com/gpu": "64", "pods": "110"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "small"}, "status": {"allocatable": room}}
    Path("node.yaml").write_text(json.dumps(node))
    code, shown, _ = simulate("node.yaml", str(file), *flags())

    assert code == 1
    assert {node for node, _ in placements(shown).values()} == {""}
    reasons = json.dumps(shown)
    assert "minCount (" in reasons or "minResources cannot be satisfied: " in reasons


def test_the_page_names_each_file() -> None:
    rows = (row.rpartition(" | ")[2] for row in PAGE.splitlines())
    named = {name for row in rows for name in re.findall(r"`([a-z0-9.-]+)`", row)}

    assert {file.stem for file in FILES} <= named
