"""Preemption where more than room is in the way, and the preemptor until it is bound (docs/spec/core.md §3.5, §3.10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.core.errors import Ambiguous, Forbidden, Unavailable
from scheduler.core.pod import Pod
from tests.unit.brain import POST_FILTER, Brain
from tests.unit.scenarios.evicting import (
    NO_ROOM,
    NO_VICTIMS,
    OTHERS,
    PREEMPTED,
    at_once,
    evicted,
    found,
    full_nodes,
    nominations,
    ours,
)
from tests.unit.scenarios.seen import HOST, attempts, beside, pinned

HIGH: dict[str, Any] = {"cpu": "2", "priority": 10}


def port(number: int, ip: str = "", cpu: str = "100m") -> dict[str, Any]:
    """A pod's spec: one container on this port of its node."""
    ports = [{"hostPort": number, "hostIP": ip}]
    return {"containers": [{"name": "c", "ports": ports, "resources": {"requests": {"cpu": cpu}}}]}


def web(**spec: Any) -> dict[str, Any]:
    return {"labels": {"app": "web"}, **spec}


# -- what is in the way ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "pod", "gone"),
    [
        pytest.param(
            [port(80, "127.0.0.1"), port(80, "127.0.0.2"), port(81)], port(80), ["a", "b"], id="it is held twice"
        ),
        pytest.param(
            [web(cpu="1"), {"cpu": "2", "priority": 2}, {"cpu": "1", "priority": 3}],
            {"cpu": "2", **beside("web", away=True)},
            ["b", "a"],
            id="one for its label, another for its room",
        ),
    ],
)
async def test_on_one_node(there: list[dict[str, Any]], pod: dict[str, Any], gone: list[str]) -> None:
    """Exactly those leave, and the question has changed nothing: when they have gone, the pod comes."""
    brain = Brain()
    brain.node("n1", cpu="4", labels={HOST: "n1"})
    for name, spec in zip("abcd", there, strict=False):
        brain.pod(name, on="n1", **{"cpu": "100m", **OTHERS, **spec})
    brain.writer.on_delete = at_once(brain)
    before = held(brain, "n1")
    brain.pod("p", priority=10, **{"cpu": "100m", **pod})
    await brain.settle()

    assert evicted(brain) == gone
    assert brain.writer.binds == [("default/p", "n1")]
    assert held(brain, "n1") == (before | {"p"}) - set(gone)


def held(brain: Brain, name: str) -> set[str]:
    """Names of the pods that count on a node."""
    nodes = brain.cluster.nodes
    slot = nodes.slot(name)
    assert slot is not None
    return {info.pod.metadata.name for info in nodes.pods(slot).values()}


async def test_a_pod_that_cannot_be_judged_evicts_nobody() -> None:
    """Who knows whether it would be placed then."""
    brain = Brain()
    full_nodes(brain, "n1")
    brain.pod("p", schedulingGroup={"podGroupName": "g"}, **HIGH)
    await brain.settle()

    assert (evicted(brain), nominations(brain)) == ([], [])
    assert brain.message("p").endswith("pod uses a scheduling group, which kubestow cannot judge yet.")


async def test_parity_says_nothing_of_a_way_that_was_found() -> None:
    """As v1.36 does; the record has the victims either way."""
    brain = Brain(ours(parity=True))
    full_nodes(brain, "n1")
    brain.pod("p", **HIGH)
    await brain.settle()

    record = brain.parts.records.latest("default/p")
    assert record is not None
    assert (brain.message("p"), nominations(brain), evicted(brain)) == (NO_ROOM, ["n1"], ["low-n1"])
    assert record.victims == ("default/low-n1",)


# -- the nomination ----------------------------------------------------------------------------------------------------


async def test_nobody_dies_before_the_nomination_is_written() -> None:
    """It could not be written: the pod is tried again, and the second time it can."""
    brain = Brain()
    brain.writer.patch_errors = [Unavailable("etcd is away")]
    full_nodes(brain, "n1")
    brain.pod("p", **HIGH)
    await brain.settle()
    assert (brain.writer.wire, evicted(brain)) == ([], [])

    await brain.later(2)

    assert brain.writer.wire == ["patch p", "patch low-n1", "delete low-n1"]
    assert attempts(brain, "p") == 2


