"""Rows 1-93 and 181-216 of docs/spec/core.md §9 through the whole scheduler: ids begin with the row's number."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.podinfo import pod_info
from scheduler.core.errors import Forbidden, Unavailable
from scheduler.framework.status import SKIP, Wait
from tests.support import permit
from tests.unit.binding.test_expectation import Works
from tests.unit.fake_plugins import Holds
from tests.unit.harness import POST_FILTER, SchedulerHarness, read_node
from tests.unit.scenarios.seen import (
    HOST,
    NO_ROOM,
    NO_VICTIMS,
    OTHERS,
    PREEMPTED,
    attempts,
    evicted,
    full_nodes,
    in_flight,
    metric,
    near,
    nominations,
    ours,
    with_plugins,
)

REJECTED = {"plugin": "NodeResourcesFit", "profile": "kubestow"}


@pytest.mark.parametrize(
    ("shown", "counted"),
    [
        pytest.param({"on": "n1"}, 1, id="4 a pod of ours that has a node is counted there and not queued"),
        pytest.param({"phase": "Succeeded"}, 0, id="5 a pod of ours that is over when first seen is never seen"),
        pytest.param({"phase": "Succeeded", "on": "n1"}, 0, id="5 nor is one that has run on a node"),
    ],
)
async def test_pods_that_do_not_enter_the_queue(shown: dict[str, Any], counted: int) -> None:
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p", **shown)
    await sched.settle()

    assert (sched.places(), sched.cluster.sizes()["pods"]) == ({}, counted)
    assert (sched.writer.wire, sched.recorder.events) == ([], [])


@pytest.mark.parametrize("end", ["Failed", "Succeeded"])
async def test_6_a_pod_that_is_over_leaves_the_pool(end: str) -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="2")
    await sched.settle()
    assert sched.places() == {"p": "unschedulable"}
    assert metric(sched, "scheduler_unschedulable_pods", **REJECTED) == 1

    sched.pod("p", cpu="2", phase=end)
    assert sched.places() == {}
    assert metric(sched, "scheduler_unschedulable_pods", **REJECTED) == 0
    sched.node("n2", cpu="4")
    await sched.later(20)

    assert (attempts(sched, "p"), sched.writer.binds) == (1, [])


async def test_8_a_pod_that_is_assumed_is_dropped_when_popped() -> None:
    """An update can bring the pod into the queue just before it is assumed."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.writer.hold = asyncio.Event()
    pod = sched.pod("p")
    assert isinstance(pod, Pod)
    await sched.settle()
    assert sched.cluster.is_assumed("uid-p")

    sched.parts.queue.add(pod_info(pod))
    assert sched.places() == {"p": "active"}
    await sched.settle()
    assert (sched.places(), in_flight(sched), sched.recorder.events) == ({}, {}, [])
    sched.writer.hold.set()
    await sched.settle()

    assert (attempts(sched, "p"), sched.writer.binds) == (1, [("default/p", "n1")])


