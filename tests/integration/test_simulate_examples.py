"""`kubestow simulate` with inputs of real projects, and with preemption, volumes and devices.

test_quoted.py runs the files of examples/ whose output docs/ quotes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import node, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from simulator.simulate.answer import Answer
from tests.integration.conftest import Simulation, nodes_of
from tests.support.volumebuilders import a_capacity, a_class, a_csi_driver

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GPU_DRIVER = "gpu.example.com"
RACK = "example.com/rack"
STORAGE_DRIVER = "d.example"


@pytest.mark.parametrize("name", ["kueue", "rollout", "strimzi"])
def test_the_output_for_a_real_project_is_as_its_types_say(simulate: Simulation, name: str) -> None:
    _, shown, _ = simulate(str(ROOT / "tests" / "e2e" / "inputs" / f"{name}.yaml"))

    assert msgspec.convert(shown, Answer).pods


# -- preemption --------------------------------------------------------------------------------------------------------


def went(shown: dict[str, Any]) -> dict[str, str]:
    """Return victim → preemptor."""
    return {each["pod"].partition("/")[2]: each["for"].partition("/")[2] for each in shown["preempted"]}


@pytest.mark.parametrize(
    ("budget", "status", "victim"),
    [
        pytest.param(None, None, "new", id="without a budget the one started last goes"),
        pytest.param({"minAvailable": 1}, None, "old", id="unless a budget spares it"),
        pytest.param({"maxUnavailable": 1}, None, "new", id="which it does not if it allows one"),
        pytest.param({"maxUnavailable": 0}, {"disruptionsAllowed": 1}, "new", id="a dump's budget says what it allows"),
    ],
)
def test_start_times_and_budgets(
    simulate: Simulation, budget: dict[str, Any] | None, status: dict[str, Any] | None, victim: str
) -> None:
    objects: list[Any] = [
        node("n").cpu("2"),
        pod("old").cpu("1").bound_to("n").set({"status": {"startTime": "2026-01-01T08:00:00Z"}}),
        pod("new").cpu("1").bound_to("n").set({"status": {"startTime": "2026-01-01T20:00:00Z"}}).label("app", "web"),
        pod("p").cpu("1").priority(7),
    ]
    if budget is not None:
        about = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
        spec = {**budget, "selector": {"matchLabels": {"app": "web"}}}
        objects.append(about | {"spec": spec} | ({"status": status} if status else {}))
    code, shown, _ = simulate.of(*objects)

    assert (code, went(shown)) == (0, {victim: "p"})


@pytest.mark.parametrize(("flags", "code"), [([], 1), (["--expect-pending=low"], 0)], ids=["a surprise", "expected"])
def test_one_that_was_placed_and_had_to_go_again(simulate: Simulation, flags: list[str], code: int) -> None:
    """The pod of the highest priority waits for its affinity; before that, another pod has taken the node's last CPU."""
    near = {"labelSelector": {"matchLabels": {"app": "friend"}}, "topologyKey": "kubernetes.io/hostname"}
    objects = [
        node("n").cpu("2"),
        pod("ally")
        .cpu("1")
        .priority(9)
        .affinity({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}),
        pod("friend").cpu("1").priority(9).label("app", "friend"),
        pod("low").cpu("1").priority(1),
    ]
    ended, shown, _ = simulate.of(*objects, flags=flags)

    assert (ended, nodes_of(shown), went(shown)) == (code, {"ally": "n", "friend": "n", "low": ""}, {"low": "ally"})
    low = shown["pods"][-1]
    assert (low["reason"], low["message"]) == ("Preempted", "was placed on n and preempted there")
    assert shown["problems"] == (["default/low was not placed: was placed on n and preempted there"] if code else [])


# -- volumes -----------------------------------------------------------------------------------------------------------


def placements(shown: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return pod → node and, if it has none, the first sentence of the reason."""
    return {
        each["pod"].partition("/")[2]: (each["node"] or "", each.get("message", "").partition(". ")[0])
        for each in shown["pods"]
    }


def test_the_example_of_volumes(simulate: Simulation) -> None:
    code, shown, _ = simulate(str(EXAMPLES / "volumes.yaml"))
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
        a_class("w", STORAGE_DRIVER),
        a_csi_driver(STORAGE_DRIVER).tracks_capacity(),
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


# -- devices -----------------------------------------------------------------------------------------------------------


def test_what_a_dump_has_allocated_stays_allocated(simulate: Simulation) -> None:
    """The claim of a bound pod keeps its device and its user, though both get new uids."""
    used = a_claim("used").request("r", "gpu").allocated(a_result("r", f"{GPU_DRIVER}/n1/d0")).reserved_for("old")
    _, shown, _ = simulate.of(
        *(node("n1"), a_device_class("gpu"), a_slice("n1", GPU_DRIVER, a_device("d0"))),
        *(used, pod("old").claim("e", claim="used").bound_to("n1")),
        *(a_claim("new").request("r", "gpu"), pod("late").claim("e", claim="new")),
    )

    assert (shown["settled"], nodes_of(shown)) == (True, {"late": ""})
