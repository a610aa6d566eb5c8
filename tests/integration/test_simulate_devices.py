"""`kubestow simulate` with devices: claims made and allocated, and pods that cannot have theirs."""

from __future__ import annotations

from pathlib import Path

from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import node, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.integration.conftest import Simulation, nodes_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "devices.yaml"
DRIVER = "gpu.example.com"


def test_the_example(simulate: Simulation) -> None:
    code, shown, _ = simulate(str(EXAMPLE))
    placed = nodes_of(shown)

    assert (code, shown["settled"]) == (0, True)
    assert {name for name, where in placed.items() if not where} == {"fine-tune-wide", "part-none"}
    assert {placed[name] for name in ("train", "fine-tune")} == {"gpu-1"}
    assert {placed[name] for name in ("part-five", "part-three", "part-three-too")} == {"shared-1"}


def test_what_a_dump_has_allocated_stays_allocated(simulate: Simulation) -> None:
    """The claim of a bound pod keeps its device and its user, though both get new uids."""
    used = a_claim("used").request("r", "gpu").allocated(a_result("r", f"{DRIVER}/n1/d0")).reserved_for("old")
    _, shown, _ = simulate.of(
        *(node("n1"), a_device_class("gpu"), a_slice("n1", DRIVER, a_device("d0"))),
        *(used, pod("old").claim("e", claim="used").bound_to("n1")),
        *(a_claim("new").request("r", "gpu"), pod("late").claim("e", claim="new")),
    )

    assert (shown["settled"], nodes_of(shown)) == (True, {"late": ""})
