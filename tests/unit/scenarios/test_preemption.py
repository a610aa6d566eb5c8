"""Rows 181-195 of docs/spec/core.md §9: a preemption from the plan to the Binding.

The choice of victims is in tests/unit/plugins/; the evictions one by one in tests/unit/test_preemption.py. Ids begin with the
row's number.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.core.errors import ApiError, Forbidden
from scheduler.core.pod import Pod
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import SKIP, Rejection, Skip, Wait
from scheduler.framework.state import CycleState
from tests.unit.brain import POST_FILTER, Brain
from tests.unit.scenarios.evicting import (
    NO_ROOM,
    OTHERS,
    PREEMPTED,
    evicted,
    full_nodes,
    nominations,
)
from tests.unit.scenarios.seen import attempts, metric
from tests.unit.toys import BeforeBind, Holds

HIGH: dict[str, Any] = {"cpu": "2", "priority": 10}
EXECUTED = "scheduler_preemption_goroutines_execution_total"


@pytest.mark.parametrize("nominated", ["", "n1"], ids=["181 a pod without nomination", "181 a nomination stays"])
async def test_a_pod_that_never_preempts(nominated: str) -> None:
    """It says so, and waits."""
    brain = Brain()
    full_nodes(brain, "n1")
    brain.pod("p", nominated=nominated, preemptionPolicy="Never", **HIGH)
    await brain.settle()

    assert brain.message("p") == f"{NO_ROOM}{POST_FILTER}not eligible due to preemptionPolicy=Never."
    assert (evicted(brain), nominations(brain), brain.places()) == ([], [], {"p": "unschedulable"})


# -- victims that are leaving, and nominations -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaving", "waits"),
    [
        pytest.param({"conditions": [PREEMPTED]}, True, id="188 by a scheduler's wish: the room is on its way"),
        pytest.param({"conditions": [PREEMPTED], "priority": 10}, False, id="188 a pod of equal priority"),
    ],
)
async def test_room_that_is_on_its_way(leaving: dict[str, Any], waits: bool) -> None:
    """The nominee does not evict others for room that it has been promised."""
    brain = Brain()
    brain.node("n1", cpu="2")
    brain.pod("leaving", on="n1", **{"cpu": "2", "deleting": True, **OTHERS, **leaving})
    full_nodes(brain, "n2")
    brain.pod("p", nominated="n1", **HIGH)
    await brain.settle()

    refusal = NO_ROOM.replace("0/1", "0/2").replace("1 I", "2 I")
    if waits:
        text = "not eligible due to a terminating pod on the nominated node."
        assert brain.message("p") == f"{refusal}{POST_FILTER}{text}"
        assert (evicted(brain), nominations(brain)) == ([], [])
        assert brain.parts.queue.nominator.node_of("uid-p") == "n1"
    else:
        assert "preemption: found a potential placement" in brain.message("p")


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"cpu": "2", "unschedulable": True}, id="189 it was cordoned"),
        pytest.param({"cpu": "2", "taints": [{"key": "a", "effect": "NoExecute"}]}, id="189 it was tainted"),
        pytest.param(None, id="189 it is gone"),
    ],
)
async def test_the_nominated_node_is_out_of_the_question(changed: dict[str, Any] | None) -> None:
    """Its victim is still stopping; another node is looked for all the same."""
    brain = Brain()
    full_nodes(brain, "n1", deleting=True, conditions=[PREEMPTED])
    full_nodes(brain, "n2")
    if changed is None:
        brain.node_gone("n1")
    else:
        brain.node("n1", **changed)
    brain.pod("p", nominated="n1", **HIGH)
    await brain.settle()

    assert (evicted(brain), nominations(brain)) == (["low-n2"], ["n2"])


async def test_195_no_node_can_be_helped() -> None:
    """A pod that does not fit the empty node evicts nobody, and lets go of the place it was to have."""
    brain = Brain()
    full_nodes(brain, "n1", "n2", "n3")
    brain.pod("p", cpu="3", priority=10, nominated="n2")
    await brain.settle()

    assert brain.message("p") == (
        f"0/3 nodes are available: 3 Insufficient cpu.{POST_FILTER}"
        "0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
    assert (evicted(brain), nominations(brain)) == ([], [""])
    assert brain.parts.queue.nominator.node_of("uid-p") is None


# -- the evictions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victims", [1, 2])
async def test_191_the_last_victims_end_is_seen_before_its_deletion_is_answered(victims: int) -> None:
    """The preemptor does not wait for the answer, nor is it left asleep."""
    brain = Brain()
    brain.writer.delete_hold = asyncio.Event()
    brain.node("n1", cpu="2")
    names = ["a", "b"][:victims]
    for name in names:
        brain.pod(name, on="n1", cpu="2" if victims == 1 else "1", **OTHERS)
    brain.pod("p", **HIGH)
    await brain.settle()
    for name in names[:-1]:  # the first has gone, and its deletion is answered after the preemptor was asked
        brain.gone(name)
        await brain.settle()
        assert brain.places() == {"p": "gated"}
        brain.writer.delete_hold.set()
        brain.writer.delete_hold = asyncio.Event()
        await brain.settle()
    assert evicted(brain) == names

    brain.gone(names[-1])
    await brain.settle()

    assert (brain.writer.binds, len(brain.parts.evictions)) == ([("default/p", "n1")], 1)
    brain.writer.delete_hold.set()
    await brain.settle()
    assert (len(brain.parts.evictions), brain.places()) == (0, {})


async def test_191_the_last_victim_goes_by_itself_before_its_turn() -> None:
    """While the first one's deletion is under way; nobody else's end will wake the preemptor then."""
    brain = Brain()
    brain.writer.delete_hold = asyncio.Event()
    brain.node("n1", cpu="2")
    for name in ("a", "b"):
        brain.pod(name, on="n1", cpu="1", **OTHERS)
    brain.pod("p", **HIGH)
    await brain.settle()
    for name in ("a", "b"):
        brain.gone(name)
    await brain.settle()
    assert brain.places() == {"p": "gated"}

    brain.writer.delete_hold.set()
    await brain.settle()

    assert (evicted(brain), brain.writer.binds) == (["a"], [("default/p", "n1")])


def fails_once(error: ApiError) -> Any:
    """For `writer.on_delete`: the first deletion fails."""
    errors = [error]

    def fail(pod: Pod) -> None:
        if errors:
            raise errors.pop()

    return fail


async def test_192_a_deletion_that_fails_ends_the_preemption() -> None:
    """The last victim is not touched, and the preemptor is tried again by itself: no event would wake it."""
    brain = Brain()
    brain.writer.on_delete = fails_once(Forbidden("a webhook said no"))
    brain.node("n1", cpu="2")
    for name, priority in (("a", 2), ("b", 1)):
        brain.pod(name, on="n1", cpu="1", priority=priority, **OTHERS)
    brain.pod("p", **HIGH)
    await brain.settle()
    assert (evicted(brain), metric(brain, EXECUTED, result="error")) == (["a"], 1)

    await brain.later(2)

    assert evicted(brain) == ["a", "a", "b"]
    assert attempts(brain, "p") == 2
    assert metric(brain, EXECUTED, result="success") == 1
    assert [event.pod for event in brain.recorder.events if event.reason == "Preempted"] == ["default/a", "default/b"]


async def test_192_of_those_deleted_at_once_one_fails() -> None:
    """What was sent is awaited and counts; the plan ends there."""
    brain = Brain()
    brain.writer.on_delete = fails_once(Forbidden("a webhook said no"))
    brain.node("n1", cpu="3")
    for name, priority in (("a", 3), ("b", 2), ("c", 1)):
        brain.pod(name, on="n1", cpu="1", priority=priority, **OTHERS)
    brain.pod("p", cpu="3", priority=10)
    await brain.settle()

    assert (evicted(brain)[0], "c" in evicted(brain)) == ("a", False)
    brain.gone("b")  # while it is leaving, its place is waited for
    await brain.later(2)
    assert (evicted(brain)[-1], evicted(brain).count("c")) == ("c", 1)
    assert {event.pod for event in brain.recorder.events if event.reason == "Preempted"} == {
        f"default/{name}" for name in "abc"
    }


class Works(BeforeBind):
    """PreBind that takes for ever; `idle`: it has nothing to do."""

    idle = False

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        return SKIP if self.idle else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        await asyncio.Event().wait()
        return None


@pytest.mark.parametrize(
    ("point", "said"),
    [
        pytest.param("permit", "waiting on permit for pod: preempted", id="194 a pod that Permit holds"),
        pytest.param(
            "pre_bind", 'running PreBind plugin "W": preempted by DefaultPreemption', id="194 a pod in PreBind"
        ),
    ],
)
async def test_a_victim_that_is_only_on_its_way(point: str, said: str) -> None:
    """Its place is taken back; the API server is told nothing, and the pod is tried again."""
    brain = Brain()
    permit, works = Holds("A", permits=Wait(600) if point == "permit" else None), Works("W")
    works.idle = point == "permit"
    brain.plug(permit=(permit,), pre_bind=(works,))
    brain.node("n1", cpu="2")
    brain.pod("low", cpu="2", priority=1)
    await brain.settle()
    assert brain.cluster.is_assumed("uid-low")
    permit.permits, works.idle = None, True

    brain.pod("p", **HIGH)
    await brain.settle()

    assert (evicted(brain), brain.writer.binds) == ([], [("default/p", "n1")])
    preempted = [event for event in brain.recorder.events if event.reason == "Preempted"]
    assert [(event.pod, event.note) for event in preempted] == [
        ("default/low", "Preempted by pod uid-p on node n1 (in kube-scheduler memory).")
    ]
    told = [condition.message for key, condition in brain.writer.conditions if key == "default/low"]
    assert (told[0], list(brain.places())) == (said, ["low"])
    await brain.later(2)
    assert attempts(brain, "low") == 2
