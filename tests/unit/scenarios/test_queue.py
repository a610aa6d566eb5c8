"""Rows 1-70 of docs/spec/core.md §9 that need more than a queue. The other rows are in tests/unit/queueing/.

Ids begin with the row's number.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.podinfo import pod_info
from tests.unit.harness import SchedulerHarness, read_node
from tests.unit.scenarios.seen import attempts, in_flight, metric

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
