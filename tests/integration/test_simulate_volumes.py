"""`kubestow simulate` with volumes: claims bound, volumes provisioned within capacity, and pods that stay pending."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from simulator.builders.core import Builder, node, pod
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_pv

EXAMPLE = Path(__file__).parents[2] / "examples" / "volumes.yaml"
RACK = "example.com/rack"
DRIVER = "d.example"

pytestmark = pytest.mark.usefixtures("guest")


def simulate(capsys: pytest.CaptureFixture[str], file: Path) -> tuple[int, dict[str, Any], str]:
    """Return exit code, JSON, and standard error."""
    code = cli.main(["simulate", "-o", "json", "--timeout", "60s", str(file)])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else {}, out.err


def simulated(
    capsys: pytest.CaptureFixture[str], directory: Path, *objects: Builder[object]
) -> dict[str, tuple[str, str]]:
    """Return pod → node and, if it has none, the first sentence of the reason."""
    file = directory / "in.yaml"
    file.write_text("\n---\n".join(json.dumps(each.obj()) for each in objects))
    _, shown, _ = simulate(capsys, file)
    assert shown["settled"]
    return _placements(shown)


def _placements(shown: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        each["pod"].partition("/")[2]: (each["node"] or "", each.get("message", "").partition(". ")[0])
        for each in shown["pods"]
    }


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, _ = simulate(capsys, EXAMPLE)
    assert (code, shown["problems"], shown["settled"]) == (0, [], True)
    placed = _placements(shown)

    databases = {placed[f"database-{i}"][0] for i in range(3)}
    assert databases == {"store-1", "store-2", "store-3"}
    assert placed["archive"] == ("store-1", "")
    racks = sorted(placed[f"queue-{i}"][0] for i in range(3))
    assert (racks[-1], set(racks[:2]) <= {"store-1", "store-2"}) == ("store-3", True)
    assert {placed[f"scratch-{i}"][0] for i in range(2)} == {"small-1"}

    assert "did not have enough free storage" in placed["warehouse"][1]
    assert "1 node(s) exceed max volume count" in placed["scratch-too-many"][1]
    assert 'persistentvolumeclaim "forgotten" not found' in placed["forgotten"][1]


def test_a_burst_does_not_use_more_than_there_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    placed = simulated(
        capsys,
        tmp_path,
        *(node(f"n{i}").cpu("8").label(RACK, f"r{i}") for i in range(2)),
        a_class("w", DRIVER),
        a_csi_driver(DRIVER).tracks_capacity(),
        a_capacity("r0", "w", "35Gi").where(RACK, "r0"),
        a_capacity("r1", "w", "20Gi").where(RACK, "r1"),
        *(pod(f"p{i}").ephemeral("v", "10Gi", "w") for i in range(12)),
    )
    nodes = [where for where, _ in placed.values()]
    assert (nodes.count("n0"), nodes.count("n1"), nodes.count("")) == (3, 2, 7)
    reasons = {why for where, why in placed.values() if not where}
    assert reasons == {"0/2 nodes are available: 2 node(s) did not have enough free storage"}


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        pytest.param(
            a_pv("v", "many"), "document 1 (PersistentVolume v): spec.capacity", id="a size that is none, by field"
        ),
        pytest.param(
            a_claim("c").set({"spec": {"accessModes": None}}),
            'document 1 (PersistentVolumeClaim default/c): PersistentVolumeClaim "c" is invalid: spec.accessModes: Required value',
            id="what an API server refuses",
        ),
        pytest.param(
            a_class("w").set({"allowedTopologies": "here"}),
            "document 1 (StorageClass w): allowedTopologies: ",
            id="a field of another type",
        ),
    ],
)  # fmt: skip
def test_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path, broken: Builder[object], complaint: str) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(json.dumps(broken.obj()))
    code, _, err = simulate(capsys, file)
    assert (code, complaint in err) == (2, True), err
