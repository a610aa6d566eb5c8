"""The plugin creates and deletes the claim for extended resources (docs/spec/dra.md §3.12, rows 321, 328–331 of §9.15); claims whose name in the status changes."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.api.core_v1 import ExtendedResourceClaimStatus
from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.core.cooperative import answered, finish
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, Invalid, TooManyRequests, Unavailable
from scheduler.framework.status import Code, Rejection
from scheduler.plugins.dra.state import STATE
from simulator.builders.claims import a_claim
from simulator.builders.core import pod
from tests.unit.plugins.dra.served import (
    ASKING,
    LOST,
    PARITY,
    Served,
    Under,
    fails,
    fails_first,
    loses_answers,
    nothing,
    steps,
    using,
)
from tests.unit.plugins.dra.trying import GPU, PREFIX, SERVES, a_world, creates, gpus, made, the_one, undone


async def test_321_it_is_created_allocated_and_reported() -> None:
    """Each step is one write. The first write adds the finalizer."""
    world = a_world()
    under = world.reserved(gpus(2))
    assert (["<extended-resources>"], ["n1/d0", "n1/d1"]) == (world.in_flight, world.used)

    assert "" == await world.bound(under)
    name = the_one(world)
    assert ["create <extended-resources>", f"allocate {name}"] == world.writes
    assert ["n1/d0", "n1/d1"] == world.devices_of(name) == world.used
    assert (["p"], []) == (world.users(name), world.in_flight)
    ((pod_key, status),) = world.writer.extended_statuses
    assert ("default/p", name) == (pod_key, status.resource_claim_name)


async def test_its_devices_are_in_use_at_every_moment() -> None:
    """They are checked before and after each write, and every tenth of a second until the watch is complete."""
    world = a_world()
    seen: list[list[str]] = []
    world.writer.on_claim = lambda *_: seen.append(world.used)
    world.writer.on_claim_written = lambda *_: seen.append(world.used)
    task = asyncio.ensure_future(world.pre_bind(world.reserved(gpus())))
    for _ in range(20):
        await world.clock.advance(0.1)
        seen.append(world.used)
    assert not task.done()

    world.relay()
    seen.append(world.used)
    await world.passes(task)
    seen.append(world.used)
    assert task.result() is None
    assert [["n1/d0"]] * len(seen) == seen
    assert ([], ["n1/d0"]) == (world.in_flight, world.used)


async def test_the_watch_shows_the_claim_before_its_devices() -> None:
    """The created claim without an allocation does not free the devices."""
    world = a_world()
    world.writer.on_claim_written = lambda what, _: world.relay() if what == "create" else None
    task = asyncio.ensure_future(world.pre_bind(world.reserved(gpus())))
    await world.clock.settle()

    assert ["n1/d0"] == world.used
    await world.passes(task)
    assert (None, ["n1/d0"], []) == (task.result(), world.used, world.in_flight)


async def test_the_watch_does_not_show_it() -> None:
    """The claim is removed after two minutes, because two schedulers might have taken the same devices."""
    world = a_world()
    under = world.reserved(gpus())
    said = await world.bound(under, relays=False)

    assert f"claim default/{the_one(world)}: the watch is behind" == said
    assert 120 <= world.clock.now() < 121
    assert ["n1/d0"] == world.used
    assert ([], [], []) == await undone(world, under)


async def test_upstream_goes_on_without_the_watch() -> None:
    world = a_world(ours=PARITY)
    said = await world.bound(world.reserved(gpus()), relays=False)

    assert "" == said
    assert 120 <= world.clock.now() < 121
    assert 1 == len(world.writer.extended_statuses)


async def test_316_with_a_claim_of_the_pod() -> None:
    """The pod's claim is written first. If the other claim fails, both are undone."""
    world = a_world(ASKING)
    under = world.reserved(gpus(claim="c"))
    assert ["n1/d0", "n1/d1"] == world.used
    steps(world, fails(Invalid("no")), only="create")

    assert "create claim for extended resources default/: no" == await world.bound(under)
    assert ["protect c", "allocate c", "create <extended-resources>"] == world.writes
    await world.undo(under)
    assert ([], []) == (world.users("c"), made(world))

    assert "" == await world.bound(world.reserved(gpus(claim="c")))
    assert ["p"] == world.users("c") == world.users(the_one(world))


async def test_only_the_overhead_requests_it() -> None:
    """Upstream creates a claim without requests and fails after that. Kubestow fails before the first write."""
    world = a_world()
    info = pod_info(pod("p").uid("p").overhead(**{GPU: "1"}).typed())
    said = await world.bound(world.reserved(info))

    assert "nil or empty request mappings, no update of pod default/p ExtendedResourceClaimStatus" == said
    assert [] == world.writes


