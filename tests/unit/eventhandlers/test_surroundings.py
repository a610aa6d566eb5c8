"""Deltas of Namespaces, Services, owners and budgets, readable and unreadable."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta, ObjectDecoder, from_manifest
from scheduler.api.selectors import LabelSelector
from scheduler.kube.resources import BUDGET, KINDS
from tests.unit.harness import SchedulerHarness

import msgspec  # isort: skip
import itertools


def read(kind: str, manifest: dict[str, Any]) -> Any:
    spec = KINDS[kind]
    assert spec.typ is not None
    return ObjectDecoder(kind, spec.typ).decode(msgspec.json.encode(manifest))


def at(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}


def a_pod(kind: str = "", version: str = "apps/v1") -> Pod:
    owners = [{"apiVersion": version, "kind": kind, "name": "o", "controller": True}] if kind else []
    metadata = {"name": "p", "namespace": "default", "labels": {"app": "web"}, "ownerReferences": owners}
    return from_manifest(Pod, {"metadata": metadata, "spec": {"containers": []}})


@pytest.mark.parametrize(
    ("kind", "manifest", "comes"),
    [
        pytest.param("Service", at("s", selector={"app": "web"}), a_pod(), id="a Service"),
        pytest.param(
            "ReplicationController",
            at("o", selector={"app": "web"}),
            a_pod("ReplicationController", "v1"),
            id="a ReplicationController",
        ),
        pytest.param("ReplicaSet", at("o", selector={"matchLabels": {"app": "web"}}), a_pod("ReplicaSet"), id="an RS"),
        pytest.param("StatefulSet", at("o", selector={"matchLabels": {"app": "web"}}), a_pod("StatefulSet"), id="a SS"),
    ],
)
def test_an_object_that_selects_pods_comes_becomes_unreadable_and_goes(
    kind: str, manifest: dict[str, Any], comes: Pod
) -> None:
    sched = SchedulerHarness()
    intake, workloads = sched.parts.intake, sched.cluster.workloads
    whole = read(kind, manifest)
    broken = read(kind, {**manifest, "spec": {"selector": 7}})

    intake.apply(kind, [Delta(None, whole)])
    assert workloads.default_selector(comes) == LabelSelector({"app": "web"})
    with capture_logs() as logs:
        intake.apply(kind, [Delta(whole, broken), Delta(broken, broken)])
    assert workloads.default_selector(comes) is None
    assert [(log["object"], "selector" in log["error"]) for log in logs] == [(whole.key, True)]
    intake.apply(kind, [Delta(broken, whole)])
    assert workloads.default_selector(comes) is not None
    intake.apply(kind, [Delta(whole, None)])
    assert workloads.default_selector(comes) is None


def test_namespaces_are_known_by_their_labels() -> None:
    sched = SchedulerHarness()
    intake, namespaces = sched.parts.intake, sched.cluster.namespaces
    plain = read("Namespace", {"metadata": {"name": "a"}})
    team = read("Namespace", {"metadata": {"name": "a", "labels": {"team": "t"}}})
    broken = read("Namespace", {"metadata": {"name": "a", "labels": 7}})

    intake.apply("Namespace", [Delta(None, plain)])
    seen = [(namespaces.generation, dict(namespaces.labels("a")))]
    for old, new in ((plain, team), (team, team), (team, broken), (broken, team), (team, None)):
        intake.apply("Namespace", [Delta(old, new)])
        seen.append((namespaces.generation, dict(namespaces.labels("a"))))

    assert [labels for _, labels in seen] == [{}, {"team": "t"}, {"team": "t"}, {}, {"team": "t"}, {}]
    assert [b[0] != a[0] for a, b in itertools.pairwise(seen)] == [True, False, True, True, True]


def a_budget(selector: Any = None, status: Any = None) -> dict[str, Any]:
    labels = {"matchLabels": {"app": "web"}}
    spec = {"minAvailable": 1, "selector": labels if selector is None else selector}
    return {"metadata": {"name": "b", "namespace": "default", "uid": "b"}, "spec": spec, "status": status or {}}


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        pytest.param(a_budget(selector=7), "$.spec.selector", id="a selector that is a number"),
        pytest.param(
            a_budget(selector={"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}),
            "$.spec.selector",
            id="an unknown operator",
        ),
        pytest.param(
            a_budget(selector={"matchLabels": {"app": 7}}), "$.spec.selector.matchLabels", id="a label that is a number"
        ),
        pytest.param(
            a_budget(status={"disruptionsAllowed": "many"}), "$.status.disruptionsAllowed", id="a count in words"
        ),
        pytest.param(a_budget(status={"disruptedPods": ["web-0"]}), "$.status.disruptedPods", id="a list for a map"),
    ],
)
def test_an_unreadable_budget_protects_all_pods_that_it_may_select(broken: dict[str, Any], field: str) -> None:
    """The error is logged once, with object and field."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("web", on="n1", labels={"app": "web"})
    sched.pod("else", on="n1", labels={"app": "else"})
    sched.pod("bare", on="n1")
    pods = list(sched.cluster.nodes.pods(0).values())
    intake, disruptions = sched.parts.intake, sched.cluster.disruptions
    good, bad = read(BUDGET.name, a_budget()), read(BUDGET.name, broken)

    with capture_logs() as logs:
        protected, generations = [], [disruptions.generation]
        for old, new in ((None, bad), (bad, good), (good, bad), (bad, bad), (bad, good), (good, None)):
            intake.apply(BUDGET.name, [Delta(old, new)])
            protected.append(sorted(disruptions.violating(pods)))
            generations.append(disruptions.generation)

    assert protected == [
        ["uid-else", "uid-web"],
        ["uid-web"],
        ["uid-else", "uid-web"],
        ["uid-else", "uid-web"],
        ["uid-web"],
        [],
    ]
    assert [b != a for a, b in itertools.pairwise(generations)] == [True, True, True, False, True, True]
    assert [(log["kind"], log["object"], field in log["error"]) for log in logs] == [
        (BUDGET.name, "default/b", True),
        (BUDGET.name, "default/b", True),
    ]


async def test_an_unreadable_budget_does_not_stop_preemption() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("web", cpu="1", on="n1", labels={"app": "web"}, priority=0)
    other = {**a_budget(), "metadata": {"name": "other", "namespace": "default", "uid": "o"}}
    broken = read(BUDGET.name, a_budget(selector=7))
    sched.parts.intake.apply(BUDGET.name, [Delta(None, broken), Delta(None, read(BUDGET.name, other))])
    sched.pod("high", cpu="1", priority=9)

    await sched.settle()

    (web,) = sched.cluster.nodes.pods(0).values()
    assert [budget.key for budget in sched.cluster.disruptions.protecting(web)] == ["default/other"]
    assert sched.writer.deletions == ["default/web"]
