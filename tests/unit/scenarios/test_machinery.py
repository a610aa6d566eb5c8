"""Rows 103-129 of docs/spec/core.md §9: who is looked at, how answers are combined, and what the pod is told.

With the profile's real plugins where the row speaks of them. Rows about adaptive sampling (105, 107, 112) have nothing
here to correspond to: all nodes are looked at unless a percentage is given. Ids begin with the row's number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.cache.nodes import NodeView
from scheduler.config.types import Configuration, Profile
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import Code, Narrow
from scheduler.framework.state import CycleState
from tests.unit.brain import POST_FILTER, Brain
from tests.unit.scenarios.seen import HOST, also_filtering, attempts, beside, candidates, pinned, requests
from tests.unit.toys import Answers, Refuses, Scored, World, a_pod

NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."


def not_helpful(refusal: str, nodes: int) -> str:
    """The whole text where no node has anybody to evict."""
    return f"{refusal}{POST_FILTER}0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."


async def test_103_without_nodes_time_alone_brings_the_pod_back() -> None:
    """Reason Unschedulable, yet nobody rejected it: no event wakes it, and its back-off is an error's."""
    brain = Brain()
    brain.pod("p")
    await brain.settle()
    assert [(said.reason, said.message) for _, said in brain.writer.conditions] == [
        ("Unschedulable", "no nodes available to schedule pods")
    ]
    assert brain.places() == {"p": "error backoff"}

    brain.node("n1")
    await brain.settle()
    assert brain.places() == {"p": "error backoff"}
    await brain.later(2)

    assert brain.writer.binds == [("default/p", "n1")]


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
    World(" ".join(names), notes).placed()

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
    profile = Profile("kubestow", percentage_of_nodes_to_score=own)
    brain = Brain(Configuration(percentage_of_nodes_to_score=everywhere, profiles=(profile,)))
    for i in range(200):
        brain.node(f"n{i}")
    brain.pod("p")
    await brain.settle()

    assert compared == candidates(brain, "p")


def test_109_the_budget_is_of_what_prefilter_left() -> None:
    """48 % of 300 are 144, however many nodes there are."""
    names = [f"n{i}" for i in range(2000)]
    narrow = Answers("N", answer=Narrow(frozenset(names[500:800])))
    notes = Notes("S")
    World(" ".join(names), narrow, notes, percentage=48).placed()

    assert len(notes.seen) == 144
    assert set(notes.seen) <= set(names[500:800])


def test_110_the_next_pod_is_compared_on_the_nodes_after() -> None:
    """40 % of 250: the third pod's hundred begin where the second's ended, and go around."""
    names = [f"n{i}" for i in range(250)]
    notes = Notes("S")
    world = World(" ".join(names), notes, percentage=40)
    seen = []
    for i in range(3):
        notes.seen = []
        world.placed(a_pod(f"p{i}"))
        seen.append(sorted(notes.seen))

    assert [sorted(names[:100]), sorted(names[100:200]), sorted(names[200:] + names[:50])] == seen


# -- what the pod is told ----------------------------------------------------------------------------------------------


async def test_113_a_filter_that_fails_on_one_node_costs_the_attempt() -> None:
    """SchedulerError and error back-off, though the other node would have taken the pod."""
    brain = Brain()
    also_filtering(brain, Refuses("F", reasons={"n1": "disk is away"}, code=Code.ERROR))
    brain.node("n1")
    brain.node("n2")
    brain.pod("p")
    await brain.settle()

    assert brain.message("p") == 'running "F" filter plugin: disk is away'
    assert brain.writer.conditions[0][1].reason == "SchedulerError"
    assert (brain.places(), brain.writer.binds) == ({"p": "error backoff"}, [])


