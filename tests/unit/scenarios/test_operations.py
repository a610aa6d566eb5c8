"""Rows 199-216 of docs/spec/core.md §9 as the whole decision side sees them: Permit, PreBind, Bind, and configurations.

Conflicts that a server answers are in tests/integration/test_scenarios.py, the parts one by one in
tests/unit/binding/test_binding.py and tests/unit/config/. Ids begin with the row's number.
"""

from __future__ import annotations

import asyncio

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo
from scheduler.core.errors import Unavailable
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Rejection, Skip, Wait
from tests.unit.fake_plugins import BeforeBind, Holds
from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.seen import attempts, with_plugins


class Works(BeforeBind):
    """PreBind that takes until told to go on; `idle`: it has nothing to do for this pod."""

    def __init__(self, *, idle: bool = False) -> None:
        super().__init__("W")
        self.idle = idle
        self.go = asyncio.Event()

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        return SKIP if self.idle else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        self.log("pre_bind")
        await self.go.wait()
        return None


async def two_for_one_place(sched: SchedulerHarness) -> None:
    """Both want the whole node; p is on its way to it."""
    sched.node("n1", cpu="2")
    sched.pod("p", cpu="2")
    await sched.settle()
    sched.pod("q", cpu="2")
    await sched.settle()
    await sched.later(20)
    assert sched.places()["q"] == "unschedulable"


# -- deleted on the way ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gone", "going"])
async def test_204_a_pod_deleted_at_permit_is_rejected_there(how: str) -> None:
    """At once, not when its time is over: what it reserved is given back, and whoever waits for its room comes."""
    sched = SchedulerHarness()
    permit, reserve = Holds("A", permits=Wait(600)), Holds("R")
    sched.plug(permit=(permit,), reserve=(reserve,))
    await two_for_one_place(sched)
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


# -- Permit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait_s", "said"),
    [
        pytest.param(5, "5s", id="206 five seconds without an answer"),
        pytest.param(3600, "15m0s", id="206 nobody waits longer than a quarter of an hour"),
    ],
)
async def test_permit_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, wait_s: int, said: str) -> None:
    """Rejected at that second, with whom it waited for and how long; not woken by the place that it gives back."""
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


async def test_206_a_plugin_that_has_allowed_the_pod_rejects_it_no_more() -> None:
    """Its own time runs out while another is still waited for."""
    sched = SchedulerHarness()
    sched.plug(permit=(Holds("A", permits=Wait(5)), Holds("B", permits=Wait(60))))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    permits = sched.parts.binder.permits
    permits.allow("uid-p", "A")
    await sched.later(30)
    assert permits.is_held("uid-p")

    permits.allow("uid-p", "B")
    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]


# -- saying where the pod will go --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "works", "said"),
    [
        pytest.param(True, True, True, id="207 Permit holds the pod and PreBind has work"),
        pytest.param(True, False, True, id="207 Permit holds the pod"),
        pytest.param(False, True, True, id="207 PreBind has work"),
        pytest.param(False, False, False, id="208 neither: the Binding follows at once"),
    ],
)
async def test_where_a_pod_is_about_to_go_is_said(waits: bool, works: bool, said: bool) -> None:
    """Before anything is waited for, in status.nominatedNodeName: an autoscaler must not take the node away."""
    sched = SchedulerHarness()
    plugin = Works(idle=not works)
    sched.plug(permit=(Holds("A", permits=Wait(600) if waits else None),), pre_bind=(plugin,))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    nominations = [("default/p", "n1")] if said else []
    assert sched.writer.nominations == nominations
    assert sched.writer.wire == (["patch p"] if said else ["bind p"])

    sched.parts.binder.permits.allow("uid-p", "A")
    plugin.go.set()
    await sched.settle()

    assert sched.writer.wire[-1] == "bind p"
    assert sched.writer.nominations == nominations


@pytest.mark.parametrize("shown", [True, False], ids=["the watch has shown it", "the watch is behind"])
async def test_207_what_was_said_is_taken_back_when_the_binding_fails(shown: bool) -> None:
    """Else the pod would go on holding a place that it has given up."""
    sched = SchedulerHarness()
    plugin = Works()
    sched.plug(pre_bind=(plugin,))
    sched.writer.on_bind = refuse
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    if shown:
        sched.pod("p", nominated="n1")
    plugin.go.set()
    await sched.settle()

    assert [node for _, node in sched.writer.nominations] == ["n1", ""]
    assert sched.parts.queue.nominator.node_of("uid-p") is None


def refuse(pod: Pod, node_name: str) -> None:
    raise Unavailable("etcd is away")
