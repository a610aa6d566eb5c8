"""Decisions that differ between versions of kube-scheduler, by `kubestow simulate --emulated-version` (docs/spec/changes-1.38.md §1)."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.builders.core import node as a_node, pod as a_pod
from tests.integration.conftest import Simulation, placements

OTHER = {"metadata": {"namespace": "other"}}


def simulated(simulate: Simulation, version: str, *objects: Any) -> dict[str, Any]:
    """Return the outcome of a simulation with the behaviour of this version."""
    _, shown, _ = simulate.of(*objects, flags=[f"--emulated-version={version}"])
    assert isinstance(shown, dict)
    return shown


@pytest.mark.parametrize(
    ("version", "victim"),
    [
        pytest.param("1.37", "protected", id="1.37: the pod of the lowest priority"),
        pytest.param("1.38", "higher", id="1.38: the budget counts"),
    ],
)
def test_a_budget_with_an_empty_selector(simulate: Simulation, version: str, victim: str) -> None:
    """A pod of priority 0 and without labels is under the budget on node a; a pod of priority 5 is on node b."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    shown = simulated(
        simulate,
        version,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
        a_node("a").cpu("1"),
        a_node("b").cpu("1"),
        a_pod("protected").cpu("1").bound_to("a").priority(0),
        a_pod("higher").set(OTHER).cpu("1").bound_to("b").priority(5),
        a_pod("p").set(OTHER).cpu("1").priority(9),
        budget,
    )

    assert [each["pod"].partition("/")[2] for each in shown["preempted"]] == [victim]


CROWDED = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod topology spread constraints"


@pytest.mark.parametrize(("version", "placed"), [("1.37", ("a", "")), ("1.38", ("", CROWDED))])
def test_a_spread_constraint_with_an_empty_selector(
    simulate: Simulation, version: str, placed: tuple[str, str]
) -> None:
    """Two pods are on node a, none is on node b, and a third pod is to be on node a. Up to 1.37 an empty selector counts none."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "nodeAffinityPolicy": "Ignore",
    }
    shown = simulated(
        simulate,
        version,
        a_node("a").cpu("9"),
        a_node("b").cpu("9"),
        a_pod("one").cpu("1").bound_to("a"),
        a_pod("two").cpu("1").bound_to("a"),
        a_pod("p")
        .cpu("1")
        .set({"spec": {"topologySpreadConstraints": [constraint], "nodeSelector": {"kubernetes.io/hostname": "a"}}}),
    )

    assert placements(shown)["p"] == placed


@pytest.mark.parametrize(("version", "node"), [("1.37", "pa"), ("1.38", "pb")])
def test_the_node_of_a_pod_with_pod_level_requests(simulate: Simulation, version: str, node: str) -> None:
    """Node pa is empty and has 4 CPU. Node pb has 16 CPU, of which 4 are used. Up to 1.37 the score counts containers only."""
    shown = simulated(
        simulate,
        version,
        a_node("pa").cpu("4").memory("64Gi"),
        a_node("pb").cpu("16").memory("64Gi"),
        a_pod("used").cpu("4").bound_to("pb"),
        a_pod("p").set({"spec": {"resources": {"requests": {"cpu": "3", "memory": "38Gi"}}}}),
    )

    assert placements(shown)["p"] == (node, "")
