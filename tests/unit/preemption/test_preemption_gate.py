"""Preemptors held back while their victims die, and victims that are not on their node yet (docs/spec/core.md §3.10, §9.7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Rejection, Wait
from scheduler.framework.wait import settle
from tests.unit.brain import Brain
from tests.unit.preemption.evicting import (
    VICTIM,
    Wire,
    arena,
    ended,
    events,
    goes,
    holds_back,
    is_clean,
    leaves,
    metric,
    rest,
    show,
)
from tests.unit.toys import BeforeBind, Holds

# -- the gate (PreEnqueue) ---------------------------------------------------------------------------------------------


async def test_the_gate_is_closed_when_the_preemptor_comes_back_to_the_queue() -> None:
    """An event that came during the attempt would have it tried again while its victims die."""
    brain, _wire = arena(1)
    requeue, seen = brain.parts.queue.requeue, []

    def watched(queued: Any) -> None:
        seen.append(holds_back(brain))
        requeue(queued)

    brain.parts.queue.requeue = watched  # type: ignore[method-assign]
    await rest(brain)

    assert seen == [True]


async def test_the_preemptor_is_not_tried_while_its_victims_are_evicted() -> None:
    brain, wire = arena(3)
    wire.hold("delete v0")
    await rest(brain)
    brain.gone("v1")
    brain.node("n1", cpu="3", labels={"a": "b"})
    brain.parts.queue.activate([brain.parts.shared.pending.get("default/p")])  # type: ignore[list-item]
    await brain.later(30)

    assert brain.places() == {"p": "gated"}
    assert metric(brain, "scheduler_preemption_attempts_total") == 1


@pytest.mark.parametrize("ends", [leaves, goes])
async def test_191_the_gate_opens_with_the_end_of_the_last_victim(ends: Callable[[Brain, str], None]) -> None:
    """The watch may be faster than the answer to the DELETE: the event that is to wake the preemptor must not be lost."""
    brain, wire = arena(2)
    wire.hold("delete v1")
    await rest(brain)
    assert wire.sent[-1] == "delete v1"
    assert holds_back(brain)

    ends(brain, "v1")
    assert not holds_back(brain)
    if ends is leaves:
        brain.gone("v1")
    brain.gone("v0")
    await rest(brain)
    assert brain.writer.binds == [("default/p", "n1")]

    brain.pod("p", cpu="2", priority=100, on="n1")
    wire.answer("delete v1")
    await rest(brain)
    assert is_clean(brain)


@pytest.mark.parametrize("ends", [leaves, goes])
async def test_the_gate_stays_closed_while_others_than_the_last_are_evicted(ends: Callable[[Brain, str], None]) -> None:
    brain, wire = arena(2)
    wire.hold("delete v0")
    await rest(brain)
    ends(brain, "v1")

    assert holds_back(brain)


async def test_an_older_preemption_that_ends_does_not_open_the_gate_of_a_newer_one() -> None:
    """The last victim left, somebody else came: the preemptor was tried again before the answer was there."""
    brain, wire = arena(2)
    wire.hold("delete v1", "tell late")
    await rest(brain)
    brain.gone("v0")
    brain.pod("late", **VICTIM)
    show(brain, "v1", deleting=True)
    brain.parts.queue.activate([brain.parts.shared.pending.get("default/p")])  # type: ignore[list-item]
    await rest(brain)
    assert "tell late" in wire.sent
    assert holds_back(brain)

    wire.answer("delete v1")
    await rest(brain)
    assert holds_back(brain)
    assert len(brain.parts.evictions) == 1
    wire.answer("tell late")
    await rest(brain)
    assert wire.victims() == ["v0", "v1", "late"]
    assert not holds_back(brain)
    assert not brain.parts.evictions._preempting._preemptor_of


async def test_an_older_preemption_evicts_nobody_once_there_is_a_newer_one() -> None:
    brain, wire = arena(3)
    wire.hold("delete v0")
    await rest(brain)
    preemptor = brain.parts.shared.pending.get("default/p")
    assert preemptor is not None
    brain.parts.evictions.start(preemptor, "n1", [brain.cluster.get("uid-v0")])  # type: ignore[list-item]
    wire.answer("delete v0")
    await rest(brain)

    assert "v2" not in wire.victims()
    assert not holds_back(brain)


# -- victims that are not on their node yet ----------------------------------------------------------------------------


async def low_on_its_way(*, permit: Any = None, pre_bind: Any = None) -> tuple[Brain, Wire]:
    """A pod of ours has the place in memory; a more important one has come for it."""
    brain = Brain()
    wire = Wire(brain)
    if permit is not None:
        brain.plug(permit=(permit,))
    if pre_bind is not None:
        brain.plug(pre_bind=(pre_bind,))
    brain.node("n1", cpu="1")
    brain.pod("low", cpu="1")
    await rest(brain)
    assert brain.cluster.is_assumed("uid-low")
    brain.pod("p", cpu="1", priority=100)
    return brain, wire


IN_MEMORY = "Preempted by pod uid-p on node n1 (in kube-scheduler memory)."


async def test_194_a_victim_that_permit_holds_is_taken_back_in_memory() -> None:
    """As v1.36.3: its attempt ends with an error, not as unschedulable, so it waits for its back-off and for no event."""
    brain, wire = await low_on_its_way(permit=Holds(permits=Wait(900)))
    await rest(brain)

    assert [write for write in wire.sent if write.split()[0] in {"tell", "delete"}] == []
    assert events(brain, "Preempted") == [("low", IN_MEMORY)]
    assert ("low", "waiting on permit for pod: preempted") in events(brain, "FailedScheduling")
    assert brain.places()["low"] == "error backoff"
    assert brain.cluster.get("uid-low") is None
    assert brain.cluster.get("uid-p") is not None
    assert ended(brain) == (1, 0)


async def test_a_victim_that_found_another_node_meanwhile_is_left_alone() -> None:
    brain, wire = await low_on_its_way(permit=Holds("Gate", permits=Wait(900)))
    wire.hold("nominate p n1")
    await rest(brain)
    brain.node("n2", cpu="1")
    brain.parts.binder.permits.reject("uid-low", "Gate", "no")
    await rest(brain)
    brain.node("n2", cpu="1", labels={"wake": "up"})
    await brain.later(10)
    low = brain.cluster.get("uid-low")
    assert low is not None
    assert low.node_name == "n2"

    wire.answer("nominate p n1")
    await brain.turns()
    assert events(brain, "Preempted") == []
    assert brain.cluster.is_assumed("uid-low")


async def test_a_victim_that_permit_has_just_let_go_is_deleted() -> None:
    """It does not wait any more, though it has not moved: what was granted stands."""
    brain, wire = await low_on_its_way(permit=Holds("Gate", permits=Wait(900)))
    wire.hold("nominate p n1")
    await rest(brain)
    brain.writer.hold = asyncio.Event()
    brain.parts.binder.permits.allow("uid-low", "Gate")
    assert not brain.parts.binder.preempt("uid-low", "DefaultPreemption")
    wire.answer("nominate p n1")
    await rest(brain)

    assert wire.victims() == ["low"]


async def test_a_victim_that_permit_has_just_refused_is_taken_back_already() -> None:
    brain, _wire = await low_on_its_way(permit=Holds("Gate", permits=Wait(900)))
    brain.parts.binder.permits.reject("uid-low", "Gate", "no")

    assert brain.parts.binder.preempt("uid-low", "DefaultPreemption")


class Slow(BeforeBind):
    """PreBind that writes twice, each answered only when the test says so."""

    def __init__(self) -> None:
        super().__init__("Slow")
        self.answers = [asyncio.Event(), asyncio.Event()]
        self.written: list[int] = []

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        if pod.pod.metadata.name != "low":
            return None
        for number in range(2):
            await asyncio.sleep(0)  # what lies between two writes
            await settle(self._write(number))
        return None

    async def _write(self, number: int) -> None:
        await self.answers[number].wait()
        self.written.append(number)


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        pytest.param([], 'running PreBind plugin "Slow": preempted by DefaultPreemption', id="at its first write"),
        pytest.param([0], "preempted by DefaultPreemption", id="at its last write"),
    ],
)
async def test_a_victim_in_prebind_is_cancelled_between_its_writes(answered: list[int], said: str) -> None:
    """What was sent is awaited to its answer; nothing more is sent, no Binding either, though PreBind came to its end."""
    slow = Slow()
    brain, wire = await low_on_its_way(pre_bind=slow)
    for number in answered:
        slow.answers[number].set()
    await rest(brain)
    assert events(brain, "Preempted") == [("low", IN_MEMORY)]
    assert brain.cluster.is_assumed("uid-low")

    under_way = len(answered)
    slow.answers[under_way].set()
    await rest(brain)

    assert slow.written == [*answered, under_way]
    assert brain.writer.binds == [("default/p", "n1")]
    assert ("low", said) in events(brain, "FailedScheduling")
    assert brain.places()["low"] == "error backoff"
    assert [write for write in wire.sent if write.split()[0] in {"tell", "delete"}] == []


async def test_a_victim_in_prebind_is_cancelled_once() -> None:
    """A second cancellation would tear it from the answer that it must have."""
    slow = Slow()
    brain, _wire = await low_on_its_way(pre_bind=slow)
    await rest(brain)
    for _ in range(3):
        assert brain.parts.binder.preempt("uid-low", "DefaultPreemption")
        await brain.turns()
    draining = asyncio.ensure_future(brain.parts.binder.drain(1))
    await brain.turns()
    brain.clock.move(1.1)
    await brain.turns()
    assert brain.parts.binder.has("uid-low")

    slow.answers[0].set()
    await rest(brain)
    await draining
    assert slow.written == [0]


async def test_a_victim_that_is_giving_way_is_not_taken_twice() -> None:
    """Its write is not answered yet; the preemptor is tried again meanwhile."""
    slow = Slow()
    brain, _wire = await low_on_its_way(pre_bind=slow)
    await rest(brain)
    brain.parts.queue.activate([brain.parts.shared.pending.get("default/p")])  # type: ignore[list-item]
    await rest(brain)
    assert metric(brain, "scheduler_preemption_attempts_total") == 2
    assert len(events(brain, "Preempted")) == 1
    assert ended(brain) == (1, 0)

    slow.answers[0].set()
    await rest(brain)
    assert brain.writer.binds == [("default/p", "n1")]


async def test_a_victim_in_prebind_beside_another_plugin_is_cancelled() -> None:
    first, second = Slow(), Slow()
    first.pre_bind_parallel = second.pre_bind_parallel = True
    brain = Brain()
    Wire(brain)
    brain.plug(pre_bind=(first, second))
    brain.node("n1", cpu="1")
    brain.pod("low", cpu="1")
    await rest(brain)
    brain.pod("p", cpu="1", priority=100)
    await rest(brain)
    for slow in (first, second):
        slow.answers[0].set()
    await rest(brain)

    assert (first.written, second.written) == ([0], [0])
    assert ("low", 'running PreBind plugin "Slow": preempted by DefaultPreemption') in events(brain, "FailedScheduling")
    assert brain.writer.binds == [("default/p", "n1")]


@pytest.mark.parametrize("has_prebind", [False, True], ids=["without PreBind", "behind PreBind"])
async def test_a_victim_whose_binding_is_on_the_wire_is_deleted(has_prebind: bool) -> None:
    brain = Brain()
    wire = Wire(brain)
    if has_prebind:
        brain.plug(pre_bind=(BeforeBind("Quick"),))
    brain.writer.hold = asyncio.Event()
    brain.node("n1", cpu="1")
    brain.pod("low", cpu="1")
    await rest(brain)
    brain.pod("p", cpu="1", priority=100)
    await rest(brain)

    assert wire.landed[-3:] == ["nominate p n1", "tell low", "delete low"]
    assert events(brain, "Preempted") == [("low", "Preempted by pod uid-p on node n1")]
    brain.writer.hold.set()
    await rest(brain)
    assert brain.writer.binds[0] == ("default/low", "n1")
