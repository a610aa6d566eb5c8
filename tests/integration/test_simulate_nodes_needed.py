"""`kubestow simulate --nodes-needed`, compared with all numbers of nodes from none on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from simulator.builders.claims import a_claim_template
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.integration.conftest import Simulation, workload
from tests.integration.test_simulate import pod
from tests.integration.test_simulate_groups import group, members
from tests.integration.test_simulate_planning import NODE, bound
from tests.support.jsonschema import mistakes

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "simulate-nodes-needed.schema.json").read_text())
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
VERSION = "scheduling.x-k8s.io/v1alpha1"
GPUS = (
    a_slice("n", "gpu.example.com", a_device("d0"), a_device("d1")).obj(),
    a_device_class("gpu").obj(),
    a_claim_template("gpu").request("r", "gpu").obj(),
)
CLAIM: dict[str, Any] = {"resourceClaims": [{"name": "e", "resourceClaimTemplateName": "gpu"}]}
CASES: dict[str, tuple[int | None, list[str | dict[str, Any]], list[str]]] = {
    "everything fits": (0, [pod("a")], []),
    "cpu": (2, [workload("Deployment", "web", 5, cpu="2")], []),
    "one node a pod": (3, [workload("Deployment", "web", 4, affinity=APART)], []),
    "one after another": (2, [workload("StatefulSet", "web", 3, cpu="3")], []),
    "devices": (2, [*GPUS, workload("Deployment", "web", 5, cpu="100m", **CLAIM)], []),
    "a group": (3, [group(VERSION, "g", 4), *members(VERSION, "g", 4, cpu="3")], []),
    "large and small pods": (
        2,
        [*(pod(f"s{at}", "1") for at in range(4)), *(pod(f"l{at}", "4") for at in range(2))],
        [],
    ),
    "too large": (None, [pod("a", "5"), pod("b", "4"), pod("c", "4")], []),
    "another selector": (None, [pod("a", nodeSelector={"x": "y"}), pod("b")], []),
    "a drained node": (1, [bound("a", cpu="3"), pod("b", "1")], ["--drain=n"]),
    "a scaled workload": (3, [workload("Deployment", "web", 1, cpu="3")], ["--scale=deployment/web=4"]),
    "some nodes added": (1, [workload("Deployment", "web", 4, cpu="3")], ["--add-node-like=n=2"]),
}


class NodesNeeded:
    """`kubestow simulate --nodes-needed`."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *objects: str | dict[str, Any], flags: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """Return exit code, output and standard error."""
        documents = [each if isinstance(each, str) else json.dumps(each) for each in objects]
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n---\n".join(documents).encode())))
        code = cli.main(["simulate", "-", "--nodes-needed=n", *flags])
        out = self._capsys.readouterr()
        return code, out.out, out.err


@pytest.fixture
def needed(guest: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> NodesNeeded:
    return NodesNeeded(capsys, monkeypatch)


@pytest.mark.parametrize("name", CASES)
def test_the_number_is_the_least_of_all(simulate: Simulation, needed: NodesNeeded, name: str) -> None:
    nodes, objects, flags = CASES[name]
    code, out, _ = needed(NODE, *objects, flags=("-o", "json", *flags))
    shown = json.loads(out)
    least = next(
        (
            added
            for added in range(8)
            if simulate.of(NODE, *objects, flags=[*flags, *([f"--add-node-like=n={added}"] if added else [])])[0] == 0
        ),
        None,
    )

    assert list(mistakes(shown, SCHEMA)) == []
    assert shown["nodes"] == least == nodes
    assert (code, shown["ok"]) == ((1, False) if nodes is None else (0, True))


def test_what_limits_the_added_nodes(needed: NodesNeeded) -> None:
    _, objects, _ = CASES["devices"]
    code, text, _ = needed(NODE, *objects)

    assert code == 0
    assert text.startswith("2 more nodes like n are needed, limited by devices\nwith 1 more node: 4 of 5 pods placed; ")


def test_nothing_to_place(needed: NodesNeeded) -> None:
    assert needed(NODE)[0] == 5


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--nodes-needed=x",), "--nodes-needed: the input has no node x"),
        (("--seeds=2",), "--seeds cannot be used with --nodes-needed"),
        (("--explain",), "--explain cannot be used with --nodes-needed"),
        (("-o", "html"), "-o html cannot be used with --nodes-needed"),
    ],
)
def test_flags_that_cannot_be_used(needed: NodesNeeded, flags: tuple[str, ...], why: str) -> None:
    code, _, said = needed(NODE, pod("a"), flags=flags)

    assert code == 2
    assert why in said
