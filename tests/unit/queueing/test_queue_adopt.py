"""The queue adopts other plugins: no pod is lost, and the new order and registrations count."""

from __future__ import annotations

import dataclasses

import pytest

from scheduler.core.cluster_events import NODE_ADD, PROFILE_CHANGED
from scheduler.framework.interface import Hint
from scheduler.queue import QueueProfile
from tests.unit.queueing.harness import OTHER, OURS, Gate, QueueHarness, by_priority, hint, pod

FIT = "NodeResourcesFit"
TAINTS = "TaintToleration"
LOOKS_ON = {FIT: (hint(NODE_ADD, Hint.SKIP),)}


def adopt(
    harness: QueueHarness, *, hints: dict[str, tuple[object, ...]] | None = None, gate: Gate | None = None
) -> None:
    """Replace the plugins of our profile."""
    profile = QueueProfile((gate,) if gate else (), by_priority, hints or {})  # type: ignore[arg-type]
    harness.queue.adopt({OURS: profile})


def test_waiting_pods_of_the_profile_are_ready() -> None:
    harness = QueueHarness(LOOKS_ON, other_hints=LOOKS_ON)
    harness.rejected(pod("mine"), FIT)
    harness.rejected(pod("theirs", scheduler=OTHER), FIT)
    harness.advance(60)

    adopt(harness)

    assert harness.places() == {"mine": "active", "theirs": "unschedulable"}
    assert harness.metrics.incomings[-1] == ("active", PROFILE_CHANGED.label)
    assert +harness.metrics.rejected == {(FIT, OTHER): 1}


def test_only_the_new_registrations_wake_pods() -> None:
    harness = QueueHarness({FIT: (hint(NODE_ADD, Hint.QUEUE),), TAINTS: ()})
    queued = harness.rejected(pod("p"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    harness.advance(60)
    adopt(harness, hints={FIT: (), TAINTS: (hint(NODE_ADD, Hint.QUEUE),)})
    assert harness.pop() is queued
    harness.fail(queued, FIT)
    harness.advance(60)

    harness.queue.move_all(NODE_ADD, None, None)
    assert harness.places() == {"p": "unschedulable"}

    harness.queue.activate([queued.info])
    assert harness.pop() is queued
    harness.fail(queued, TAINTS)
    harness.advance(60)
    harness.queue.move_all(NODE_ADD, None, None)
    assert harness.places() == {"p": "active"}


def test_a_pod_in_flight_comes_back_instead_of_waiting() -> None:
    harness = QueueHarness(LOOKS_ON, other_hints=LOOKS_ON)
    harness.add(pod("mine"), pod("theirs", scheduler=OTHER))
    both = [harness.pop(), harness.pop()]

    adopt(harness)
    for queued in both:
        harness.fail(queued, FIT)
    harness.advance(60)

    assert harness.places() == {"mine": "active", "theirs": "unschedulable"}


def test_the_new_gates_are_called_for_pods_of_all_queues() -> None:
    old, new = Gate("Gate", {"out"}), Gate("Gate", {"active", "backoff"})
    harness = QueueHarness({FIT: (hint(NODE_ADD, Hint.QUEUE),)}, gates=(old,))
    harness.add(pod("out"))
    backing_off = harness.rejected(pod("backoff"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    harness.add(pod("active"))
    assert harness.places() == {"out": "gated", "backoff": "backoff", "active": "active"}

    adopt(harness, gate=new)

    assert harness.places() == {"out": "active", "backoff": "gated", "active": "gated"}
    assert backing_off.rejecters == {"Gate"}
    assert +harness.metrics.rejected == {("Gate", OURS): 2}


def test_an_unknown_profile_is_a_mistake() -> None:
    harness = QueueHarness({})
    with pytest.raises(KeyError):
        harness.queue.adopt({"stranger": QueueProfile((), by_priority, {})})


def test_all_fields_of_a_queue_profile_are_adopted() -> None:
    """A new field needs a line in `adopt`."""
    assert [field.name for field in dataclasses.fields(QueueProfile)] == ["pre_enqueue", "sort_key", "hints"]
