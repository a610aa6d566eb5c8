"""The second look at what was allocated, when the scheduling loop has something else to do first (docs/spec/dra.md §10.5)."""

from __future__ import annotations

import asyncio

from scheduler.plugins.dra.node_verdicts import LONGEST_ATTEMPT_S
from tests.unit.plugins.dra.served import ASKING, Served, using


async def test_an_attempt_that_takes_as_long_as_it_may_is_not_taken_for_a_watch_that_is_behind() -> None:
    """What the watch shows waits for the attempt's end; its rests come on top of what it may search."""
    world = Served(ASKING)
    binding = asyncio.ensure_future(world.pre_bind(world.reserved(using("c"))))
    await world.clock.settle()

    await world.clock.advance(2 * LONGEST_ATTEMPT_S)
    await world.passes(binding)

    assert binding.result() is None
