"""queue_incoming_entities_total: a move into the queue that its strategy names is left out (docs/spec/changes-1.37.md §6.1)."""

from __future__ import annotations

from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD
from scheduler.framework.interface import Hint
from tests.unit.queueing.harness import Gate, QueueHarness, hint, pod

FIT = "NodeResourcesFit"
PENDING = "Pending"
PLUGINS = {FIT: (hint(ASSIGNED_POD_DELETE, Hint.QUEUE), hint(NODE_ADD, Hint.QUEUE)), "Gate": (hint(NODE_ADD),)}
ADD, FAILED = "UnscheduledPodAdd", "ScheduleAttemptFailure"


def moves(harness: QueueHarness) -> list[tuple[str, str]]:
    """The moves that are counted as pods and not as entities."""
    left = list(harness.metrics.incomings)
    for counted in harness.metrics.entities:
        left.remove(counted)
    return left


def test_a_new_pod_counts() -> None:
    """It has no strategy, also if it is gated."""
    harness = QueueHarness(PLUGINS, gates=(Gate("Gate", {"held"}),))
    harness.add(pod("p"), pod("held"))

    assert harness.metrics.entities == [("active", ADD), ("unschedulable", ADD)]


def test_a_failed_attempt_that_leaves_the_pod_waiting_does_not_count() -> None:
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("p"), FIT)

    assert moves(harness) == [("unschedulable", FAILED)]


def test_a_wake_up_after_back_off_counts_for_the_active_queue_only() -> None:
    """The strategy names the back-off queue: a pod whose back-off is over goes past it."""
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("early"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    harness.rejected(pod("late"), FIT)
    harness.advance(20)
    harness.queue.move_all(ASSIGNED_POD_DELETE, None, None)

    assert ("backoff", NODE_ADD.label) in moves(harness)
    assert ("active", ASSIGNED_POD_DELETE.label) in harness.metrics.entities


def test_the_end_of_a_back_off_counts() -> None:
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("p"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    harness.advance(20)

    assert harness.metrics.incomings[-1] == harness.metrics.entities[-1] == ("active", "BackoffComplete")
