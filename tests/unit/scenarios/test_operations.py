"""Rows 199-216 of docs/spec/core.md §9 through the whole scheduler: Permit, PreBind and Bind.

Conflicts are in tests/integration/test_scenarios.py, single parts in tests/unit/binding/ and tests/unit/config/. Ids
begin with the row's number.
"""

from __future__ import annotations

import pytest

from scheduler.framework.status import SKIP, Wait
from tests.unit.binding.test_expectation import Works
from tests.unit.fake_plugins import Holds
from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.seen import attempts, with_plugins

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

    sched.parts.binder.permits.allow("uid-p", "A")
    plugin.go.set()
    await sched.settle()

    assert sched.writer.wire[-1] == "bind p"
    assert sched.writer.nominations == nominations
