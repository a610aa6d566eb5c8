"""`kubestow explain`: the state of a pod, why no node fits, and fixes that an attempt has verified."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.explain.answer import Explanation, as_text
from tests.unit.harness import SchedulerHarness


async def explained(sched: SchedulerHarness, name: str = "p") -> Explanation:
    """Return the explanation of a pod, driven to its end."""
    steps = sched.parts.explainer.explain(f"default/{name}")
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Explanation | None = done.value
            assert found is not None
            return found


def fixes(found: Explanation) -> list[list[str]]:
    """Return the texts of the verified fixes."""
    return [[change.text for change in fix.changes] for fix in found.fixes if fix.verified]


HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def requiring(*expressions: dict[str, Any]) -> dict[str, Any]:
    """Return an affinity with one required node selector term."""
    term = {"matchExpressions": list(expressions)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def near(app: str, *, field: str, key: str = HOSTNAME) -> dict[str, Any]:
    """Return an affinity with one required pod affinity or anti-affinity term."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def on_port(port: int) -> list[dict[str, Any]]:
    return [{"name": "c", "ports": [{"containerPort": port, "hostPort": port}]}]


CAUSES = [
    pytest.param(
        {"n1": {"cpu": "2"}},
        {"a": {"cpu": "1500m", "on": "n1"}},
        {"cpu": "1"},
        "InsufficientResources",
        [["request 500m of cpu instead of 1"], ["delete pod default/a on node n1"], ["add a node like n1"]],
        id="too little cpu",
    ),
    pytest.param(
        {"n1": {"pods": "1"}},
        {"a": {"on": "n1"}},
        {},
        "InsufficientResources",
        [["delete pod default/a on node n1"], ["add a node like n1"]],
        id="no slot for another pod",
    ),
    pytest.param(
        {"n1": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}},
        {},
        {},
        "UntoleratedTaint",
        [["tolerate the taint team=a:NoSchedule"], ["remove the taint team=a:NoSchedule from node n1"]],
        id="a taint",
    ),
    pytest.param(
        {"n1": {"unschedulable": True}},
        {},
        {},
        "NodeCordoned",
        [["uncordon node n1"], ["tolerate the taint node.kubernetes.io/unschedulable:NoSchedule"]],
        id="a cordon",
    ),
    pytest.param(
        {"n1": {"labels": {"disk": "hdd"}}},
        {},
        {"nodeSelector": {"disk": "ssd"}},
        "NodeAffinityMismatch",
        [["remove disk=ssd from the nodeSelector"], ["label node n1 disk=ssd"]],
        id="a node selector",
    ),
    pytest.param(
        {"n1": {"labels": {"disk": "hdd", "gen": "2"}}},
        {},
        {
            "affinity": requiring(
                {"key": "gen", "operator": "Gt", "values": ["1"]},
                {"key": "disk", "operator": "In", "values": ["ssd"]},
            )
        },
        "NodeAffinityMismatch",
        [["remove disk In ssd from the required node affinity"], ["label node n1 disk=ssd"]],
        id="one expression of the required node affinity",
    ),
    pytest.param(
        {"n1": {"labels": {HOSTNAME: "n1"}}},
        {},
        {"affinity": near("db", field="podAffinity")},
        "PodAffinityUnsatisfied",
        [[f"remove the required pod affinity at {HOSTNAME}"]],
        id="no pod to be near",
    ),
    pytest.param(
        {"n1": {"labels": {HOSTNAME: "n1"}}},
        {"db": {"labels": {"app": "db"}, "on": "n1"}},
        {"affinity": near("db", field="podAntiAffinity")},
        "PodAntiAffinityViolated",
        [
            [f"remove the required pod anti-affinity at {HOSTNAME}"],
            ["delete pod default/db on node n1"],
            ["add a node like n1"],
        ],
        id="its own anti-affinity",
    ),
    pytest.param(
        {"n1": {"labels": {HOSTNAME: "n1"}}},
        {"db": {"affinity": near("p", field="podAntiAffinity"), "on": "n1"}},
        {"labels": {"app": "p"}},
        "KeptAwayByAntiAffinity",
        [["delete pod default/db on node n1"], ["add a node like n1"]],
        id="the anti-affinity of a pod on the node",
    ),
    pytest.param(
        {"n1": {"labels": {ZONE: "a"}}, "n2": {"labels": {ZONE: "b"}, "unschedulable": True}},
        {name: {"labels": {"app": "p"}, "on": "n1"} for name in ("a", "b")},
        {
            "labels": {"app": "p"},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "p"}},
                }
            ],
        },
        "NodeCordoned",
        [
            ["uncordon node n2"],
            [f"allow a maxSkew of 3 instead of 1 at {ZONE}"],
            ["tolerate the taint node.kubernetes.io/unschedulable:NoSchedule"],
        ],
        id="a spread constraint; the domain with the fewest pods is cordoned",
    ),
    pytest.param(
        {"n1": {}},
        {"a": {"containers": on_port(80), "on": "n1"}},
        {"containers": on_port(80)},
        "HostPortInUse",
        [
            ["give up host port 80/TCP of container c"],
            ["delete pod default/a on node n1"],
            ["add a node like n1"],
        ],
        id="a host port",
    ),
    pytest.param(
        {"n1": {"cpu": "2", "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}},
        {"a": {"cpu": "1500m", "on": "n1"}},
        {"cpu": "1", "nodeSelector": {"disk": "ssd"}},
        "InsufficientResources",
        [
            [
                "request 500m of cpu instead of 1",
                "tolerate the taint team=a:NoSchedule",
                "remove disk=ssd from the nodeSelector",
            ],
            [
                "delete pod default/a on node n1",
                "remove the taint team=a:NoSchedule from node n1",
                "label node n1 disk=ssd",
            ],
        ],
        id="three causes at once",
    ),
]


@pytest.mark.parametrize(("nodes", "bound", "pod", "code", "expected"), CAUSES)
async def test_a_cause_and_its_fixes(
    nodes: dict[str, dict[str, Any]],
    bound: dict[str, dict[str, Any]],
    pod: dict[str, Any],
    code: str,
    expected: list[list[str]],
) -> None:
    sched = SchedulerHarness()
    for name, spec in nodes.items():
        sched.node(name, **spec)
    for name, spec in bound.items():
        sched.pod(name, **spec)
    sched.pod("p", **pod)
    await sched.settle()
    before = sched.parts.cluster.sizes()

    found = await explained(sched)

    assert (found.verdict, found.exit_code) == ("doesNotFit", 2)
    assert code in {reason.code for group in found.groups for reason in group.reasons}
    assert [sorted(each) for each in fixes(found)] == [sorted(each) for each in expected]
    assert sched.parts.cluster.sizes() == before
    assert as_text(found).startswith("default/p: none of ")
