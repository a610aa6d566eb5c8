"""Placements that are in force together: suspended, resumed, dropped, and repeated on a cache that has changed."""

from __future__ import annotations

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import pod_info
from scheduler.core.cooperative import finish
from scheduler.cycle import Scheduled, Unschedulable
from scheduler.plan import Changed, Placement, Plan
from tests.unit.harness import SchedulerHarness, manifest, read_pod


class Small:
    """Two nodes with 2 cpu each, and a plan."""

    def __init__(self) -> None:
        self.sched = SchedulerHarness()
        for name in ("n1", "n2"):
            self.sched.node(name, cpu="2")
        self.sched.parts.inbox.apply()
        self.plan = Plan(self.sched.cluster)

    def place(self, name: str, cpu: str = "2") -> str:
        """Add an ordinary attempt's placement to the plan, and return its node; "" if no node fits."""
        pod = read_pod(manifest(name, cpu=cpu))
        assert isinstance(pod, Pod)
        outcome = finish(self.sched.parts.cycle.attempt(pod_info(pod), 1))
        if not isinstance(outcome, Scheduled):
            assert isinstance(outcome, Unschedulable)
            return ""
        self.plan.add(Placement(self.sched.cluster, outcome))
        return outcome.assumed.node_name

    def requested(self) -> list[int]:
        nodes = self.sched.cluster.nodes
        return [nodes.requested_at(slot, "cpu") for slot in range(2)]


def test_each_attempt_sees_those_before_it() -> None:
    small = Small()

    assert sorted((small.place("a"), small.place("b"))) == ["n1", "n2"]
    assert small.place("c") == ""
    assert small.requested() == [2000, 2000]


def test_nothing_is_left_of_a_plan_that_has_ended() -> None:
    small = Small()
    small.place("a")
    small.sched.cluster.volumes.given_back["PersistentVolume", "v"] = None  # as if Unreserve had given a volume back

    small.plan.end()
    small.plan.end()

    assert (len(small.plan), small.requested()) == (0, [0, 0])
    assert not small.sched.cluster.volumes.given_back
    assert list(small.sched.cluster.assumed()) == []


def test_other_pods_are_tried_without_it_while_it_is_suspended() -> None:
    small = Small()
    small.place("a", "1")
    small.place("b", "1")
    before = small.requested()
    with small.plan.suspended():
        suspended = small.requested()

    assert (suspended, small.requested()) == ([0, 0], before)


def test_what_is_dropped_is_not_repeated() -> None:
    small = Small()
    node = small.place("a")
    small.place("b")
    small.plan.drop(1)
    with small.plan.suspended():
        pass

    assert len(small.plan) == 1
    assert small.requested() == ([2000, 0] if node == "n1" else [0, 2000])


@pytest.mark.parametrize("taken", ["its node is full", "its node is gone"])
def test_a_placement_that_does_not_fit_any_more_is_not_repeated(taken: str) -> None:
    small = Small()
    node = small.place("a")
    small.plan.suspend()
    if taken == "its node is full":
        small.sched.pod("other", cpu="1", on=node)
    else:
        small.sched.node_gone(node)
    small.sched.parts.inbox.apply()

    with pytest.raises(Changed, match=node):
        small.plan.resume()
    small.plan.end()

    assert sum(small.requested()) == (1000 if taken == "its node is full" else 0)
