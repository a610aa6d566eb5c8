"""The scheduling loop: what an attempt that goes wrong costs, and when there is nothing to do (docs/spec/core.md §3.1, §3.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from scheduler.framework.profile import BoundFilter
from scheduler.framework.status import Code, Rejection
from tests.unit.brain import Brain
from tests.unit.toys import Holds, TakesLong, Verifies


async def test_unreserve_that_raises_does_not_hide_what_reserve_said() -> None:
    """The pod is refused as the first plugin refused it, and nothing stays held."""

    class Breaks(Holds):
        def unreserve(self, *_: object) -> None:
            raise RuntimeError("boom")

    brain = Brain()
    brain.plug(reserve=(Holds("A", reserves=Rejection("A", Code.UNSCHEDULABLE, ("taken",))), Breaks("B")))
    brain.node("n1")
    brain.pod("p")

    await brain.settle()

    assert brain.is_free()
    assert brain.message("p") == "0/1 nodes are available: 1 taken."
    assert set(brain.calls) == {"A.reserve", "A.unreserve"}


async def test_an_attempt_that_gave_the_event_loop_a_turn_is_work() -> None:
    """Its pod is in no queue and in no binding; whoever waits for quiet must not take that for it."""

    class Slow(Verifies):
        def _verdict(self, slot: int) -> Rejection | None:
            self.world.clock.move(0.01)
            return super()._verdict(slot)

    brain = Brain()
    toy = Slow("V", names=("n1", "n2", "n3"))
    toy.world = brain
    profile = brain.parts.profiles["kubestow"]
    object.__setattr__(profile, "filter", (*profile.filter, BoundFilter("V", toy.filter, toy.verify)))
    for name in ("n1", "n2", "n3"):
        brain.node(name)
    brain.pod("p")

    step = asyncio.ensure_future(brain.parts.loop.step())
    await asyncio.sleep(0)
    assert brain.calls
    assert not step.done()
    assert not brain.parts.is_idle()
    brain.parts.inbox.put(lambda: None)
    brain.parts.inbox.catch_up()  # as a binding would that leaves in this turn
    assert len(brain.parts.inbox) == 1
    await step
    await brain.settle()

    assert brain.parts.is_idle()


async def test_a_plugin_that_takes_long_stops_neither_tasks_nor_the_heartbeat() -> None:
    brain = _taking_long(rests=100)
    beat = brain.parts.loop.beat

    step = asyncio.ensure_future(brain.parts.loop.step())
    brain.pod("p")
    await asyncio.sleep(0)
    brain.parts.inbox.put(lambda: brain.node("n2"))
    for _ in range(20):
        await asyncio.sleep(0)
        brain.parts.inbox.catch_up()
    assert not step.done()
    assert brain.parts.loop.beat > beat
    assert brain.cluster.sizes()["nodes"] == 1
    await step
    await brain.settle()

    assert brain.cluster.sizes()["nodes"] == 2
    assert brain.writer.binds == [("default/p", "n1")]
    assert not any("n2" in call for call in brain.calls)


async def test_stopping_does_not_wait_for_an_attempt_that_takes_long() -> None:
    brain = _taking_long(rests=10**6)
    brain.pod("p")

    running = asyncio.ensure_future(brain.parts.loop.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert brain.calls
    brain.parts.loop.stop()
    for _ in range(5):
        await asyncio.sleep(0)

    assert running.done()
    assert brain.is_free()
    assert brain.writer.wire == []


def _taking_long(*, rests: int) -> Brain:
    brain, toy = Brain(), TakesLong("P", rests=rests)
    toy.world = brain
    profile = brain.parts.profiles["kubestow"]
    bound = BoundFilter("P", toy.filter, toy.verify)
    object.__setattr__(profile, "filter", (*profile.filter, bound))
    brain.node("n1")
    return brain


async def test_a_standby_is_warm_and_tries_nothing() -> None:
    """What arrives is applied and the loop comes around; pods are tried while it may, and no longer."""
    brain = Brain()

    def arrival(name: str) -> Callable[[], None]:
        def change() -> None:
            brain.pod(name)

        return change

    loop, may = brain.parts.loop, [False]
    running = asyncio.ensure_future(loop.run(lambda: may[0]))
    brain.parts.inbox.put(lambda: brain.node("n1"))
    brain.parts.inbox.put(arrival("p"))
    beat = loop.beat
    brain.clock.move(5)
    await brain.turns()
    assert brain.parts.queue.counts()["active"] == 1
    assert brain.cluster.sizes()["nodes"] == 1
    assert loop.beat > beat
    assert (brain.writer.wire, brain.recorder.events) == ([], [])

    may[0] = True
    brain.parts.inbox.wake()
    await brain.turns()
    assert brain.writer.wire == ["bind p"]

    may[0] = False
    brain.parts.inbox.put(arrival("q"))
    await brain.turns()
    assert brain.writer.wire == ["bind p"]
    loop.stop()
    await running


async def test_a_part_whose_upkeep_fails_does_not_stop_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    brain = Brain()

    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(brain.parts.intake.storage, "tick", fail)
    brain.node("n1")
    brain.pod("p")
    await brain.settle()

    assert brain.writer.binds == [("default/p", "n1")]
