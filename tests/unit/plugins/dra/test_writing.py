"""Claims are written in steps: failed and lost writes, cancellation, and other schedulers (docs/spec/dra.md §3.10, §10.5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import FINALIZER
from scheduler.core.errors import ApiError, Fenced, Forbidden, Invalid, NotFound, Unauthorized, Unavailable
from scheduler.plugins.dra.binding.double_check import WATCH_WITHIN_S
from scheduler.plugins.dra.structured.node_verdicts import LONGEST_ATTEMPT_S
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import Builder
from tests.unit.plugins.dra.served import (
    ASKING,
    BUSY,
    CHANGED,
    DONE,
    HELD,
    LOST,
    OTHER,
    Served,
    Step,
    begun,
    fails,
    loses_answers,
    nothing,
    steps,
    taken_by_other,
    touched,
    using,
)

# -- writes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("things", "claims", "writes"), [
    pytest.param((ASKING,), ("c",), ["protect c", "allocate c"], id="272 finalizer, then devices and reservation"),
    pytest.param((ASKING.finalizer(FINALIZER),), ("c",), ["allocate c"], id="273 the finalizer is there"),
    pytest.param((HELD,), ("c",), ["reserve c"], id="295 it has devices already"),
    pytest.param((HELD.reserved_for("p", "p"),), ("c",), [], id="264 it has them for this pod"),
    pytest.param((HELD, OTHER), ("c", "o"), ["reserve c", "protect o", "allocate o"],
        id="one that has devices and one that has not"),
    pytest.param((ASKING,), ("c", "c"), ["protect c", "allocate c"], id="§2.2 a claim that is listed twice"),
])  # fmt: skip
async def test_what_is_written(things: tuple[Builder[Any], ...], claims: tuple[str, ...], writes: list[str]) -> None:
    """After the writes no claim is in flight or unconfirmed."""
    world = Served(*things)
    under = world.reserved(using(*claims))

    assert "" == await world.bound(under)

    assert writes == world.writes
    assert all("p" in world.users(claim) for claim in claims)
    assert ([], {}) == (world.in_flight, world.plugin._binder._writer.unconfirmed)


async def test_devices_are_in_use_without_a_gap() -> None:
    """272: the devices count as in flight, then as in the server's response, then as in the watch."""
    world, under = begun()
    seen: list[tuple[list[str], list[str]]] = []
    world.writer.on_claim_written = lambda *_: seen.append((world.in_flight, world.used))

    assert "" == await world.bound(under, relays=True)

    assert [(["c"], ["n1/d0"]), (["c"], ["n1/d0"])] == seen
    assert (["n1/d0"], FINALIZER) == (world.used, world.cached("c").metadata.finalizers[0])


async def test_the_second_of_two_pods_reserves_while_the_first_waits_for_its_watch() -> None:
    """§10.5: the second pod also checks for conflicts, because the devices are not confirmed yet."""
    world, under = begun()
    first = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.settle()
    second = asyncio.ensure_future(world.pre_bind(world.reserved(using("c", name="q"))))
    await world.clock.settle()

    assert (False, False) == (first.done(), second.done())
    assert ["p", "q"] == world.users("c")
    await world.passes(asyncio.gather(first, second))
    assert (None, None) == (first.result(), second.result())


# -- failing writes ----------------------------------------------------------------------------------------------------


