"""Equal inputs and seeds have equal answers, byte for byte; several seeds show whether the answer depends on ties."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from tests.integration.conftest import Simulation, nodes_of
from tests.integration.test_simulate import NODE, pod
from tests.support.jsonschema import mistakes

ROOT = Path(__file__).parents[2]
INPUTS = ("examples/volumes.yaml", "examples/devices.yaml", "examples/groups.yaml", "examples/preemption.yaml")
ORDERS_SCHEMA = json.loads((ROOT / "docs" / "simulate-seeds.schema.json").read_text())
TWIN = NODE.replace('"n"', '"twin"')
TIE = (NODE, TWIN, pod("a", "1"), pod("b", "2", nodeSelector={"kubernetes.io/hostname": "n"}))
"""Two equal nodes. The second pod fits only if the first one goes to the twin."""


def printed(file: str, hash_seed: str, *flags: str) -> bytes:
    """Return what another process prints, whose sets and dictionaries have another order of texts."""
    ran = subprocess.run(
        [sys.executable, "-m", "scheduler", "simulate", "-o", "json", *flags, file],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert ran.returncode in {0, 1}, ran.stderr.decode()
    return ran.stdout


@pytest.mark.parametrize("file", INPUTS)
def test_two_processes_print_the_same_bytes(file: str) -> None:
    assert printed(file, "1", "--explain") == printed(file, "2", "--explain")


def test_two_processes_print_the_same_orders() -> None:
    flags = ("--seeds=3", "--seed=5")

    assert printed("examples/devices.yaml", "1", *flags) == printed("examples/devices.yaml", "2", *flags)


def test_a_seed_chooses_between_equal_nodes(simulate: Simulation) -> None:
    found = {}
    for seed in range(8):
        _, shown, _ = simulate.of(NODE, TWIN, pod("a"), flags=[f"--seed={seed}"])
        found[seed] = nodes_of(shown)["a"]
    _, shown, _ = simulate.of(NODE, TWIN, pod("a"))

    assert set(found.values()) == {"n", "twin"}
    assert nodes_of(shown)["a"] == found[0]


class Orders:
    """`kubestow simulate --seeds N`."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *documents: str, flags: tuple[str, ...]) -> tuple[int, str, str]:
        """Return exit code, output and standard error."""
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n---\n".join(documents).encode())))
        code = cli.main(["simulate", "-", *flags])
        out = self._capsys.readouterr()
        return code, out.out, out.err

    def answer(self, *documents: str, flags: tuple[str, ...]) -> tuple[int, Any]:
        """Return exit code and JSON, which is as its schema says."""
        code, out, _ = self(*documents, flags=("-o", "json", *flags))
        shown = json.loads(out)
        assert list(mistakes(shown, ORDERS_SCHEMA)) == []
        return code, shown


@pytest.fixture
def orders(guest: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Orders:
    return Orders(capsys, monkeypatch)


def test_an_input_that_fits_in_some_orders(orders: Orders) -> None:
    """Each order is that of the same seed alone."""
    code, shown = orders.answer(*TIE, flags=("--seeds=6", "--seed=1"))
    alone = [orders.answer(*TIE, flags=("--seeds=1", f"--seed={seed}"))[0] for seed in range(1, 7)]
    _, text, _ = orders(*TIE, flags=("--seeds=6", "--seed=1"))

    assert code == 1
    assert [each["seed"] for each in shown["orders"]] == list(range(1, 7))
    assert [each["ok"] for each in shown["orders"]] == [each == 0 for each in alone]
    assert 0 < shown["fits"] == alone.count(0) < shown["of"] == 6
    assert text.startswith(f"fits in {shown['fits']} of 6 orders of ties\n")
    others = ", ".join(str(each["seed"]) for each in shown["orders"] if not each["ok"])
    assert f"(--seed {others}): 1 of 2 pods placed; default/b was not placed: 0/2 nodes are available" in text


def test_an_input_that_fits_in_each_order(orders: Orders) -> None:
    code, text, _ = orders(NODE, TWIN, pod("a"), flags=("--seeds=2",))

    assert (code, text) == (0, "fits in 2 of 2 orders of ties\n")


@pytest.mark.parametrize("flags", [("-o", "html"), ("-o", "wide"), ("--explain",)], ids=" ".join)
def test_several_orders_have_no_single_outcome(orders: Orders, flags: tuple[str, ...]) -> None:
    code, _, said = orders(NODE, pod("a"), flags=("--seeds=2", *flags))

    assert code == 2
    assert "with --seeds, which prints no single outcome; use --seed" in said


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([NODE], id="no pod"),
        pytest.param([NODE, pod("a", nodeName="n")], id="a pod with a node"),
        pytest.param([NODE, pod("a", schedulerName="volcano")], id="a pod of another scheduler"),
    ],
)
def test_a_gate_that_has_checked_nothing_does_not_pass(
    simulate: Simulation, orders: Orders, documents: list[str]
) -> None:
    code, shown, _ = simulate.of(*documents)
    several, _ = orders.answer(*documents, flags=("--seeds=2",))
    _, text, _ = orders(*documents, flags=())

    assert (code, several) == (5, 5)
    assert shown["problems"] == ["nothing to place: the input has no pod without a node for this scheduler"]
    assert text.endswith("\n" + shown["problems"][0] + "\n")