async def test_114_each_reason_is_counted_by_itself() -> None:
    """Three nodes: no cpu, neither cpu nor memory, a taint."""
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.node("n2", cpu="1")
    brain.node("n3", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    brain.pod("theirs", on="n2", scheduler="default-scheduler", **requests(memory="6Gi"))
    brain.pod("p", **requests(cpu="2", memory="4Gi"))
    await brain.settle()

    assert brain.message("p") == not_helpful(
        "0/3 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), 2 Insufficient cpu.", 3
    )


async def test_117_a_pod_pinned_to_a_node_that_is_not_there() -> None:
    """No other node is searched, and nobody but NodeAffinity can help."""
    brain = Brain()
    brain.node("n1")
    brain.node("n2", cpu="1")
    brain.pod("p", cpu="2", **pinned("gone"))
    await brain.settle()

    assert brain.message("p") == not_helpful(
        "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity].", 2
    )
    assert [entry.plugins for entry in brain.parts.queue.entries()] == [("NodeAffinity",)]


async def test_120_the_same_failure_again_is_an_event_and_no_patch() -> None:
    """The condition says it already; another failure is written."""
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.pod("p", cpu="8")
    await brain.settle()
    for _ in range(2):
        brain.parts.queue.activate([info_of(brain, "p")])
        await brain.settle()

    told = not_helpful(NO_ROOM, 1)
    assert attempts(brain, "p") == 3
    assert ([said.message for _, said in brain.writer.conditions], brain.writer.wire) == ([told], ["patch p"])
    assert [event.note for event in brain.recorder.events] == [told] * 3
    brain.node("n1", unschedulable=True)
    brain.parts.queue.activate([info_of(brain, "p")])
    await brain.settle()
    assert [said.message for _, said in brain.writer.conditions] == [
        told,
        not_helpful("0/1 nodes are available: 1 node(s) were unschedulable.", 1),
    ]


def info_of(brain: Brain, name: str) -> PodInfo:
    """Our unbound pod as the watch has it."""
    info = brain.parts.shared.pending.get(f"default/{name}")
    assert info is not None
    return info


# -- nominated pods ----------------------------------------------------------------------------------------------------


def nominate(brain: Brain, name: str, **spec: Any) -> None:
    """A pod of ours that holds a place on n1 and is not tried itself, because it is gated."""
    brain.pod(name, gates=("g",), **spec)
    brain.pod(name, gates=("g",), nominated="n1", **spec)


@pytest.mark.parametrize(
    ("priority", "bound"),
    [
        pytest.param(5, False, id="123 a nominated pod of the same priority leaves no room"),
        pytest.param(4, False, id="123 nor does one of higher priority"),
        pytest.param(6, True, id="124 one of lower priority is ignored"),
    ],
)
async def test_room_that_is_held(priority: int, bound: bool) -> None:
    """It is counted as if it were there already, by whoever is not above it."""
    brain = Brain()
    brain.node("n1", cpu="2")
    nominate(brain, "nominee", cpu="2", priority=5)
    brain.pod("p", cpu="1", priority=priority)
    await brain.settle()

    assert brain.writer.binds == ([("default/p", "n1")] if bound else [])
    if not bound:
        assert brain.refusal("p") == NO_ROOM


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
    brain = Brain()
    brain.node("n1", labels={HOST: "n1"})
    nominate(brain, "nominee", labels={"app": "db"}, priority=5)
    brain.pod("p", **spec)
    await brain.settle()

    assert brain.refusal("p") == f"0/1 nodes are available: 1 {reason}."


@pytest.mark.parametrize(
    ("nodes", "nominated", "node"),
    [
        pytest.param(
            {"n1": "4", "n2": "64"}, "n1", "n1", id="127 the nominated node is taken though another is better"
        ),
        pytest.param({"n1": "1", "n2": "64"}, "n1", "n2", id="128 the nominated node has no room: all are looked at"),
        pytest.param({"n2": "64"}, "n1", "n2", id="129 the nominated node is gone: all are looked at"),
    ],
)
async def test_a_pod_that_is_nominated_itself(nodes: dict[str, str], nominated: str, node: str) -> None:
    """It is tried there first, without comparing, and elsewhere if that fails."""
    brain = Brain()
    for name, cpu in nodes.items():
        brain.node(name, cpu=cpu)
    brain.pod("p", cpu="3", nominated=nominated)
    await brain.settle()

    assert brain.writer.binds == [("default/p", node)]


async def test_126_a_pod_may_take_all_that_it_holds() -> None:
    """The whole node is nominated to it, and it needs the whole node."""
    brain = Brain()
    brain.node("n1", cpu="2")
    brain.pod("p", cpu="2", nominated="n1")
    await brain.settle()

    assert brain.writer.binds == [("default/p", "n1")]


async def test_128_what_was_said_of_the_nominated_node_is_kept() -> None:
    """PreFilter leaves n2 and n3; n1, which the pod is nominated to, was asked all the same and has its own reason."""
    brain = Brain()
    for name in ("n1", "n2", "n3", "n4"):
        brain.node(name, cpu="1" if name == "n2" else "4", unschedulable=name == "n3")
    brain.pod("p", cpu="2", nominated="n1", **pinned("n2", "n3"))
    await brain.settle()

    assert brain.message("p") == not_helpful(
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) were unschedulable.",
        4,
    )
    record = brain.parts.records.latest("default/p")
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
    brain = Brain()
    for name in ("n1", "n2", "n3", "n4"):
        brain.node(name, cpu="1", taints=[{"key": "a", "effect": "NoSchedule"}] if name == "n1" else [])
    brain.pod("p", cpu="2", nominated="n1", **pinned(*pins))
    await brain.settle()

    assert brain.message("p") == not_helpful(
        f"0/4 nodes are available: {told} node(s) didn't satisfy plugin(s) [NodeAffinity TaintToleration].", 4
    )
