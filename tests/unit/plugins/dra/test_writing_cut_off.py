"""A device must not be given twice when the answer of a write is lost or the write is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core.errors import ApiError, Forbidden, Unauthorized, Unavailable
from simulator.builders.claims import a_claim
from tests.unit.plugins.dra.served import ASKING, LOST, Served, fails, loses_answers, nothing, steps, using
from tests.unit.plugins.dra.writings import DONE, OTHER, begun

# -- lost answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "writes"), [
    pytest.param([LOST], ["protect c", "allocate c"], id="the answer of the finalizer is lost"),
    pytest.param([None, LOST], DONE, id="the answer of the devices and the reservation is lost"),
])  # fmt: skip
async def test_a_lost_answer_of_a_write_that_was_carried_out(lost: list[ApiError | None], writes: list[str]) -> None:
    """The plugin reads the claim, and writes nothing twice."""
    world, under = begun()
    loses_answers(world, *lost)

    assert "" == await world.bound(under)

    assert (writes, ["p"], ["n1/d0"]) == (world.writes, world.users("c"), world.devices_of("c"))


async def test_a_lost_answer_of_a_write_that_was_not_carried_out() -> None:
    """The plugin reads the claim, and repeats the write."""
    world, under = begun()
    steps(world, nothing, fails(LOST))

    assert "" == await world.bound(under)

    assert [*DONE, "allocate c"] == world.writes


async def test_devices_stay_in_use_until_a_lost_answer_is_settled() -> None:
    """The write is committed, the claim is unreadable and the pod is cancelled: no other pod gets the device."""
    world, under = begun(ASKING, a_claim("d").request("r", "A", count=2))
    loses_answers(world, LOST, only="allocate")
    is_down = True
    reads = world.writer.device_claims.read_resource_claim

    async def read(namespace: str, name: str) -> Any:
        if is_down:
            raise Unavailable("no way to the server")
        return await reads(namespace, name)

    world.writer.device_claims.read_resource_claim = read
    task = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.advance(1.0)
    task.cancel()
    await world.clock.advance(60.0)

    assert not task.done()
    assert (["c"], {"n1": "cannot allocate all claims"}) == (world.in_flight, refused(world, using("d", name="q")))

    is_down = False
    await world.clock.advance(10.0)
    world.unreserve(under)

    assert task.cancelled()
    assert (["n1/d0"], ["n1/d0"], []) == (world.used, world.devices_of("c"), world.in_flight)
    await world.background()
    assert [] == world.users("c")


@pytest.mark.parametrize("refusal", [Unauthorized("not yet"), Forbidden("not yet")], ids=["401", "403"])
async def test_a_restarted_server_may_refuse_to_return_a_written_claim(refusal: ApiError) -> None:
    """A restart lost the answer. The server refuses every caller for some seconds, and then returns the claim."""
    world, under = begun()
    loses_answers(world, LOST, only="allocate")
    in_use: list[list[str]] = []

    def on_read() -> None:
        in_use.append(world.used)
        if len(in_use) < 5:
            raise refusal

    world.writer.on_read = on_read

    assert "" == await world.bound(under)

    assert [["n1/d0"]] * 5 == in_use


def refused(world: Served, info: PodInfo) -> dict[str, str]:
    return {node_name: text for node_name, (_, text) in world.refusals(info).items()}


# -- cancelled writes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("held", "writes", "devices"), [
    pytest.param("protect", ["protect c"], [], id="the finalizer is on the wire: no devices are written"),
    pytest.param("allocate", [*DONE, "unreserve c"], ["n1/d0"], id="the devices are on the wire: the claim keeps them"),
])  # fmt: skip
async def test_cancelled_while_a_write_is_on_the_wire(held: str, writes: list[str], devices: list[str]) -> None:
    """The PreBind of another plugin has failed: the answer is awaited and applied before the rollback."""
    world, under = begun()
    world.relay()
    hold = asyncio.Event()

    def on_claim(what: str, _: object) -> None:
        world.writer.claim_hold = hold if what == "protect" and held == "allocate" else None

    world.writer.on_claim = on_claim
    world.writer.claim_hold = hold if held == "protect" else None
    task = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.settle()
    task.cancel()
    await world.clock.settle()
    assert not task.done()
    assert ["c"] == world.in_flight

    hold.set()
    await world.clock.settle()
    assert task.cancelled()
    assert bool(devices) == world.cached("c").is_allocated
    world.unreserve(under)
    assert devices == world.used
    await world.background()

    assert (writes, devices, []) == (world.writes, world.devices_of("c"), world.users("c"))


async def test_cancelled_between_two_claims() -> None:
    """The first claim keeps its devices, and the second claim never gets a device."""
    world = Served(ASKING, OTHER)
    under = world.reserved(using("c", "o"))
    hold = asyncio.Event()
    world.writer.on_claim = lambda what, claim: setattr(world.writer, "claim_hold", hold if what == "protect" else None)
    task = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.settle()
    task.cancel()
    hold.set()
    await world.clock.settle()
    assert task.cancelled()
    await world.undo(under)

    assert (["n1/d0"], []) == (world.devices_of("c"), world.devices_of("o"))
    assert (["n1/d0"], []) == (world.used, world.in_flight)
