"""Gates, updates, nominations, activation, flush, and other plugins. Ids begin with the row of docs/spec/core.md §9."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, PROFILE_CHANGED, Action, ClusterEvent, Resource
from scheduler.framework.interface import Hint
from scheduler.framework.status import Code
from scheduler.queue import QueueProfile
from tests.unit.queueing.harness import OTHER, OURS, Gate, QueueHarness, SchedulingGates, by_priority, hint, pod

FIT = "NodeResourcesFit"
TAINTS = "TaintToleration"
GATES = "SchedulingGates"
GATES_GONE = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
TOLERATES = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
SCALED_DOWN = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN)


def about_itself(waiting: PodInfo, _old: Any, new: Any) -> Hint:
    return Hint.QUEUE if new.uid == waiting.uid else Hint.SKIP


PLUGINS = {
    FIT: (
        hint(ASSIGNED_POD_DELETE, Hint.QUEUE),
        hint(NODE_ADD, Hint.QUEUE, lambda info: info.priority),
        hint(SCALED_DOWN, about_itself),
    ),
    TAINTS: (hint(TOLERATES, about_itself),),
    GATES: (hint(GATES_GONE, about_itself),),
}


# -- gates ---------------------------------------------------------------------------------------------------------------


def test_9_a_gated_pod_is_counted_apart() -> None:
    harness = QueueHarness(PLUGINS, gates=(SchedulingGates(),))
    harness.add(pod("p", gates=("g",)))

    assert harness.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    assert harness.queue.pop() is None
    assert harness.metrics.incomings == [("unschedulable", "UnscheduledPodAdd")]
    assert harness.metrics.rejected == {(GATES, "kubestow"): 1}


def test_10_the_last_gate_is_removed() -> None:
    harness = QueueHarness(PLUGINS, gates=(SchedulingGates(),))
    harness.add(pod("p", gates=("g",)))
    harness.advance(7)
    harness.update(pod("p", version="2"))

    assert harness.metrics.incomings[-1] == ("active", "TargetPodUpdatePodSchedulingGatesEliminated")
    queued = harness.pop()
    assert queued.initial_attempt_at == 1007.0
    assert harness.metrics.rejected[GATES, "kubestow"] == 0


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(pod("p", version="2", gates=("g",)), id="11 one of two gates removed"),
        pytest.param(pod("p", version="2", gates=("g", "h"), labels={"a": "b"}), id="12 label change"),
    ],
)
def test_a_change_that_leaves_a_gate(changed: PodInfo) -> None:
    gates, other = SchedulingGates(), Gate("Other")
    harness = QueueHarness(PLUGINS, gates=(gates, other))
    harness.add(pod("p", gates=("g", "h")))
    harness.update(changed)

    assert harness.place("p") == "gated"
    assert (gates.calls, other.calls) == (1, 0)


def test_13_an_event_does_not_touch_gated_pods() -> None:
    gate = Gate("Gate")
    harness = QueueHarness({**PLUGINS, "Gate": ()}, gates=(gate,))
    harness.add(pod("p"))
    queued = harness.pop()
    harness.queue.move_all(NODE_ADD, None, None)
    gate.held.add("p")
    harness.fail(queued, FIT)
    assert harness.place("p") == "gated"
    calls, hints = gate.calls, len(harness.metrics.hints)
    harness.queue.move_all(NODE_ADD, None, None)

    assert harness.place("p") == "gated"
    assert (calls, hints) == (gate.calls, len(harness.metrics.hints))


def test_14_the_flush_calls_the_gate_again() -> None:
    gate = SchedulingGates()
    harness = QueueHarness(PLUGINS, gates=(gate,))
    info = pod("p", gates=("g",))
    harness.add(info)
    harness.advance(331)

    assert harness.place("p") == "gated"
    assert gate.calls == 2
    harness.store[info.key] = pod("p", version="2")
    harness.queue.update(info, pod("p", version="2"))
    assert not harness.pop().was_flushed


def test_15_a_gated_pod_keeps_its_nomination() -> None:
    harness = QueueHarness(PLUGINS, gates=(SchedulingGates(),))
    info = pod("p", gates=("g",), nominated="n1")
    harness.add(info)

    assert (info,) == harness.queue.nominator.for_node("n1")


def test_16_the_gating_plugin_is_called_first() -> None:
    a, b = Gate("A"), Gate("B", {"p"})
    harness = QueueHarness({"A": (), "B": (hint(NODE_ADD),)}, gates=(a, b))
    harness.add(pod("p"))
    assert (a.calls, b.calls) == (1, 1)

    harness.queue.move_all(NODE_ADD, None, None)
    assert (a.calls, b.calls) == (1, 2)

    b.held.clear()
    harness.queue.move_all(NODE_ADD, None, None)
    assert (a.calls, b.calls) == (2, 3)
    assert harness.place("p") == "active"


class Broken:
    name = "Broken"

    def pre_enqueue(self, pod: PodInfo) -> None:
        raise ValueError("a plugin's mistake")


@pytest.mark.parametrize(
    "gate",
    [
        pytest.param(Gate("Broken", {"p"}, Code.ERROR), id="17 PreEnqueue answers Error"),
        pytest.param(Broken(), id="PreEnqueue raises"),
    ],
)
def test_a_failing_gate_keeps_the_pod(gate: Any) -> None:
    harness = QueueHarness(gates=(gate,))
    harness.add(pod("p"))

    assert harness.place("p") == "gated"
    assert harness.log.texts == ["pre-enqueue failed"]


def test_a_popped_backoff_pod_does_not_pass_the_gate_again() -> None:
    """§1.4: PreEnqueue is called when the pod enters a back-off queue, not when it leaves."""
    gate = Gate("Gate")
    harness = QueueHarness(PLUGINS, gates=(gate,))
    harness.rejected(pod("p"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    assert (harness.place("p"), gate.calls) == ("backoff", 2)
    gate.held.add("p")
    harness.advance(3)

    assert (harness.place("p"), gate.calls) == ("active", 2)


# -- flush ---------------------------------------------------------------------------------------------------------------


def test_48_waiting_too_long() -> None:
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("p"), FIT)
    harness.advance(300)
    assert harness.place("p") == "unschedulable"
    harness.advance(31)

    assert harness.place("p") == "active"
    assert harness.metrics.incomings[-1] == ("active", "UnschedulableTimeout")
    assert harness.pop().was_flushed


def test_50_a_flushed_pod_fails_again() -> None:
    harness = QueueHarness(PLUGINS)
    queued = harness.rejected(pod("p"), FIT)
    harness.advance(331)
    assert harness.pop() is queued
    harness.fail(queued, FIT)

    assert (queued.was_flushed, queued.flushed_at) == (False, None)
    harness.advance(299)
    assert harness.place("p") == "unschedulable"


def test_a_large_flush_goes_in_parts() -> None:
    """A large pool must not block the loop. The rest follows with the next ticks."""
    harness = QueueHarness(PLUGINS)
    for n in range(1200):
        harness.rejected(pod(f"p{n}"), FIT)
    harness.clock.time += 331
    waiting = []
    for _ in range(3):
        harness.queue.tick()
        waiting.append(harness.queue.counts()["unschedulable"])

    assert waiting == [700, 200, 0]


# -- events that wake thousands of pods ----------------------------------------------------------------------------------


def crowd(*more: PodInfo) -> QueueHarness:
    """Return a queue in which 1200 pods wait, and then these, and that has just seen an event for all of them."""
    harness = QueueHarness(PLUGINS)
    for info in (*(pod(f"p{n}") for n in range(1200)), *more):
        harness.rejected(info, FIT)
    harness.advance(2)
    harness.queue.move_all(NODE_ADD, None, None)
    return harness


def test_a_large_wake_up_goes_in_parts() -> None:
    """All pods of a large group are woken by its last one, and must not hold the event loop."""
    harness = crowd()
    active, is_rest = [harness.queue.counts()["active"]], True
    while is_rest:
        is_rest = harness.queue.move_woken()
        active.append(harness.queue.counts()["active"])

    assert active == [500, 1000, 1200]


def test_the_next_pod_is_chosen_among_all_that_are_woken() -> None:
    harness = crowd(pod("late", priority=9))

    assert harness.names_popped()[0] == "late"


@pytest.mark.parametrize(
    ("change", "active", "rest"),
    [
        pytest.param(lambda harness: harness.delete(pod("p1199")), 1199, {}, id="deleted"),
        pytest.param(lambda harness: harness.queue.observed_bound(pod("p1199", node="n")), 1199, {}, id="bound"),
        pytest.param(lambda harness: harness.queue.activate([pod("p1199")]), 1200, {}, id="activated"),
        pytest.param(lambda harness: harness.queue.move_all(NODE_ADD, None, None), 1200, {}, id="woken-again"),
    ],
)
def test_a_woken_pod_changes_before_it_moves(change: Any, active: int, rest: dict[str, int]) -> None:
    harness = crowd()
    change(harness)
    while harness.queue.move_woken():
        pass

    assert {name: count for name, count in harness.queue.counts().items() if count} == {"active": active, **rest}


def test_many_back_offs_that_end_at_once_go_in_parts() -> None:
    harness = QueueHarness(PLUGINS)
    for n in range(1200):
        harness.rejected(pod(f"p{n}"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    assert (harness.queue.move_woken(), harness.queue.move_woken()) == (True, False)
    harness.clock.time += 2
    is_rest = [harness.queue.tick() for _ in range(3)]

    assert (is_rest, harness.queue.counts()["active"]) == ([True, True, False], 1200)


# -- updates -------------------------------------------------------------------------------------------------------------


def test_51_an_update_of_the_same_version() -> None:
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("p"), TAINTS)
    harness.update(pod("p", tolerations=1))

    assert harness.place("p") == "unschedulable"


def test_52_an_update_in_the_active_queue() -> None:
    harness = QueueHarness(PLUGINS)
    harness.add(pod("a"), pod("b"), pod("c"))
    new = pod("b", version="2")
    harness.update(new)

    assert harness.pop().info.uid == "a"
    assert harness.pop().info is new
    assert harness.pop().info.uid == "c"


def test_an_update_that_changes_the_order() -> None:
    """§1.12 step 3: every queue is sorted again."""
    harness = QueueHarness(PLUGINS)
    harness.add(pod("a"), pod("b"))
    harness.update(pod("b", version="2", priority=5))
    assert harness.names_popped() == ["b", "a"]

    harness = QueueHarness(PLUGINS)
    for name in ("a", "b"):
        harness.rejected(pod(name), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    harness.update(pod("b", version="2", priority=5))
    assert harness.places() == {"a": "backoff", "b": "backoff"}
    assert harness.names_popped() == ["b", "a"]


def test_53_an_update_while_backing_off() -> None:
    harness = QueueHarness(PLUGINS)
    queued = harness.rejected(pod("p"), FIT)
    harness.queue.move_all(NODE_ADD, None, None)
    new = pod("p", version="2", labels={"a": "b"}, tolerations=3)
    harness.update(new)

    assert ("backoff", 1001, new) == (harness.place("p"), queued.backoff_until, queued.info)


@pytest.mark.parametrize(
    ("rejecter", "place"),
    [
        pytest.param(TAINTS, "backoff", id="54 tolerations added, rejected by TaintToleration"),
        pytest.param(FIT, "unschedulable", id="55 tolerations added, rejected by Fit only"),
    ],
)
def test_an_update_in_the_pool(rejecter: str, place: str) -> None:
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("other"), rejecter)
    harness.rejected(pod("p"), rejecter)
    harness.update(pod("p", version="2", tolerations=1))

    assert {"other": "unschedulable", "p": place} == harness.places()
    assert len(harness.metrics.hints) <= 1


def test_57_an_update_of_an_unknown_pod() -> None:
    harness = QueueHarness(PLUGINS)
    harness.queue.update(pod("p"), pod("p", version="2"))

    assert harness.places() == {"p": "active"}


# -- deletions -----------------------------------------------------------------------------------------------------------


def test_a_pod_that_was_bound_leaves_the_queue() -> None:
    """§1.13: no pod is woken for its nomination."""
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("waits"), FIT)
    harness.add(pod("p", nominated="n1"))
    harness.queue.observed_bound(pod("p", node="n1"))

    assert harness.places() == {"waits": "unschedulable"}
    assert harness.queue.nominator.nodes() == ()


# -- nominations ---------------------------------------------------------------------------------------------------------


def _replaced_in_the_status(harness: QueueHarness, nominee: PodInfo) -> None:
    """The nomination to n3 was not written before another writer changed the status."""
    harness.queue.nominator.add(nominee, "n3")
    harness.update(pod("nominee", priority=10, version="2", nominated="n1"))
    assert harness.queue.nominator.nodes() == ("n1",)


@pytest.mark.parametrize("end", [
    pytest.param(lambda harness, info: harness.delete(info), id="60 the nominated pod is deleted"),
    pytest.param(lambda harness, _: harness.update(pod("nominee", priority=10, version="2", nominated="n2")),
        id="61 nominated elsewhere"),
    pytest.param(lambda harness, _: harness.update(pod("nominee", priority=10, version="2")),
        id="the nomination is removed"),
    pytest.param(_replaced_in_the_status, id="a nomination that was not written yet is replaced"),
])  # fmt: skip
def test_a_nomination_ends(end: Any) -> None:
    """Pods of lower or equal priority may fit now. The nominated pod did not count for other pods."""
    harness = QueueHarness(PLUGINS)
    for name, priority in (("low", 0), ("equal", 10), ("high", 20)):
        harness.rejected(pod(name, priority=priority), FIT)
    nominee = pod("nominee", priority=10, nominated="n1")
    harness.add(nominee)
    end(harness, nominee)

    places = {name: place for name, place in harness.places().items() if name != "nominee"}
    assert places == {"low": "backoff", "equal": "backoff", "high": "unschedulable"}


def test_61_a_first_nomination_frees_nothing() -> None:
    harness = QueueHarness(PLUGINS)
    harness.rejected(pod("waits", priority=-1), FIT)
    harness.add(pod("p"))
    harness.update(pod("p", version="2", nominated="n1"))

    assert harness.place("waits") == "unschedulable"
    assert harness.queue.nominator.nodes() == ("n1",)


# -- activation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["unschedulable", "backoff", "error backoff"])
def test_65_activation(place: str) -> None:
    harness = QueueHarness(PLUGINS)
    info = pod("p")
    harness.rejected(info, *(() if place == "error backoff" else (FIT,)))
    if place == "backoff":
        harness.queue.move_all(NODE_ADD, None, None)
    assert place == harness.place("p")
    harness.queue.activate([info])

    assert harness.place("p") == "active"
    assert harness.metrics.incomings[-1] == ("active", "ForceActivate")


def test_66_activation_in_flight() -> None:
    harness = QueueHarness(PLUGINS)
    info = pod("p")
    harness.add(info, pod("other"))
    queued, other = harness.pop(), harness.pop()
    harness.queue.activate([info])
    harness.fail(queued, FIT)
    harness.fail(other, FIT)

    assert harness.places() == {"p": "backoff", "other": "unschedulable"}


def test_67_activation_of_unknown_and_ready_pods() -> None:
    harness = QueueHarness(PLUGINS)
    harness.add(pod("p"))
    before = (harness.ready, len(harness.metrics.incomings))
    harness.queue.activate([pod("unknown"), pod("p")])

    assert harness.places() == {"p": "active"}
    assert before == (harness.ready, len(harness.metrics.incomings))


def test_entries() -> None:
    harness = QueueHarness(PLUGINS)
    harness.add(pod("ready"))
    rejected = pod("rejected", priority=1)
    harness.rejected(rejected, FIT, TAINTS)
    harness.rejected(pod("failed", priority=1))
    harness.add(pod("tried", priority=1))
    harness.pop()

    rows = {row.key: (row.place, row.attempts, row.plugins, row.deadline) for row in harness.queue.entries()}
    assert rows == {
        "default/ready": ("active", 0, (), None),
        "default/rejected": ("unschedulable", 1, (FIT, TAINTS), 1300.0),
        "default/failed": ("error backoff", 1, (), 1002.0),
        "default/tried": ("in flight", 1, (), None),
    }


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
