"""Events are kept for pods in flight as long as they are needed, and their number is limited."""

from __future__ import annotations

from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, NODE_DELETE, Action, ClusterEvent, Resource
from scheduler.queueing.in_flight_events import InFlightEvents
from scheduler.queueing.types import QueuedPodInfo
from tests.unit.queueing.harness import pod

POD_LABELLED = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)


def queued(name: str) -> QueuedPodInfo:
    return QueuedPodInfo(pod(name), 0.0)


def seen(in_flight: InFlightEvents, uid: str) -> list[tuple[str, object, bool]]:
    kept = in_flight.since_pop(uid)
    assert kept is not None
    return [(recorded.event.label, recorded.new, recorded.is_blurred) for recorded in kept]


def test_an_event_is_not_kept_without_a_pod_in_flight() -> None:
    in_flight = InFlightEvents()
    in_flight.record(NODE_ADD, None, 1)
    in_flight.begin(queued("p"))
    in_flight.record(NODE_ADD, None, 2, target="q")

    assert in_flight.counts() == {"PodPopped": 1}


def test_the_oldest_pod_decides_what_is_kept() -> None:
    in_flight = InFlightEvents()
    for name in ("a", "b", "c"):
        in_flight.begin(queued(name))
        in_flight.record(NODE_ADD, None, name)
    in_flight.end("b")
    assert in_flight.counts()["NodeAdd"] == 3
    in_flight.end("a")

    assert in_flight.counts() == {"NodeAdd": 1, "PodPopped": 1}
    assert seen(in_flight, "c") == [("NodeAdd", "c", False)]
    assert in_flight.since_pop("a") is None


def test_the_same_event_twice_in_a_row_is_kept_once() -> None:
    """A pod that was popped in between must see the second event."""
    in_flight = InFlightEvents()
    node = object()
    in_flight.begin(queued("a"))
    in_flight.record(NODE_ADD, None, node)
    in_flight.record(NODE_ADD, None, node)
    assert in_flight.counts()["NodeAdd"] == 1
    in_flight.begin(queued("b"))
    in_flight.record(NODE_ADD, None, node)

    assert in_flight.counts()["NodeAdd"] == 2
    assert [("NodeAdd", node, False)] == seen(in_flight, "b")


def test_too_many_events_are_blurred() -> None:
    """One event per kind is kept. An event that is the only one of its kind keeps its objects."""
    in_flight = InFlightEvents(events_max=10)
    in_flight.begin(queued("old"))
    in_flight.record(ASSIGNED_POD_DELETE, "once", None)
    for n in range(9):
        in_flight.record(NODE_ADD, None, n)
    in_flight.begin(queued("young"))
    in_flight.record(NODE_DELETE, "gone", None)

    assert seen(in_flight, "old") == [
        ("AssignedPodDelete", None, False),
        ("NodeAdd", None, True),
        ("NodeDelete", None, False),
    ]
    assert seen(in_flight, "young") == [("NodeDelete", None, False)]


def test_updates_of_two_pods_are_not_blurred_into_one() -> None:
    in_flight = InFlightEvents(events_max=5)
    for name in ("a", "b"):
        in_flight.begin(queued(name))
    for n in range(3):
        for name in ("a", "b"):
            in_flight.record(POD_LABELLED, f"{name}{n}", f"{name}{n + 1}", target=name)

    kept = in_flight.since_pop("a")
    assert kept is not None
    for name in ("a", "b"):
        assert [True] == [recorded.is_blurred for recorded in kept if recorded.is_for(pod(name))]


def test_the_number_of_kept_events_is_limited() -> None:
    in_flight = InFlightEvents(events_max=100)
    in_flight.begin(queued("p"))
    for n in range(5000):
        in_flight.record((NODE_ADD, NODE_DELETE)[n % 2], None, n)
        assert sum(in_flight.counts().values()) <= 102
