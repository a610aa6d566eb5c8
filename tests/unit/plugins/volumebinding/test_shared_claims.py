"""Pods that are bound at the same time and share a claim: one plan writes, and the other plans wait (docs/spec/volumes.md §12.2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.volumebuilders import a_pv
from tests.unit.plugins.volumebinding.world import D1, U1, A, World, using
from tests.unit.plugins.volumebinding.written import writes

SHARED = pytest.mark.parametrize(("things", "claim"), [((U1, A), "u1"), ((D1,), "d1")], ids=["a volume", "a node"])


def bound_by_controllers(world: World, claim: str) -> None:
    """What was written shows, and the claim is bound."""
    volume = "a" if claim == "u1" else "pv-d1"
    world.relay()
    if claim == "u1":
        world.show(A.claimed_by("u1", uid="u1").uid("a").phase("Bound"), U1.uid("u1").bound_to("a"))
    else:
        world.show(a_pv(volume, "1Gi", "D").where("k", "n1").claimed_by("d1", uid="d1"))
        world.show(D1.uid("d1").selected("n1").bound_to(volume))


@SHARED
async def test_a_pod_that_is_held_before_its_binding_does_not_keep_another_from_writing(
    things: Any, claim: str
) -> None:
    """B-15 The first pod was reserved first and waits in Permit: the second one writes what both need."""
    world = World(*things)
    first, second = (world.plan(using(name, claim)) for name in ("p", "q"))
    binding = asyncio.ensure_future(world.binder.bind_pod_volumes(second))
    await world.clock.advance(0.1)

    assert 1 == writes(world)

    bound_by_controllers(world, claim)
    await world.clock.advance(0.1)

    assert (True, None) == (binding.done(), binding.exception())
    assert None is (await world.ends(world.binder.bind_pod_volumes(first), within_s=5)).error
    assert 1 == writes(world)


@SHARED
async def test_a_pod_writes_what_another_one_was_to_write_and_did_not(things: Any, claim: str) -> None:
    """B-15 The first pod is deleted while its write waits for its turn."""
    world = World(*things)
    first, second = (world.plan(using(name, claim)) for name in ("p", "q"))
    world.binder._assumptions.begin(first)
    binding = asyncio.ensure_future(world.binder.bind_pod_volumes(second))
    await world.clock.advance(0.5)

    assert (0, False) == (writes(world), binding.done())

    world.binder.revert_assumed_pod_volumes(first)
    await world.clock.advance(0.1)

    assert (1, False) == (writes(world), binding.done())

    bound_by_controllers(world, claim)
    await world.clock.advance(0.1)

    assert (True, None) == (binding.done(), binding.exception())


async def test_a_node_that_was_withdrawn_is_not_selected_again_for_the_pod_that_followed() -> None:
    """B-15 The first pod has written it, and provisioning has failed for both."""
    world = World(D1)
    first, second = (world.plan(using(name, "d1")) for name in ("p", "q"))
    bindings = [asyncio.ensure_future(world.binder.bind_pod_volumes(plan)) for plan in (first, second)]
    await world.clock.advance(0.1)
    world.relay()
    await world.clock.advance(0.1)
    world.show(D1.uid("d1").annotation("x", "y"))
    for plan, binding in zip((first, second), bindings):
        ended = await world.ends(_awaited(binding), within_s=5)
        world.binder.revert_assumed_pod_volumes(plan)
        assert 'binding volumes: provisioning failed for PVC "d1"' == str(ended.error)

    assert 1 == writes(world)


async def _awaited(binding: asyncio.Future[Any]) -> None:
    await binding


async def test_a_volume_that_another_claim_has_by_now_is_not_taken_over() -> None:
    """B-15 The plan that was to write it has ended, and another scheduler came first."""
    world = World(U1, A)
    first, second = (world.plan(using(name, "u1")) for name in ("p", "q"))
    world.binder._assumptions.begin(first)
    binding = asyncio.ensure_future(world.binder.bind_pod_volumes(second))
    await world.clock.advance(0.1)
    world.show(A.uid("a").claimed_by("other", uid="other"))
    world.binder.revert_assumed_pod_volumes(first)
    ended = await world.ends(_awaited(binding), within_s=5)

    assert ('binding volumes: ClaimRef got reset for pv "a"', 0) == (str(ended.error), writes(world))


async def test_a_claim_that_is_bound_before_its_volume_is_seen_ends_the_wait_with_the_volume() -> None:
    """B-3 Watches of two kinds may be behind one another; no look of the safety net is needed."""
    world = World(D1)
    plan = world.plan(using("p", "d1"))
    binding = asyncio.ensure_future(world.binder.bind_pod_volumes(plan))
    await world.clock.advance(20.0)
    world.relay()
    world.show(D1.uid("d1").selected("n1").bound_to("pv-d1"))
    await world.clock.settle()

    assert not binding.done()

    world.show(a_pv("pv-d1", "1Gi", "D").where("k", "n1").claimed_by("d1", uid="d1"))
    await world.clock.settle()

    assert (True, None) == (binding.done(), binding.exception())
