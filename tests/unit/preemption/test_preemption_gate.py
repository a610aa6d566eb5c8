"""Preemptors that are gated during evictions, victims that are not bound yet, and the drain time.

From docs/spec/core.md §3.10 and §9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Rejection, Wait
from scheduler.framework.wait import settle
from tests.support import permit
from tests.unit.fake_plugins import BeforeBind, Holds
from tests.unit.harness import SchedulerHarness
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

# -- the gate (PreEnqueue) ---------------------------------------------------------------------------------------------


async def test_the_gate_is_closed_when_the_preemptor_comes_back_to_the_queue() -> None:
    """An event during the attempt would cause a retry during the evictions."""
    sched, _wire = arena(1)
    requeue, seen = sched.parts.queue.requeue, []

    def watched(queued: Any) -> None:
        seen.append(holds_back(sched))
        requeue(queued)

    sched.parts.queue.requeue = watched  # type: ignore[method-assign]
    await rest(sched)

    assert seen == [True]


async def test_the_preemptor_is_not_tried_while_its_victims_are_evicted() -> None:
    sched, wire = arena(3)
    wire.hold("delete v0")
    await rest(sched)
    sched.gone("v1")
    sched.node("n1", cpu="3", labels={"a": "b"})
    sched.parts.queue.activate([sched.parts.shared.pending.get("default/p")])  # type: ignore[list-item]
    await sched.later(30)

    assert sched.places() == {"p": "gated"}
    assert metric(sched, "scheduler_preemption_attempts_total") == 1


@pytest.mark.parametrize("ends", [leaves, goes])
async def test_191_the_gate_opens_with_the_end_of_the_last_victim(
    ends: Callable[[SchedulerHarness, str], None],
) -> None:
    """The watch may show the end before the DELETE is answered, and that event must wake the preemptor."""
    sched, wire = arena(2)
    wire.hold("delete v1")
    await rest(sched)
    assert wire.sent[-1] == "delete v1"
    assert holds_back(sched)

    ends(sched, "v1")
    assert not holds_back(sched)
    if ends is leaves:
        sched.gone("v1")
    sched.gone("v0")
    await rest(sched)
    assert sched.writer.binds == [("default/p", "n1")]

    sched.pod("p", cpu="2", priority=100, on="n1")
    wire.answer("delete v1")
    await rest(sched)
    assert is_clean(sched)


@pytest.mark.parametrize("ends", [leaves, goes])
async def test_the_gate_stays_closed_while_other_victims_are_evicted(
    ends: Callable[[SchedulerHarness, str], None],
) -> None:
    sched, wire = arena(2)
    wire.hold("delete v0")
    await rest(sched)
    ends(sched, "v1")

    assert holds_back(sched)


async def test_the_end_of_an_older_preemption_does_not_open_the_gate_of_a_newer_one() -> None:
    sched, wire = arena(2)
    wire.hold("delete v1", "mark late")
    await rest(sched)
    sched.gone("v0")
    sched.pod("late", **VICTIM)
    show(sched, "v1", deleting=True)
    sched.parts.queue.activate([sched.parts.shared.pending.get("default/p")])  # type: ignore[list-item]
    await rest(sched)
    assert "mark late" in wire.sent
    assert holds_back(sched)

    wire.answer("delete v1")
    await rest(sched)
    assert holds_back(sched)
    assert len(sched.parts.evictions) == 1
    wire.answer("mark late")
    await rest(sched)
    assert wire.victims() == ["v0", "v1", "late"]
    assert not holds_back(sched)
    assert not sched.parts.evictions._preempting._preemptor_of


async def test_an_older_preemption_evicts_no_pod_once_there_is_a_newer_one() -> None:
    sched, wire = arena(3)
    wire.hold("delete v0")
    await rest(sched)
    preemptor = sched.parts.shared.pending.get("default/p")
    assert preemptor is not None
    sched.parts.evictions.start(preemptor, "n1", [sched.cluster.get("uid-v0")])  # type: ignore[list-item]
    wire.answer("delete v0")
    await rest(sched)

    assert "v2" not in wire.victims()
    assert not holds_back(sched)


# -- victims that are not bound yet -----------------------------------------------------------------------------------


async def low_on_its_way(*, permit: Any = None, pre_bind: Any = None) -> tuple[SchedulerHarness, Wire]:
    """Pod `low` is assumed, and p of higher priority is new."""
    sched = SchedulerHarness()
    wire = Wire(sched)
    if permit is not None:
        sched.plug(permit=(permit,))
    if pre_bind is not None:
        sched.plug(pre_bind=(pre_bind,))
    sched.node("n1", cpu="1")
    sched.pod("low", cpu="1")
    await rest(sched)
    assert sched.cluster.is_assumed("uid-low")
    sched.pod("p", cpu="1", priority=100)
    return sched, wire


IN_MEMORY = "Preempted by pod uid-p on node n1 (in kube-scheduler memory)."


async def test_194_a_victim_that_permit_holds_is_rejected_in_memory() -> None:
    """As v1.36.3: its attempt ends with an error, so the pod waits for its error back-off."""
    sched, wire = await low_on_its_way(permit=Holds(permits=Wait(900)))
    await rest(sched)

    assert [write for write in wire.sent if write.split()[0] in {"mark", "delete"}] == []
    assert events(sched, "Preempted") == [("low", IN_MEMORY)]
    assert ("low", "waiting on permit for pod: preempted") in events(sched, "FailedScheduling")
    assert sched.places()["low"] == "error backoff"
    assert sched.cluster.get("uid-low") is None
    assert sched.cluster.get("uid-p") is not None
    assert ended(sched) == (1, 0)


async def test_a_victim_that_has_moved_to_another_node_is_not_evicted() -> None:
    sched, wire = await low_on_its_way(permit=Holds("Gate", permits=Wait(900)))
    wire.hold("nominate p n1")
    await rest(sched)
    sched.node("n2", cpu="1")
    sched.parts.binder.waiting_pods.reject("uid-low", "Gate", "no")
    await rest(sched)
    sched.node("n2", cpu="1", labels={"wake": "up"})
    await sched.later(10)
    low = sched.cluster.get("uid-low")
    assert low is not None
    assert low.node_name == "n2"

    wire.answer("nominate p n1")
    await sched.turns()
    assert events(sched, "Preempted") == []
    assert sched.cluster.is_assumed("uid-low")


async def test_a_victim_that_permit_has_just_allowed_is_deleted() -> None:
    sched, wire = await low_on_its_way(permit=Holds("Gate", permits=Wait(900)))
    wire.hold("nominate p n1")
    await rest(sched)
    sched.writer.hold = asyncio.Event()
    permit.allow(sched.parts.binder.waiting_pods, "uid-low", "Gate")
    assert not sched.parts.binder.preempt("uid-low", "DefaultPreemption")
    wire.answer("nominate p n1")
    await rest(sched)

    assert wire.victims() == ["low"]


async def test_a_victim_that_permit_has_just_rejected_counts_as_preempted() -> None:
    sched, _wire = await low_on_its_way(permit=Holds("Gate", permits=Wait(900)))
    sched.parts.binder.waiting_pods.reject("uid-low", "Gate", "no")

    assert sched.parts.binder.preempt("uid-low", "DefaultPreemption")


class Slow(BeforeBind):
    """PreBind with two writes, each answered when the test sets its event."""

    def __init__(self) -> None:
        super().__init__("Slow")
        self.answers = [asyncio.Event(), asyncio.Event()]
        self.written: list[int] = []

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        if pod.pod.metadata.name != "low":
            return None
        for number in range(2):
            await asyncio.sleep(0)  # between two writes
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
    """The answer of the write that was sent is awaited. No further write is sent."""
    slow = Slow()
    sched, wire = await low_on_its_way(pre_bind=slow)
    for number in answered:
        slow.answers[number].set()
    await rest(sched)
    assert events(sched, "Preempted") == [("low", IN_MEMORY)]
    assert sched.cluster.is_assumed("uid-low")

    under_way = len(answered)
    slow.answers[under_way].set()
    await rest(sched)

    assert slow.written == [*answered, under_way]
    assert sched.writer.binds == [("default/p", "n1")]
    assert ("low", said) in events(sched, "FailedScheduling")
    assert sched.places()["low"] == "error backoff"
    assert [write for write in wire.sent if write.split()[0] in {"mark", "delete"}] == []


async def test_a_victim_in_prebind_is_cancelled_once() -> None:
    """A second cancellation would interrupt the wait for the answer."""
    slow = Slow()
    sched, _wire = await low_on_its_way(pre_bind=slow)
    await rest(sched)
    for _ in range(3):
        assert sched.parts.binder.preempt("uid-low", "DefaultPreemption")
        await sched.turns()
    draining = asyncio.ensure_future(sched.parts.binder.drain(1))
    await sched.turns()
    sched.clock.move(1.1)
    await sched.turns()
    assert sched.parts.binder.has("uid-low")

    slow.answers[0].set()
    await rest(sched)
    await draining
    assert slow.written == [0]


async def test_a_victim_is_not_preempted_twice() -> None:
    slow = Slow()
    sched, _wire = await low_on_its_way(pre_bind=slow)
    await rest(sched)
    sched.parts.queue.activate([sched.parts.shared.pending.get("default/p")])  # type: ignore[list-item]
    await rest(sched)
    assert metric(sched, "scheduler_preemption_attempts_total") == 2
    assert len(events(sched, "Preempted")) == 1
    assert ended(sched) == (1, 0)

    slow.answers[0].set()
    await rest(sched)
    assert sched.writer.binds == [("default/p", "n1")]


async def test_a_victim_in_prebind_of_parallel_plugins_is_cancelled() -> None:
    first, second = Slow(), Slow()
    first.pre_bind_parallel = second.pre_bind_parallel = True
    sched = SchedulerHarness()
    Wire(sched)
    sched.plug(pre_bind=(first, second))
    sched.node("n1", cpu="1")
    sched.pod("low", cpu="1")
    await rest(sched)
    sched.pod("p", cpu="1", priority=100)
    await rest(sched)
    for slow in (first, second):
        slow.answers[0].set()
    await rest(sched)

    assert (first.written, second.written) == ([0], [0])
    assert ("low", 'running PreBind plugin "Slow": preempted by DefaultPreemption') in events(sched, "FailedScheduling")
    assert sched.writer.binds == [("default/p", "n1")]


@pytest.mark.parametrize("has_prebind", [False, True], ids=["without PreBind", "after PreBind"])
async def test_a_victim_whose_binding_is_on_the_wire_is_deleted(has_prebind: bool) -> None:
    sched = SchedulerHarness()
    wire = Wire(sched)
    if has_prebind:
        sched.plug(pre_bind=(BeforeBind("Quick"),))
    sched.writer.hold = asyncio.Event()
    sched.node("n1", cpu="1")
    sched.pod("low", cpu="1")
    await rest(sched)
    sched.pod("p", cpu="1", priority=100)
    await rest(sched)

    assert wire.landed[-3:] == ["nominate p n1", "mark low", "delete low"]
    assert events(sched, "Preempted") == [("low", "Preempted by pod uid-p on node n1")]
    sched.writer.hold.set()
    await rest(sched)
    assert sched.writer.binds[0] == ("default/low", "n1")


# -- the end of the drain time -------------------------------------------------------------------------------------------


async def draining(sched: SchedulerHarness, limit_s: float) -> asyncio.Future[int]:
    """Begin to drain a preemption that is under way."""
    await rest(sched)
    drain = asyncio.ensure_future(sched.parts.evictions.drain(limit_s))
    await sched.turns()
    return drain


async def test_a_preemption_under_way_is_finished_within_the_drain_time() -> None:
    """The last victim is evicted after all other victims, as always."""
    sched, wire = arena(2)
    wire.hold("delete v0")
    drain = await draining(sched, 30)
    assert (drain.done(), "delete v1" in wire.sent) == (False, False)

    wire.answer("delete v0")
    await sched.turns()

    assert (await drain, wire.victims()) == (0, ["v0", "v1"])
    assert len(sched.parts.evictions) == 0


async def test_after_the_drain_time_a_preemption_ends_between_two_victims() -> None:
    sched, wire = arena(2)
    wire.hold("delete v0")
    drain = await draining(sched, 30)
    sched.clock.move(31)
    await sched.turns()
    assert not drain.done(), "a deletion is on the wire"

    wire.answer("delete v0")
    await sched.turns()

    assert (await drain, wire.victims()) == (1, ["v0"])
    assert len(sched.parts.evictions) == 0


async def test_no_pod_is_evicted_after_the_drain_time_for_a_nomination_that_was_written_late() -> None:
    sched, wire = arena(1)
    wire.hold("nominate p n1")
    drain = await draining(sched, 0)
    sched.clock.move(1)
    await sched.turns()
    wire.answer("nominate p n1")
    await sched.turns()

    assert await drain == 1
    assert wire.landed == ["nominate p n1"]


async def test_draining_ends_some_seconds_after_the_limit_though_the_server_never_answers() -> None:
    """The preemption still counts as under way, so the lease is not released early."""
    sched, wire = arena(1)
    wire.hold("delete v0")
    drain = await draining(sched, 5)
    for _ in range(2):
        await sched.turns()
        assert not drain.done()
        sched.clock.move(10)
    await sched.turns()

    assert (drain.done(), len(sched.parts.evictions)) == (True, 1)
