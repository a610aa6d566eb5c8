"""The queue is given other plugins: every pod is somewhere, in the new order, and woken by the new registrations."""

from __future__ import annotations

import dataclasses

import pytest

from scheduler.core.cluster_events import NODE_ADD, PROFILE_CHANGED
from scheduler.framework.interface import Hint
from scheduler.queue import QueueProfile
from tests.unit.queueing.world import OTHER, OURS, Gate, World, by_priority, hint, pod

FIT = "NodeResourcesFit"
TAINTS = "TaintToleration"
LOOKS_ON = {FIT: (hint(NODE_ADD, Hint.SKIP),)}


def adopt(world: World, *, hints: dict[str, tuple[object, ...]] | None = None, gate: Gate | None = None) -> None:
    """Ours changes; the other profile does not."""
    profile = QueueProfile((gate,) if gate else (), by_priority, hints or {})  # type: ignore[arg-type]
    world.queue.adopt({OURS: profile})


def test_waiting_pods_are_ready_and_others_profiles_pods_are_not() -> None:
    """Under the event's label, without the plugins that had rejected them."""
    world = World(LOOKS_ON, other_hints=LOOKS_ON)
    world.rejected(pod("mine"), FIT)
    world.rejected(pod("theirs", scheduler=OTHER), FIT)
    world.advance(60)

    adopt(world)

    assert world.places() == {"mine": "active", "theirs": "unschedulable"}
    assert world.metrics.incomings[-1] == ("active", PROFILE_CHANGED.label)
    assert +world.metrics.rejected == {(FIT, OTHER): 1}


def test_from_then_on_the_new_registrations_wake() -> None:
    """What the old ones registered is forgotten, also by pods that were in flight when it happened."""
    world = World({FIT: (hint(NODE_ADD, Hint.QUEUE),), TAINTS: ()})
    queued = world.rejected(pod("p"), FIT)
    world.queue.move_all(NODE_ADD, None, None)
    world.advance(60)
    adopt(world, hints={FIT: (), TAINTS: (hint(NODE_ADD, Hint.QUEUE),)})
    assert world.pop() is queued
    world.fail(queued, FIT)
    world.advance(60)

    world.queue.move_all(NODE_ADD, None, None)
    assert world.places() == {"p": "unschedulable"}

    world.queue.activate([queued.info])
    assert world.pop() is queued
    world.fail(queued, TAINTS)
    world.advance(60)
    world.queue.move_all(NODE_ADD, None, None)
    assert world.places() == {"p": "active"}


def test_a_pod_in_flight_comes_back_instead_of_waiting() -> None:
    """Rejected by plugins that are no more; of another profile it waits."""
    world = World(LOOKS_ON, other_hints=LOOKS_ON)
    world.add(pod("mine"), pod("theirs", scheduler=OTHER))
    both = [world.pop(), world.pop()]

    adopt(world)
    for queued in both:
        world.fail(queued, FIT)
    world.advance(60)

    assert world.places() == {"mine": "active", "theirs": "unschedulable"}


def test_gates_of_all_places_are_asked() -> None:
    old, new = Gate("Gate", {"out"}), Gate("Gate", {"active", "backoff"})
    world = World({FIT: (hint(NODE_ADD, Hint.QUEUE),)}, gates=(old,))
    world.add(pod("out"))
    backing_off = world.rejected(pod("backoff"), FIT)
    world.queue.move_all(NODE_ADD, None, None)
    world.add(pod("active"))
    assert world.places() == {"out": "gated", "backoff": "backoff", "active": "active"}

    adopt(world, gate=new)

    assert world.places() == {"out": "active", "backoff": "gated", "active": "gated"}
    assert backing_off.rejecters == {"Gate"}
    assert +world.metrics.rejected == {("Gate", OURS): 2}


def test_an_unknown_profile_is_a_mistake() -> None:
    world = World({})
    with pytest.raises(KeyError):
        world.queue.adopt({"stranger": QueueProfile((), by_priority, {})})


def test_the_parts_that_are_adopted_are_all_there_are() -> None:
    """A field that is new must be handed on by `adopt`, too."""
    assert [field.name for field in dataclasses.fields(QueueProfile)] == ["pre_enqueue", "sort_key", "hints"]
