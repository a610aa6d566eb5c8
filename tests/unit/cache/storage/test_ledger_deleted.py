"""Reservations of deleted claims, whose provisioners may make their volumes nevertheless (docs/spec/volumes.md §12.1 B-1)."""

from __future__ import annotations

import pytest

from scheduler.cache.storage.reservation import GRACE_S, HOLD_S, SETTLE_S
from tests.unit.cache.storage.test_ledger import World, c, v


def deleted(*, has_volume: bool = False) -> World:
    """A claim with a selected node in zone a is deleted while its provisioner makes the volume."""
    world = World()
    world.claim(c().selected("n1"))
    claim = c().selected("n1")
    if has_volume:
        claim = claim.bound_to("v")
        world.claim(claim.resource_version("2"))
    world.claim(claim.deleting().resource_version("3"))
    world.gone("c")
    world.freed()
    return world


@pytest.mark.parametrize("has_volume", [False, True])
def test_the_volume_of_a_deleted_claim_counts_until_it_has_settled(has_volume: bool) -> None:
    world = deleted(has_volume=has_volume)
    assert {"a": 3} == world.taken()
    world.volumes.set_volume(v("v", "a", "c").phase("Released").typed())
    world.pass_(GRACE_S)
    assert {"a": 3} == world.taken()
    world.write("a", "7Gi", version="2")

    assert ({}, {"D"}, 0) == (world.taken(), world.freed(), len(world.reservations))


@pytest.mark.parametrize(("has_volume", "after_s"), [(False, HOLD_S), (True, SETTLE_S)])
def test_the_volume_of_a_deleted_claim_that_never_comes(has_volume: bool, after_s: float) -> None:
    world = deleted(has_volume=has_volume)
    world.pass_(after_s - 1)
    assert {"a": 3} == world.taken()
    world.pass_(1)

    assert ({}, {"D"}, 0) == (world.taken(), world.freed(), len(world.reservations))


def test_a_claim_of_the_same_name_is_another_one() -> None:
    world = deleted()
    world.claim(c().uid("new").selected("n2"))

    assert {"a": 3, "b": 3} == world.taken()

    world.volumes.set_volume(v("v", "a", "c").typed())
    world.pass_(GRACE_S)
    world.write("a", "7Gi", version="2")

    assert {"b": 3} == world.taken()


def test_a_claim_that_a_later_list_has_again_is_not_deleted() -> None:
    world = deleted()
    world.claim(c().selected("n1").resource_version("4"))
    world.pass_(HOLD_S)

    assert ({}, [False]) == (world.taken(), [entry.is_gone for entry in world.reservations])


def test_a_selection_that_no_server_has_ends_with_its_claim() -> None:
    world = World()
    world.claim(c())
    world.volumes.claims.assume(c().selected("n1").typed())
    assert {"a": 3} == world.taken()
    world.gone("c")

    assert {} == world.taken()