async def test_a_nomination_whose_answer_was_lost_counts_when_it_is_seen() -> None:
    """The patch had landed, as the watch shows before its failure is known."""
    brain = Brain()
    brain.writer.patch_hold = asyncio.Event()
    brain.writer.patch_errors = [Ambiguous("the connection was lost")]
    full_nodes(brain, "n1")
    brain.pod("p", **HIGH)
    await brain.settle()
    assert evicted(brain) == []
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": found("n1", 1)}
    brain.pod("p", nominated="n1", conditions=[condition], **HIGH)

    brain.writer.patch_hold.set()
    await brain.settle()

    assert evicted(brain) == ["low-n1"]


@pytest.mark.parametrize("priority", [9, 10])
async def test_room_that_was_made_is_held_for_whom_it_was_made(priority: int) -> None:
    """Against pods of the same priority and of lower, though they come first."""
    brain = Brain()
    full_nodes(brain, "n1")
    brain.pod("p", **HIGH)
    await brain.settle()
    brain.pod("p", nominated="n1", **HIGH)
    brain.pod("q", cpu="1", priority=priority)
    await brain.settle()
    assert brain.message("q") == f"{NO_ROOM}{POST_FILTER}0/1 nodes are available: 1 Insufficient cpu."

    brain.gone("low-n1")
    await brain.settle()

    assert (brain.writer.binds, evicted(brain)) == ([("default/p", "n1")], ["low-n1"])


async def test_room_that_was_made_may_go_to_a_more_important_pod() -> None:
    """Then the preemptor looks for another place."""
    brain = Brain()
    full_nodes(brain, "n1")
    brain.pod("p", **HIGH)
    await brain.settle()
    brain.pod("p", nominated="n1", **HIGH)
    full_nodes(brain, "n2")
    brain.pod("first", cpu="2", priority=11, **pinned("n1"))
    brain.gone("low-n1")
    await brain.settle()

    assert brain.writer.binds == [("default/first", "n1")]
    assert (evicted(brain), nominations(brain)) == (["low-n1", "low-n2"], ["n1", "n2"])


async def test_five_preemptors_and_five_nodes() -> None:
    """Nobody counts on the room that another has made, and nobody dies twice."""
    brain = Brain()
    names = [f"n{i}" for i in range(5)]
    full_nodes(brain, *names)
    brain.writer.on_delete = at_once(brain)
    for i in range(5):
        brain.pod(f"p{i}", **HIGH)
    await brain.settle()

    assert sorted(evicted(brain)) == [f"low-{name}" for name in names]
    assert sorted(node for _, node in brain.writer.binds) == names


async def test_while_a_victim_stops_nobody_else_is_evicted() -> None:
    """It has its grace; an event in between has the preemptor tried, and told to wait."""
    brain = Brain()
    full_nodes(brain, "n1", "n2")
    stopping = {"cpu": "2", "deleting": True, "conditions": [PREEMPTED], **OTHERS}

    def stops(pod: Pod) -> None:
        brain.pod(pod.metadata.name, on=pod.spec.node_name, **stopping)

    brain.writer.on_delete = stops
    brain.pod("p", **HIGH)
    await brain.settle()
    [victim] = evicted(brain)
    node = victim.removeprefix("low-")
    brain.pod("p", nominated=node, **HIGH)

    brain.node("n3", cpu="1")
    brain.node(node, cpu="2500m")
    await brain.later(20)

    assert (evicted(brain), attempts(brain, "p")) == ([victim], 2)
    assert brain.message("p").endswith("preemption: not eligible due to a terminating pod on the nominated node.")
    brain.gone(victim)
    await brain.settle()
    assert brain.writer.binds == [("default/p", node)]


