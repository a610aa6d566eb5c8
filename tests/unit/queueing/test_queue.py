"""Order, back-off, events and hints of the scheduling queue. Ids begin with the row of docs/spec/core.md §9."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    FORCE_ACTIVATE,
    NODE_ADD,
    UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler.framework.interface import Hint
from scheduler.queue import QueuedPodInfo
from scheduler.queueing.types import Place
from tests.unit.queueing.world import OTHER, World, hint, pod

FIT = "NodeResourcesFit"
AFFINITY = "NodeAffinity"
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)

PLUGINS = {
    FIT: (hint(ASSIGNED_POD_DELETE, Hint.QUEUE), hint(NODE_ADD, Hint.QUEUE)),
    AFFINITY: (hint(NODE_ADD, Hint.SKIP), hint(NODE_LABEL, Hint.QUEUE)),
}


# -- order ---------------------------------------------------------------------------------------------------------------


def test_1_2_pods_are_tried_by_priority_then_age() -> None:
    """Equal pods are popped in the order in which they came, each once."""
    world = World()
    world.add(pod("p1"), pod("p2", priority=10))
    world.advance(1)
    world.add(pod("p3", priority=10), pod("p4", priority=10))

    assert world.names_popped() == ["p2", "p3", "p4", "p1"]


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(pod("p", scheduler="default-scheduler"), id="3 another scheduler's pod"),
        pytest.param(pod("p", node="n1"), id="4 our pod that has a node"),
    ],
)
def test_pods_that_do_not_enter(foreign: PodInfo) -> None:
    world = World()
    world.add(foreign)

    assert world.places() == {}


def test_a_retried_pod_goes_behind_newer_ones_of_its_priority() -> None:
    """§1.2: the time in the queue starts anew with every failure."""
    world = World(PLUGINS)
    world.add(pod("retried"))
    retried = world.pop()
    world.advance(1)
    world.add(pod("newer"))
    world.advance(1)
    world.fail(retried, pending=(FIT,))
    world.advance(1)
    world.add(pod("newest"))
    world.queue.move_all(NODE_ADD, None, None)

    assert world.names_popped() == ["newer", "retried", "newest"]


# -- back-off ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("initial_s", "max_s", "expected"),
    [
        pytest.param(1.0, 10.0, [1, 2, 4, 8, 10, 10], id="19 rejections 1 to 6 with the defaults"),
        pytest.param(2.0, 3.0, [2, 3, 3], id="20 initial 2, max 3"),
    ],
)
def test_durations(initial_s: float, max_s: float, expected: list[int]) -> None:
    world = World(PLUGINS, initial_backoff_s=initial_s, max_backoff_s=max_s)
    queued = world.rejected(pod("p"), FIT)
    seen = []
    for _ in expected:
        world.queue.move_all(NODE_ADD, None, None)
        assert queued.backoff_until is not None
        seen.append(queued.backoff_until - int(queued.queued_at))
        assert world.pop() is queued
        world.fail(queued, FIT)

    assert expected == seen


def test_18_the_first_rejection() -> None:
    """Counted once, expiry is the second of now + 1."""
    world = World(PLUGINS)
    world.clock.time = 1000.7
    queued = world.rejected(pod("p"), FIT)
    world.queue.move_all(NODE_ADD, None, None)

    assert (queued.unschedulable_count, queued.consecutive_errors, queued.backoff_until) == (1, 0, 1001)


@pytest.mark.parametrize(
    ("at", "place"),
    [
        pytest.param(11.9, "backoff", id="23 failure at 10.4 with back-off 1 is still backing off at 11.9"),
        pytest.param(11.999, "backoff", id="24 back-offs complete on whole seconds only"),
        pytest.param(12.0, "active", id="23 failure at 10.4 with back-off 1 is done at 12.0"),
    ],
)
def test_backoff_ends_with_a_second(at: float, place: str) -> None:
    """Windows are whole seconds: a pod leaves in the second after its expiry."""
    world = World(PLUGINS)
    world.clock.time = 10.4
    world.rejected(pod("p"), FIT)
    world.queue.move_all(NODE_ADD, None, None)
    world.clock.time = at
    world.queue.tick()

    assert place == world.place("p")


@pytest.mark.parametrize(
    ("failures", "duration_s"),
    [
        pytest.param("RRRRRE", 1, id="21 five rejections then an error wait as one error"),
        pytest.param("EER", 1, id="22 two errors then a rejection wait as one rejection"),
        pytest.param("REER", 2, id="22 errors between two rejections do not count for the second"),
        pytest.param("EEE", 4, id="errors in a row double the wait"),
    ],
)
def test_errors_and_rejections_count_apart(failures: str, duration_s: int) -> None:
    """An API error must not push a pod to its longest back-off, nor the other way round."""
    world = World(PLUGINS)
    world.add(pod("p"))
    queued = world.pop()
    for failure in failures:
        if queued.place is not Place.IN_FLIGHT:
            world.advance(15)
            assert world.pop() is queued
        world.fail(queued, *((FIT,) if failure == "R" else ()))
        world.queue.move_all(NODE_ADD, None, None)

    assert duration_s == (queued.backoff_until or 0) - int(queued.queued_at)


def test_25_a_pod_backing_off_is_popped_early() -> None:
    world = World(PLUGINS)
    queued = world.rejected(pod("p"), FIT)
    world.queue.move_all(NODE_ADD, None, None)
    assert world.place("p") == "backoff"

    assert world.queue.pop() is queued
    assert world.metrics.incomings[-1] == ("active", "PopFromBackoffQ")


def test_26_36_after_an_error_a_pod_waits_out_its_backoff() -> None:
    """An error backs off without any event, and is never popped early."""
    world = World(PLUGINS)
    queued = world.rejected(pod("p"))

    assert world.place("p") == "error backoff"
    assert world.queue.pop() is None
    world.advance(1)
    assert world.queue.pop() is None
    world.advance(1)
    assert world.queue.pop() is queued
    assert world.metrics.incomings[-1] == ("active", "BackoffComplete")


@pytest.mark.parametrize(
    ("low_at", "high_at", "expected"),
    [
        pytest.param(4.1, 4.9, ["high", "low"], id="27 low expires at 5.1 and high at 5.9: one window"),
        pytest.param(4.0, 5.0, ["low", "high"], id="28 low expires at 5 and high at 6: two windows"),
    ],
)
def test_order_of_backing_off(low_at: float, high_at: float, expected: list[str]) -> None:
    """Within one second priority decides, else time."""
    world = World(PLUGINS)
    for name, priority, at in (("low", 0, low_at), ("high", 9, high_at)):
        world.clock.time = at
        world.rejected(pod(name, priority=priority), FIT)
    world.queue.move_all(NODE_ADD, None, None)

    assert [world.place("low"), world.place("high")] == ["backoff", "backoff"]
    assert expected == world.names_popped()


# -- events while a pod is tried -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rejecters", "event", "place"),
    [
        pytest.param((FIT,), None, "unschedulable", id="29 rejected by Fit, no events"),
        pytest.param((FIT,), ASSIGNED_POD_DELETE, "backoff", id="30 rejected by Fit, a pod left"),
        pytest.param((AFFINITY,), ASSIGNED_POD_DELETE, "unschedulable", id="31 rejected by NodeAffinity, a pod left"),
        pytest.param((FIT, AFFINITY), ASSIGNED_POD_DELETE, "backoff", id="40 rejected by both, a pod left"),
    ],
)
def test_events_during_an_attempt_are_replayed(
    rejecters: tuple[str, ...], event: ClusterEvent | None, place: str
) -> None:
    world = World(PLUGINS)
    world.add(pod("p"))
    queued = world.pop()
    if event is not None:
        world.queue.move_all(event, None, None)
    world.fail(queued, *rejecters)

    assert place == world.place("p")


def test_32_an_event_before_the_pop_is_not_replayed() -> None:
    world = World(PLUGINS)
    world.add(pod("first"), pod("second"))
    first = world.pop()
    world.queue.move_all(ASSIGNED_POD_DELETE, None, None)
    second = world.pop()
    world.fail(second, FIT)
    world.fail(first, FIT)

    assert world.places() == {"first": "backoff", "second": "unschedulable"}


def test_33_34_events_are_kept_only_for_those_who_need_them() -> None:
    """What only a finished attempt could need is dropped; after the last nothing is left."""
    world = World(PLUGINS)
    world.add(pod("a"), pod("b"))
    a = world.pop()
    world.queue.move_all(NODE_ADD, None, "between")
    b = world.pop()
    world.queue.move_all(ASSIGNED_POD_DELETE, None, "later")
    assert world.queue.in_flight_events() == {"NodeAdd": 1, "AssignedPodDelete": 1, "PodPopped": 2}

    world.queue.done(a.uid)
    world.queue.done(a.uid)
    assert world.queue.in_flight_events() == {"AssignedPodDelete": 1, "PodPopped": 1}

    world.queue.done(b.uid)
    assert world.queue.in_flight_events() == {}


def test_35_a_pod_in_flight_is_not_queued_again() -> None:
    """Seen anew while it is tried, the pod stays in flight, and comes back once."""
    world = World(PLUGINS)
    world.add(pod("p"))
    queued = world.pop()
    world.add(pod("p", version="2"))

    assert world.queue.pop() is None
    world.fail(queued, FIT)
    assert world.places() == {"p": "unschedulable"}
    assert world.queue.in_flight_events() == {}


def test_35_a_pod_popped_twice_is_discarded() -> None:
    """Should it ever be in two places, the second pop drops it, and the events of the first stay right."""
    world = World(PLUGINS)
    world.add(pod("p"), pod("q"))
    queued = world.pop()
    world.queue._places.enter(QueuedPodInfo(pod("p"), 0.0), Place.ACTIVE, "by mistake")

    assert world.pop().uid == "q"
    assert world.log.texts == ["pod popped while in flight, discarded"]
    world.queue.done(queued.uid)
    world.queue.done("q")
    assert (world.places(), world.queue.in_flight_events()) == ({}, {})


def test_failing_twice_is_refused() -> None:
    """§1.7 step 1: the second return of one attempt changes nothing."""
    world = World(PLUGINS)
    queued = world.rejected(pod("p"), FIT)
    world.queue.requeue(queued)

    assert world.log.texts == ["failed pod is in the queue already"]
    assert queued.unschedulable_count == 1


def test_39_an_event_that_nobody_registered() -> None:
    world = World(PLUGINS)
    world.rejected(pod("waiting"), FIT)
    world.add(pod("tried"))
    world.pop()
    world.queue.move_all(ClusterEvent(Resource.STORAGE_CLASS, Action.ADD), None, None)

    assert world.place("waiting") == "unschedulable"
    assert world.queue.in_flight_events() == {"PodPopped": 1}


def test_68_an_event_that_moves_none() -> None:
    """A thousand waiting pods, one entry for those in flight, and nobody is called."""
    world = World(PLUGINS)
    for n in range(1000):
        world.rejected(pod(f"p{n}"), AFFINITY)
    world.add(pod("tried"))
    world.pop()
    before = world.ready
    world.queue.move_all(NODE_ADD, None, None)

    assert before == world.ready
    assert world.queue.in_flight_events() == {"NodeAdd": 1, "PodPopped": 1}


def test_an_error_is_retried_even_when_its_events_were_not_kept() -> None:
    """§1.7: a binding fails after `done`; the pod comes back by time alone."""
    world = World(PLUGINS)
    world.add(pod("p"), pod("q"))
    for plugins, place in (((), "error backoff"), ((FIT,), "backoff")):
        queued = world.pop()
        world.queue.done(queued.uid)
        world.fail(queued, *plugins)

        assert place == world.place(queued.info.pod.metadata.name)


def test_69_a_closed_queue() -> None:
    world = World(PLUGINS)
    world.add(pod("a"), pod("b"))
    world.pop()
    world.queue.close()

    assert world.queue.pop() is None
    assert world.queue.in_flight_events() == {}


# -- hints ---------------------------------------------------------------------------------------------------------------


def broken(_pod: PodInfo, _old: Any, _new: Any) -> Hint:
    raise ValueError("a plugin's mistake")


ONE_UPDATE = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
ANY_NODE_UPDATE = ClusterEvent(Resource.NODE, UPDATE)
GENERIC_POD_UPDATE = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_OTHER)


@pytest.mark.parametrize(
    ("registered", "event", "place"),
    [
        pytest.param(hint(NODE_ADD, broken), NODE_ADD, "active", id="37 a hint that raises is a yes"),
        pytest.param(hint(NODE_ADD), NODE_ADD, "active", id="38 a registration without hint is a yes"),
        pytest.param(hint(NODE_ADD, Hint.SKIP), NODE_ADD, "unschedulable", id="a hint that says skip"),
        pytest.param(
            hint(ONE_UPDATE), GENERIC_POD_UPDATE, "unschedulable", id="45 one bit does not match a generic update"
        ),
        pytest.param(hint(ANY_NODE_UPDATE), NODE_LABEL, "active", id="46 all bits match a label update"),
        pytest.param(hint(NODE_LABEL), NODE_TAINT, "unschedulable", id="another bit of the same resource"),
    ],
)
def test_what_wakes_a_waiting_pod(registered: Any, event: ClusterEvent, place: str) -> None:
    """A pod is woken if a plugin that rejected it registered for the event and does not say skip."""
    world = World({"Plugin": (registered,)})
    world.rejected(pod("p"), "Plugin")
    world.advance(20)
    world.queue.move_all(event, None, None)

    assert place == world.place("p")


def test_37_a_raising_hint_is_a_yes_and_is_counted() -> None:
    """However many pods and events it fails for; the metric says Error each time."""
    world = World({"Plugin": (hint(NODE_ADD, broken),)})
    for name in ("a", "b"):
        world.rejected(pod(name), "Plugin")
    world.queue.move_all(NODE_ADD, None, None)

    assert world.errors.counts["queueing-hint"] == 2
    assert world.metrics.hints == [("Plugin", "NodeAdd", "Error")] * 2


def test_41_a_pending_plugin_skips_the_backoff() -> None:
    world = World({"Waits": (hint(NODE_ADD, Hint.QUEUE),)})
    world.rejected(pod("p"), pending=("Waits",))
    world.queue.move_all(NODE_ADD, None, None)

    assert world.place("p") == "active"


@pytest.mark.parametrize("during", [False, True], ids=["while waiting", "during the attempt"])
@pytest.mark.parametrize(
    ("pending_says", "place"),
    [
        pytest.param(Hint.SKIP, "backoff", id="42 unschedulable plugin says yes, pending plugin says skip"),
        pytest.param(Hint.QUEUE, "active", id="both say yes: the pending one wins"),
    ],
)
def test_unschedulable_and_pending_rejecters(pending_says: Hint, place: str, during: bool) -> None:
    world = World({"Rejects": (hint(NODE_ADD, Hint.QUEUE),), "Waits": (hint(NODE_ADD, pending_says),)})
    world.add(pod("p"))
    queued = world.pop()
    if during:
        world.queue.move_all(NODE_ADD, None, None)
    world.fail(queued, "Rejects", pending=("Waits",))
    if not during:
        world.queue.move_all(NODE_ADD, None, None)

    assert place == world.place("p")


@pytest.mark.parametrize(
    ("parked_s", "place"),
    [
        pytest.param(20, "active", id="43 parked 20 s with back-off 10"),
        pytest.param(3, "backoff", id="44 parked 3 s with back-off 10"),
    ],
)
def test_backoff_runs_from_the_failure(parked_s: int, place: str) -> None:
    world = World(PLUGINS, initial_backoff_s=10)
    queued = world.rejected(pod("p"), FIT)
    world.advance(parked_s)
    world.queue.move_all(NODE_ADD, None, None)

    assert place == world.place("p")
    assert queued.backoff_until == 1010


def test_47_a_wildcard_for_one_pod() -> None:
    world = World(PLUGINS)
    p1, p2 = pod("p1"), pod("p2")
    for info in (p1, p2):
        world.rejected(info, FIT)
    world.queue.move_all(FORCE_ACTIVATE, None, p1)

    assert world.places() == {"p1": "backoff", "p2": "unschedulable"}


def test_70_profiles_do_not_answer_for_each_other() -> None:
    """Only pods of the profile whose plugin registered the event are asked."""
    world = World({FIT: (hint(NODE_LABEL),)}, other_hints={FIT: (hint(NODE_ADD, Hint.QUEUE),)})
    world.rejected(pod("a"), FIT)
    world.rejected(pod("b", scheduler=OTHER), FIT)
    world.queue.move_all(NODE_ADD, None, None)

    assert world.places() == {"a": "unschedulable", "b": "backoff"}
    assert world.metrics.hints == [(FIT, "NodeAdd", "Queue")]


def test_a_plugin_that_registered_nothing_is_woken_by_the_flush_only() -> None:
    """§1.10: an empty list means no events."""
    world = World({"Silent": (), FIT: (hint(NODE_ADD, Hint.QUEUE),)})
    world.rejected(pod("p"), "Silent")
    world.queue.move_all(NODE_ADD, None, None)

    assert world.place("p") == "unschedulable"


def test_a_rejecter_nobody_knows_is_woken_by_everything() -> None:
    """§1.10: as the pseudo plugin of extenders; the first time its pod is retried, for no event was kept for it."""
    world = World(PLUGINS)
    stranger = world.rejected(pod("p"), "Stranger")
    assert world.place("p") == "backoff"
    assert world.pop() is stranger
    world.fail(stranger, "Stranger")
    assert world.place("p") == "unschedulable"
    world.queue.move_all(ASSIGNED_POD_ADD, None, None)

    assert world.place("p") == "backoff"


def test_concerns_restricts_waiting_pods_and_those_in_flight() -> None:
    """§3.12: the place a rejected pod gives back must not wake that pod itself, not even by replay."""
    world = World(PLUGINS)
    world.rejected(pod("waits"), FIT)
    world.add(pod("itself"), pod("other"))
    itself, other = world.pop(), world.pop()
    world.queue.move_all(ASSIGNED_POD_DELETE, None, None, concerns=lambda info: info.uid not in {"itself", "waits"})
    world.fail(itself, FIT)
    world.fail(other, FIT)

    assert world.places() == {"waits": "unschedulable", "itself": "unschedulable", "other": "backoff"}
