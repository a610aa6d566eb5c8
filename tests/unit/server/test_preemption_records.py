"""What is remembered of preemptions: victims, and per group of nodes why evicting would not help (docs/spec/core.md §10.5)."""

from __future__ import annotations

from typing import Any

from tests.unit.harness import SchedulerHarness

NEVER = "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."


def a_cluster(*, on_n1: int) -> SchedulerHarness:
    """All are full: n1 of pods of that priority, n2 of priority 9, n4 of both; n3 is out of the question."""
    sched = SchedulerHarness()
    for name in ("n1", "n2", "n4"):
        sched.node(name, cpu="2")
    sched.node("n3", cpu="2", taints=[{"key": "k", "effect": "NoSchedule"}])
    for name, node, cpu, priority in (
        ("low", "n1", "2", on_n1),
        ("equal", "n2", "2", 9),
        ("half", "n4", "1", 0),
        ("other-half", "n4", "1", 9),
    ):
        sched.pod(name, cpu=cpu, on=node, priority=priority)
    return sched


def shown(sched: SchedulerHarness, name: str) -> dict[str, Any]:
    """The last attempt, as /debug/pod prints it."""
    page = sched.parts.records.to_dict(f"default/{name}")
    assert page is not None
    attempt: dict[str, Any] = page["attempts"][0]
    return attempt


def why(attempt: dict[str, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Reason → its plugin, and nodes."""
    return {row["reasons"][0]: (row["plugin"], row["examples"]) for row in attempt["preemption"]}


async def test_the_victims_and_the_nodes_where_it_would_not_help() -> None:
    """Nodes that were out of the question anyway are not looked at once a way is found."""
    sched = a_cluster(on_n1=0)
    sched.pod("p", cpu="2", priority=9)
    await sched.settle()

    attempt = shown(sched, "p")
    assert (attempt["nominated"], attempt["victims"], attempt["node"]) == ("n1", ("default/low",), "")
    assert why(attempt) == {
        "No preemption victims found for incoming pod": ("DefaultPreemption", ("n2",)),
        "Insufficient cpu": ("NodeResourcesFit", ("n4",)),
    }
    assert {row["reasons"][0] for row in attempt["groups"]} == {"Insufficient cpu", "node(s) had untolerated taint(s)"}


async def test_why_no_eviction_would_help() -> None:
    """Every node is in one group."""
    sched = a_cluster(on_n1=9)
    sched.pod("p", cpu="2", priority=9)
    await sched.settle()

    attempt = shown(sched, "p")
    assert (attempt["nominated"], attempt["victims"]) == ("", ())
    assert why(attempt) == {
        "No preemption victims found for incoming pod": ("DefaultPreemption", ("n1", "n2")),
        "Insufficient cpu": ("NodeResourcesFit", ("n4",)),
        "Preemption is not helpful for scheduling": ("DefaultPreemption", ("n3",)),
    }
    assert sum(row["nodes"] for row in attempt["preemption"]) == attempt["node_count"] == 4


async def test_a_pod_that_may_not_preempt_has_no_such_groups() -> None:
    """Its message says why; nobody was looked at."""
    sched = a_cluster(on_n1=0)
    sched.pod("p", cpu="2", priority=9, preemptionPolicy="Never")
    await sched.settle()

    attempt = shown(sched, "p")
    assert (attempt["preemption"], attempt["nominated"]) == ((), "")
    assert attempt["message"].endswith(NEVER)
