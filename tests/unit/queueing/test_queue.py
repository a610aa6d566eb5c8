"""Order, back-off, events and hints of the scheduling queue. Ids begin with the row of docs/spec/core.md §9."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import (
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
from tests.unit.queueing.harness import Gate, QueueHarness, hint, pod

FIT = "NodeResourcesFit"
AFFINITY = "NodeAffinity"
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)

PLUGINS = {
    FIT: (hint(ASSIGNED_POD_DELETE, Hint.QUEUE), hint(NODE_ADD, Hint.QUEUE)),
    AFFINITY: (hint(NODE_ADD, Hint.SKIP), hint(NODE_LABEL, Hint.QUEUE)),
}


# -- order ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(pod("p", scheduler="default-scheduler"), id="3 another scheduler's pod"),
        pytest.param(pod("p", node="n1"), id="4 our pod that has a node"),
    ],
)
def test_pods_that_do_not_enter(foreign: PodInfo) -> None:
    harness = QueueHarness()
    harness.add(foreign)

    assert harness.places() == {}


def test_a_retried_pod_goes_behind_newer_ones_of_its_priority() -> None:
    """1, 2: the time in the queue starts again with every failure (§1.2)."""
    harness = QueueHarness(PLUGINS)
    harness.add(pod("retried"))
    retried = harness.pop()
    harness.advance(1)
    harness.add(pod("newer"))
    harness.advance(1)
    harness.fail(retried, pending=(FIT,))
    harness.advance(1)
    harness.add(pod("newest"))
    harness.queue.move_all(NODE_ADD, None, None)

    assert harness.names_popped() == ["newer", "retried", "newest"]


# -- back-off ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("initial_s", "max_s", "expected"),
    [
        pytest.param(1.0, 10.0, [1, 2, 4, 8, 10, 10], id="19 rejections 1 to 6 with the defaults"),
        pytest.param(2.0, 3.0, [2, 3, 3], id="20 initial 2, max 3"),
    ],
)
def test_durations(initial_s: float, max_s: float, expected: list[int]) -> None:
    """18, 19, 20: the first rejection waits for the initial time, and each further one twice as long."""
    harness = QueueHarness(PLUGINS, initial_backoff_s=initial_s, max_backoff_s=max_s)
    queued = harness.rejected(pod("p"), FIT)
    seen = []
    for _ in expected:
        harness.queue.move_all(NODE_ADD, None, None)
        assert queued.backoff_until is not None
        seen.append(queued.backoff_until - int(queued.queued_at))
        assert harness.pop() is queued
        harness.fail(queued, FIT)

    assert expected == seen


@pytest.mark.parametrize(
    ("at", "place"),
    [
        pytest.param(11.9, "backoff", id="23 failure at 10.4 with back-off 1 is still backing off at 11.9"),
        pytest.param(11.999, "backoff", id="24 back-offs complete on whole seconds only"),
        pytest.param(12.0, "active", id="23 failure at 10.4 with back-off 1 is done at 12.0"),
    ],
)
def test_backoff_ends_with_a_second(at: float, place: str) -> None:
    """A pod leaves in the second after its expiry."""
    harness = QueueHarness(PLUGINS)
    harness.clock.time = 10.4
    harness.rejected(pod("p"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    harness.clock.time = at
    harness.queue.tick()

    assert place == harness.place("p")


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
    """An API error must not lead to the longest back-off of rejections, or vice versa."""
    harness = QueueHarness(PLUGINS)
    harness.add(pod("p"))
    queued = harness.pop()
    for failure in failures:
        if queued.place is not Place.IN_FLIGHT:
            harness.advance(15)
            assert harness.pop() is queued
        harness.fail(queued, *((FIT,) if failure == "R" else ()))
        harness.queue.move_all(NODE_ADD, None, None)

    assert duration_s == (queued.backoff_until or 0) - int(queued.queued_at)


def test_25_a_pod_backing_off_is_popped_early() -> None:
    harness = QueueHarness(PLUGINS)
    queued = harness.rejected(pod("p"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    assert harness.place("p") == "backoff"

    assert harness.queue.pop() is queued
    assert harness.metrics.incomings[-1] == ("active", "PopFromBackoffQ")


def test_26_36_after_an_error_a_pod_waits_out_its_backoff() -> None:
    harness = QueueHarness(PLUGINS)
    queued = harness.rejected(pod("p"))

    assert harness.place("p") == "error backoff"
    assert harness.queue.pop() is None
    harness.advance(1)
    assert harness.queue.pop() is None
    harness.advance(1)
    assert harness.queue.pop() is queued
    assert harness.metrics.incomings[-1] == harness.metrics.entities[-1] == ("active", "BackoffComplete")


@pytest.mark.parametrize(
    ("low_at", "high_at", "expected"),
    [
        pytest.param(4.1, 4.9, ["high", "low"], id="27 low expires at 5.1 and high at 5.9: one window"),
        pytest.param(4.0, 5.0, ["low", "high"], id="28 low expires at 5 and high at 6: two windows"),
    ],
)
def test_order_of_backing_off(low_at: float, high_at: float, expected: list[str]) -> None:
    harness = QueueHarness(PLUGINS)
    for name, priority, at in (("low", 0, low_at), ("high", 9, high_at)):
        harness.clock.time = at
        harness.rejected(pod(name, priority=priority), FIT)
    harness.queue.move_all(NODE_ADD, None, None)

    assert [harness.place("low"), harness.place("high")] == ["backoff", "backoff"]
    assert expected == harness.names_popped()


# -- events during an attempt ---------------------------------------------------------------------------------------------


def test_32_an_event_before_the_pop_is_not_replayed() -> None:
    harness = QueueHarness(PLUGINS)
    harness.add(pod("first"), pod("second"))
    first = harness.pop()
    harness.queue.move_all(ASSIGNED_POD_DELETE, None, None)
    second = harness.pop()
    harness.fail(second, FIT)
    harness.fail(first, FIT)

    assert harness.places() == {"first": "backoff", "second": "unschedulable"}


def test_33_34_events_are_kept_only_for_pods_that_need_them() -> None:
    harness = QueueHarness(PLUGINS)
    harness.add(pod("a"), pod("b"))
    a = harness.pop()
    harness.queue.move_all(NODE_ADD, None, "between")
    b = harness.pop()
    harness.queue.move_all(ASSIGNED_POD_DELETE, None, "later")
    assert harness.queue.in_flight_events() == {"NodeAdd": 1, "AssignedPodDelete": 1, "PodPopped": 2}

    harness.queue.done(a.uid)
    harness.queue.done(a.uid)
    assert harness.queue.in_flight_events() == {"AssignedPodDelete": 1, "PodPopped": 1}

    harness.queue.done(b.uid)
    assert harness.queue.in_flight_events() == {}


def test_35_a_pod_in_flight_is_not_queued_again() -> None:
    harness = QueueHarness(PLUGINS)
    harness.add(pod("p"))
    queued = harness.pop()
    harness.add(pod("p", version="2"))

    assert harness.queue.pop() is None
    harness.fail(queued, FIT)
    assert harness.places() == {"p": "unschedulable"}
    assert harness.queue.in_flight_events() == {}


def test_35_a_pod_popped_twice_is_discarded() -> None:
    """The events of the first pop stay."""
    harness = QueueHarness(PLUGINS)
    harness.add(pod("p"), pod("q"))
    queued = harness.pop()
    harness.queue.places.enter(QueuedPodInfo(pod("p"), 0.0), Place.ACTIVE, "by mistake")

    assert harness.pop().uid == "q"
    assert harness.log.texts == ["pod popped while in flight, discarded"]
    harness.queue.done(queued.uid)
    harness.queue.done("q")
    assert (harness.places(), harness.queue.in_flight_events()) == ({}, {})


def test_failing_twice_is_refused() -> None:
    """§1.7 step 1: the second return of one attempt changes nothing."""
    harness = QueueHarness(PLUGINS)
    queued = harness.rejected(pod("p"), FIT)
    harness.queue.requeue(queued)

    assert harness.log.texts == ["failed pod is in the queue already"]
    assert queued.unschedulable_count == 1


def test_39_an_event_that_no_plugin_registered() -> None:
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("waiting"), FIT)
    harness.add(pod("tried"))
    harness.pop()
    harness.queue.move_all(ClusterEvent(Resource.STORAGE_CLASS, Action.ADD), None, None)

    assert harness.place("waiting") == "unschedulable"
    assert harness.queue.in_flight_events() == {"PodPopped": 1}


def test_68_an_event_that_moves_no_pod() -> None:
    harness = QueueHarness(PLUGINS)
    for n in range(1000):
        harness.rejected(pod(f"p{n}"), AFFINITY)
    harness.add(pod("tried"))
    harness.pop()
    before = harness.ready
    harness.queue.move_all(NODE_ADD, None, None)

    assert before == harness.ready
    assert harness.queue.in_flight_events() == {"NodeAdd": 1, "PodPopped": 1}


@pytest.mark.parametrize(
    ("plugins", "after_s", "expected"),
    [
        pytest.param((), -1.0, True, id="an error in an attempt after the moment"),
        pytest.param((), 0.0, False, id="an error in an attempt before it"),
        pytest.param((FIT,), -1.0, False, id="a rejected pod that an event woke may be placed now"),
    ],
)
def test_whether_all_pods_that_back_off_had_errors(plugins: tuple[str, ...], after_s: float, expected: bool) -> None:
    harness = QueueHarness(PLUGINS)
    assert harness.queue.all_failed_since(0.0), "no pod backs off"
    harness.add(pod("p"))
    began = harness.clock.now()
    queued = harness.pop()
    harness.queue.move_all(NODE_ADD, None, None)
    queued.unschedulable_plugins.update(plugins)
    harness.queue.requeue(queued)

    assert harness.place("p") in {"backoff", "error backoff"}
    assert harness.queue.all_failed_since(began + after_s) is expected


def test_an_error_is_retried_even_when_its_events_were_not_kept() -> None:
    """§1.7: a binding fails after `done`, and the pod comes back after its back-off."""
    harness = QueueHarness(PLUGINS)
    harness.add(pod("p"), pod("q"))
    for plugins, place in (((), "error backoff"), ((FIT,), "backoff")):
        queued = harness.pop()
        harness.queue.done(queued.uid)
        harness.fail(queued, *plugins)

        assert place == harness.place(queued.info.pod.metadata.name)


def test_69_a_closed_queue() -> None:
    harness = QueueHarness(PLUGINS)
    harness.add(pod("a"), pod("b"))
    harness.pop()
    harness.queue.close()

    assert harness.queue.pop() is None
    assert harness.queue.in_flight_events() == {}


# -- hints ---------------------------------------------------------------------------------------------------------------


def broken(_pod: PodInfo, _old: Any, _new: Any) -> Hint:
    raise ValueError("a plugin's mistake")


ONE_UPDATE = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
ANY_NODE_UPDATE = ClusterEvent(Resource.NODE, UPDATE)
GENERIC_POD_UPDATE = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_OTHER)


@pytest.mark.parametrize(
    ("registered", "event", "place"),
    [
        pytest.param(hint(NODE_ADD), NODE_ADD, "active", id="38 a registration without hint counts as Queue"),
        pytest.param(hint(ONE_UPDATE), GENERIC_POD_UPDATE, "unschedulable", id="45 one bit is no generic update"),
        pytest.param(hint(ANY_NODE_UPDATE), NODE_LABEL, "active", id="46 all bits match a label update"),
        pytest.param(hint(NODE_LABEL), NODE_TAINT, "unschedulable", id="another bit of the same resource"),
    ],
)
def test_what_wakes_a_waiting_pod(registered: Any, event: ClusterEvent, place: str) -> None:
    harness = QueueHarness({"Plugin": (registered,)})
    harness.rejected(pod("p"), "Plugin")
    harness.advance(20)
    harness.queue.move_all(event, None, None)

    assert place == harness.place("p")


def test_37_a_raising_hint_counts_as_queue_and_as_an_error() -> None:
    harness = QueueHarness({"Plugin": (hint(NODE_ADD, broken),)})
    for name in ("a", "b"):
        harness.rejected(pod(name), "Plugin")
    harness.queue.move_all(NODE_ADD, None, None)

    assert harness.errors.counts["queueing-hint"] == 2
    assert harness.metrics.hints == [("Plugin", "NodeAdd", "Error")] * 2


@pytest.mark.parametrize("during", [False, True], ids=["while waiting", "during the attempt"])
@pytest.mark.parametrize(
    ("pending_says", "place"),
    [
        pytest.param(Hint.SKIP, "backoff", id="42 the unschedulable plugin returns Queue, the pending plugin Skip"),
        pytest.param(Hint.QUEUE, "active", id="both return Queue: the pending plugin counts"),
    ],
)
def test_unschedulable_and_pending_rejecters(pending_says: Hint, place: str, during: bool) -> None:
    harness = QueueHarness({"Rejects": (hint(NODE_ADD, Hint.QUEUE),), "Waits": (hint(NODE_ADD, pending_says),)})
    harness.add(pod("p"))
    queued = harness.pop()
    if during:
        harness.queue.move_all(NODE_ADD, None, None)
    harness.fail(queued, "Rejects", pending=("Waits",))
    if not during:
        harness.queue.move_all(NODE_ADD, None, None)

    assert place == harness.place("p")


@pytest.mark.parametrize(
    ("parked_s", "place"),
    [
        pytest.param(20, "active", id="43 parked 20 s with back-off 10"),
        pytest.param(3, "backoff", id="44 parked 3 s with back-off 10"),
    ],
)
def test_backoff_runs_from_the_failure(parked_s: int, place: str) -> None:
    harness = QueueHarness(PLUGINS, initial_backoff_s=10)
    queued = harness.rejected(pod("p"), FIT)
    harness.advance(parked_s)
    harness.queue.move_all(NODE_ADD, None, None)

    assert place == harness.place("p")
    assert queued.backoff_until == 1010


def test_47_a_wildcard_for_one_pod() -> None:
    harness = QueueHarness(PLUGINS)
    p1, p2 = pod("p1"), pod("p2")
    for info in (p1, p2):
        harness.rejected(info, FIT)
    harness.queue.move_all(FORCE_ACTIVATE, None, p1)

    assert harness.places() == {"p1": "backoff", "p2": "unschedulable"}


def test_concerns_restricts_waiting_pods_and_those_in_flight() -> None:
    """§3.12: the capacity that a rejected pod frees must not wake that pod, not even by replay."""
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("waits"), FIT)
    harness.add(pod("itself"), pod("other"))
    itself, other = harness.pop(), harness.pop()
    harness.queue.move_all(ASSIGNED_POD_DELETE, None, None, concerns=lambda info: info.uid not in {"itself", "waits"})
    harness.fail(itself, FIT)
    harness.fail(other, FIT)

    assert harness.places() == {"waits": "unschedulable", "itself": "unschedulable", "other": "backoff"}


# -- queue_incoming_entities_total leaves out moves into the queue that the strategy names (changes-1.37.md §6.1) ---------


def moves(harness: QueueHarness) -> list[tuple[str, str]]:
    """The moves that are counted as pods and not as entities."""
    left = list(harness.metrics.incomings)
    for counted in harness.metrics.entities:
        left.remove(counted)
    return left


def test_a_new_pod_counts() -> None:
    """It has no strategy, also if it is gated."""
    harness = QueueHarness({"Gate": (hint(NODE_ADD),)}, gates=(Gate("Gate", {"held"}),))
    harness.add(pod("p"), pod("held"))

    assert harness.metrics.entities == [("active", "UnscheduledPodAdd"), ("unschedulable", "UnscheduledPodAdd")]


def test_a_wake_up_after_back_off_counts_for_the_active_queue_only() -> None:
    """The strategy names the back-off queue: a pod whose back-off is over goes past it. Failed attempts do not count."""
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("early"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    harness.rejected(pod("late"), FIT)
    harness.advance(20)
    harness.queue.move_all(ASSIGNED_POD_DELETE, None, None)

    failed = ("unschedulable", "ScheduleAttemptFailure")
    assert moves(harness) == [failed, ("backoff", NODE_ADD.label), failed]
    assert ("active", ASSIGNED_POD_DELETE.label) in harness.metrics.entities
