"""Events are kept for pods in flight as long as they are needed; costly pods come last in the active queue for a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, strategies as st

from scheduler.api.core_v1 import PodResourceClaim
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, NODE_DELETE, Action, ClusterEvent, Resource
from scheduler.queueing.active_queue import COSTLY_S, LONG_S, SHARE, ActiveQueue
from scheduler.queueing.in_flight_events import InFlightEvents
from scheduler.queueing.types import QueuedPodInfo
from tests.unit.queueing.harness import OTHER, QueueHarness, hint, pod

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


SPENT_S = 1.0
REST_S = SPENT_S * (1 / SHARE - 1)
COSTLY = pod("costly", priority=9)
SMALL = pod("small")


def with_device_claim(info: PodInfo) -> PodInfo:
    spec = msgspec.structs.replace(
        info.pod.spec, resource_claims=(PodResourceClaim(name="c", resource_claim_name="c"),)
    )
    return pod_info(msgspec.structs.replace(info.pod, spec=spec))


def charged(spent_s: float = SPENT_S) -> QueueHarness:
    """Return a queue after a pod of priority 9 spent this time in a failed attempt. Two pods of its kind and other pods are ready."""
    harness = QueueHarness()
    harness.queue.fair_share.charge(COSTLY, spent_s)
    harness.add(COSTLY, pod("sibling", priority=9), pod("high", priority=5), SMALL)
    return harness


BY_PRIORITY = ["costly", "sibling", "high", "small"]


@pytest.mark.parametrize(("spent_s", "wait_s", "wanted"), [
    pytest.param(SPENT_S, 0.0, ["high", "small", "costly", "sibling"], id="other pods go first"),
    pytest.param(SPENT_S, REST_S - 0.1, ["high", "small", "costly", "sibling"],
        id="other pods go first for nine times as long"),
    pytest.param(SPENT_S, REST_S, BY_PRIORITY, id="then priority decides"),
    pytest.param(COSTLY_S / 2, 0.0, BY_PRIORITY, id="a short attempt is not counted"),
])  # fmt: skip
def test_other_pods_are_popped_first_after_a_costly_attempt(spent_s: float, wait_s: float, wanted: list[str]) -> None:
    harness = charged(spent_s)
    harness.clock.time += wait_s

    assert harness.names_popped() == wanted


@pytest.mark.parametrize(("spent_s", "wait_s", "wanted"), [
    pytest.param(LONG_S, 0.0, ["high", "small"], id="not while other pods are ready, nor when they are gone"),
    pytest.param(LONG_S, LONG_S * 9 - 0.1, ["high", "small"], id="for nine times as long"),
    pytest.param(LONG_S, LONG_S * 9, BY_PRIORITY, id="then priority decides"),
    pytest.param(LONG_S * 100, 300.0, ["high", "small", "costly", "sibling"], id="and after five minutes in any case"),
])  # fmt: skip
def test_costly_pods_wait_after_an_attempt_of_seconds(spent_s: float, wait_s: float, wanted: list[str]) -> None:
    harness = charged(spent_s)
    harness.clock.time += wait_s

    assert harness.names_popped() == wanted


def test_pods_that_were_passed_over_return_to_their_order() -> None:
    harness = charged()
    assert harness.pop().info.pod.metadata.name == "high"
    harness.clock.time += REST_S
    harness.add(pod("higher", priority=10), pod("middle", priority=7))

    assert harness.names_popped() == ["higher", "costly", "sibling", "middle", "small"]


@pytest.mark.parametrize(("change", "wanted"), [
    pytest.param(lambda harness: harness.delete(COSTLY), ["small", "sibling"], id="one is deleted"),
    pytest.param(lambda harness: harness.update(pod("costly", priority=9, version="2", labels={"a": "b"})),
        ["small", "costly", "sibling"], id="one changes and keeps its place"),
    pytest.param(lambda harness: harness.update(pod("costly", priority=11, version="2")),
        ["costly", "small", "sibling"], id="one becomes another kind"),
    pytest.param(lambda harness: harness.queue.fair_share.clear(COSTLY), ["small", "costly", "sibling"],
        id="one was scheduled"),
])  # fmt: skip
def test_changes_of_a_pod_that_was_passed_over(change: Callable[[QueueHarness], object], wanted: list[str]) -> None:
    harness = charged()
    harness.pop()
    assert harness.queue.counts()["active"] == 3
    change(harness)

    assert harness.names_popped() == wanted
    assert harness.queue.counts()["active"] == 0


@pytest.mark.parametrize(
    ("other", "is_costly"),
    [
        pytest.param(pod("x", priority=9), True, id="another pod of the same requests"),
        pytest.param(pod("x", priority=8), False, id="another priority"),
        pytest.param(with_device_claim(pod("x", priority=9)), False, id="a claim for devices"),
        pytest.param(pod("x", priority=9, scheduler=OTHER), False, id="another profile"),
    ],
)
def test_pods_of_one_kind_share_an_account(other: object, is_costly: bool) -> None:
    """New names do not reset the account."""
    assert charged().queue.fair_share.is_costly(other) == is_costly  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wait_s", "is_popped"),
    [
        pytest.param(0.0, False, id="not while other pods go first"),
        pytest.param(REST_S, True, id="later like every rejected pod"),
    ],
)
def test_a_costly_pod_is_popped_early_from_its_back_off(wait_s: float, is_popped: bool) -> None:
    harness = QueueHarness({"A": (hint(NODE_ADD),)}, initial_backoff_s=60.0, max_backoff_s=60.0)
    harness.rejected(COSTLY, "A")
    harness.queue.fair_share.charge(COSTLY, SPENT_S)
    harness.queue.move_all(NODE_ADD, None, None)
    assert harness.queue.counts()["backoff"] == 1
    harness.clock.time += wait_s

    assert (harness.queue.pop() is not None) == is_popped


def test_kinds_that_were_charged_longest_ago_are_forgotten() -> None:
    harness = QueueHarness()
    for priority in range(5000):
        harness.queue.fair_share.charge(pod("x", priority=priority), SPENT_S)

    assert not harness.queue.fair_share.is_costly(pod("x", priority=0))
    assert harness.queue.fair_share.is_costly(pod("x", priority=4999))


# -- the heap ------------------------------------------------------------------------------------------------------------

PODS = [pod(f"p{n}") for n in range(300)]


@given(st.lists(st.one_of(st.integers(0, 9), st.none(), st.tuples(st.integers(0, 299))), max_size=300))
def test_as_a_sorted_list(steps: list[int | tuple[int] | None]) -> None:
    """Pushes (a number), pops (None) and removals (a tuple) give the results of a stable sorted list."""
    heap = ActiveQueue(itertools.count())
    model: list[tuple[int, int, QueuedPodInfo]] = []
    for n, step in enumerate(steps):
        if isinstance(step, int):
            queued = QueuedPodInfo(PODS[n], 0.0)
            heap.push((step,), queued)
            model.append((step, n, queued))
        elif model:
            victim = min(model, key=lambda row: row[:2]) if step is None else model[step[0] % len(model)]
            if step is None:
                assert heap.first() is victim[2]
            heap.discard(victim[2])
            model.remove(victim)
        assert len(model) == len(heap)
    for _, _, queued in sorted(model, key=lambda row: row[:2]):
        assert heap.first() is queued
        heap.discard(queued)

    assert heap.first() is None


def test_a_discarded_entry_stays_discarded_when_the_pod_is_in_another_heap() -> None:
    tickets = itertools.count()
    one, other = ActiveQueue(tickets), ActiveQueue(tickets)
    queued = QueuedPodInfo(PODS[0], 0.0)
    one.push((1,), queued)
    one.discard(queued)
    other.push((1,), queued)

    assert one.first() is None
    assert other.first() is queued


def test_discarded_entries_do_not_accumulate() -> None:
    heap = ActiveQueue(itertools.count())
    first, queued = QueuedPodInfo(PODS[0], 0.0), QueuedPodInfo(PODS[1], 0.0)
    heap.push((0,), first)
    for n in range(10_000):
        heap.push((1 + n,), queued)
        heap.discard(queued)

    assert len(heap._entries) < 200
