"""Rows 181-195 of docs/spec/core.md §9: a preemption from the plan to the Binding.

The choice of victims is in tests/unit/plugins/; the evictions one by one in tests/unit/preemption/test_preemption.py.
Ids begin with the row's number.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.core.errors import ApiError, Forbidden, Unavailable
from tests.unit.harness import POST_FILTER, SchedulerHarness
from tests.unit.scenarios.evicting import NO_ROOM, NO_VICTIMS, OTHERS, PREEMPTED, evicted, full_nodes, nominations, ours
from tests.unit.scenarios.seen import attempts, metric

HIGH: dict[str, Any] = {"cpu": "2", "priority": 10}
EXECUTED = "scheduler_preemption_goroutines_execution_total"


@pytest.mark.parametrize("nominated", ["", "n1"], ids=["181 a pod without nomination", "181 a nomination stays"])
async def test_a_pod_that_never_preempts(nominated: str) -> None:
    """It says so, and waits."""
    sched = SchedulerHarness()
    full_nodes(sched, "n1")
    sched.pod("p", nominated=nominated, preemptionPolicy="Never", **HIGH)
    await sched.settle()

    assert sched.message("p") == f"{NO_ROOM}{POST_FILTER}not eligible due to preemptionPolicy=Never."
    assert (evicted(sched), nominations(sched), sched.places()) == ([], [], {"p": "unschedulable"})


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
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    sched.pod("leaving", on="n1", **{"cpu": "2", "deleting": True, **OTHERS, **leaving})
    full_nodes(sched, "n2")
    sched.pod("p", nominated="n1", **HIGH)
    await sched.settle()

    refusal = NO_ROOM.replace("0/1", "0/2").replace("1 I", "2 I")
    if waits:
        text = "not eligible due to a terminating pod on the nominated node."
        assert sched.message("p") == f"{refusal}{POST_FILTER}{text}"
        assert (evicted(sched), nominations(sched)) == ([], [])
        assert sched.parts.queue.nominator.node_of("uid-p") == "n1"
    else:
        assert "preemption: found a potential placement" in sched.message("p")


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
    sched = SchedulerHarness()
    full_nodes(sched, "n1", deleting=True, conditions=[PREEMPTED])
    full_nodes(sched, "n2")
    if changed is None:
        sched.node_gone("n1")
    else:
        sched.node("n1", **changed)
    sched.pod("p", nominated="n1", **HIGH)
    await sched.settle()

    assert (evicted(sched), nominations(sched)) == (["low-n2"], ["n2"])


async def test_195_no_node_can_be_helped() -> None:
    """A pod that does not fit the empty node evicts nobody, and lets go of the place it was to have."""
    sched = SchedulerHarness()
    full_nodes(sched, "n1", "n2", "n3")
    sched.pod("p", cpu="3", priority=10, nominated="n2")
    await sched.settle()

    assert sched.message("p") == (
        f"0/3 nodes are available: 3 Insufficient cpu.{POST_FILTER}"
        "0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
    assert (evicted(sched), nominations(sched)) == ([], [""])
    assert sched.parts.queue.nominator.node_of("uid-p") is None


# -- the evictions -----------------------------------------------------------------------------------------------------


def fails_once(error: ApiError) -> Any:
    """For `writer.on_delete`: the first deletion fails."""
    errors = [error]

    def fail(pod: Pod) -> None:
        if errors:
            raise errors.pop()

    return fail


async def test_192_a_deletion_that_fails_ends_the_preemption() -> None:
    """The last victim is not touched, and the preemptor is tried again by itself: no event would wake it."""
    sched = SchedulerHarness()
    sched.writer.on_delete = fails_once(Forbidden("a webhook said no"))
    sched.node("n1", cpu="2")
    for name, priority in (("a", 2), ("b", 1)):
        sched.pod(name, on="n1", cpu="1", priority=priority, **OTHERS)
    sched.pod("p", **HIGH)
    await sched.settle()
    assert (evicted(sched), metric(sched, EXECUTED, result="error")) == (["a"], 1)

    await sched.later(2)

    assert evicted(sched) == ["a", "a", "b"]
    assert attempts(sched, "p") == 2
    assert metric(sched, EXECUTED, result="success") == 1
    assert [event.pod for event in sched.recorder.events if event.reason == "Preempted"] == ["default/a", "default/b"]


# -- the preemptor until it is bound -----------------------------------------------------------------------------------


async def test_a_pod_that_cannot_be_judged_evicts_nobody() -> None:
    """Who knows whether it would be placed then."""
    sched = SchedulerHarness()
    full_nodes(sched, "n1")
    sched.pod("p", schedulingGroup={"podGroupName": "g"}, **HIGH)
    await sched.settle()

    assert (evicted(sched), nominations(sched)) == ([], [])
    assert sched.message("p").endswith("pod uses a scheduling group, which kubestow cannot judge yet.")


@pytest.mark.parametrize("priority", [9, 10])
async def test_room_that_was_made_is_held_for_whom_it_was_made(priority: int) -> None:
    """Against pods of the same priority and of lower, though they come first."""
    sched = SchedulerHarness()
    full_nodes(sched, "n1")
    sched.pod("p", **HIGH)
    await sched.settle()
    sched.pod("p", nominated="n1", **HIGH)
    sched.pod("q", cpu="1", priority=priority)
    await sched.settle()
    assert sched.message("q") == f"{NO_ROOM}{POST_FILTER}0/1 nodes are available: 1 Insufficient cpu."

    sched.gone("low-n1")
    await sched.settle()

    assert (sched.writer.binds, evicted(sched)) == ([("default/p", "n1")], ["low-n1"])


async def test_nobody_left_to_evict() -> None:
    """The victim became more important meanwhile; the text says what is so now."""
    sched = SchedulerHarness()
    full_nodes(sched, "n1")

    def refuse(pod: Pod) -> None:
        sched.pod("low-n1", on="n1", cpu="2", priority=10, **OTHERS)
        raise Forbidden("a webhook said no")

    sched.writer.on_delete = refuse
    sched.pod("p", **HIGH)
    await sched.settle()
    await sched.later(2)

    assert (sched.message("p"), nominations(sched)) == (NO_VICTIMS, ["n1", ""])


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
    sched = SchedulerHarness(ours(parity=parity))
    sched.node("n1", cpu="2")

    def fails(_pod: Pod, _node_name: str) -> None:
        sched.writer.on_bind = None
        sched.writer.binds.clear()
        raise Unavailable("the server fails")

    sched.writer.on_bind = fails
    sched.pod("p", cpu="2", priority=10, nominated="n1")
    await sched.settle()
    sched.pod("q", cpu="2", priority=10)
    await sched.settle()
    await sched.later(3)

    assert [key for key, _ in sched.writer.binds] == bound
    assert sched.writer.nominations == cleared
