"""`kubestow simulate` with preemption: victims, preemptors, and the final nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Simulation, nodes_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "preemption.yaml"


def obj(kind: str, name: str, version: str = "v1", **rest: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **rest}


def node(name: str, cpu: int) -> dict[str, Any]:
    return obj("Node", name, status={"allocatable": {"cpu": str(cpu), "memory": "4Gi"}})


def pod(name: str, cpu: int, *, started: str = "", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    made = obj("Pod", name, spec={"containers": [container], **spec})
    made["metadata"]["labels"] = labels or {}
    return made | ({"status": {"startTime": started}} if started else {})


def went(shown: dict[str, Any]) -> dict[str, str]:
    """Return victim → preemptor."""
    return {each["pod"].partition("/")[2]: each["for"].partition("/")[2] for each in shown["preempted"]}


def test_the_example(simulate: Simulation) -> None:
    code, shown, _ = simulate(str(EXAMPLE))

    assert (code, shown["problems"], shown["settled"]) == (0, [], True)
    assert nodes_of(shown) == {
        "payments": "node-c",
        "search": "node-a",
        "alerts": "node-b",
        "patient": "",
        "late": "",
    }
    gone: dict[str, set[str]] = {}
    for victim, preemptor in went(shown).items():
        gone.setdefault(preemptor, set()).add(victim)
    assert gone["payments"] == {"batch-c0", "batch-c1"}
    assert (gone["alerts"], len(gone["search"])) == ({"cache-3"}, 3)
    assert all(victim.startswith("batch-a") for victim in gone["search"])
    assert shown["summary"]["preempted"] == 6
    assert {"priority": 100, "forPriority": 10000, "node": "node-b", "forNode": "node-b"}.items() <= shown["preempted"][
        -1
    ].items()
    messages = {each["pod"]: each["message"] for each in shown["pods"] if each["node"] is None}
    assert messages["demo/patient"].endswith("preemption: not eligible due to preemptionPolicy=Never.")
    assert messages["demo/late"].endswith("3 No preemption victims found for incoming pod.")


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
    simulate: Simulation,
    budget: dict[str, Any] | None,
    status: dict[str, Any] | None,
    victim: str,
) -> None:
    objects = [
        node("n", 2),
        pod("old", 1, nodeName="n", started="2026-01-01T08:00:00Z"),
        pod("new", 1, nodeName="n", started="2026-01-01T20:00:00Z", labels={"app": "web"}),
        pod("p", 1, priority=7),
    ]
    if budget is not None:
        spec = {**budget, "selector": {"matchLabels": {"app": "web"}}}
        objects.append(
            obj("PodDisruptionBudget", "b", "policy/v1", spec=spec, **({"status": status} if status else {}))
        )
    code, shown, _ = simulate.of(*objects)

    assert (code, went(shown)) == (0, {victim: "p"})


@pytest.mark.parametrize(("flags", "code"), [([], 1), (["--expect-pending=low"], 0)], ids=["a surprise", "expected"])
def test_one_that_was_placed_and_had_to_go_again(simulate: Simulation, flags: list[str], code: int) -> None:
    """The pod of the highest priority waits for its affinity; before that, another pod has taken the node's last CPU."""
    near = {"labelSelector": {"matchLabels": {"app": "friend"}}, "topologyKey": "kubernetes.io/hostname"}
    objects = [
        node("n", 2),
        pod(
            "ally",
            1,
            priority=9,
            affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}},
        ),
        pod("friend", 1, priority=9, labels={"app": "friend"}),
        pod("low", 1, priority=1),
    ]
    ended, shown, _ = simulate.of(*objects, flags=flags)

    assert (ended, nodes_of(shown), went(shown)) == (code, {"ally": "n", "friend": "n", "low": ""}, {"low": "ally"})
    low = shown["pods"][-1]
    assert (low["reason"], low["message"]) == ("Preempted", "was placed on n and preempted there")
    assert shown["problems"] == (["default/low was not placed: was placed on n and preempted there"] if code else [])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param(
            obj("PodDisruptionBudget", "b", "policy/v1", spec={"selector": 7}),
            "(PodDisruptionBudget default/b): spec.selector: must be an object, got 7",
            id="a selector that is a number",
        ),
        pytest.param(
            obj("PodDisruptionBudget", "b", "policy/v1", spec={"minAvailable": [1]}),
            "(PodDisruptionBudget default/b): spec.minAvailable: must be an integer or a string, got a list",
            id="a limit that is a list",
        ),
    ],
)
def test_mistakes_are_named(simulate: Simulation, wrong: dict[str, Any], said: str) -> None:
    code, _, errors = simulate.of(node("n", 1), wrong)

    assert code == 2
    assert said in errors
