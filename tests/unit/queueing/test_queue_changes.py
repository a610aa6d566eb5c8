"""Gates, updates, deletions, nominations, activation and flush. Ids begin with the row of docs/spec/core.md §9."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, Action, ClusterEvent, Resource
from scheduler.framework.interface import Hint
from scheduler.framework.status import Code
from tests.unit.queueing.world import Gate, SchedulingGates, World, hint, pod

FIT = "NodeResourcesFit"
TAINTS = "TaintToleration"
GATES = "SchedulingGates"
GATES_GONE = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
TOLERATES = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)
SCALED_DOWN = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCALE_DOWN)


def if_it_is_me(waiting: PodInfo, _old: Any, new: Any) -> Hint:
    """As the real hints about the waiting pod itself."""
    return Hint.QUEUE if new.uid == waiting.uid else Hint.SKIP


PLUGINS = {
    FIT: (
        hint(ASSIGNED_POD_DELETE, Hint.QUEUE),
        hint(NODE_ADD, Hint.QUEUE, lambda info: info.priority),
        hint(SCALED_DOWN, if_it_is_me),
    ),
    TAINTS: (hint(TOLERATES, if_it_is_me),),
    GATES: (hint(GATES_GONE, if_it_is_me),),
}


# -- gates ---------------------------------------------------------------------------------------------------------------


def test_9_a_gated_pod_waits_apart() -> None:
    """Counted as gated only, not attempted, and its time does not run."""
    world = World(PLUGINS, gates=(SchedulingGates(),))
    world.add(pod("p", gates=("g",)))

    assert world.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    assert world.queue.pop() is None
    assert world.metrics.incomings == [("unschedulable", "UnschedulablePodAdd")]
    assert world.metrics.rejected == {(GATES, "kubestow"): 1}


def test_10_the_last_gate_goes() -> None:
    """Ready at once, and only now the clock of its first attempt starts."""
    world = World(PLUGINS, gates=(SchedulingGates(),))
    world.add(pod("p", gates=("g",)))
    world.advance(7)
    world.update(pod("p", version="2"))

    assert world.metrics.incomings[-1] == ("active", "UnschedulablePodUpdatePodSchedulingGatesEliminated")
    queued = world.pop()
    assert queued.initial_attempt_at == 1007.0
    assert world.metrics.rejected[GATES, "kubestow"] == 0


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(pod("p", version="2", gates=("g",)), id="11 one of two gates removed"),
        pytest.param(pod("p", version="2", gates=("g", "h"), labels={"a": "b"}), id="12 label change"),
    ],
)
def test_a_change_that_leaves_a_gate(changed: PodInfo) -> None:
    gates, other = SchedulingGates(), Gate("Other")
    world = World(PLUGINS, gates=(gates, other))
    world.add(pod("p", gates=("g", "h")))
    world.update(changed)

    assert world.place("p") == "gated"
    assert (gates.asked, other.asked) == (1, 0)


def test_13_an_event_does_not_touch_gated_pods() -> None:
    """Not even those that Fit rejected before, for Fit does not keep them out now."""
    gate = Gate("Gate")
    world = World({**PLUGINS, "Gate": ()}, gates=(gate,))
    world.add(pod("p"))
    queued = world.pop()
    world.queue.move_all(NODE_ADD, None, None)
    gate.held.add("p")
    world.fail(queued, FIT)
    assert world.place("p") == "gated"
    asked, hints = gate.asked, len(world.metrics.hints)
    world.queue.move_all(NODE_ADD, None, None)

    assert world.place("p") == "gated"
    assert (asked, hints) == (gate.asked, len(world.metrics.hints))


def test_the_gating_plugin_s_events_reopen() -> None:
    """§1.10: its own event is asked about; a hint that says skip leaves the pod gated."""
    gate = Gate("Gate", {"a", "b"})
    only_a = hint(NODE_ADD, lambda info, _old, _new: Hint.QUEUE if info.uid == "a" else Hint.SKIP)
    world = World({"Gate": (only_a,)}, gates=(gate,))
    world.add(pod("a"), pod("b"))
    gate.held.clear()
    world.queue.move_all(NODE_ADD, None, None)

    assert world.places() == {"a": "active", "b": "gated"}


def test_14_the_flush_asks_the_gate_again() -> None:
    """After five minutes PreEnqueue is asked once more; still gated is not flushed."""
    gate = SchedulingGates()
    world = World(PLUGINS, gates=(gate,))
    info = pod("p", gates=("g",))
    world.add(info)
    world.advance(331)

    assert world.place("p") == "gated"
    assert gate.asked == 2
    world.store[info.key] = pod("p", version="2")
    world.queue.update(info, pod("p", version="2"))
    assert not world.pop().was_flushed


def test_15_a_gated_pod_keeps_its_nomination() -> None:
    world = World(PLUGINS, gates=(SchedulingGates(),))
    info = pod("p", gates=("g",), nominated="n1")
    world.add(info)

    assert (info,) == world.queue.nominator.for_node("n1")


def test_16_who_refused_last_is_asked_first() -> None:
    """If it still refuses nobody else is asked; if not, the others are, and it is not asked twice."""
    a, b = Gate("A"), Gate("B", {"p"})
    world = World({"A": (), "B": (hint(NODE_ADD),)}, gates=(a, b))
    world.add(pod("p"))
    assert (a.asked, b.asked) == (1, 1)

    world.queue.move_all(NODE_ADD, None, None)
    assert (a.asked, b.asked) == (1, 2)

    b.held.clear()
    world.queue.move_all(NODE_ADD, None, None)
    assert (a.asked, b.asked) == (2, 3)
    assert world.place("p") == "active"


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
    world = World(gates=(gate,))
    world.add(pod("p"))

    assert world.place("p") == "gated"
    assert world.log.texts == ["pre-enqueue failed"]


def test_a_popped_backoff_pod_does_not_pass_the_gate_again() -> None:
    """§1.4: PreEnqueue is asked when the pod enters a back-off queue, not when it leaves."""
    gate = Gate("Gate")
    world = World(PLUGINS, gates=(gate,))
    world.rejected(pod("p"), FIT)
    world.queue.move_all(NODE_ADD, None, None)
    assert (world.place("p"), gate.asked) == ("backoff", 2)
    gate.held.add("p")
    world.advance(3)

    assert (world.place("p"), gate.asked) == ("active", 2)


# -- flush ---------------------------------------------------------------------------------------------------------------


def test_48_waiting_too_long() -> None:
    """Flushed within 30 s after five minutes, and the record says so when it is bound."""
    world = World(PLUGINS)
    world.rejected(pod("p"), FIT)
    world.advance(300)
    assert world.place("p") == "unschedulable"
    world.advance(31)

    assert world.place("p") == "active"
    assert world.metrics.incomings[-1] == ("active", "UnschedulableTimeout")
    assert world.pop().was_flushed


def test_50_a_flushed_pod_fails_again() -> None:
    """The flag is of this round only, and the five minutes start anew."""
    world = World(PLUGINS)
    queued = world.rejected(pod("p"), FIT)
    world.advance(331)
    assert world.pop() is queued
    world.fail(queued, FIT)

    assert (queued.was_flushed, queued.flushed_at) == (False, None)
    world.advance(299)
    assert world.place("p") == "unschedulable"


def test_a_large_flush_goes_in_parts() -> None:
    """A full pool must not hold up the loop: the rest follows with the next ticks."""
    world = World(PLUGINS)
    for n in range(1200):
        world.rejected(pod(f"p{n}"), FIT)
    world.clock.time += 331
    waiting = []
    for _ in range(3):
        world.queue.tick()
        waiting.append(world.queue.counts()["unschedulable"])

    assert waiting == [700, 200, 0]


# -- updates -------------------------------------------------------------------------------------------------------------


def test_51_an_update_without_news() -> None:
    world = World(PLUGINS)
    world.rejected(pod("p"), TAINTS)
    world.update(pod("p", tolerations=1))

    assert world.place("p") == "unschedulable"


def test_52_an_update_in_the_active_queue() -> None:
    world = World(PLUGINS)
    world.add(pod("a"), pod("b"), pod("c"))
    new = pod("b", version="2")
    world.update(new)

    assert world.pop().info.uid == "a"
    assert world.pop().info is new
    assert world.pop().info.uid == "c"


def test_an_update_that_changes_the_order() -> None:
    """§1.12 step 3: sorted anew, in every queue."""
    world = World(PLUGINS)
    world.add(pod("a"), pod("b"))
    world.update(pod("b", version="2", priority=5))
    assert world.names_popped() == ["b", "a"]

    world = World(PLUGINS)
    for name in ("a", "b"):
        world.rejected(pod(name), FIT)
    world.queue.move_all(NODE_ADD, None, None)
    world.update(pod("b", version="2", priority=5))
    assert world.places() == {"a": "backoff", "b": "backoff"}
    assert world.names_popped() == ["b", "a"]


def test_53_an_update_while_backing_off() -> None:
    world = World(PLUGINS)
    queued = world.rejected(pod("p"), FIT)
    world.queue.move_all(NODE_ADD, None, None)
    new = pod("p", version="2", labels={"a": "b"}, tolerations=3)
    world.update(new)

    assert ("backoff", 1001, new) == (world.place("p"), queued.backoff_until, queued.info)


@pytest.mark.parametrize(
    ("rejecter", "place"),
    [
        pytest.param(TAINTS, "backoff", id="54 tolerations added, rejected by TaintToleration"),
        pytest.param(FIT, "unschedulable", id="55 tolerations added, rejected by Fit only"),
    ],
)
def test_an_update_in_the_pool(rejecter: str, place: str) -> None:
    """Only what a rejecter registered moves the pod, and only the pod that changed is asked."""
    world = World(PLUGINS)
    world.rejected(pod("other"), rejecter)
    world.rejected(pod("p"), rejecter)
    world.update(pod("p", version="2", tolerations=1))

    assert {"other": "unschedulable", "p": place} == world.places()
    assert len(world.metrics.hints) <= 1


def test_56_an_update_in_flight() -> None:
    """The change is replayed for this pod alone, which comes back with the new object."""
    world = World(PLUGINS)
    world.add(pod("p"), pod("other"))
    queued, other = world.pop(), world.pop()
    new = pod("p", version="2", tolerations=1)
    world.update(new)
    hints = len(world.metrics.hints)
    world.fail(other, TAINTS)
    assert hints == len(world.metrics.hints)
    world.fail(queued, TAINTS)

    assert world.places() == {"p": "backoff", "other": "unschedulable"}
    assert queued.info is new


def test_57_an_update_of_an_unknown_pod() -> None:
    world = World(PLUGINS)
    world.queue.update(pod("p"), pod("p", version="2"))

    assert world.places() == {"p": "active"}


# -- deletions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["active", "backoff", "error backoff", "unschedulable", "gated"])
def test_58_deletion(place: str) -> None:
    """Gone from every structure, and the gauges drop."""
    world = World(PLUGINS, gates=(SchedulingGates(),))
    info = pod("p", gates=("g",) if place == "gated" else ())
    if place in {"active", "gated"}:
        world.add(info)
    else:
        world.rejected(info, *(() if place == "error backoff" else (FIT,)))
    if place == "backoff":
        world.queue.move_all(NODE_ADD, None, None)
    assert place == world.place("p")
    world.delete(info)

    assert world.places() == {}
    assert world.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
    assert not any(world.metrics.rejected.values())
    world.advance(400)
    assert world.queue.pop() is None


def test_59_deletion_in_flight() -> None:
    """The attempt ends with `done`; its later repetition is nothing."""
    world = World(PLUGINS)
    info = pod("p")
    world.add(info)
    queued = world.pop()
    world.delete(info)
    assert world.places() == {"p": "in flight"}
    world.queue.done(queued.uid)
    world.queue.done(queued.uid)

    assert world.places() == {}


def test_bound_by_whomever() -> None:
    """§1.13: a pod that got a node leaves, and nobody is woken for its nomination."""
    world = World(PLUGINS)
    world.rejected(pod("waits"), FIT)
    world.add(pod("p", nominated="n1"))
    world.queue.observed_bound(pod("p", node="n1"))

    assert world.places() == {"waits": "unschedulable"}
    assert world.queue.nominator.nodes() == ()


# -- nominations ---------------------------------------------------------------------------------------------------------


def _taken_at_its_word(world: World, nominee: PodInfo) -> None:
    """It was to go to n3, and that was not written before somebody changed it."""
    world.queue.nominator.add(nominee, "n3")
    world.update(pod("nominee", priority=10, version="2", nominated="n1"))
    assert world.queue.nominator.nodes() == ("n1",)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda world, info: world.delete(info), id="60 the nominated pod is deleted"),
        pytest.param(
            lambda world, _: world.update(pod("nominee", priority=10, version="2", nominated="n2")),
            id="61 nominated elsewhere",
        ),
        pytest.param(
            lambda world, _: world.update(pod("nominee", priority=10, version="2")), id="the nomination is removed"
        ),
        pytest.param(
            _taken_at_its_word, id="the newest nomination, which only we know of, is given up for what is shown"
        ),
    ],
)
def test_a_nomination_ends(end: Any) -> None:
    """Pods of lower or equal priority may fit now; for the others the nominated pod did not count anyway."""
    world = World(PLUGINS)
    for name, priority in (("low", 0), ("equal", 10), ("high", 20)):
        world.rejected(pod(name, priority=priority), FIT)
    nominee = pod("nominee", priority=10, nominated="n1")
    world.add(nominee)
    end(world, nominee)

    places = {name: place for name, place in world.places().items() if name != "nominee"}
    assert places == {"low": "backoff", "equal": "backoff", "high": "unschedulable"}


def test_61_a_first_nomination_frees_nothing() -> None:
    """Only a nomination that was there can end."""
    world = World(PLUGINS)
    world.rejected(pod("waits", priority=-1), FIT)
    world.add(pod("p"))
    world.update(pod("p", version="2", nominated="n1"))

    assert world.place("waits") == "unschedulable"
    assert world.queue.nominator.nodes() == ("n1",)


# -- activation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["unschedulable", "backoff", "error backoff"])
def test_65_activation(place: str) -> None:
    """Ready at once."""
    world = World(PLUGINS)
    info = pod("p")
    world.rejected(info, *(() if place == "error backoff" else (FIT,)))
    if place == "backoff":
        world.queue.move_all(NODE_ADD, None, None)
    assert place == world.place("p")
    world.queue.activate([info])

    assert world.place("p") == "active"
    assert world.metrics.incomings[-1] == ("active", "ForceActivate")


def test_66_activation_in_flight() -> None:
    """Rejected later, this pod backs off instead of waiting; others are not concerned."""
    world = World(PLUGINS)
    info = pod("p")
    world.add(info, pod("other"))
    queued, other = world.pop(), world.pop()
    world.queue.activate([info])
    world.fail(queued, FIT)
    world.fail(other, FIT)

    assert world.places() == {"p": "backoff", "other": "unschedulable"}


def test_67_activation_of_unknown_and_ready_pods() -> None:
    world = World(PLUGINS)
    world.add(pod("p"))
    before = (world.ready, len(world.metrics.incomings))
    world.queue.activate([pod("unknown"), pod("p")])

    assert world.places() == {"p": "active"}
    assert before == (world.ready, len(world.metrics.incomings))


def test_entries_show_what_moves_a_pod() -> None:
    """A row per pod, in flight included, with its rejecters and the moment when time alone moves it."""
    world = World(PLUGINS)
    world.add(pod("ready"))
    rejected = pod("rejected", priority=1)
    world.rejected(rejected, FIT, TAINTS)
    world.rejected(pod("failed", priority=1))
    world.add(pod("tried", priority=1))
    world.pop()

    rows = {row.key: (row.place, row.attempts, row.plugins, row.deadline) for row in world.queue.entries()}
    assert rows == {
        "default/ready": ("active", 0, (), None),
        "default/rejected": ("unschedulable", 1, (FIT, TAINTS), 1300.0),
        "default/failed": ("error backoff", 1, (), 1002.0),
        "default/tried": ("in flight", 1, (), None),
    }
