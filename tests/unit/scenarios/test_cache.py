"""Rows 71-93 of docs/spec/core.md §9 as the whole decision side sees them: what counts on a node, and for how long.

Rows 79-81 (snapshots, node tree order) have nothing here to correspond to; the others are also in tests/unit/cache/,
test_binding.py and test_refusals.py. Ids begin with the row's number.
"""

from __future__ import annotations

import pytest

from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.seen import HOST, beside

NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."


async def test_75_an_assumption_does_not_expire() -> None:
    """An hour without a word from the watch: the pod still holds its place."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    sched.pod("p", cpu="2")
    await sched.settle()
    assert sched.writer.binds == [("default/p", "n1")]

    await sched.later(3600)
    sched.pod("q", cpu="1")
    await sched.settle()

    assert sched.cluster.sizes()["assumed_pods"] == 1
    assert (sched.refusal("q"), sched.places()) == (NO_ROOM, {"q": "unschedulable"})


async def test_82_a_pod_that_wants_nobody_beside_it_keeps_others_away_as_long_as_it_is_there() -> None:
    """By its own rule, though the pod that comes has none."""
    sched = SchedulerHarness()
    sched.node("n1", labels={HOST: "n1"})
    sched.pod("p", labels={"app": "web"}, cpu="1")
    await sched.settle()
    assert sched.writer.binds == [("default/p", "n1")]
    sched.pod("alone", on="n1", scheduler="default-scheduler", **beside("web", away=True))

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
        pytest.param(0, [], id="90 another scheduler's pod is nominated there: a pod of lower priority stays away"),
        pytest.param(5, [], id="90 and so does one of the same"),
        pytest.param(10, [("default/p", "n1")], id="91 a pod of higher priority does not"),
    ],
)
async def test_nominations_of_others(priority: int, bound: list[tuple[str, str]]) -> None:
    """The place that another scheduler makes free for its pod is not ours to take; and its pod is left as it is."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    sched.pod("theirs", cpu="2", priority=5, nominated="n1", scheduler="default-scheduler")
    sched.pod("p", cpu="1", priority=priority)
    await sched.settle()

    assert sched.writer.binds == bound
    assert sched.writer.conditions == [] if bound else sched.refusal("p") == NO_ROOM
    assert all(key == "default/p" for key, _ in sched.writer.nominations)
