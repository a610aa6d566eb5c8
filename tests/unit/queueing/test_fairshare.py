"""Costly pods and the order of the queue (docs/spec/core.md §10.2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.core.cluster_events import NODE_ADD
from scheduler.queueing.active_queue import COSTLY_S, SHARE
from tests.unit.queueing.world import OTHER, World, hint, pod

SPENT_S = 1.0
REST_S = SPENT_S * (1 / SHARE - 1)
COSTLY = pod("costly", priority=9)
SMALL = pod("small")


def charged(spent_s: float = SPENT_S) -> World:
    """A pod of priority 9 has just spent that long in vain; two of its kind, and others, are ready."""
    world = World()
    world.queue.fair_share.charge(COSTLY, spent_s)
    world.add(COSTLY, pod("sibling", priority=9), pod("high", priority=5), SMALL)
    return world


def popped(world: World) -> list[str]:
    """All that are ready now, in order."""
    names = []
    while (queued := world.queue.pop()) is not None:
        names.append(queued.info.pod.metadata.name)
    return names


BY_PRIORITY = ["costly", "sibling", "high", "small"]


@pytest.mark.parametrize(
    ("spent_s", "wait_s", "wanted"),
    [
        pytest.param(SPENT_S, 0.0, ["high", "small", "costly", "sibling"], id="others go first"),
        pytest.param(SPENT_S, REST_S - 0.1, ["high", "small", "costly", "sibling"], id="for nine times as long"),
        pytest.param(SPENT_S, REST_S, BY_PRIORITY, id="then priority decides"),
        pytest.param(COSTLY_S / 2, 0.0, BY_PRIORITY, id="what took little is not counted"),
    ],
)
def test_others_are_popped_first_after_a_costly_attempt(spent_s: float, wait_s: float, wanted: list[str]) -> None:
    """No pod is lost, and none waits for anything once the others have been popped."""
    world = charged(spent_s)
    world.clock.time += wait_s

    assert popped(world) == wanted


def test_pods_that_were_passed_over_return_to_their_order() -> None:
    world = charged()
    assert world.pop().info.pod.metadata.name == "high"
    world.clock.time += REST_S
    world.add(pod("higher", priority=10), pod("middle", priority=7))

    assert popped(world) == ["higher", "costly", "sibling", "middle", "small"]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        pytest.param(lambda world: world.delete(COSTLY), ["small", "sibling"], id="one is deleted"),
        pytest.param(
            lambda world: world.update(pod("costly", priority=9, version="2", labels={"a": "b"})),
            ["small", "costly", "sibling"],
            id="one changes and keeps its place",
        ),
        pytest.param(
            lambda world: world.update(pod("costly", priority=11, version="2")),
            ["costly", "small", "sibling"],
            id="one becomes another kind",
        ),
        pytest.param(
            lambda world: world.queue.fair_share.clear(COSTLY), ["small", "costly", "sibling"], id="one found a place"
        ),
    ],
)
def test_what_happens_to_a_pod_that_was_passed_over(change: Callable[[World], object], wanted: list[str]) -> None:
    world = charged()
    world.pop()
    assert world.queue.counts()["active"] == 3
    change(world)

    assert popped(world) == wanted
    assert world.queue.counts()["active"] == 0


@pytest.mark.parametrize(
    ("other", "is_costly"),
    [
        pytest.param(pod("x", priority=9), True, id="another pod of the same requests"),
        pytest.param(pod("x", priority=8), False, id="another priority"),
        pytest.param(pod("x", priority=9, scheduler=OTHER), False, id="another profile"),
    ],
)
def test_pods_of_one_kind_share_an_account(other: object, is_costly: bool) -> None:
    """A controller that names its pods anew does not begin anew."""
    assert charged().queue.fair_share.is_costly(other) == is_costly  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wait_s", "is_popped"),
    [
        pytest.param(0.0, False, id="not while others go first"),
        pytest.param(REST_S, True, id="afterwards as every rejected pod"),
    ],
)
def test_a_costly_pod_is_popped_early_from_its_back_off(wait_s: float, is_popped: bool) -> None:
    """Not into a moment in which no other pod happens to be ready."""
    world = World({"A": (hint(NODE_ADD),)}, initial_backoff_s=60.0, max_backoff_s=60.0)
    world.rejected(COSTLY, "A")
    world.queue.fair_share.charge(COSTLY, SPENT_S)
    world.queue.move_all(NODE_ADD, None, None)
    assert world.queue.counts()["backoff"] == 1
    world.clock.time += wait_s

    assert (world.queue.pop() is not None) == is_popped


def test_kinds_that_were_charged_longest_ago_are_forgotten() -> None:
    world = World()
    for priority in range(5000):
        world.queue.fair_share.charge(pod("x", priority=priority), SPENT_S)

    assert not world.queue.fair_share.is_costly(pod("x", priority=0))
    assert world.queue.fair_share.is_costly(pod("x", priority=4999))
