"""The plugin creates and deletes the claim for extended resources: docs/spec/dra.md §3.12, rows 321, 331 of §9.15."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.api.core_v1 import ExtendedResourceClaimStatus
from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import pod_info
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.core.errors import Invalid
from simulator.builders.core import node, pod
from tests.unit.plugins.dra.served import ASKING, PARITY, fails, steps
from tests.unit.plugins.dra.standins import GPU, a_world, gpus, made, the_one, undone


async def test_321_it_is_created_allocated_and_reported() -> None:
    """Each step is one write. The first write adds the finalizer."""
    world = a_world()
    under = world.reserved(gpus(2))
    assert (["<extended-resources>"], ["n1/d0", "n1/d1"]) == (world.in_flight, world.used)

    assert "" == await world.bound(under)
    name = the_one(world)
    claim = world.server(name)
    assert ["create <extended-resources>", f"allocate {name}"] == world.writes
    assert [("container-0-request-0", "gpu", 2)] == [
        (r.name, r.exactly.device_class_name, r.exactly.count) for r in claim.spec.devices.requests if r.exactly
    ]
    assert ["n1/d0", "n1/d1"] == world.devices_of(name) == world.used
    assert ["p"] == world.users(name)
    assert claim.status.allocation is not None
    assert claim.status.allocation.allocation_timestamp
    ((pod_key, status),) = world.writer.extended_statuses
    assert ("default/p", name) == (pod_key, status.resource_claim_name)
    (container,) = gpus().pod.spec.containers
    assert [(container.name, GPU, "container-0-request-0")] == [
        (m.container_name, m.resource_name, m.request_name) for m in status.request_mappings
    ]
    assert [] == world.in_flight


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


async def test_315_a_node_that_has_it_itself() -> None:
    """The plugin writes nothing."""
    world = a_world()
    world.cluster.set_node(node("n1").resource(GPU, "1").typed())
    under = world.reserved(gpus())

    assert ([], []) == (world.in_flight, world.used)
    assert "" == await world.bound(under)
    assert ([], []) == (world.writes, world.writer.extended_statuses)
    await world.undo(under)
    assert [] == world.writes


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


async def test_331_another_plugin_fails() -> None:
    """All writes were done, so the claim is deleted and its devices are freed."""
    world = a_world()
    under = world.reserved(gpus())
    assert "" == await world.bound(under)

    world.unreserve(under)
    assert ([], [], []) == await undone(world, under)
    assert 1 == sum(each.startswith("delete") for each in world.writes)


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


async def test_331_before_anything_is_written() -> None:
    """Only the cache changes."""
    world = a_world()
    under = world.reserved(gpus(2))
    await world.undo(under)

    assert ([], [], []) == (world.writes, world.used, world.in_flight)


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
