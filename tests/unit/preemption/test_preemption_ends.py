"""How preemptions end: with the daemon, and when the API server refuses (docs/spec/core.md §3.10 step 5)."""

from __future__ import annotations

import asyncio

from scheduler.api.core_v1 import Pod
from tests.unit.harness import SchedulerHarness


def full_node(*victims: str) -> SchedulerHarness:
    """One node that pods of priority 0 fill to the brim, a CPU each."""
    sched = SchedulerHarness()
    sched.node("n1", cpu=str(len(victims)))
    for name in victims:
        sched.pod(name, cpu="1", on="n1", priority=0)
    return sched


class HeldDeletes:
    """Deletions wait on the wire until `answered`."""

    def __init__(self, sched: SchedulerHarness) -> None:
        self.answered = asyncio.Event()
        self.sent: list[str] = []
        delete = sched.writer.delete_pod

        async def held(pod: Pod) -> None:
            self.sent.append(pod.metadata.name)
            await self.answered.wait()
            await delete(pod)

        sched.writer.delete_pod = held  # type: ignore[method-assign]


async def test_a_preemption_under_way_is_finished_within_the_drain_time() -> None:
    """Half of one would be victims for nothing; the last victim goes after the others as always."""
    sched = full_node("a", "b")
    deletes = HeldDeletes(sched)
    sched.pod("high", cpu="2", priority=9)
    await sched.settle()
    draining = asyncio.ensure_future(sched.parts.evictions.drain(30))
    await sched.turns()
    assert (draining.done(), len(deletes.sent)) == (False, 1)

    deletes.answered.set()
    await sched.turns()

    assert (await draining, sorted(sched.writer.deletions)) == (0, ["default/a", "default/b"])
    assert len(sched.parts.evictions) == 0


async def test_after_the_drain_time_it_ends_between_two_victims() -> None:
    sched = full_node("a", "b")
    deletes = HeldDeletes(sched)
    sched.pod("high", cpu="2", priority=9)
    await sched.settle()
    draining = asyncio.ensure_future(sched.parts.evictions.drain(30))
    await sched.turns()
    sched.clock.move(31)
    await sched.turns()
    assert not draining.done(), "a deletion is on the wire"

    deletes.answered.set()
    await sched.turns()

    assert (await draining, len(sched.writer.deletions)) == (1, 1)
    assert len(sched.parts.evictions) == 0


async def test_nobody_dies_after_the_drain_time_for_a_nomination_that_was_written_late() -> None:
    sched = full_node("a")
    sched.writer.patch_hold = asyncio.Event()
    sched.pod("high", cpu="1", priority=9)
    await sched.settle()
    draining = asyncio.ensure_future(sched.parts.evictions.drain(0))
    await sched.turns()
    sched.clock.move(1)
    await sched.turns()
    sched.writer.patch_hold.set()
    await sched.turns()

    assert await draining == 1
    assert (sched.writer.nominations, sched.writer.deletions) == ([("default/high", "n1")], [])


async def test_draining_ends_though_the_server_never_answers() -> None:
    """Some seconds after the limit; the preemption still counts as under way, so the lease is not given back early."""
    sched = full_node("a")
    HeldDeletes(sched)
    sched.pod("high", cpu="1", priority=9)
    await sched.settle()
    draining = asyncio.ensure_future(sched.parts.evictions.drain(5))
    for _ in range(2):
        await sched.turns()
        assert not draining.done()
        sched.clock.move(10)
    await sched.turns()

    assert (draining.done(), len(sched.parts.evictions)) == (True, 1)