async def test_a_preemptor_found_after_a_restart() -> None:
    """It was nominated, and its victim not yet evicted: the plan is carried out on the same node, without a patch more."""
    brain = Brain()
    full_nodes(brain, "n1", "n2", "n3")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    refusal = "0/3 nodes are available: 3 Insufficient cpu."
    brain.pod("p", nominated="n2", conditions=[{**condition, "message": found("n2", 1, refusal)}], **HIGH)
    await brain.settle()

    assert (evicted(brain), brain.writer.wire) == (["low-n2"], ["patch low-n2", "delete low-n2"])


# -- the plan falls through --------------------------------------------------------------------------------------------


def deleted(brain: Brain) -> None:
    brain.gone("p")


def being_deleted(brain: Brain) -> None:
    brain.pod("p", deleting=True, nominated="n1", cpu="3", priority=10)


def bound_elsewhere(brain: Brain) -> None:
    brain.pod("p", on="n2", cpu="3", priority=10)


def without_its_node(brain: Brain) -> None:
    brain.node_gone("n1")


@pytest.mark.parametrize("event", [deleted, being_deleted, bound_elsewhere, without_its_node])
async def test_nobody_dies_for_nothing(event: Callable[[Brain], None]) -> None:
    """Two deletions are on the wire when the preemptor no longer needs the place: the third victim lives."""
    brain = Brain()
    brain.writer.delete_hold = asyncio.Event()
    brain.node("n1", cpu="3")
    brain.node("n2", unschedulable=True)
    for name, priority in (("a", 3), ("b", 2), ("c", 1)):
        brain.pod(name, on="n1", cpu="1", priority=priority, **OTHERS)
    brain.pod("p", cpu="3", priority=10)
    await brain.settle()
    assert evicted(brain) == ["a", "b"]

    event(brain)
    brain.writer.delete_hold.set()
    await brain.settle()

    assert (evicted(brain), len(brain.parts.evictions)) == (["a", "b"], 0)


async def test_a_victims_namesake_is_not_the_victim() -> None:
    """The victim went by itself, and its controller made it anew elsewhere under the same name: it lives."""
    brain = Brain()
    brain.writer.patch_hold = asyncio.Event()
    full_nodes(brain, "n1")
    brain.node("n2", unschedulable=True)
    brain.pod("p", **HIGH)
    await brain.settle()
    brain.gone("low-n1")
    brain.pod("low-n1", on="n2", uid="another", **OTHERS)

    brain.writer.patch_hold.set()
    await brain.settle()

    assert (evicted(brain), brain.writer.binds) == ([], [("default/p", "n1")])


async def test_nobody_left_to_evict() -> None:
    """The victim became more important meanwhile; the text says what is so now."""
    brain = Brain()
    full_nodes(brain, "n1")

    def refuse(pod: Pod) -> None:
        brain.pod("low-n1", on="n1", cpu="2", priority=10, **OTHERS)
        raise Forbidden("a webhook said no")

    brain.writer.on_delete = refuse
    brain.pod("p", **HIGH)
    await brain.settle()
    await brain.later(2)

    assert (brain.message("p"), nominations(brain)) == (NO_VICTIMS, ["n1", ""])


@pytest.mark.parametrize(
    ("parity", "bound", "cleared"),
    [
        pytest.param(False, ["default/p"], [], id="the room that was made for it is still its own"),
        pytest.param(True, ["default/q"], [("default/p", "")], id="parity: it is anybody's, as upstream"),
    ],
)
async def test_a_server_fails_when_the_victims_are_gone(
    *, parity: bool, bound: list[str], cleared: list[tuple[str, str]]
) -> None:
    """What failed is one write; it must not cost further victims."""
    brain = Brain(ours(parity=parity))
    brain.node("n1", cpu="2")

    def fails(_pod: Pod, _node_name: str) -> None:
        brain.writer.on_bind = None
        brain.writer.binds.clear()
        raise Unavailable("the server fails")

    brain.writer.on_bind = fails
    brain.pod("p", cpu="2", priority=10, nominated="n1")
    await brain.settle()
    brain.pod("q", cpu="2", priority=10)
    await brain.settle()
    await brain.later(3)

    assert [key for key, _ in brain.writer.binds] == bound
    assert brain.writer.nominations == cleared
