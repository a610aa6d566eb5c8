"""Rows 133-146 of docs/spec/core.md §9 as a choice: all plugins of the profile, with their weights, and the node taken.

In each row what the row is about decides, and what is against it is lighter. The values themselves are in the tests of
the plugins. Ids begin with the row's number.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from scheduler.config.args import NodeResourcesFitArgs, ScoringStrategy, ShapePoint, default_args
from scheduler.config.types import Configuration, Profile
from scheduler.core.decode import from_manifest
from scheduler.core.deltas import Delta
from scheduler.core.workloads import Service
from tests.unit.brain import Brain
from tests.unit.scenarios.seen import HOST, requests

ZONE = "topology.kubernetes.io/zone"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
WEB: dict[str, Any] = {"labels": {"app": "web"}, "scheduler": "default-scheduler"}
DB: dict[str, Any] = {"labels": {"app": "db"}, "scheduler": "default-scheduler"}
MOST = ScoringStrategy("MostAllocated")
FULLEST = ScoringStrategy("RequestedToCapacityRatio", shape=(ShapePoint(0, 0), ShapePoint(100, 10)))
SERVED = from_manifest(
    Service, {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
)


def with_strategy(strategy: ScoringStrategy | None) -> Brain:
    """NodeResourcesFit scores that way; None: as by default."""
    if strategy is None:
        return Brain()
    args = {**default_args(), NodeResourcesFitArgs.plugin: NodeResourcesFitArgs(scoring_strategy=strategy)}
    return Brain(Configuration(profiles=(Profile("kubestow", args=args),)))


HALF: dict[str, Any] = {"scheduler": "default-scheduler", **requests(cpu="2", memory="4Gi")}
QUARTER = requests(cpu="1", memory="2Gi")


@pytest.mark.parametrize(
    ("strategy", "node"),
    [
        pytest.param(None, "empty", id="133 LeastAllocated takes the emptier node"),
        pytest.param(MOST, "half", id="135 MostAllocated the fuller one"),
        pytest.param(FULLEST, "half", id="136 RequestedToCapacityRatio what its shape says"),
    ],
)
async def test_how_full_a_node_is(strategy: ScoringStrategy | None, node: str) -> None:
    """Both stay balanced, so that nothing else speaks."""
    brain = with_strategy(strategy)
    for name in ("empty", "half"):
        brain.node(name)
    brain.pod("theirs", on="half", **HALF)
    brain.pod("p", **QUARTER)
    await brain.settle()

    assert brain.writer.binds == [("default/p", node)]


async def test_134_pods_that_ask_for_nothing_are_spread() -> None:
    """Each weighs 100m and 200Mi all the same, so that they do not pile up."""
    brain = Brain()
    for name in ("n1", "n2", "n3"):
        brain.node(name)
    for i in range(12):
        brain.pod(f"p{i}")
        await brain.settle()

    assert Counter(node for _, node in brain.writer.binds) == {"n1": 4, "n2": 4, "n3": 4}


async def test_138_the_better_balance_wins() -> None:
    """One has its cpu taken, the other as much of its memory: to LeastAllocated they are the same."""
    brain = Brain()
    brain.node("cpu taken")
    brain.node("memory taken")
    brain.pod("a", on="cpu taken", scheduler="default-scheduler", **requests(cpu="2"))
    brain.pod("b", on="memory taken", scheduler="default-scheduler", **requests(memory="4Gi"))
    for i in range(5):
        brain.pod(f"p{i}", **requests(cpu="1", memory="64Mi"))
        await brain.settle()
        brain.gone(f"p{i}")

    assert {node for _, node in brain.writer.binds} == {"memory taken"}


def soft_affinity(**weights: int) -> dict[str, Any]:
    """Wishes for nodes by their label `name`."""
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": "name", "operator": "In", "values": [name]}]}}
        for name, weight in weights.items()
    ]
    return {"affinity": {"nodeAffinity": {SOFT: terms}}}


def soft_beside(weight: int, app: str, *, away: bool = False) -> dict[str, Any]:
    """A wish to be beside (or away from) pods labelled app=<app>."""
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    kind = "podAntiAffinity" if away else "podAffinity"
    return {"affinity": {kind: {SOFT: [{"weight": weight, "podAffinityTerm": term}]}}}


def soft_spread(key: str) -> dict[str, Any]:
    """Spread over the values of a node label, as far as it goes."""
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    return {"topologySpreadConstraints": [{**constraint, "labelSelector": {"matchLabels": {"app": "web"}}}]}


PREFERRED = [{"key": f"k{i}", "effect": "PreferNoSchedule"} for i in range(2)]


@pytest.mark.parametrize(
    ("n1", "n2", "there", "pod", "node"),
    [
        pytest.param({"taints": PREFERRED}, {}, {"n2": [HALF]}, {}, "n2", id="140 no soft taint outweighs half a node"),
        pytest.param({}, {}, {"n2": [HALF]}, soft_affinity(n1=30, n2=60), "n2", id="141 the greater weight wins"),
        pytest.param(
            {"labels": {ZONE: "a", "name": "n1"}},
            {"labels": {ZONE: "b", "name": "n2"}},
            {"n1": [WEB], "n2": [HALF]},
            {"labels": {"app": "web"}, **soft_spread(ZONE)},
            "n2",
            id="143 the zone without pods of its kind",
        ),
        pytest.param(
            {},
            {},
            {"n1": [WEB, WEB, WEB, WEB], "n2": [HALF]},
            {"labels": {"app": "web"}},
            "n2",
            id="144 the system's defaults spread a Service's pods by hostname where no node has a zone",
        ),
        pytest.param(
            {"labels": {"rack": "1", "name": "n1"}},
            {},
            {"n1": [WEB, WEB, HALF]},
            {"labels": {"app": "web"}, **soft_spread("rack")},
            "n1",
            id="145 a node without the key of the pod's own constraint gets nothing",
        ),
        pytest.param({}, {}, {"n1": [DB], "n2": [HALF]}, soft_beside(10, "db", away=True), "n2", id="146 away from it"),
        pytest.param({}, {}, {"n1": [DB, HALF]}, soft_beside(10, "db"), "n1", id="146 beside it"),
    ],
)
async def test_what_decides(
    n1: dict[str, Any], n2: dict[str, Any], there: dict[str, list[dict[str, Any]]], pod: dict[str, Any], node: str
) -> None:
    """Between two nodes of which resources alone would choose the other."""
    brain = Brain()
    brain.parts.intake.apply("Service", [Delta(None, SERVED)])
    for name, more in (("n1", n1), ("n2", n2)):
        own = more.get("labels", {})
        brain.node(name, **{**more, "labels": {"name": name, HOST: name, **own}})
    for name, pods in there.items():
        for i, spec in enumerate(pods):
            brain.pod(f"{name}-{i}", on=name, **spec)
    brain.pod("p", **pod)
    await brain.settle()

    assert brain.writer.binds == [("default/p", node)]
