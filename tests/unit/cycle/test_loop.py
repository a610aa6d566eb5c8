"""The scheduling loop: failed and long attempts, standby, and idleness (docs/spec/core.md §3.1, §3.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from scheduler.framework.profile import BoundFilter
from scheduler.framework.status import Rejection
from simulator.builders.devices import a_device, a_slice
from tests.unit.fake_plugins import TakesLong, Verifies
from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.device_harness import DeviceHarness


async def test_the_loop_is_not_idle_while_an_attempt_yields() -> None:
    """The pod is in no queue and in no binding then."""

    class Slow(Verifies):
        def _verdict(self, slot: int) -> Rejection | None:
            self.harness.clock.move(0.01)
            return super()._verdict(slot)

    sched = SchedulerHarness()
    plugin = Slow("V", names=("n1", "n2", "n3"))
    plugin.harness = sched
    profile = sched.parts.profiles["kubestow"]
    object.__setattr__(profile, "filter", (*profile.filter, BoundFilter("V", plugin.filter, plugin.verify)))
    for name in ("n1", "n2", "n3"):
        sched.node(name)
    sched.pod("p")

    step = asyncio.ensure_future(sched.parts.loop.step())
    await asyncio.sleep(0)
    assert sched.calls
    assert not step.done()
    assert not sched.parts.is_idle()
    sched.parts.inbox.put(lambda: None)
    sched.parts.inbox.catch_up()  # as a binding would that leaves in this turn
    assert len(sched.parts.inbox) == 1
    await step
    await sched.settle()

    assert sched.parts.is_idle()


async def test_a_long_plugin_stops_neither_tasks_nor_the_heartbeat() -> None:
    sched = _taking_long(yields=100)
    beat = sched.parts.loop.beat

    step = asyncio.ensure_future(sched.parts.loop.step())
    sched.pod("p")
    await asyncio.sleep(0)
    sched.parts.inbox.put(lambda: sched.node("n2"))
    for _ in range(20):
        await asyncio.sleep(0)
        sched.parts.inbox.catch_up()
    assert not step.done()
    assert sched.parts.loop.beat > beat
    assert sched.cluster.sizes()["nodes"] == 1
    await step
    await sched.settle()

    assert sched.cluster.sizes()["nodes"] == 2
    assert sched.writer.binds == [("default/p", "n1")]
    assert not any("n2" in call for call in sched.calls)


async def test_stopping_does_not_wait_for_a_long_attempt() -> None:
    sched = _taking_long(yields=10**6)
    sched.pod("p")

    running = asyncio.ensure_future(sched.parts.loop.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert sched.calls
    sched.parts.loop.stop()
    for _ in range(5):
        await asyncio.sleep(0)

    assert running.done()
    assert sched.is_free()
    assert sched.writer.wire == []


def _taking_long(*, yields: int) -> SchedulerHarness:
    sched, plugin = SchedulerHarness(), TakesLong("P", yields=yields)
    plugin.harness = sched
    profile = sched.parts.profiles["kubestow"]
    bound = BoundFilter("P", plugin.filter, plugin.verify)
    object.__setattr__(profile, "filter", (*profile.filter, bound))
    sched.node("n1")
    return sched


async def test_a_standby_applies_changes_and_tries_no_pod() -> None:
    sched = SchedulerHarness()

    def arrival(name: str) -> Callable[[], None]:
        def change() -> None:
            sched.pod(name)

        return change

    loop, may = sched.parts.loop, [False]
    running = asyncio.ensure_future(loop.run(lambda: may[0]))
    sched.parts.inbox.put(lambda: sched.node("n1"))
    sched.parts.inbox.put(arrival("p"))
    beat = loop.beat
    sched.clock.move(5)
    await sched.turns()
    assert sched.parts.queue.counts()["active"] == 1
    assert sched.cluster.sizes()["nodes"] == 1
    assert loop.beat > beat
    assert (sched.writer.wire, sched.recorder.events) == ([], [])

    may[0] = True
    sched.parts.inbox.wake()
    await sched.turns()
    assert sched.writer.wire == ["bind p"]

    may[0] = False
    sched.parts.inbox.put(arrival("q"))
    await sched.turns()
    assert sched.writer.wire == ["bind p"]
    loop.stop()
    await running


async def test_a_tick_that_fails_does_not_stop_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    sched = SchedulerHarness()

    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sched.parts.event_handlers.storage, "tick", fail)
    sched.node("n1")
    sched.pod("p")
    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]


@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "standby"])
async def test_the_devices_of_all_nodes_are_known_before_the_first_pod_needs_them(is_leader: bool) -> None:
    """An idle loop looks at 64 nodes at a time, so that the first decision need not look at all of them."""
    nodes = tuple(f"n{at}" for at in range(150))
    harness = DeviceHarness(nodes=nodes)
    harness.parts.loop._may_pop = lambda: is_leader
    on_nodes, behind = harness.cluster.devices.on_nodes, []
    while await harness.parts.loop.step():
        behind.append(on_nodes.behind)

    assert behind
    assert 0 == on_nodes.behind
    assert all(before - after <= 64 for before, after in pairwise(behind))
    assert 150 == on_nodes.placed.bit_count()


async def test_nodes_without_devices_cost_an_idle_loop_nothing() -> None:
    harness = SchedulerHarness()
    for at in range(5):
        harness.node(f"n{at}")

    assert not await harness.parts.loop.step()
    assert 0 == harness.cluster.devices.on_nodes.placed


async def test_a_fault_in_idle_work_does_not_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded, and nothing is left to do, so that a lasting fault does not keep the loop busy."""
    harness = DeviceHarness(nodes=("n1", "n2"))
    on_nodes = harness.cluster.devices.on_nodes

    def fails(_: int) -> object:
        raise RuntimeError("a fault of one node")

    monkeypatch.setattr(on_nodes, "_own_pools_of", fails)
    assert not await harness.parts.loop.step()
    monkeypatch.undo()
    harness.show(harness.claim("c"))
    harness.node("n3")
    harness.show(a_slice("n3", "drv", a_device("d0").attr("drv/at", 0)))
    harness.pod("p", resourceClaims=[{"name": "r", "resourceClaimName": "c"}])
    await harness.settle()

    assert "p" in harness.tried
