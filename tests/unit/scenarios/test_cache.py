"""Rows 71-93 of docs/spec/core.md §9 through the whole scheduler: pods that count on a node.

Rows 79-81 (snapshots, node tree order) do not apply. Other rows are in tests/unit/cache/, test_binding.py and
test_refusals.py. Ids begin with the row's number.
"""

from __future__ import annotations

import pytest

from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.seen import HOST, near

NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."


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
    assert (sched.refusal("q"), sched.places()) == (NO_ROOM, {"q": "unschedulable"})


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
    assert sched.writer.conditions == [] if bound else sched.refusal("p") == NO_ROOM
    assert all(key == "default/p" for key, _ in sched.writer.nominations)
