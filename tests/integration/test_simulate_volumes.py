"""`kubestow simulate` with volumes: claims bound, volumes provisioned within capacity, and pods that stay pending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.builders.core import Builder, node, pod
from tests.integration.conftest import Simulation
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_pv

EXAMPLE = Path(__file__).parents[2] / "examples" / "volumes.yaml"
RACK = "example.com/rack"
DRIVER = "d.example"


def placements(shown: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return pod → node and, if it has none, the first sentence of the reason."""
    return {
        each["pod"].partition("/")[2]: (each["node"] or "", each.get("message", "").partition(". ")[0])
        for each in shown["pods"]
    }


def test_the_example(simulate: Simulation) -> None:
    code, shown, _ = simulate(str(EXAMPLE))
    assert (code, shown["problems"], shown["settled"]) == (0, [], True)
    placed = placements(shown)

    databases = {placed[f"database-{i}"][0] for i in range(3)}
    assert databases == {"store-1", "store-2", "store-3"}
    assert placed["archive"] == ("store-1", "")
    racks = sorted(placed[f"queue-{i}"][0] for i in range(3))
    assert (racks[-1], set(racks[:2]) <= {"store-1", "store-2"}) == ("store-3", True)
    assert {placed[f"scratch-{i}"][0] for i in range(2)} == {"small-1"}

    assert "did not have enough free storage" in placed["warehouse"][1]
    assert "1 node(s) exceed max volume count" in placed["scratch-too-many"][1]
    assert 'persistentvolumeclaim "forgotten" not found' in placed["forgotten"][1]


def test_a_burst_does_not_use_more_than_there_is(simulate: Simulation) -> None:
    _, shown, _ = simulate.of(
        *(node(f"n{i}").cpu("8").label(RACK, f"r{i}") for i in range(2)),
        a_class("w", DRIVER),
        a_csi_driver(DRIVER).tracks_capacity(),
        a_capacity("r0", "w", "35Gi").where(RACK, "r0"),
        a_capacity("r1", "w", "20Gi").where(RACK, "r1"),
        *(pod(f"p{i}").ephemeral("v", "10Gi", "w") for i in range(12)),
    )
    assert shown["settled"]
    placed = placements(shown)
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
def test_bad_input(simulate: Simulation, broken: Builder[object], complaint: str) -> None:
    code, _, err = simulate.of(broken)
    assert (code, complaint in err) == (2, True), err
