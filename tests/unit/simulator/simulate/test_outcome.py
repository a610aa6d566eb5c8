"""The outcome of a simulation, its verdict, its output and the schema of its JSON; budgets, pod groups, and the tracker of decisions."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.pod_group import COSCHEDULING_POD_GROUP, POD_GROUP, GroupKey
from simulator.apiserver import ApiServer
from simulator.simulate import outcome as outcomes
from simulator.simulate.budgets import Budgets
from simulator.simulate.group_rows import GroupRow
from simulator.simulate.input.manifests import Found
from simulator.simulate.outcome import (
    FEW,
    AnnotatedPod,
    Fill,
    Outcome,
    Placement,
    Timing,
    Tracker,
    Victim,
    WorkloadRow,
    fills,
    is_expected_pending,
    placement,
)
from simulator.simulate.pod_groups import warnings
from simulator.simulate.report import ROWS, as_json, as_table
from tests.support.clock import VirtualClock
from tests.support.jsonschema import mistakes
from tests.unit.kube.scripted import LeapingClock
from tools.answer_schemas import page


def pod(name: str = "p", *, annotations: dict[str, str] | None = None, **rest: Any) -> AnnotatedPod:
    metadata = {"name": name, "namespace": "a", "annotations": annotations or {}}
    return from_manifest(AnnotatedPod, {"metadata": metadata, "spec": {}, **rest})


def node(name: str, **allocatable: str) -> Node:
    return from_manifest(Node, {"metadata": {"name": name}, "status": {"allocatable": allocatable}})


def outcome(*placements: Placement, is_settled: bool = True) -> Outcome:
    return Outcome(placements, (), Timing(0.1, 0.6, 0.7), 1, 0, 0, {"Service": 2}, is_settled)


def placed(name: str, *, owner: str = "") -> Placement:
    """A pod on a node, as expected."""
    return Placement(name, "n", "", "", is_expected_pending=False, owner=owner)


def pending(name: str, message: str) -> Placement:
    """A pod that was refused unexpectedly."""
    return Placement(name, "", "Unschedulable", message, is_expected_pending=False)


PLACED = placed("a/p")
PENDING = pending("a/q", "0/1 nodes are available: 1 Too many pods.")
REFUSED = {"type": "PodScheduled", "reason": "Unschedulable", "message": "no node"}


@pytest.mark.parametrize(("given", "problems"), [
    pytest.param((PLACED,), [], id="placed as expected"),
    pytest.param((PENDING,), ["a/q was not placed: 0/1 nodes are available: 1 Too many pods."],
        id="pending unexpectedly"),
    pytest.param((Placement("a/q", "", "Unschedulable", "no", is_expected_pending=True),), [],
        id="pending as expected"),
    pytest.param((Placement("a/p", "n", "", "", is_expected_pending=True),),
        ["a/p was expected to stay pending, and is on n"], id="placed unexpectedly"),
])  # fmt: skip
def test_the_verdict(given: tuple[Placement, ...], problems: list[str]) -> None:
    answer = outcome(*given)

    assert answer.problems == problems
    assert answer.is_good == (not problems)


@pytest.mark.parametrize(("given", "reason", "message"), [
    pytest.param(pod(status={"conditions": [REFUSED]}), "Unschedulable", "no node", id="refused"),
    pytest.param(pod(spec={"schedulingGates": [{"name": "g"}]}), "SchedulingGated", "waits for its scheduling gates: g",
        id="gated"),
    pytest.param(pod(), "NotTried", "the scheduler said nothing about it", id="not tried"),
    pytest.param(pod(spec={"nodeName": "n"}), "", "", id="placed"),
    pytest.param(pod(spec={"nodeName": "n"}, status={"phase": "Failed", "reason": "OutOfcpu"}), "OutOfcpu",
        "bound to n, whose kubelet refused it: OutOfcpu", id="refused by the kubelet"),
])  # fmt: skip
def test_the_reason_of_a_pending_pod(given: Pod, reason: str, message: str) -> None:
    shown = placement(given, is_expected_pending=False)

    assert (shown.reason, shown.message) == (reason, message)


@pytest.mark.parametrize(
    ("patterns", "annotations", "expected"),
    [
        (["a/p"], {}, True),
        (["a/*"], {}, True),
        (["*/p"], {}, True),
        (["p"], {}, False),
        ([], {outcomes.EXPECT: "pending"}, True),
        ([], {outcomes.EXPECT: "bound"}, False),
    ],
    ids=["by name", "by glob", "in any namespace", "a bare name is in default", "by annotation", "another value"],
)
def test_expected_pending(patterns: list[str], annotations: dict[str, str], expected: bool) -> None:
    assert is_expected_pending(pod(annotations=annotations), patterns) is expected


def test_fills() -> None:
    requests = {"containers": [{"resources": {"requests": {"cpu": "1", "example.com/gpu": 1}}}]}
    pods = [
        pod("p", spec={"nodeName": "x", **requests}),
        pod("q", spec={"nodeName": "x", **requests}, status={"phase": "Succeeded"}),
        pod("r", spec=requests),
        pod("s", spec={"nodeName": "gone", **requests}),
    ]
    nodes = [node("x", cpu="4", pods="10", **{"example.com/gpu": "2"}), node("y", cpu="4", pods="10")]

    shown = {fill.resource: fill for fill in fills(nodes, pods)}
    assert list(shown) == ["cpu", "pods", "example.com/gpu"]
    assert (shown["cpu"].requested, shown["cpu"].allocatable, shown["cpu"].share) == (1000, 8000, 0.125)
    assert (shown["cpu"].fullest, shown["cpu"].emptiest) == (("x", 0.25), ("y", 0.0))
    assert (shown["pods"].requested, shown["example.com/gpu"].fullest) == (1, ("x", 0.5))


def test_json() -> None:
    shown = json.loads(as_json(outcome(PLACED, PENDING)))

    assert shown["ok"] is False
    assert shown["summary"]["placed"] == shown["summary"]["pending"] == 1
    why = {"reason": "Unschedulable", "message": "0/1 nodes are available: 1 Too many pods."}
    nothing: Object = {"volumes": [], "devices": [], "choice": None}
    assert shown["pods"] == [
        {"pod": "a/p", "owner": None, "node": "n", "expectedPending": False, **nothing},
        {"pod": "a/q", "owner": None, "node": None, "expectedPending": False, **nothing, **why},
    ]


def table(answer: Outcome) -> str:
    """What a terminal shows."""
    out = io.StringIO()
    as_table(answer, Console(file=out, width=200, force_terminal=True, color_system=None))
    return out.getvalue()


def test_table() -> None:
    """The table has the first rows and the number of further ones. Markup in messages is not interpreted."""
    many = [placed(f"a/p{n}") for n in range(ROWS + 1)]
    text = table(outcome(pending("a/odd", "[red]no[/red]"), *many, is_settled=False))

    assert "a/p39" in text
    assert "a/p40" not in text
    assert "1 more" in text
    assert text.count("[red]no[/red]") == 1
    assert "41 of 42 pods placed" in text
    assert "the time ran out" in text
    assert "does not look at 2 Service" in text


def test_lines_in_a_pipe() -> None:
    why = "0/5 nodes are available: " + "5 Insufficient cpu. " * 20
    waiting = pending("a/pending", why)
    grown = WorkloadRow("Deployment a/web", 4, existing=1, created=3, deleted=[], ignored=2, reason="", refused="")
    unready = "db-0 is not ready"
    waits = WorkloadRow("StatefulSet a/db", 3, existing=0, created=1, deleted=[], ignored=0, reason=unready, refused="")
    plain = WorkloadRow("Deployment a/new", 3, existing=0, created=3, deleted=[], ignored=0, reason="", refused="")
    victim = Victim("a/v", 1, "n", "a/p", None, None)
    out = io.StringIO()
    answer = dataclasses.replace(outcome(PLACED, waiting), workloads=(grown, waits, plain), victims=(victim,))
    as_table(answer, Console(file=out, width=40))

    lines = out.getvalue().splitlines()
    width = max(len(PLACED.pod), len(waiting.pod))
    assert lines[0] == f"{PLACED.pod:{width}}  {PLACED.node}"
    assert lines[1] == f"{'a/pending':{width}}  -  {why.strip()}"
    assert lines[2] == "Deployment a/web: 4 replicas, 1 existing, 3 created, 2 ignored"
    assert lines[3] == "StatefulSet a/db: 3 replicas, 1 created (db-0 is not ready)"
    assert lines[4] == "a/v on n was preempted for a/p"
    assert lines[-1] == "pending and not expected to be (--expect-pending): 1 pod"


def group_row(*, least: int | None = 3, pods: int = 3, placed: int = 0, new: int = 0, message: str = "") -> GroupRow:
    return GroupRow(GroupKey(COSCHEDULING_POD_GROUP, "a/g"), least, pods, placed, new, message)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        pytest.param(group_row(placed=3, new=1), "group a/g  3 of 3 pods placed", id="started"),
        pytest.param(
            group_row(new=3, message="not\nenough"),
            "group a/g  0 of 3 pods placed, starts with 3: not enough",
            id="refused",
        ),
        pytest.param(group_row(pods=2, new=2), "group a/g  0 of 2 pods placed, starts with 3", id="too few pods"),
        pytest.param(
            group_row(least=None, message="its PodGroup is missing"),
            "group a/g  0 of 3 pods placed: its PodGroup is missing",
            id="no object",
        ),
        pytest.param(
            group_row(placed=1), "group a/g  1 of 3 pods placed, starts with 3", id="too few of the input run"
        ),
        pytest.param(group_row(placed=3), "", id="it ran before"),
    ],
)
def test_groups(row: GroupRow, line: str) -> None:
    """A group that the simulation did not change is in the JSON only."""
    answer = dataclasses.replace(outcome(), groups=(row,))
    out = io.StringIO()
    as_table(answer, Console(file=out, width=40))

    assert [each for each in out.getvalue().splitlines() if each.startswith("group")] == ([line] if line else [])
    assert ("a/g" in table(answer)) == bool(line)
    (shown,) = json.loads(as_json(answer))["groups"]
    assert shown == {
        "kind": "PodGroup.scheduling.x-k8s.io",
        "group": "a/g",
        "minimum": row.least,
        "pods": row.pods,
        "placed": row.placed,
        "started": row.is_started,
        "message": row.message,
    }


def test_groups_that_have_not_started_come_first() -> None:
    started = [
        dataclasses.replace(group_row(placed=3, new=3), group=GroupKey(POD_GROUP, f"a/s{n}")) for n in range(ROWS)
    ]
    text = table(dataclasses.replace(outcome(), groups=(*started, group_row(new=3))))

    assert text.index("a/g") < text.index("a/s0")
    assert "1 more" in text


@pytest.mark.parametrize("is_terminal", [False, True])
def test_names_and_messages_cannot_change_the_terminal(is_terminal: bool) -> None:
    waiting = dataclasses.replace(PLACED, pod="a/\x1b[2Jx", node="", message="selector \x1b[31m", reason="")
    out = io.StringIO()
    unexpected = dataclasses.replace(PLACED, pod="a/\x1b[2Jy", is_expected_pending=True)
    fill = Fill("evil.example/[red]\x1b[2Jr[/none]", 1, 2, ("n", 0.5), ("n", 0.5))
    shown = dataclasses.replace(outcome(waiting, unexpected), fills=(fill,))
    as_table(shown, Console(file=out, width=200, force_terminal=is_terminal, color_system=None))

    assert ("evil.example/[red]\\x1b[2Jr[/none]" in out.getvalue()) == is_terminal, "no markup"
    assert "\\x1b[31m" in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()


def test_every_workload_has_rows() -> None:
    """A large workload does not hide a small one."""
    large = [placed(f"a/large-{n}", owner="Job/large") for n in range(ROWS)]
    small = [placed(f"a/small-{n}", owner="Job/small") for n in range(3)]
    text = table(outcome(*large, *small))

    assert all(f"a/{name}" in text for name in ("large-0", "large-36", "small-2"))
    assert "a/large-37" not in text
    assert text.index("a/large-36") < text.index("a/small-0")


def test_victims() -> None:
    """Victims are in the order of their preemptors. A victim without a recorded preemptor comes last."""

    def a_pod(name: str, priority: int, node_name: str = "") -> Pod:
        metadata = {"name": name, "namespace": "a", "uid": f"uid-{name}"}
        spec = {"priority": priority, "nodeName": node_name}
        return from_manifest(AnnotatedPod, {"metadata": metadata, "spec": spec})

    gone = [a_pod("x", 1, "n1"), a_pod("y", 2, "n2"), a_pod("z", 3, "n3")]
    there = {"a/p": a_pod("p", 9), "a/q": a_pod("q", 8, "n2")}
    found = outcomes.victims(gone, {"uid-x": "a/q", "uid-y": "a/p"}, ["a/p", "a/q"], there)
    answer = dataclasses.replace(outcome(PLACED), victims=found)
    shown = json.loads(as_json(answer))

    fields = ("pod", "priority", "node", "for", "forPriority", "forNode")
    assert [tuple(each[field] for field in fields) for each in shown["preempted"]] == [
        ("a/y", 2, "n2", "a/p", 9, None),
        ("a/x", 1, "n1", "a/q", 8, "n2"),
        ("a/z", 3, "n3", None, None, None),
    ]
    assert "not recorded" in table(answer)


# -- the schema of the JSON -----------------------------------------------------------------------------------------------


SCHEMA = Path(__file__).parents[4] / "docs" / "simulate.schema.json"
Object = dict[str, Any]


def valid() -> Object:
    """An answer with one object of each kind."""
    counts = dict.fromkeys(("pods", "placed", "pending", "preempted", "nodes", "boundBefore", "leftAlone"), 1)
    missing = {"kind": "Node", "name": "n", "referrer": "x", "field": "spec.nodeName", "referrers": 1, "hint": ""}
    row = {"workload": "Job a/j", "replicas": None, "existing": 0, "created": 1, "deleted": ["p"], "ignored": 0}
    group = {"kind": "PodGroup", "group": "a/g", "minimum": None, "pods": 1, "placed": 0}
    group |= {"started": False, "message": ""}
    share = {"node": "n", "share": 0.5}
    cpu = {"resource": "cpu", "unit": "millicpu", "requested": 1, "allocatable": 2, "fullest": share, "emptiest": share}
    volume: Object = {"claim": "a/c", "volume": "v", "storageClass": "s", "driver": "", "capacity": "1Gi"}
    volume |= {"segments": [{"zone": ["z"]}], "pool": None}
    device: Object = {
        "claim": "a/d",
        "request": "r",
        "driver": "d",
        "pool": "p",
        "device": "x",
        "consumed": {"memory": "1Gi"},
    }
    choice = {"chosen": {"node": "n", "total": 3, "parts": {"Fit": 3}}, "runnerUp": None}
    uses = {"volumes": [volume], "devices": [device | {"adminAccess": False}], "choice": choice}
    pool = {"driver": "d", "pool": "p", "devices": 2, "used": 1, "free": 1}
    pool["shared"] = [{"device": "x", "capacity": "memory", "used": "1Gi", "of": "8Gi"}]
    node = {"node": "n", "resources": [{"resource": "cpu", "requested": "1", "allocatable": "2"}]}
    node["attachments"] = [{"driver": "d", "used": 1, "limit": 2}]
    node |= {"storage": [{"storageClass": "s", "pool": "a/p", "free": "1Gi"}], "devicePools": [pool]}
    return {
        "schemaVersion": 2,
        "ok": False,
        "settled": True,
        "problems": ["a/q was not placed"],
        "summary": counts | {"leftOut": {"RayCluster.ray.io": 1}},
        "pods": [
            {"pod": "a/p", "owner": "Job/j", "node": "n", "expectedPending": False} | uses,
            {"pod": "a/q", "owner": None, "node": None, "expectedPending": True, "reason": "r", "message": "m"}
            | {"volumes": [], "devices": [], "choice": None},
        ],
        "preempted": [
            {"pod": "a/v", "priority": -1, "node": "n", "for": None, "forPriority": None, "forNode": None},
        ],
        "missingReferences": [missing],
        "workloads": [row | {"reason": "", "refused": ""}],
        "groups": [group],
        "resources": [cpu],
        "nodes": [node],
        "devicePools": [pool],
    }


def test_the_file_is_that_of_the_types() -> None:
    """Else: python -m tools.answer_schemas"""
    assert SCHEMA.read_text() == page(SCHEMA.name)


@pytest.mark.parametrize(("change", "mistake"), [
    pytest.param({"ok": None}, "$.ok: None: type boolean", id="another type"),
    pytest.param({"more": 1}, "$.more: is not in the schema", id="an unknown field"),
    pytest.param({"summary": {"pods": -1}}, "$.summary.pods: -1: minimum 0", id="a negative number"),
    pytest.param({"summary": {}}, "$.summary: pods is missing", id="a missing field"),
    pytest.param({"pods": [valid()["pods"][0] | {"pod": "p"}]}, "$.pods[0].pod: 'p': pattern ^[^/]+/[^/]+$",
        id="a name"),
    pytest.param({"pods": [valid()["pods"][0] | {"node": ""}]}, "$.pods[0].node: '': anyOf", id="no node"),
    pytest.param({"resources": [valid()["resources"][0] | {"unit": "core"}]},
        "$.resources[0].unit: 'core': enum ['1', 'millicpu']", id="a value that is not listed"),
])  # fmt: skip
def test_what_is_no_answer(change: Object, mistake: str) -> None:
    """The schema names each place."""
    assert mistake in list(mistakes(valid() | change, json.loads(SCHEMA.read_text())))


LABELS = {"app": "web"}


def a_server(spec: dict[str, Any], *, bound: int = 4, waiting: int = 0) -> ApiServer:
    """A budget, and pods that it selects."""
    server = ApiServer()
    for at in range(bound + waiting):
        on = {"nodeName": "n"} if at < bound else {}
        spec_of_pod = {"containers": [{"name": "c"}], **on}
        server.create("Pod", {"metadata": {"name": f"web-{at}", "labels": LABELS}, "spec": spec_of_pod})
    server.create(
        "PodDisruptionBudget", {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": LABELS}, **spec}}
    )
    return server


def allowed(server: ApiServer) -> int:
    return int(server.get("PodDisruptionBudget", "b")["status"]["disruptionsAllowed"])


@pytest.mark.parametrize(
    ("spec", "waiting", "count"),
    [
        pytest.param({"minAvailable": 3}, 0, 1, id="all but three"),
        pytest.param({"minAvailable": "30%"}, 0, 2, id="a percentage of minAvailable is rounded up"),
        pytest.param({"maxUnavailable": 1}, 0, 1, id="one"),
        pytest.param({"maxUnavailable": "30%"}, 0, 2, id="a percentage of maxUnavailable is rounded up"),
        pytest.param({"maxUnavailable": 0}, 0, 0, id="none"),
        pytest.param({"minAvailable": 9}, 0, 0, id="more than the number of pods"),
        pytest.param({"maxUnavailable": 1}, 1, 0, id="one is unavailable"),
        pytest.param({}, 0, 0, id="no limit"),
        pytest.param({"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}, 0, 0, id="other pods"),
    ],
)
def test_the_status_of_a_new_budget(spec: dict[str, Any], waiting: int, count: int) -> None:
    server = a_server(spec, waiting=waiting)
    Budgets(server, ())

    assert allowed(server) == count


@pytest.mark.parametrize("is_believed", [False, True], ids=["computed", "from the dump"])
def test_the_status_follows_the_pods(is_believed: bool) -> None:
    """Terminating and deleted pods are not healthy. Pods that the budget does not select do not count."""
    server = a_server({"minAvailable": 2}, waiting=1)
    if is_believed:
        server.patch("PodDisruptionBudget", "b", {"status": {"disruptionsAllowed": 2}}, subresource="status")
    Budgets(server, {"default/b"} if is_believed else ())
    seen = [allowed(server)]
    for change in (
        lambda: server.delete("Pod", "web-0"),
        lambda: server.delete("Pod", "web-0", grace_s=0),
        lambda: server.bind("web-4", "n"),
        lambda: server.delete("Pod", "web-1", grace_s=0),
        lambda: server.delete("Pod", "web-2", grace_s=0),
        lambda: server.delete("Pod", "web-3", grace_s=0),
        lambda: server.create(
            "Pod", {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}], "nodeName": "n"}}
        ),
    ):
        change()
        seen.append(allowed(server))

    assert seen == [2, 1, 1, 2, 1, 0, 0, 0]


def coscheduling(name: str) -> Found:
    value = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    return Found({**value, "metadata": {"name": name, "namespace": "ns"}, "spec": {"minMember": 1}}, "in.yaml")


def grouped(name: str, *, kind: str = "Pod", node: str = "", **metadata: Any) -> Found:
    """An object with a spec."""
    value = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "ns", **metadata}}
    return Found({**value, "spec": {"nodeName": node} if node else {}}, "in.yaml")


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        pytest.param(
            [grouped("a", labels={"scheduling.x-k8s.io/pod-group": "g"})],
            ["warning: pod ns/a has scheduling.x-k8s.io/pod-group (coscheduling)"],
            id="one pod",
        ),
        pytest.param(
            [grouped(name, annotations={"scheduling.k8s.io/group-name": name}) for name in ("a", "b", "c")],
            ["warning: 3 pods have scheduling.k8s.io/group-name (Volcano), the first is ns/a;"],
            id="several groups of one scheduler, in annotations",
        ),
        pytest.param(
            [
                grouped("a", labels={"kueue.x-k8s.io/pod-group-name": "g"}),
                grouped("b", labels={"scheduling.x-k8s.io/pod-group": "g"}),
            ],
            ["kueue.x-k8s.io/pod-group-name (Kueue)", "scheduling.x-k8s.io/pod-group (coscheduling)"],
            id="two schedulers",
        ),
        pytest.param(
            [grouped("a", labels={"scheduling.x-k8s.io/pod-group": "g"}), coscheduling("g")],
            [],
            id="a PodGroup of coscheduling, which is placed together",
        ),
        pytest.param(
            [grouped("a", node="n", labels={"scheduling.x-k8s.io/pod-group": "g"})],
            [],
            id="a pod that has its node",
        ),
        pytest.param(
            [grouped("a", kind="Job", labels={"scheduling.x-k8s.io/pod-group": "g"})],
            [],
            id="a workload of that label",
        ),
        pytest.param([grouped("a", labels={"app": "g"}), grouped("b", labels=None)], [], id="other labels, and none"),
    ],
)
def test_warnings(objects: list[Found], said: list[str]) -> None:
    found = list(warnings(objects))

    assert len(found) == len(said)
    assert all(part in line for part, line in zip(said, found))


def tracked(name: str, *, node: str = "", reason: str = "", gated: bool = False) -> dict[str, Any]:
    """A stored pod in namespace a."""
    gates = [{"name": "g"}] if gated else []
    conditions = [{"type": "PodScheduled", "status": "False", "reason": reason}] if reason else []
    return {
        "metadata": {"namespace": "a", "name": name},
        "spec": {"nodeName": node, "schedulingGates": gates},
        "status": {"conditions": conditions},
    }


def following(names: str, clock: LeapingClock | None = None) -> Tracker:
    """A tracker of pods in namespace a that are there, and that the scheduler is to place."""
    tracker = Tracker(
        lambda pod: pod["metadata"]["name"] in names.split(), LeapingClock(), stopwatch=clock or LeapingClock()
    )
    for name in names.split():
        tracker.heard("ADDED", "pods", tracked(name))
    return tracker


def test_decided_and_undecided_pods() -> None:
    """Bound, unschedulable and gated pods are decided, and those with an error."""
    tracker = following("bound refused gated failed silent")
    for obj in (
        tracked("bound", node="n"),
        tracked("refused", reason="Unschedulable"),
        tracked("gated", gated=True),
        tracked("failed", reason="SchedulerError"),
        tracked("stranger", node="n"),
    ):
        tracker.heard("MODIFIED", "pods", obj)
    tracker.heard("MODIFIED", "nodes", {"metadata": {"name": "n"}})

    assert tracker.unsettled == {"a/silent"}
    assert (tracker.answered, tracker.placed) == (4, 1)


@pytest.mark.parametrize(
    ("resource", "obj", "is_change"),
    [
        pytest.param("pods", {"status": {"conditions": [REFUSED]}}, False, id="the verdict on a pod"),
        pytest.param("pods", {"status": {"nominatedNodeName": "n"}}, True, id="a nomination"),
        pytest.param("pods", {"spec": {"nodeName": "n"}}, True, id="a node"),
        pytest.param("events", {}, False, id="an event"),
        pytest.param("resourceclaims", {}, True, id="a claim"),
    ],
)
async def test_what_changes_a_decision(resource: str, obj: dict[str, Any], is_change: bool) -> None:
    """A pod that was tried after the last such change gets the same answer again."""
    clock = VirtualClock()
    tracker = Tracker(lambda _: True, clock)
    tracker.heard("ADDED", "pods", tracked("p"))
    before = tracker.changed_at
    await clock.advance(1)
    tracker.heard("MODIFIED", resource, tracked("p") | obj)

    assert (tracker.changed_at > before) == is_change


def test_a_pod_without_its_verdict_is_undecided_again() -> None:
    tracker = following("p")
    tracker.heard("MODIFIED", "pods", tracked("p", reason="Unschedulable"))
    tracker.heard("MODIFIED", "pods", tracked("p"))

    assert tracker.unsettled == {"a/p"}


def test_times_count_from_the_start() -> None:
    """A pod counts when it is bound, and not when it changes later."""
    clock = LeapingClock()
    tracker = following("p q r", clock)
    clock.time_s = 200.0
    tracker.start()
    for at_s, obj in (
        (201.0, tracked("p", node="n")),
        (203.0, tracked("q", node="n")),
        (204.0, tracked("r", reason="Unschedulable")),
        (209.0, tracked("p", node="n")),
    ):
        clock.time_s = at_s
        tracker.heard("MODIFIED", "pods", obj)

    assert tracker.timing() == Timing(1.0, 3.0, 4.0)
    assert tracker.timing().rate(FEW) == 50.0
    assert tracker.timing().rate(FEW - 1) is None
    assert Timing(1.0, 1.0, 1.0).rate(1) is None
    assert Timing(None, None, 1.0).rate(0) is None


def test_evicted_pods_are_recorded_and_not_counted() -> None:
    """A pod without the condition of a scheduler is no victim."""
    tracker = following("ours deleted")
    condition = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    for name, conditions in (("ours", condition), ("theirs", condition), ("deleted", [])):
        obj = tracked(name, node="n")
        obj["metadata"] |= {"uid": name}
        tracker.heard("ADDED", "pods", obj)
        obj["status"]["conditions"] = conditions
        tracker.heard("MODIFIED", "pods", obj)
        assert name not in tracker.preempted, "it has the condition, and is not deleted yet"
        obj["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        tracker.heard("MODIFIED", "pods", obj)
        tracker.heard("DELETED", "pods", obj)

    assert (set(tracker.preempted), tracker.placed, tracker.unsettled) == ({"ours", "theirs"}, 0, set())


def test_a_pod_that_its_controller_creates_later_is_followed() -> None:
    """A StatefulSet creates the next pod when the last one is ready."""
    tracker = following("db-0 db-1")
    tracker.heard("DELETED", "pods", tracked("db-1"))
    assert tracker.unsettled == {"a/db-0"}

    tracker.heard("ADDED", "pods", tracked("db-1"))
    tracker.heard("ADDED", "pods", tracked("stranger"))
    assert tracker.unsettled == {"a/db-0", "a/db-1"}
    assert tracker.ours == {"a/db-0", "a/db-1"}