@pytest.mark.parametrize("is_named", [True, False])
async def test_another_scheduler_binds_the_pod(*, is_named: bool) -> None:
    """The pod runs with the claim that its status names at that time, and with no other."""
    world = a_world()
    under = world.reserved(gpus())
    assert "" == await world.bound(under)
    named = ExtendedResourceClaimStatus(the_one(world) if is_named else "another")
    status = replace(under.info.pod.status, extended_resource_claim_status=named)
    world.cluster.add_pod(pod_info(replace(under.info.pod, status=status)))

    await world.undo(under)

    assert (["n1/d0"] if is_named else []) == world.used
    assert is_named == bool(made(world))


async def test_cancelled_while_it_is_on_the_wire() -> None:
    """The answer is awaited, so that it can be removed."""
    world = a_world()
    world.writer.claim_hold = asyncio.Event()
    under = world.reserved(gpus())
    task = asyncio.ensure_future(world.pre_bind(under))
    await world.clock.settle()
    task.cancel()
    await world.clock.settle()
    assert not task.done()

    world.writer.claim_hold.set()
    await world.clock.settle()
    assert task.cancelled()
    assert 1 == len(made(world))
    assert ([], [], []) == await undone(world, under)


async def test_an_answer_that_cannot_be_read() -> None:
    """The claim exists, so it is deleted."""
    world = a_world()
    create = world.writer.device_claims.create_claim

    async def unreadable(claim: ResourceClaim, pod: Any, name: str) -> Broken:
        there = await create(claim, pod, name)
        seen = there.metadata
        metadata = Metadata(name=seen.name, namespace=seen.namespace, uid=seen.uid)
        return Broken(kind="ResourceClaim", metadata=metadata, why="no number")

    world.writer.device_claims.create_claim = unreadable
    under = world.reserved(gpus())

    said = await world.bound(under)
    assert f"ResourceClaim default/{the_one(world)} cannot be read: no number" == said
    assert ([], [], []) == await undone(world, under)


async def test_the_claim_is_removed_during_the_attempt() -> None:
    """The attempt fails at once, before the pod is bound, and nothing is left in use."""
    world = a_world()

    def show_and_remove(what: str, claim: ResourceClaim) -> None:
        if what == "allocate":
            world.relay()
            world.withdraw(claim.metadata.name)

    world.writer.on_claim_written = show_and_remove
    under = world.reserved(gpus())

    assert (await world.bound(under)).endswith("got deleted in the meantime")
    assert world.clock.now() < 1
    assert ([], []) == (await undone(world, under))[1:]


async def test_a_second_check_of_the_node_accepts_the_attempts_devices() -> None:
    """Filter and Verify accept the node after Reserve and after PreBind."""
    world = a_world()
    under = world.reserved(gpus(2))
    slot = world.slot()

    for moment in ("reserved", "written"):
        if moment == "written":
            assert "" == await world.bound(under)
        assert {} == world.plugin.filter(under.state, under.info, 1 << slot)
        assert world.plugin.verify(under.state, under.info, slot) is None


async def test_two_pods_at_the_same_time() -> None:
    """Each pod gets a separate claim and devices. A third pod finds no device left on that node."""
    world = a_world()
    first, second = world.reserved(gpus()), world.reserved(gpus(name="q"))
    third = world.refusals(gpus(name="r"))
    assert {"n1"} == set(third)

    assert ["", ""] == list(await asyncio.gather(world.bound(first), world.bound(second)))
    names = {pod_key: status.resource_claim_name for pod_key, status in world.writer.extended_statuses}
    assert {"default/p", "default/q"} == set(names)
    assert ["p"] == world.users(names["default/p"])
    assert ["q"] == world.users(names["default/q"])
    assert ["n1/d0", "n1/d1"] == world.used


# -- writes that fail, or whose answer is lost, rows 328–330 -----------------------------------------------------------


@pytest.mark.parametrize("error", [Invalid("bad"), Forbidden("may not")], ids=["refused", "forbidden"])
async def test_328_331_the_pods_status_cannot_be_written(error: ApiError) -> None:
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
    world.plugin._binder._maker._rng = SimpleNamespace(choices=lambda *_, **__: next(draws))  # type: ignore[assignment]
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


SAID = "the pod's status names other resource claims by now"
FIRST = a_claim("first").owned_by("p", "p").request("r", "A")
SECOND = a_claim("second").owned_by("p", "p").request("r", "A")


