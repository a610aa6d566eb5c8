"""Rows 1-70 of docs/spec/core.md §9 that need more than a queue: what enters, what comes back, what is counted.

The other rows are in tests/unit/queueing/test_queue.py, test_queue_changes.py and queueing/; ids begin with the row's number.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.podinfo import pod_info
from tests.unit.brain import Brain, read_node
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
async def test_what_does_not_enter_the_queue(shown: dict[str, Any], counted: int) -> None:
    """Nothing is tried, and nothing said."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p", **shown)
    await brain.settle()

    assert (brain.places(), brain.cluster.sizes()["pods"]) == ({}, counted)
    assert (brain.writer.wire, brain.recorder.events) == ([], [])


@pytest.mark.parametrize("end", ["Failed", "Succeeded"])
async def test_6_a_pod_that_is_over_leaves_the_pool(end: str) -> None:
    """The watch tells it as a deletion; the gauges drop, and no later event brings the pod back."""
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.pod("p", cpu="2")
    await brain.settle()
    assert brain.places() == {"p": "unschedulable"}
    assert metric(brain, "scheduler_unschedulable_pods", **REJECTED) == 1

    brain.pod("p", cpu="2", phase=end)
    assert brain.places() == {}
    assert metric(brain, "scheduler_unschedulable_pods", **REJECTED) == 0
    brain.node("n2", cpu="4")
    await brain.later(20)

    assert (attempts(brain, "p"), brain.writer.binds) == (1, [])


async def test_8_a_pod_that_is_assumed_is_dropped_when_popped() -> None:
    """An update can bring it into the queue just before it is assumed: no second attempt, no event, `done`."""
    brain = Brain()
    brain.node("n1")
    brain.writer.hold = asyncio.Event()
    pod = brain.pod("p")
    assert isinstance(pod, Pod)
    await brain.settle()
    assert brain.cluster.is_assumed("uid-p")

    brain.parts.queue.add(pod_info(pod))
    assert brain.places() == {"p": "active"}
    await brain.settle()
    assert (brain.places(), in_flight(brain), brain.recorder.events) == ({}, {}, [])
    brain.writer.hold.set()
    await brain.settle()

    assert (attempts(brain, "p"), brain.writer.binds) == (1, [("default/p", "n1")])


async def test_49_a_pod_that_only_the_flush_brought_back_is_counted_when_bound() -> None:
    """The node grew and nobody heard of it: a hint is missing somewhere. A pod that an event woke is not counted."""
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.pod("p", cpu="2")
    await brain.settle()
    grown = read_node({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "3", "pods": "110"}}})
    assert isinstance(grown, Node)
    brain.cluster.set_node(grown)
    await brain.later(299)
    assert brain.places() == {"p": "unschedulable"}

    await brain.later(32)
    assert brain.writer.binds == [("default/p", "n1")]
    assert metric(brain, "scheduler_pod_scheduled_after_flush_total") == 1
    brain.pod("q", cpu="2")
    await brain.settle()
    brain.node("n2", cpu="4")
    await brain.later(20)

    assert ("default/q", "n2") in brain.writer.binds
    assert metric(brain, "scheduler_pod_scheduled_after_flush_total") == 1
