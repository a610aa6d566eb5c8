"""Preemptions at the end of the drain time (docs/spec/core.md §3.10 step 5)."""

from __future__ import annotations

import asyncio

from tests.unit.harness import SchedulerHarness
from tests.unit.preemption.evicting import arena, rest


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
