"""`kubestow simulate` with devices: claims made and allocated, and pods that cannot have theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import Builder, node, pod
from simulator.builders.devices import a_device, a_device_class, a_slice

EXAMPLE = Path(__file__).parents[2] / "examples" / "devices.yaml"
DRIVER = "gpu.example.com"

pytestmark = pytest.mark.usefixtures("guest")


def simulate(capsys: pytest.CaptureFixture[str], file: Path) -> tuple[int, dict[str, str]]:
    """Return exit code, and pod → node, "" for none."""
    code = cli.main(["simulate", "-o", "json", "--timeout", "60s", str(file)])
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert shown["settled"]
    return code, {each["pod"].partition("/")[2]: each["node"] or "" for each in shown["pods"]}


def simulated(capsys: pytest.CaptureFixture[str], directory: Path, *objects: Builder[Any]) -> dict[str, str]:
    file = directory / "in.yaml"
    file.write_text("\n---\n".join(json.dumps(each.obj()) for each in objects))
    return simulate(capsys, file)[1]


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, placed = simulate(capsys, EXAMPLE)

    assert code == 0
    assert {name for name, where in placed.items() if not where} == {"fine-tune-wide", "part-none"}
    assert {placed[name] for name in ("train", "fine-tune")} == {"gpu-1"}
    assert {placed[name] for name in ("part-five", "part-three", "part-three-too")} == {"shared-1"}


def test_what_a_dump_has_allocated_stays_allocated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The claim of a bound pod keeps its device and its user, though both get new uids."""
    used = a_claim("used").request("r", "gpu").allocated(a_result("r", f"{DRIVER}/n1/d0")).reserved_for("old")
    cluster = (
        *(node("n1"), a_device_class("gpu"), a_slice("n1", DRIVER, a_device("d0"))),
        *(used, pod("old").claim("e", claim="used").bound_to("n1")),
        *(a_claim("new").request("r", "gpu"), pod("late").claim("e", claim="new")),
    )

    assert simulated(capsys, tmp_path, *cluster) == {"late": ""}
