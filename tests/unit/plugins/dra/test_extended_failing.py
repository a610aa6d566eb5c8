"""Writes of the claim for extended resources that fail, or whose answer is lost: docs/spec/dra.md §3.12, rows 328–330 of §9.15."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.api.resource_v1 import ResourceClaim
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, Invalid, TooManyRequests, Unavailable
from scheduler.framework.status import Code
from scheduler.plugins.dra.state import STATE
from simulator.builders.claims import a_claim, a_result
from tests.unit.plugins.dra.served import LOST, fails, fails_first, loses_answers, nothing, steps
from tests.unit.plugins.dra.standins import PREFIX, a_world, creates, gpus, made, the_one, undone


@pytest.mark.parametrize("error", [Invalid("bad"), Forbidden("may not")], ids=["refused", "forbidden"])
async def test_328_the_pods_status_cannot_be_written(error: ApiError) -> None:
    """The claim stays for Unreserve to remove."""
    world = a_world()
    fails_first(world, "set_extended_resource_status", error)
    under = world.reserved(gpus())

    assert f"update pod default/p ExtendedResourceClaimStatus: {error}" == await world.bound(under)
    assert 1 == len(made(world))
    world.unreserve(under)
    await world.undo(under)
    assert ([], [], 1) == (made(world), world.used, sum(each.startswith("delete") for each in world.writes))


@pytest.mark.parametrize(
    "lost", [LOST, Unavailable("not now"), TooManyRequests("busy", retry_after_s=7)], ids=["lost", "down", "busy"]
)
async def test_328_the_pods_status_is_written_again(lost: ApiError) -> None:
    """Each retry writes the same status."""
    world = a_world()
    fails_first(world, "set_extended_resource_status", lost, lost)

    assert "" == await world.bound(world.reserved(gpus()))
    assert 1 == len(world.writer.extended_statuses)
    assert not isinstance(lost, TooManyRequests) or world.clock.now() >= 14


async def test_329_what_an_attempt_before_has_left_goes_first() -> None:
    """All nodes reject the pod, the old claim is deleted, and the next attempt binds the pod."""
    result = a_result("container-0-request-0", "a/n1/d0")
    left = a_claim("left").for_extended_resources().owned_by("p", "p").request("container-0-request-0", "gpu")
    world = a_world(left.allocated(result, on="n1"))
    state, said = world.filter(gpus())
    assert isinstance(said, dict)
    assert [(Code.UNRESOLVABLE, "cannot schedule extended resource claim", 2)] == [
        (no.code, no.message, out.bit_count()) for no, out in said.items()
    ]

    no = world.post_filter(state, gpus())
    assert (Code.UNSCHEDULABLE, "deletion of ResourceClaim completed") == (no.code, no.message)
    await world.background()
    assert (["delete left"], {}, []) == (world.writes, world.writer.resource_claims, world.used)
    assert "" == await world.bound(world.reserved(gpus()))


@pytest.mark.parametrize("error", [Forbidden("may not"), Invalid("bad"), Unavailable("down")])
async def test_330_it_cannot_be_made(error: ApiError) -> None:
    world = a_world()
    steps(world, *[fails(error)] * 9, only="create")
    under = world.reserved(gpus())

    assert f"create claim for extended resources default/: {error}" == await world.bound(under)
    assert ["failure"] == world.metrics.created
    assert (5 if isinstance(error, Unavailable) else 1) == creates(world)
    await world.undo(under)
    assert ([], [], creates(world)) == (made(world), world.used, len(world.writes))


async def test_330_a_request_to_a_busy_server_is_retried() -> None:
    """The rejected requests have created no claim."""
    world = a_world()
    steps(world, fails(TooManyRequests("busy", retry_after_s=9)), fails(Unavailable("down")), only="create")

    assert "" == await world.bound(world.reserved(gpus()))
    assert (3, ["success"], 1) == (creates(world), world.metrics.created, len(made(world)))
    assert world.clock.now() >= 9


@pytest.mark.parametrize(
    "lost", [LOST, Unavailable("down")], ids=["lost", "the server returns an error but has created the claim"]
)
@pytest.mark.parametrize("times", [1, 3])
async def test_a_lost_answer_is_read(lost: ApiError, times: int) -> None:
    """The claim is read immediately by its requested name, even if the watch is silent."""
    world = a_world()
    loses_answers(world, lost, only="create")
    fails_first(world, "read_resource_claim", *[LOST] * (times - 1))
    under = world.reserved(gpus())
    task = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.advance(3.0)  # the watch is silent
    assert ["p"] == world.users(the_one(world))
    await world.passes(task)

    assert (None, 1 + times, 1, ["success"]) == (task.result(), creates(world), len(made(world)), world.metrics.created)
    assert ["n1/d0"] == world.used


async def test_a_lost_request_is_sent_again() -> None:
    """The retry has the same name, so that the server rejects the first request if it arrives late."""
    world = a_world()
    asked: list[str] = []
    create = world.writer.device_claims.create_claim

    async def noting(claim: ResourceClaim, pod: Any, name: str) -> Any:
        asked.append(name)
        return await create(claim, pod, name)

    world.writer.device_claims.create_claim = noting
    steps(world, fails(LOST), nothing, only="create")
    under = world.reserved(gpus())

    assert "" == await world.bound(under)
    assert world.clock.now() < 1
    assert [the_one(world)] * 2 == asked
    with pytest.raises(Conflict):
        await create(under.state.get(STATE).claims[0], under.info.pod, asked[0])


async def test_nothing_can_be_read_of_what_was_lost() -> None:
    """The attempt fails within seconds; a claim that appears later is deleted."""
    world = a_world()
    loses_answers(world, LOST, only="create")
    fails_first(world, "read_resource_claim", *[Ambiguous("connection lost again")] * 99)
    under = world.reserved(gpus())
    said = await world.bound(under, relays=False)
    assert "create claim for extended resources default/: connection lost again" == said
    assert world.clock.now() < 5

    world.relay()
    assert ([], [], []) == await undone(world, under)


async def test_a_claim_of_another_pod_has_the_name() -> None:
    """The other claim is not changed, and the binder tries another name."""
    world = a_world()
    taken: list[str] = []

    def take(what: str, _: ResourceClaim) -> None:
        if what == "create" and not taken:
            taken.append(f"{PREFIX}bbbbb")
            world.show(a_claim(taken[0]).owned_by("p", "another p").for_extended_resources().request("r", "gpu"))

    draws = iter(["b" * 5, "c" * 5])
    world.plugin._binder._maker._chance = SimpleNamespace(choices=lambda *_, **__: next(draws))  # type: ignore[assignment]
    world.writer.on_claim = take

    assert "" == await world.bound(world.reserved(gpus()))
    assert [f"{PREFIX}bbbbb", f"{PREFIX}ccccc"] == sorted(each.metadata.name for each in made(world))
    assert ([], ["p"]) == (world.users(f"{PREFIX}bbbbb"), world.users(f"{PREFIX}ccccc"))


async def test_its_name_is_one_that_a_server_would_make_up() -> None:
    """The name of the pod is cut if it is too long."""
    long = "a" * 200
    world = a_world()

    assert "" == await world.bound(world.reserved(gpus(name=long)))
    ((_, status),) = world.writer.extended_statuses
    assert re.fullmatch("a{58}[bcdfghjklmnpqrstvwxz2456789]{5}", status.resource_claim_name)


async def test_one_is_left_of_several() -> None:
    """A claim that an older scheduler has left is deleted after the watch has shown it."""
    world = a_world()
    under = world.reserved(gpus())
    left = a_claim(f"{PREFIX}older").for_extended_resources().owned_by("p", "p").request("container-0-request-0", "gpu")
    world.show(left)

    assert "" == await world.bound(under)
    assert (["p"], ["n1/d0"]) == (world.users(the_one(world)), world.used)


async def test_what_cannot_be_removed_keeps_no_pod_back() -> None:
    """The claim has no devices, and is deleted together with its pod."""
    world = a_world()
    under = world.reserved(gpus())
    world.show(a_claim(f"{PREFIX}older").for_extended_resources().owned_by("p", "p").request("r", "gpu"))
    fails_first(world, "delete_claim", *[Forbidden("may not")] * 99)

    assert "" == await world.bound(under)
    assert 2 == len(made(world))


async def test_a_lost_answer_of_the_allocation() -> None:
    """The claim is read, and it has its devices."""
    world = a_world()
    loses_answers(world, LOST, only="allocate")

    assert "" == await world.bound(world.reserved(gpus()))
    assert ["n1/d0"] == world.devices_of(the_one(world)) == world.used
