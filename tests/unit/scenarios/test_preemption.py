"""Rows 181-195 of docs/spec/core.md §9: a preemption from the plan to the Binding.

The choice of victims is in tests/unit/plugins/, the evictions in tests/unit/preemption/. Ids begin with the row's
number.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.core.errors import Forbidden, Unavailable
from tests.unit.harness import POST_FILTER, SchedulerHarness
from tests.unit.scenarios.seen import NO_ROOM, NO_VICTIMS, OTHERS, PREEMPTED, evicted, full_nodes, nominations, ours

HIGH: dict[str, Any] = {"cpu": "2", "priority": 10}
EXECUTED = "scheduler_preemption_goroutines_execution_total"


@pytest.mark.parametrize("nominated", ["", "n1"], ids=["181 a pod without nomination", "181 a nomination stays"])
async def test_a_pod_that_never_preempts(nominated: str) -> None:
    sched = SchedulerHarness()
    full_nodes(sched, "n1")
    sched.pod("p", nominated=nominated, preemptionPolicy="Never", **HIGH)
    await sched.settle()

    assert sched.message("p") == f"{NO_ROOM}{POST_FILTER}not eligible due to preemptionPolicy=Never."
    assert (evicted(sched), nominations(sched), sched.places()) == ([], [], {"p": "unschedulable"})


# -- terminating victims and nominations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaving", "waits"),
    [
        pytest.param({"conditions": [PREEMPTED]}, True, id="188 a preempted pod: the preemptor waits"),
        pytest.param(
            {"conditions": [PREEMPTED], "priority": 10}, False, id="188 a pod of equal priority: not waited for"
        ),
    ],
)
async def test_a_terminating_pod_on_the_nominated_node(leaving: dict[str, Any], waits: bool) -> None:
    """A nominated pod does not evict further pods for the same capacity."""
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
async def test_another_node_is_chosen_if_the_nominated_node_is_not_usable(changed: dict[str, Any] | None) -> None:
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


async def test_195_preemption_helps_on_no_node() -> None:
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


# -- the preemptor until it is bound ---------------------------------------------------------------------------------


async def test_a_pod_with_a_scheduling_group_evicts_no_pod() -> None:
    sched = SchedulerHarness()
    full_nodes(sched, "n1")
    sched.pod("p", schedulingGroup={"podGroupName": "g"}, **HIGH)
    await sched.settle()

    assert (evicted(sched), nominations(sched)) == ([], [])
    assert sched.message("p").endswith("pod uses a scheduling group, which kubestow cannot judge yet.")


@pytest.mark.parametrize("priority", [9, 10])
async def test_freed_capacity_is_kept_for_the_preemptor(priority: int) -> None:
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


async def test_a_nomination_is_cleared_if_no_victim_is_left() -> None:
    """The priority of the victim has changed."""
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
        pytest.param(False, ["default/p"], [], id="the freed capacity is kept for the preemptor"),
        pytest.param(True, ["default/q"], [("default/p", "")], id="parity: another pod takes it, as upstream"),
    ],
)
async def test_a_binding_that_fails_after_the_eviction(
    *, parity: bool, bound: list[str], cleared: list[tuple[str, str]]
) -> None:
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