async def test_49_a_pod_that_only_the_flush_brought_back_is_counted_when_bound() -> None:
    """The cache changes without an event, as with a missing hint."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="2")
    await sched.settle()
    grown = read_node({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "3", "pods": "110"}}})
    assert isinstance(grown, Node)
    sched.cluster.set_node(grown)
    await sched.later(299)
    assert sched.places() == {"p": "unschedulable"}

    await sched.later(32)
    assert sched.writer.binds == [("default/p", "n1")]
    assert metric(sched, "scheduler_pod_scheduled_after_flush_total") == 1
    sched.pod("q", cpu="2")
    await sched.settle()
    sched.node("n2", cpu="4")
    await sched.later(20)

    assert ("default/q", "n2") in sched.writer.binds
    assert metric(sched, "scheduler_pod_scheduled_after_flush_total") == 1


NO_CPU = "0/1 nodes are available: 1 Insufficient cpu."


async def test_75_an_assumption_does_not_expire() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    sched.pod("p", cpu="2")
    await sched.settle()
    assert sched.writer.binds == [("default/p", "n1")]

    await sched.later(3600)
    sched.pod("q", cpu="1")
    await sched.settle()

    assert sched.cluster.sizes()["assumed_pods"] == 1
    assert (sched.refusal("q"), sched.places()) == (NO_CPU, {"q": "unschedulable"})


async def test_82_the_anti_affinity_of_a_bound_pod_counts_until_its_end() -> None:
    """The new pod has no constraint."""
    sched = SchedulerHarness()
    sched.node("n1", labels={HOST: "n1"})
    sched.pod("p", labels={"app": "web"}, cpu="1")
    await sched.settle()
    assert sched.writer.binds == [("default/p", "n1")]
    sched.pod("alone", on="n1", scheduler="default-scheduler", **near("web", away=True))

    sched.pod("q", labels={"app": "web"})
    await sched.later(20)
    assert sched.refusal("q") == (
        "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
    )
    sched.gone("alone")
    await sched.settle()

    assert sched.writer.binds[1:] == [("default/q", "n1")]


@pytest.mark.parametrize(
    ("priority", "bound"),
    [
        pytest.param(0, [], id="90 a pod of lower priority than the nominated pod of another scheduler is refused"),
        pytest.param(5, [], id="90 a pod of equal priority is refused"),
        pytest.param(10, [("default/p", "n1")], id="91 a pod of higher priority is bound"),
    ],
)
async def test_a_nomination_of_another_scheduler(priority: int, bound: list[tuple[str, str]]) -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    sched.pod("theirs", cpu="2", priority=5, nominated="n1", scheduler="default-scheduler")
    sched.pod("p", cpu="1", priority=priority)
    await sched.settle()

    assert sched.writer.binds == bound
    assert sched.writer.conditions == [] if bound else sched.refusal("p") == NO_CPU
    assert all(key == "default/p" for key, _ in sched.writer.nominations)


# -- Permit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gone", "going"])
async def test_204_a_pod_deleted_at_permit_is_rejected_at_once(how: str) -> None:
    sched = SchedulerHarness()
    permit, reserve = Holds("A", permits=Wait(600)), Holds("R")
    sched.plug(permit=(permit,), reserve=(reserve,))
    sched.node("n1", cpu="2")
    for name in ("p", "q"):
        sched.pod(name, cpu="2")
        await sched.settle()
    await sched.later(20)
    assert sched.places()["q"] == "unschedulable"
    permit.permits = None

    if how == "gone":
        sched.gone("p")
    else:
        sched.pod("p", cpu="2", deleting=True)
    await sched.settle()

    assert sched.calls[:3] == ["R.reserve", "A.permit", "R.unreserve"]
    assert sched.writer.binds == [("default/q", "n1")]
    if how == "going":
        assert sched.message("p") == "0/1 nodes are available: 1 removed."
    await sched.later(5)
    assert sched.places() == {}


@pytest.mark.parametrize(
    ("wait_s", "said"),
    [
        pytest.param(5, "5s", id="206 five seconds without an answer"),
        pytest.param(3600, "15m0s", id="206 Permit waits at most 15 minutes"),
    ],
)
async def test_permit_times_out(monkeypatch: pytest.MonkeyPatch, wait_s: int, said: str) -> None:
    sched = with_plugins(monkeypatch, Holds("A", permits=Wait(wait_s)))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    limit_s = min(wait_s, 900)
    await sched.later(limit_s - 0.5)
    assert (sched.cluster.is_assumed("uid-p"), sched.writer.conditions) == (True, [])

    await sched.later(0.5)

    reason = f"rejected due to timeout after waiting {said} at plugin A"
    assert sched.message("p") == f"0/1 nodes are available: 1 {reason}."
    assert sched.writer.conditions[-1][1].reason == "Unschedulable"
    assert (sched.is_free(), sched.places(), attempts(sched, "p")) == (True, {"p": "unschedulable"}, 1)


# -- the nomination of an assumed pod --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "works", "said"),
    [
        pytest.param(True, True, True, id="207 Permit holds the pod and PreBind has work"),
        pytest.param(True, False, True, id="207 Permit holds the pod"),
        pytest.param(False, True, True, id="207 PreBind has work"),
        pytest.param(False, False, False, id="208 neither: the Binding follows at once"),
    ],
)
async def test_the_node_of_an_assumed_pod_is_written_before_long_work(waits: bool, works: bool, said: bool) -> None:
    """An autoscaler must not remove the node."""
    sched = SchedulerHarness()
    plugin = Works(flight=None if works else SKIP)
    sched.plug(permit=(Holds("A", permits=Wait(600) if waits else None),), pre_bind=(plugin,))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    nominations = [("default/p", "n1")] if said else []
    assert sched.writer.nominations == nominations
    assert sched.writer.wire == (["patch p"] if said else ["bind p"])

    permit.allow(sched.parts.binder.waiting_pods, "uid-p", "A")
    plugin.go.set()
    await sched.settle()

    assert sched.writer.wire[-1] == "bind p"
    assert sched.writer.nominations == nominations


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


@pytest.mark.parametrize(("leaving", "waits"), [
    pytest.param({"conditions": [PREEMPTED]}, True, id="188 a preempted pod: the preemptor waits"),
    pytest.param({"conditions": [PREEMPTED], "priority": 10}, False, id="188 a pod of equal priority: not waited for"),
])  # fmt: skip
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
