"""Rows 103-129 and 148-179 of docs/spec/core.md §9: the number of scored nodes, combined answers, messages, verdicts.

Rows about adaptive sampling (105, 107, 112) do not apply: all nodes are scored unless a percentage is given. Ids begin
with the row's number. The tables of the plugins are in tests/unit/plugins/.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes.nodes import NodeView
from scheduler.config.types import Configuration, KubeSchedulerProfile
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Narrow
from tests.unit.fake_plugins import Answers, CycleHarness, Scored
from tests.unit.harness import POST_FILTER, SchedulerHarness
from tests.unit.scenarios.seen import HOST, attempts, candidates, near, pinned

NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."


def not_helpful(refusal: str, nodes: int) -> str:
    """Return the message if no node has victims."""
    return f"{refusal}{POST_FILTER}0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."


# -- the number of scored nodes --------------------------------------------------------------------------------------


@dataclass
class Notes(Scored):
    """A score that records its nodes."""

    seen: list[str] = field(default_factory=list)

    def score_one(self, state: CycleState, pod: PodInfo, node: NodeView) -> int:
        self.seen.append(node.name)
        return 0


def test_104_fifty_nodes_are_all_scored() -> None:
    notes = Notes("S")
    names = [f"n{i}" for i in range(50)]
    CycleHarness(" ".join(names), notes).scheduled()

    assert sorted(notes.seen) == sorted(names)


@pytest.mark.parametrize(
    ("everywhere", "own", "compared"),
    [
        pytest.param(50, 0, 200, id="108 a profile's 0 wins over the global 50: all nodes"),
        pytest.param(50, None, 100, id="108 a profile without a percentage has the global one"),
        pytest.param(50, 75, 150, id="108 a profile's own percentage wins"),
        pytest.param(None, None, 200, id="108 no percentage is given: all nodes"),
    ],
)
async def test_percentages(everywhere: int | None, own: int | None, compared: int) -> None:
    profile = KubeSchedulerProfile("kubestow", percentage_of_nodes_to_score=own)
    sched = SchedulerHarness(Configuration(percentage_of_nodes_to_score=everywhere, profiles=(profile,)))
    for i in range(200):
        sched.node(f"n{i}")
    sched.pod("p")
    await sched.settle()

    assert compared == candidates(sched, "p")


def test_109_the_budget_is_of_what_prefilter_left() -> None:
    """48 % of 300 are 144."""
    names = [f"n{i}" for i in range(2000)]
    narrow = Answers("N", answer=Narrow(frozenset(names[500:800])))
    notes = Notes("S")
    CycleHarness(" ".join(names), narrow, notes, percentage=48).scheduled()

    assert len(notes.seen) == 144
    assert set(notes.seen) <= set(names[500:800])


# -- messages --------------------------------------------------------------------------------------------------------


async def test_120_the_same_failure_again_is_an_event_and_no_patch() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="8")
    await sched.settle()
    for _ in range(2):
        sched.parts.queue.activate([info_of(sched, "p")])
        await sched.settle()

    message = not_helpful(NO_ROOM, 1)
    assert attempts(sched, "p") == 3
    assert ([said.message for _, said in sched.writer.conditions], sched.writer.wire) == ([message], ["patch p"])
    assert [event.note for event in sched.recorder.events] == [message] * 3
    sched.node("n1", unschedulable=True)
    sched.parts.queue.activate([info_of(sched, "p")])
    await sched.settle()
    assert [said.message for _, said in sched.writer.conditions] == [
        message,
        not_helpful("0/1 nodes are available: 1 node(s) were unschedulable.", 1),
    ]


def info_of(sched: SchedulerHarness, name: str) -> PodInfo:
    """Return our unbound pod."""
    info = sched.parts.shared.pending.get(f"default/{name}")
    assert info is not None
    return info


# -- nominated pods --------------------------------------------------------------------------------------------------


def nominate(sched: SchedulerHarness, name: str, **spec: Any) -> None:
    """Add a gated pod that is nominated to n1."""
    sched.pod(name, gates=("g",), **spec)
    sched.pod(name, gates=("g",), nominated="n1", **spec)


@pytest.mark.parametrize(("spec", "reason"), [
    pytest.param(near("db"), "node(s) didn't match pod affinity rules",
        id="125 affinity to a nominated pod, which may never be bound"),
    pytest.param(near("db", away=True), "node(s) didn't match pod anti-affinity rules",
        id="125 anti-affinity to a nominated pod, which may be bound"),
])  # fmt: skip
async def test_a_pod_must_fit_with_and_without_nominated_pods(spec: dict[str, Any], reason: str) -> None:
    sched = SchedulerHarness()
    sched.node("n1", labels={HOST: "n1"})
    nominate(sched, "nominee", labels={"app": "db"}, priority=5)
    sched.pod("p", **spec)
    await sched.settle()

    assert sched.refusal("p") == f"0/1 nodes are available: 1 {reason}."


async def test_128_the_reason_of_the_nominated_node_is_kept() -> None:
    sched = SchedulerHarness()
    for name in ("n1", "n2", "n3", "n4"):
        sched.node(name, cpu="1" if name == "n2" else "4", unschedulable=name == "n3")
    sched.pod("p", cpu="2", nominated="n1", **pinned("n2", "n3"))
    await sched.settle()

    assert sched.message("p") == not_helpful(
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) were unschedulable.",
        4,
    )
    record = sched.parts.records.of("default/p")[-1]
    assert sum(group.nodes for group in record.groups) == 4


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        pytest.param(("n2",), "1 Insufficient cpu, 1 node(s) had untolerated taint(s), 2", id="it was narrowed away"),
        pytest.param(("n1", "n2"), "1 Insufficient cpu, 1 node(s) had untolerated taint(s), 2", id="it was left"),
    ],
)
async def test_117_the_plugin_that_refused_the_nominated_node_is_named(pins: tuple[str, ...], message: str) -> None:
    """Upstream names all plugins of one list."""
    sched = SchedulerHarness()
    for name in ("n1", "n2", "n3", "n4"):
        sched.node(name, cpu="1", taints=[{"key": "a", "effect": "NoSchedule"}] if name == "n1" else [])
    sched.pod("p", cpu="2", nominated="n1", **pinned(*pins))
    await sched.settle()

    assert sched.message("p") == not_helpful(
        f"0/4 nodes are available: {message} node(s) didn't satisfy plugin(s) [NodeAffinity TaintToleration].", 4
    )


# -- the verdict on one node ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("node", "pod", "code", "why"), [
    pytest.param({"taints": [{"key": "gpu", "effect": "NoExecute"}]}, {}, "UnschedulableAndUnresolvable",
        "node(s) had untolerated taint(s)", id="152 a NoExecute taint"),
    pytest.param({}, near("web", away=True), "Unschedulable", "node(s) didn't match pod anti-affinity rules",
        id="179 a pod with anti-affinity can be evicted"),
])  # fmt: skip
async def test_one_node(node: dict[str, Any], pod: dict[str, Any], code: str, why: str) -> None:
    """The code decides whether preemption considers the node."""
    sched = SchedulerHarness()
    sched.node("n1", labels={HOST: "n1"}, **node)
    sched.pod("there", on="n1", scheduler="default-scheduler", labels={"app": "web"})
    sched.pod("p", **pod)
    await sched.settle()

    assert sched.refusal("p") == f"0/1 nodes are available: 1 {why}."
    record = sched.parts.records.of("default/p")[-1]
    assert [group.code for group in record.groups] == [code]
