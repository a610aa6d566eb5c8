"""Precedence decides which of two claims was allocated first, or yields if that is unknown (docs/spec/dra.md §10.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from scheduler.api.resource_v1 import ResourceClaim
from scheduler.core.errors import ApiError, Forbidden, Gone, Unavailable
from scheduler.plugins.dra.binding.device_conflicts import UNKNOWN, Precedence
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from tests.support.clock import VirtualClock
from tests.support.ports import ScriptedWriter
from tests.unit.plugins.dra.served import Served, using
from tests.unit.plugins.dra.writings import OTHER, begun, taken_by_other

DEVICE = a_result("r", "a/n1/d0")
OURS, THEIRS = a_claim("c").uid("c").request("r", "A"), a_claim("o").uid("o").request("r", "A")


def at(version: int, claim: ClaimBuilder, *, stamp: str = "", has: bool = True) -> ResourceClaim:
    claim = claim.allocated(DEVICE) if has else claim
    typed = (claim.allocated_at(stamp) if stamp else claim).resource_version(str(version)).typed()
    assert isinstance(typed, ResourceClaim)
    return typed


@pytest.mark.parametrize(("writes", "allocated_at", "was_first", "reads"), [
    pytest.param([at(5, THEIRS), at(7, OURS)], 7, True, 0, id="its last write was before"),
    pytest.param([at(7, OURS), at(9, THEIRS)], 7, False, 1, id="it had none then"),
    pytest.param([at(5, THEIRS), at(7, OURS), at(9, THEIRS)], 7, True, 1, id="it was written again since"),
    pytest.param([at(7, OURS), at(9, THEIRS)], UNKNOWN, False, 1, id="nothing is known of ours, which was first"),
    pytest.param([at(5, THEIRS), at(7, OURS)], UNKNOWN, True, 1, id="nothing is known of ours, which came later"),
    pytest.param([at(3, OURS), at(5, THEIRS), at(7, OURS), at(9, THEIRS), at(11, OURS)], UNKNOWN, False, 4,
        id="nothing is known of ours, and both were written again and again"),
    pytest.param([at(3, THEIRS), at(5, OURS), at(7, THEIRS), at(9, OURS), at(11, THEIRS)], UNKNOWN, True, 4,
        id="the same, and it was first"),
    pytest.param([at(3, THEIRS, stamp="2026-01-01T00:00:00Z"), at(7, OURS), at(9, THEIRS,
        stamp="2026-01-01T00:00:05Z")], 7, False, 1, id="it had the device before, gave it back, and has it again"),
    pytest.param([at(7, OURS), at(9, THEIRS, has=False)], 7, False, 0, id="it has none any more"),
    pytest.param([at(0, THEIRS), at(7, OURS)], 7, True, 0, id="its version is no number"),
    pytest.param([at(9, THEIRS), at(0, OURS)], UNKNOWN, True, 0, id="our version is no number"),
])  # fmt: skip
async def test_the_claim_that_was_allocated_first(
    writes: list[ResourceClaim], allocated_at: int, *, was_first: bool, reads: int
) -> None:
    """The result follows from the state of each claim at the resource version of the other claim."""
    writer, asked = ScriptedWriter(), list[None]()
    for each in (at(1, OURS, has=False), at(2, THEIRS, has=False), *writes):
        writer.resource_claims[each.key] = each
    writer.on_read = lambda: asked.append(None)
    newest = {each.metadata.name: each for each in writes}

    found = await Precedence(writer, VirtualClock()).was_first(newest["o"], newest["c"], allocated_at=allocated_at)

    assert (was_first, reads) == (found, len(asked))


@pytest.mark.parametrize(
    "error", [Gone("compacted"), Forbidden("no")], ids=["the version is compacted", "the read is forbidden"]
)
async def test_giving_way_is_safe_where_the_order_is_unknown(error: ApiError) -> None:
    writer = ScriptedWriter()

    def refuse() -> None:
        raise error

    writer.on_read = refuse

    assert await Precedence(writer, VirtualClock()).was_first(at(9, THEIRS), at(7, OURS), allocated_at=7)


async def test_a_read_from_a_busy_server_is_retried() -> None:
    writer, clock, left = ScriptedWriter(), VirtualClock(), [Unavailable("busy"), Unavailable("busy")]

    def busy() -> None:
        if left:
            raise left.pop()

    writer.on_read = busy
    world = Served()
    world.clock = clock
    task = asyncio.ensure_future(Precedence(writer, clock).was_first(at(9, THEIRS), at(7, OURS), allocated_at=7))
    await world.passes(task)

    assert task.result() is False


def _seen_before_the_look(world: Served, then: Callable[[], None]) -> None:
    def written(what: str, claim: ResourceClaim) -> None:
        if what == "allocate" and claim.metadata.name in {"c", "e"}:
            then()

    world.writer.on_claim_written = written


async def test_the_other_one_came_later_and_is_seen_before_we_look() -> None:
    """The watch shows the written claim before the response to the write arrives."""
    world, under = begun(a_claim("c").request("r", "A"), OTHER)

    def then() -> None:
        world.relay()
        taken_by_other(world)
        world.relay()

    _seen_before_the_look(world, then)

    assert (await world.bound(under), world.devices_of("c")) == ("", ["n1/d0"])


async def test_the_other_one_came_between_two_claims_of_the_pod() -> None:
    """The first claim was written and shown before; the second claim has another device."""
    world = Served(a_claim("c").request("r", "A"), a_claim("e").request("r", "A"), OTHER)
    under = world.reserved(using("c", "e"))

    def written(what: str, claim: ResourceClaim) -> None:
        if what == "allocate" and claim.metadata.name == "e":
            world.relay("default/c")
            taken_by_other(world)
            world.relay("default/o")

    world.writer.on_claim_written = written

    assert (await world.bound(under), world.devices_of("c"), world.metrics.collisions) == ("", ["n1/d0"], 0)
