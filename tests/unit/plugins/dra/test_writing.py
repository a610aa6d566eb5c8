"""Claims are written in steps, and failed writes are retried or reported.

Specification: docs/spec/dra.md §3.10, §10.5, rows 264, 272–275, 292–297.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.resource_v1 import FINALIZER
from scheduler.core.errors import Fenced, Forbidden, Invalid, NotFound, Unavailable
from simulator.builders.claims import a_result
from simulator.builders.core import Builder
from tests.unit.plugins.dra.served import ASKING, HELD, LOST, Served, Step, fails, loses_answers, nothing, steps, using
from tests.unit.plugins.dra.writings import BUSY, CHANGED, DONE, OTHER, PROTECTED, begun, touched

# -- writes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("things", "claims", "writes"), [
    pytest.param((ASKING,), ("c",), ["protect c", "allocate c"], id="272 finalizer, then devices and reservation"),
    pytest.param((PROTECTED,), ("c",), ["allocate c"], id="273 the finalizer is there"),
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


async def test_another_pod_of_the_claim_goes_on_as_soon_as_it_is_written() -> None:
    """§1.4, 277, 295: each pod adds a separate reservation."""
    world, under = begun()
    assert "" == await world.bound(under)
    second = world.reserved(using("c", name="q"))

    assert "" == await world.bound(second)

    assert ["p", "q"] == world.users("c")
    assert [*DONE, "reserve c"] == world.writes


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


async def test_a_second_attempt_takes_what_the_first_has_allocated() -> None:
    """§3.8: the allocation stays with the claim."""
    world, under = begun()
    await world.bound(under)
    await world.undo(under)

    again = world.reserved(using("c"))

    assert "" == await world.bound(again)
    assert (["n1/d0"], ["p"]) == (world.devices_of("c"), world.users("c"))
