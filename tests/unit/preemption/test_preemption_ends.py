"""How preemptions end: with the daemon, and when the API server refuses (docs/spec/core.md §3.10 step 5)."""

from __future__ import annotations

import asyncio

from scheduler.api.core_v1 import Pod
from tests.unit.brain import Brain


def full_node(*victims: str) -> Brain:
    """One node that pods of priority 0 fill to the brim, a CPU each."""
    brain = Brain()
    brain.node("n1", cpu=str(len(victims)))
    for name in victims:
        brain.pod(name, cpu="1", on="n1", priority=0)
    return brain


class HeldDeletes:
    """Deletions wait on the wire until `answered`."""

    def __init__(self, brain: Brain) -> None:
        self.answered = asyncio.Event()
        self.sent: list[str] = []
        delete = brain.writer.delete_pod

        async def held(pod: Pod) -> None:
            self.sent.append(pod.metadata.name)
            await self.answered.wait()
            await delete(pod)

        brain.writer.delete_pod = held  # type: ignore[method-assign]


async def test_a_preemption_under_way_is_finished_within_the_drain_time() -> None:
    """Half of one would be victims for nothing; the last victim goes after the others as always."""
    brain = full_node("a", "b")
    deletes = HeldDeletes(brain)
    brain.pod("high", cpu="2", priority=9)
    await brain.settle()
    draining = asyncio.ensure_future(brain.parts.evictions.drain(30))
    await brain.turns()
    assert (draining.done(), len(deletes.sent)) == (False, 1)

    deletes.answered.set()
    await brain.turns()

    assert (await draining, sorted(brain.writer.deletions)) == (0, ["default/a", "default/b"])
    assert len(brain.parts.evictions) == 0


async def test_after_the_drain_time_it_ends_between_two_victims() -> None:
    brain = full_node("a", "b")
    deletes = HeldDeletes(brain)
    brain.pod("high", cpu="2", priority=9)
    await brain.settle()
    draining = asyncio.ensure_future(brain.parts.evictions.drain(30))
    await brain.turns()
    brain.clock.move(31)
    await brain.turns()
    assert not draining.done(), "a deletion is on the wire"

    deletes.answered.set()
    await brain.turns()

    assert (await draining, len(brain.writer.deletions)) == (1, 1)
    assert len(brain.parts.evictions) == 0


async def test_nobody_dies_after_the_drain_time_for_a_nomination_that_was_written_late() -> None:
    brain = full_node("a")
    brain.writer.patch_hold = asyncio.Event()
    brain.pod("high", cpu="1", priority=9)
    await brain.settle()
    draining = asyncio.ensure_future(brain.parts.evictions.drain(0))
    await brain.turns()
    brain.clock.move(1)
    await brain.turns()
    brain.writer.patch_hold.set()
    await brain.turns()

    assert await draining == 1
    assert (brain.writer.nominations, brain.writer.deletions) == ([("default/high", "n1")], [])


async def test_draining_ends_though_the_server_never_answers() -> None:
    """Some seconds after the limit; the preemption still counts as under way, so the lease is not given back early."""
    brain = full_node("a")
    HeldDeletes(brain)
    brain.pod("high", cpu="1", priority=9)
    await brain.settle()
    draining = asyncio.ensure_future(brain.parts.evictions.drain(5))
    for _ in range(2):
        await brain.turns()
        assert not draining.done()
        brain.clock.move(10)
    await brain.turns()

    assert (draining.done(), len(brain.parts.evictions)) == (True, 1)
