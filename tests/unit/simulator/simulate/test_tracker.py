"""The tracker of decisions: pods without one, and the times of the first and last."""

from __future__ import annotations

from typing import Any

from simulator.simulate.outcome import FEW, Timing, Tracker
from tests.unit.kube.scripted import LeapingClock


def pod(name: str, *, node: str = "", reason: str = "", gated: bool = False) -> dict[str, Any]:
    """A stored pod in namespace a."""
    gates = [{"name": "g"}] if gated else []
    conditions = [{"type": "PodScheduled", "status": "False", "reason": reason}] if reason else []
    return {
        "metadata": {"namespace": "a", "name": name},
        "spec": {"nodeName": node, "schedulingGates": gates},
        "status": {"conditions": conditions},
    }


def following(names: str, clock: LeapingClock | None = None) -> Tracker:
    """A tracker of pods in namespace a that are there, and that the scheduler is to place."""
    tracker = Tracker(lambda pod: pod["metadata"]["name"] in names.split(), clock or LeapingClock())
    for name in names.split():
        tracker.heard("ADDED", "pods", pod(name))
    return tracker


def test_decided_and_undecided_pods() -> None:
    """Bound, unschedulable and gated pods are decided. Pods with an error are not."""
    tracker = following("bound refused gated failed silent")
    for obj in (
        pod("bound", node="n"),
        pod("refused", reason="Unschedulable"),
        pod("gated", gated=True),
        pod("failed", reason="SchedulerError"),
        pod("stranger", node="n"),
    ):
        tracker.heard("MODIFIED", "pods", obj)
    tracker.heard("MODIFIED", "nodes", {"metadata": {"name": "n"}})

    assert tracker.unsettled == {"a/failed", "a/silent"}
    assert (tracker.answered, tracker.placed) == (3, 1)


def test_a_pod_that_fails_later_is_undecided_again() -> None:
    tracker = following("p")
    tracker.heard("MODIFIED", "pods", pod("p", reason="Unschedulable"))
    tracker.heard("MODIFIED", "pods", pod("p", reason="SchedulerError"))

    assert tracker.unsettled == {"a/p"}


def test_times_count_from_the_start() -> None:
    """A pod counts when it is bound, and not when it changes later."""
    clock = LeapingClock()
    tracker = following("p q r", clock)
    clock.time_s = 200.0
    tracker.start()
    for at_s, obj in (
        (201.0, pod("p", node="n")),
        (203.0, pod("q", node="n")),
        (204.0, pod("r", reason="Unschedulable")),
        (209.0, pod("p", node="n")),
    ):
        clock.time_s = at_s
        tracker.heard("MODIFIED", "pods", obj)

    assert tracker.timing() == Timing(1.0, 3.0, 4.0)
    assert tracker.timing().rate(FEW) == 50.0
    assert tracker.timing().rate(FEW - 1) is None
    assert Timing(1.0, 1.0, 1.0).rate(1) is None
    assert Timing(None, None, 1.0).rate(0) is None


def test_evicted_pods_are_recorded_and_not_counted() -> None:
    """A pod without the condition of a scheduler is no victim."""
    tracker = following("ours deleted")
    condition = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    for name, conditions in (("ours", condition), ("theirs", condition), ("deleted", [])):
        obj = pod(name, node="n")
        obj["metadata"] |= {"uid": name}
        tracker.heard("ADDED", "pods", obj)
        obj["status"]["conditions"] = conditions
        tracker.heard("MODIFIED", "pods", obj)
        assert name not in tracker.preempted, "it has the condition, and is not deleted yet"
        obj["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        tracker.heard("MODIFIED", "pods", obj)
        tracker.heard("DELETED", "pods", obj)

    assert (set(tracker.preempted), tracker.placed, tracker.unsettled) == ({"ours", "theirs"}, 0, set())


def test_a_pod_that_its_controller_creates_later_is_followed() -> None:
    """A StatefulSet creates the next pod when the last one is ready."""
    tracker = following("db-0 db-1")
    tracker.heard("DELETED", "pods", pod("db-1"))
    assert tracker.unsettled == {"a/db-0"}

    tracker.heard("ADDED", "pods", pod("db-1"))
    tracker.heard("ADDED", "pods", pod("stranger"))
    assert tracker.unsettled == {"a/db-0", "a/db-1"}
    assert tracker.ours == {"a/db-0", "a/db-1"}
