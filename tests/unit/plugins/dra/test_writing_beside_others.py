"""Another scheduler allocates the same devices, and our claim yields (docs/spec/dra.md §10.5)."""

from __future__ import annotations

import asyncio

from scheduler.plugins.dra.binding.double_check import WATCH_WITHIN_S
from scheduler.plugins.dra.structured.node_verdicts import LONGEST_ATTEMPT_S
from tests.unit.plugins.dra.served import ASKING, Served, nothing, steps, using
from tests.unit.plugins.dra.writings import DONE, OTHER, begun, taken_by_other, touched

TAKEN = "claim default/c: device a/n1/d0 got allocated to another claim in the meantime"


async def test_devices_of_another_claim_are_given_back_although_our_claim_changed() -> None:
    """A driver writes the status of the claim at the same time."""
    world, under = begun(ASKING, OTHER)
    steps(world, nothing, taken_by_other, touched)

    assert TAKEN == await world.bound(under)

    assert [*DONE, "deallocate c", "deallocate c"] == world.writes
    assert [] == world.devices_of("c")


async def test_devices_of_another_claim_that_a_second_pod_of_our_claim_uses() -> None:
    """The next attempt frees the devices, when no second pod uses the claim."""
    world, under = begun(ASKING, OTHER)
    steps(world, taken_by_other, only="allocate")
    first = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.settle()
    other = world.reserved(using("c", name="q"))
    second = asyncio.ensure_future(world.pre_bind(other))
    await world.clock.settle()
    await world.passes(asyncio.gather(first, second))
    assert [TAKEN, TAKEN] == [no.message for no in (first.result(), second.result()) if no is not None]
    assert ["n1/d0"] == world.devices_of("c")
    world.unreserve(under)
    world.unreserve(other)
    await world.background()

    again = world.reserved(using("c"))
    said = await world.bound(again)

    assert (TAKEN, [], {}) == (said, world.devices_of("c"), world.plugin._binder._writer.unconfirmed)


async def test_a_watch_that_does_not_show_what_we_wrote() -> None:
    """PreBind fails and the claim keeps its devices. The next attempt checks them again."""
    world, under = begun()

    said = await world.bound(under, relays=False)

    assert "claim default/c: the watch is behind" == said
    assert WATCH_WITHIN_S <= world.clock.now()
    assert (["n1/d0"], 0, {"c"}) == (
        world.devices_of("c"),
        world.metrics.collisions,
        set(world.plugin._binder._writer.unconfirmed),
    )
    await world.undo(under)
    assert "" == await world.bound(world.reserved(using("c")))
    assert {} == world.plugin._binder._writer.unconfirmed


async def test_a_claim_that_is_deleted_before_the_watch_shows_it() -> None:
    """PreBind has no devices to free."""
    world, under = begun()
    task = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.settle()
    world.withdraw("c")
    await world.passes(task)

    no = task.result()
    assert no is not None
    assert "claim default/c got deleted in the meantime" == no.message
    assert (DONE, 0, {}) == (world.writes, world.metrics.collisions, world.plugin._binder._writer.unconfirmed)


async def test_an_attempt_that_takes_as_long_as_it_may_is_not_taken_for_a_watch_that_is_behind() -> None:
    """The watch is applied only after the attempt. The pauses of an attempt add to its search time."""
    world = Served(ASKING)
    binding = asyncio.ensure_future(world.pre_bind(world.reserved(using("c"))))
    await world.clock.settle()

    await world.clock.advance(2 * LONGEST_ATTEMPT_S)
    await world.passes(binding)

    assert binding.result() is None
