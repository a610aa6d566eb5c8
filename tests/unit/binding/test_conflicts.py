"""A node that changes before the Binding is sent, and what the decision record says about it (docs/spec/core.md §2.6)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from scheduler.api.decode import Delta
from scheduler.binding_state import PodWatch
from tests.unit.binding.reading import conflicts
from tests.unit.harness import SchedulerHarness, manifest, read_pod


async def decided(sched: SchedulerHarness) -> None:
    """The pod has a node and waits for its turn to be bound."""
    sched.node("n1", cpu="2")
    sched.writer.turn_hold = asyncio.Event()
    sched.pod("p", cpu="2")
    await sched.settle()


async def send(sched: SchedulerHarness) -> None:
    """Let the Binding leave."""
    assert sched.writer.turn_hold is not None
    sched.writer.turn_hold.set()
    await sched.settle()


@pytest.mark.parametrize("gone", [False, True], ids=["92 its capacity is taken", "the node is gone"])
async def test_a_node_that_does_not_fit_the_pod_any_more_is_a_conflict(gone: bool) -> None:
    sched = SchedulerHarness()
    await decided(sched)
    if gone:
        sched.node_gone("n1")
    else:
        sched.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")
    await send(sched)

    assert (conflicts(sched), sched.writer.binds) == ({"node": 1}, [])
    reason = "1 node(s) had gone before the pod was bound" if gone else "1 Insufficient cpu"
    event = sched.recorder.events[0]
    assert (event.reason, event.note) == ("FailedScheduling", f"0/1 nodes are available: {reason}.")


async def test_a_pod_that_another_scheduler_bound_to_this_node_takes_the_capacity_of_ours() -> None:
    """Our scheduler had given that pod another node."""
    sched = SchedulerHarness()
    for name in ("n1", "n2"):
        sched.node(name, cpu="2")
    sched.writer.turn_hold = asyncio.Event()
    for name in ("p", "q"):
        sched.pod(name, cpu="2")
    await sched.settle()
    held = sched.cluster.get("uid-q")
    assert held is not None
    sched.pod("p", cpu="2", on=held.node_name)
    await send(sched)

    assert conflicts(sched).get("node") == 1
    assert ("default/q", held.node_name) not in sched.writer.binds
    assert sched.message("q") == "0/1 nodes are available: 1 Insufficient cpu."


BY_ZONE = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
DB: dict[str, Any] = {"labels": {"app": "db"}}
APART = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [BY_ZONE]}}}
SPREAD = {**BY_ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        pytest.param(APART, DB, "didn't match pod anti-affinity rules", id="its anti-affinity selects the new pod"),
        pytest.param(
            DB, APART, "didn't satisfy existing pods anti-affinity rules", id="the new pod's anti-affinity selects it"
        ),
        pytest.param(
            {**DB, "topologySpreadConstraints": [SPREAD]},
            DB,
            "didn't match pod topology spread constraints",
            id="its spread constraint counts the new pod",
        ),
        pytest.param({}, DB, "", id="it has no constraint"),
    ],
)
async def test_a_new_pod_on_another_node_of_the_zone_is_checked_before_the_binding(
    ours: dict[str, Any], theirs: dict[str, Any], reason: str
) -> None:
    sched = SchedulerHarness()
    sched.writer.turn_hold = asyncio.Event()
    sched.node("n1", labels={"zone": "a"})
    sched.pod("p", **ours)
    await sched.settle()
    sched.node("n2", labels={"zone": "a"})
    sched.pod("theirs", on="n2", scheduler="default-scheduler", **theirs)
    await send(sched)

    assert sched.writer.binds == ([] if reason else [("default/p", "n1")])
    if reason:
        assert sched.message("p").startswith("0/")
        assert f"node(s) {reason}" in sched.message("p")


async def test_a_change_of_the_node_that_leaves_capacity_is_no_conflict() -> None:
    sched = SchedulerHarness()
    await decided(sched)
    sched.node("n1", cpu="3")
    sched.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")
    await send(sched)

    assert (conflicts(sched), sched.writer.binds) == ({}, [("default/p", "n1")])


async def test_the_record_has_the_version_of_the_watch_when_the_binding_was_sent() -> None:
    shown = "5"
    sched = SchedulerHarness(pod_watch=PodWatch(version=lambda: shown))
    await decided(sched)
    record = sched.parts.records.latest("default/p")
    assert record is not None
    assert record.seen_resource_version == ""

    shown = "7"
    await send(sched)

    assert record.to_dict()["seen_resource_version"] == "7"


async def test_changes_that_wait_in_the_inbox_are_applied_before_the_binding_is_sent() -> None:
    sched = SchedulerHarness()
    await decided(sched)
    theirs = read_pod(manifest("theirs", cpu="1", on="n1", scheduler="default-scheduler"))
    sched.parts.inbox.put(partial(sched.parts.intake.pods, [Delta(None, theirs)]))

    assert sched.writer.turn_hold is not None
    sched.writer.turn_hold.set()
    await sched.turns()

    assert (conflicts(sched), sched.writer.binds) == ({"node": 1}, [])