def deleting(world: Served) -> None:
    claim = world.server("c")
    world.put(replace(claim, metadata=replace(claim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))


def gone(world: Served) -> None:
    world.writer.resource_claims.pop("default/c")


def renewed(world: Served) -> None:
    claim = world.server("c")
    version = world.writer.next_version(claim.metadata)
    world.put(replace(claim, metadata=replace(claim.metadata, uid="c2", resource_version=version)))


def deallocated(world: Served) -> None:
    world.rewrite("c", allocation=None)


def allocated_elsewhere(world: Served) -> None:
    elsewhere = ASKING.allocated(a_result("r", "a/n2/d1")).typed().status.allocation
    world.rewrite("c", allocation=elsewhere)


def all_of(*some: Step) -> Step:
    def step(world: Served) -> None:
        for each in some:
            each(world)

    return step


@pytest.mark.parametrize(("happens", "problem", "writes"), [
    pytest.param([touched], "", ["protect c", *DONE], id="274 another client wrote between Reserve and the finalizer"),
    pytest.param([nothing, touched], "", [*DONE, "allocate c"], id="274 between finalizer and devices"),
    pytest.param([nothing, all_of(lambda world: world.put(replace(world.rewrite("c"),
        metadata=replace(world.rewrite("c").metadata, finalizers=()))))], "", [*DONE, *DONE],
        id="274 the finalizer was removed before the allocation: added again"),
    pytest.param([fails(BUSY)], "", ["protect c", *DONE], id="429: waited for"),
    pytest.param([nothing, fails(Unavailable("500"))], "", [*DONE, "allocate c"], id="5xx: tried again"),
    pytest.param([fails(CHANGED)] * 5,
        "add allocation and reservation to claim default/c: the object has been modified", ["protect c"] * 5,
        id="§3.10 five conflicts"),
    pytest.param([fails(Unavailable("500"))] * 5, "add allocation and reservation to claim default/c: 500",
        ["protect c"] * 5, id="292 a server that is broken"),
    pytest.param([fails(Forbidden("may not"))], "add finalizer to claim default/c: may not", ["protect c"],
        id="292 may not protect"),
    pytest.param([nothing, fails(Forbidden("may not"))], "add allocation and reservation to claim default/c: may not",
        DONE, id="292 may not allocate"),
    pytest.param(
        [nothing, fails(Invalid("status.reservedFor: Too many: 257: must have at most 256 items"))],
        "add allocation and reservation to claim default/c: "
        "status.reservedFor: Too many: 257: must have at most 256 items",
        DONE,
        id="296 the 257th reservation",
    ),
    pytest.param([fails(Fenced("does not lead"))], "add finalizer to claim default/c: does not lead", ["protect c"],
        id="not leading"),
    pytest.param([nothing, all_of(allocated_elsewhere)], "claim default/c got allocated elsewhere in the meantime",
        DONE, id="293 another scheduler allocated it"),
    pytest.param([all_of(deleting, fails(CHANGED))], "claim default/c got deleted in the meantime", ["protect c"],
        id="294 being deleted"),
    pytest.param([all_of(gone, fails(CHANGED))], "claim default/c got deleted in the meantime", ["protect c"],
        id="294 gone"),
    pytest.param([nothing, all_of(renewed, fails(CHANGED))], "claim default/c got deleted in the meantime", DONE,
        id="294 a namesake"),
    pytest.param([nothing, all_of(gone, fails(NotFound("not found")))],
        "add allocation and reservation to claim default/c: not found", DONE, id="294 not found"),
])  # fmt: skip
async def test_writes_that_fail(happens: list[Step], problem: str, writes: list[str]) -> None:
    """The bind returns `problem`; the devices are free after Unreserve unless the claim has them."""
    world, under = begun()
    steps(world, *happens)

    said = await world.bound(under)

    assert (problem, writes) == (said, world.writes)
    if problem:
        world.relay()
        world.unreserve(under)
        assert [] == world.in_flight
        assert "n1/d0" not in world.used


async def test_a_busy_server_is_waited_for_as_long_as_it_says() -> None:
    """The server returned 429 with Retry-After."""
    world, under = begun()
    steps(world, fails(BUSY))
    task = asyncio.ensure_future(world.pre_bind(under))

    await world.clock.advance(2.9)
    assert ["protect c"] == world.writes
    await world.passes(task)
    assert ["protect c", *DONE] == world.writes


async def test_conflicts_and_lost_answers_are_counted() -> None:
    """Each conflict and each lost answer counts once."""
    world, under = begun()
    steps(world, fails(CHANGED), fails(BUSY))
    loses_answers(world, LOST, only="allocate")

    assert "" == await world.bound(under)

    assert 2 == world.metrics.conflicts


async def test_a_claim_that_cannot_be_read_any_more() -> None:
    """The error names the object and the field."""
    world, under = begun()
    broken = Broken("ResourceClaim", Metadata(name="c", namespace="default"), "status.allocation: expected object")
    steps(world, all_of(lambda world: world.put(broken), fails(CHANGED)))

    said = await world.bound(under, relays=False)

    assert "ResourceClaim default/c cannot be read: status.allocation: expected object" == said


async def test_a_claim_that_lost_its_devices_between_pre_filter_and_the_write() -> None:
    """§3.10 f: the write fails with an error about the deallocation."""
    world = Served(HELD)
    under = world.reserved(using("c"))
    steps(world, deallocated)

    assert "claim default/c got deallocated elsewhere in the meantime" == await world.bound(under)


# -- a second attempt --------------------------------------------------------------------------------------------------


async def test_a_second_attempt_waits_until_the_first_has_given_back() -> None:
    """Otherwise the pod would run with a claim whose reservation is removed later."""
    world, under = begun()
    assert "" == await world.bound(under)
    hold = world.writer.claim_hold = asyncio.Event()
    world.unreserve(under)
    await world.clock.settle()
    again = world.reserved(using("c"))
    task = asyncio.ensure_future(world.pre_bind(again))
    await world.clock.settle()
    assert not task.done()

    hold.set()
    await world.passes(task)

    assert task.result() is None
    assert [*DONE, "unreserve c", "reserve c"] == world.writes
    assert ["p"] == world.users("c")


# -- lost answers ------------------------------------------------------------------------------------------------------

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


# -- other schedulers allocate the same devices, and our claim yields --------------------------------------------------

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
