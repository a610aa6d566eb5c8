"""Rows 103-129 of docs/spec/core.md §9: who is looked at, how answers are combined, and what the pod is told.

With the profile's real plugins where the row speaks of them. Rows about adaptive sampling (105, 107, 112) have nothing
here to correspond to: all nodes are looked at unless a percentage is given. Ids begin with the row's number.
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
from tests.unit.scenarios.seen import HOST, attempts, beside, candidates, pinned

NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."


def not_helpful(refusal: str, nodes: int) -> str:
    """The whole text where no node has anybody to evict."""
    return f"{refusal}{POST_FILTER}0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."


# -- how many are compared ---------------------------------------------------------------------------------------------


@dataclass
class Notes(Scored):
    """A score that notes which nodes it was asked about."""

    seen: list[str] = field(default_factory=list)

    def score_one(self, state: CycleState, pod: PodInfo, node: NodeView) -> int:
        self.seen.append(node.name)
        return 0


def test_104_fifty_nodes_are_all_scored() -> None:
    """Each once."""
    notes = Notes("S")
    names = [f"n{i}" for i in range(50)]
    CycleHarness(" ".join(names), notes).scheduled()

    assert sorted(notes.seen) == sorted(names)


@pytest.mark.parametrize(
    ("everywhere", "own", "compared"),
    [
        pytest.param(50, 0, 200, id="108 a profile's 0 wins over the global 50: all nodes"),
        pytest.param(50, None, 100, id="108 a profile that says nothing has the global percentage"),
        pytest.param(50, 75, 150, id="108 a profile's own percentage wins"),
        pytest.param(None, None, 200, id="108 nobody says anything: all nodes"),
    ],
)
async def test_percentages(everywhere: int | None, own: int | None, compared: int) -> None:
    """Of 200 nodes that all take the pod."""
    profile = KubeSchedulerProfile("kubestow", percentage_of_nodes_to_score=own)
    sched = SchedulerHarness(Configuration(percentage_of_nodes_to_score=everywhere, profiles=(profile,)))
    for i in range(200):
        sched.node(f"n{i}")
    sched.pod("p")
    await sched.settle()

    assert compared == candidates(sched, "p")


def test_109_the_budget_is_of_what_prefilter_left() -> None:
    """48 % of 300 are 144, however many nodes there are."""
    names = [f"n{i}" for i in range(2000)]
    narrow = Answers("N", answer=Narrow(frozenset(names[500:800])))
    notes = Notes("S")
    CycleHarness(" ".join(names), narrow, notes, percentage=48).scheduled()

    assert len(notes.seen) == 144
    assert set(notes.seen) <= set(names[500:800])


# -- what the pod is told ----------------------------------------------------------------------------------------------


async def test_120_the_same_failure_again_is_an_event_and_no_patch() -> None:
    """The condition says it already; another failure is written."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="8")
    await sched.settle()
    for _ in range(2):
        sched.parts.queue.activate([info_of(sched, "p")])
        await sched.settle()

    told = not_helpful(NO_ROOM, 1)
    assert attempts(sched, "p") == 3
    assert ([said.message for _, said in sched.writer.conditions], sched.writer.wire) == ([told], ["patch p"])
    assert [event.note for event in sched.recorder.events] == [told] * 3
    sched.node("n1", unschedulable=True)
    sched.parts.queue.activate([info_of(sched, "p")])
    await sched.settle()
    assert [said.message for _, said in sched.writer.conditions] == [
        told,
        not_helpful("0/1 nodes are available: 1 node(s) were unschedulable.", 1),
    ]


def info_of(sched: SchedulerHarness, name: str) -> PodInfo:
    """Our unbound pod as the watch has it."""
    info = sched.parts.shared.pending.get(f"default/{name}")
    assert info is not None
    return info


# -- nominated pods ----------------------------------------------------------------------------------------------------


def nominate(sched: SchedulerHarness, name: str, **spec: Any) -> None:
    """A pod of ours that holds a place on n1 and is not tried itself, because it is gated."""
    sched.pod(name, gates=("g",), **spec)
    sched.pod(name, gates=("g",), nominated="n1", **spec)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param(
            beside("db"),
            "node(s) didn't match pod affinity rules",
            id="125 a pod that wants to be beside a nominated pod only: it may never come",
        ),
        pytest.param(
            beside("db", away=True),
            "node(s) didn't match pod anti-affinity rules",
            id="125 a pod that wants to be away from it: it may come",
        ),
    ],
)
async def test_a_nominated_pod_is_there_and_is_not(spec: dict[str, Any], reason: str) -> None:
    """Both passes must succeed: with the nominated pod on the node, and without."""
    sched = SchedulerHarness()
    sched.node("n1", labels={HOST: "n1"})
    nominate(sched, "nominee", labels={"app": "db"}, priority=5)
    sched.pod("p", **spec)
    await sched.settle()

    assert sched.refusal("p") == f"0/1 nodes are available: 1 {reason}."


async def test_128_what_was_said_of_the_nominated_node_is_kept() -> None:
    """PreFilter leaves n2 and n3; n1, which the pod is nominated to, was asked all the same and has its own reason."""
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
    record = sched.parts.records.latest("default/p")
    assert record is not None
    assert sum(group.nodes for group in record.groups) == 4


@pytest.mark.parametrize(
    ("pins", "told"),
    [
        pytest.param(("n2",), "1 Insufficient cpu, 1 node(s) had untolerated taint(s), 2", id="it was narrowed away"),
        pytest.param(("n1", "n2"), "1 Insufficient cpu, 1 node(s) had untolerated taint(s), 2", id="it was left"),
    ],
)
async def test_117_who_refused_the_nominated_node_is_named_beside_who_narrowed_the_others_away(
    pins: tuple[str, ...], told: str
) -> None:
    """As if it had narrowed them, too: upstream keeps one list."""
    sched = SchedulerHarness()
    for name in ("n1", "n2", "n3", "n4"):
        sched.node(name, cpu="1", taints=[{"key": "a", "effect": "NoSchedule"}] if name == "n1" else [])
    sched.pod("p", cpu="2", nominated="n1", **pinned(*pins))
    await sched.settle()

    assert sched.message("p") == not_helpful(
        f"0/4 nodes are available: {told} node(s) didn't satisfy plugin(s) [NodeAffinity TaintToleration].", 4
    )