def pod_naming(*names: str | None) -> PodInfo:
    """Return a pod with one templated entry per name; the entry of None needs no claim."""
    built = pod("p").uid("p")
    for at, name in enumerate(names):
        built = built.claim(f"e{at}", template="t").claim_made(f"e{at}", name)
    return pod_info(built.typed())


def again(world: Served, under: Under) -> list[Rejection]:
    """Return the rejections of the second Filter call for the pod's node."""
    slot = world.slot(under.info.node_name)
    return list(finish(answered(world.plugin.filter(under.state, under.info, 1 << slot))))


def seen_again(world: Served, *names: str | None) -> None:
    """Update the cluster as the intake does when the status of an assumed pod changes."""
    world.cluster.name_claims(pod_naming(*names))


async def test_the_status_changes_during_a_write() -> None:
    """The plugin notices it after the write and frees the devices, because no pod will use that claim."""
    world = Served(FIRST, SECOND)
    under = world.reserved(pod_naming("first"))
    world.writer.on_claim_written = lambda what, _: seen_again(world, "second") if what == "allocate" else None

    assert SAID == await world.bound(under)
    world.unreserve(under)
    await world.undo(under)
    assert ["protect first", "allocate first", "deallocate first"] == world.writes
    assert ([], [], []) == (world.users("first"), world.devices_of("first"), world.used)
    assert "" == await world.bound(world.reserved(pod_naming("second")))


async def test_the_status_changes_after_the_writes() -> None:
    """The second Filter call, before the Binding, rejects the node."""
    world = Served(FIRST, SECOND)
    under = world.reserved(pod_naming("first"))
    assert "" == await world.bound(under)
    assert [] == again(world, under)
    before = world.cluster.decision_version(under.info)

    seen_again(world, "second")
    assert before != world.cluster.decision_version(under.info)
    assert [(Code.UNRESOLVABLE, SAID)] == [(no.code, no.message) for no in again(world, under)]


@pytest.mark.parametrize(("names", "expected"), [
    pytest.param(("first", "second"), "", id="the same claims"),
    pytest.param(("second", "first"), "", id="the claims are in another order"),
    pytest.param(("first",), SAID, id="one entry is missing"),
    pytest.param(("first", None), SAID, id="one entry needs no claim any more"),
    pytest.param(("first", "third"), SAID, id="one entry names another claim"),
])  # fmt: skip
async def test_every_entry_is_compared(names: tuple[str | None, ...], expected: str) -> None:
    """If the status has changed before the first write, the plugin writes nothing."""
    world = Served(FIRST, SECOND)
    under = world.reserved(pod_naming("first", "second"))
    seen_again(world, *names)

    assert expected == await world.bound(under)
    if expected:
        await world.undo(under)
        assert ([], [], []) == (world.writes, world.used, world.in_flight)


async def test_a_claim_that_is_still_named_is_only_released() -> None:
    """The plugin deallocates only the claim that the status does not name any more."""
    world = Served(FIRST, SECOND)
    under = world.reserved(pod_naming("first", "second"))
    assert "" == await world.bound(under)
    seen_again(world, "third", "second")

    await world.undo(under)
    assert {"deallocate first", "unreserve second"} == set(world.writes[-2:])
    assert ([], 1) == (world.devices_of("first"), len(world.devices_of("second")))


async def test_the_claim_for_extended_resources_is_not_compared() -> None:
    """The pod's status does not name that claim before the claim is written."""
    world = Served(SERVES, FIRST, SECOND)

    def both(claim: str) -> PodInfo:
        built = pod("p").uid("p").extended(GPU, "1").claim("e0", template="t").claim_made("e0", claim)
        return pod_info(built.typed())

    under = world.reserved(both("first"))
    assert [] == again(world, under)
    assert "" == await world.bound(under)
    assert [] == again(world, under)

    world.cluster.name_claims(both("second"))
    assert [SAID] == [no.message for no in again(world, under)]
    await world.undo(under)
    assert [] == world.used


async def test_a_claim_that_the_pod_spec_names_stays_valid() -> None:
    """No controller names a claim for that entry."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    world.cluster.name_claims(using("c"))

    assert "" == await world.bound(under)
    assert [] == again(world, under)


def test_the_status_of_a_bound_pod_is_ignored() -> None:
    """The update of the bound pod covers it; the status of an unknown pod is ignored too."""
    world = Served(FIRST)
    under = world.reserved(pod_naming("first"))
    world.cluster.add_pod(under.info)
    before = world.cluster.version("n1")
    seen_again(world, "second")
    world.cluster.name_claims(pod_info(pod("stranger").uid("s").typed()))

    assert before == world.cluster.version("n1")
    assert world.cluster.get("p") is under.info
