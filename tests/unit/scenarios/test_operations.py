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
from tests.unit.brain import Brain
from tests.unit.scenarios.seen import attempts, with_plugins
from tests.unit.toys import BeforeBind, Holds


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


async def two_for_one_place(brain: Brain) -> None:
    """Both want the whole node; p is on its way to it."""
    brain.node("n1", cpu="2")
    brain.pod("p", cpu="2")
    await brain.settle()
    brain.pod("q", cpu="2")
    await brain.settle()
    await brain.later(20)
    assert brain.places()["q"] == "unschedulable"


# -- deleted on the way ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gone", "going"])
async def test_204_a_pod_deleted_at_permit_is_rejected_there(how: str) -> None:
    """At once, not when its time is over: what it reserved is given back, and whoever waits for its room comes."""
    brain = Brain()
    permit, reserve = Holds("A", permits=Wait(600)), Holds("R")
    brain.plug(permit=(permit,), reserve=(reserve,))
    await two_for_one_place(brain)
    permit.permits = None

    if how == "gone":
        brain.gone("p")
    else:
        brain.pod("p", cpu="2", deleting=True)
    await brain.settle()

    assert brain.calls[:3] == ["R.reserve", "A.permit", "R.unreserve"]
    assert brain.writer.binds == [("default/q", "n1")]
    if how == "going":
        assert brain.message("p") == "0/1 nodes are available: 1 removed."
    await brain.later(5)
    assert brain.places() == {}


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
    brain = with_plugins(monkeypatch, Holds("A", permits=Wait(wait_s)))
    brain.node("n1")
    brain.pod("p")
    await brain.settle()
    limit_s = min(wait_s, 900)
    await brain.later(limit_s - 0.5)
    assert (brain.cluster.is_assumed("uid-p"), brain.writer.conditions) == (True, [])

    await brain.later(0.5)

    reason = f"rejected due to timeout after waiting {said} at plugin A"
    assert brain.message("p") == f"0/1 nodes are available: 1 {reason}."
    assert brain.writer.conditions[-1][1].reason == "Unschedulable"
    assert (brain.is_free(), brain.places(), attempts(brain, "p")) == (True, {"p": "unschedulable"}, 1)


async def test_206_a_plugin_that_has_allowed_the_pod_rejects_it_no_more() -> None:
    """Its own time runs out while another is still waited for."""
    brain = Brain()
    brain.plug(permit=(Holds("A", permits=Wait(5)), Holds("B", permits=Wait(60))))
    brain.node("n1")
    brain.pod("p")
    await brain.settle()
    permits = brain.parts.binder.permits
    permits.allow("uid-p", "A")
    await brain.later(30)
    assert permits.is_held("uid-p")

    permits.allow("uid-p", "B")
    await brain.settle()

    assert brain.writer.binds == [("default/p", "n1")]


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
    brain = Brain()
    toy = Works(idle=not works)
    brain.plug(permit=(Holds("A", permits=Wait(600) if waits else None),), pre_bind=(toy,))
    brain.node("n1")
    brain.pod("p")
    await brain.settle()
    nominations = [("default/p", "n1")] if said else []
    assert brain.writer.nominations == nominations
    assert brain.writer.wire == (["patch p"] if said else ["bind p"])

    brain.parts.binder.permits.allow("uid-p", "A")
    toy.go.set()
    await brain.settle()

    assert brain.writer.wire[-1] == "bind p"
    assert brain.writer.nominations == nominations


@pytest.mark.parametrize("shown", [True, False], ids=["the watch has shown it", "the watch is behind"])
async def test_207_what_was_said_is_taken_back_when_the_binding_fails(shown: bool) -> None:
    """Else the pod would go on holding a place that it has given up."""
    brain = Brain()
    toy = Works()
    brain.plug(pre_bind=(toy,))
    brain.writer.on_bind = refuse
    brain.node("n1")
    brain.pod("p")
    await brain.settle()
    if shown:
        brain.pod("p", nominated="n1")
    toy.go.set()
    await brain.settle()

    assert [node for _, node in brain.writer.nominations] == ["n1", ""]
    assert brain.parts.queue.nominator.node_of("uid-p") is None


def refuse(pod: Pod, node_name: str) -> None:
    raise Unavailable("etcd is away")
