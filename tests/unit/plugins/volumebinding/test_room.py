"""Capacity, as upstream judges it and with what is in flight: docs/spec/volumes.md §3.4, §12.1 B-1, rows K1–K16."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.plugins.volumebinding.plugin import STATE
from tests.support.volumebuilders import a_capacity, a_claim, a_class
from tests.unit.plugins.volumebinding.world import D1, D2, NOT_ENOUGH_SPACE, PARITY, Decided, World, tracking, using

FITS = Decided((), (), ("d1",))
FULL = Decided((NOT_ENOUGH_SPACE,))
OURS = KubestowArgs()
BOTH = pytest.mark.parametrize("ours", [OURS, PARITY], ids=["ours", "parity"])
GIB = a_capacity("o", "D", "1Gi").everywhere()


@BOTH
def test_an_amount_beyond_64_bits_is_the_largest_amount(ours: KubestowArgs) -> None:
    """Such a claim fits where as much is said to be as 64 bits can say."""
    world = World(a_claim("d1", "200E", "D"), *tracking(True), a_capacity("o", "D", "9Ei").everywhere(), ours=ours)

    assert FITS == world.decide(using("p", "d1"))


@pytest.mark.parametrize(
    ("amount", "reservation", "decided"),
    [
        pytest.param("2Gi", "ledger", Decided((), (), ("d1", "d2")), id="capacity for both"),
        pytest.param("2047Mi", "ledger", FULL, id="a little less"),
        pytest.param("1Gi", "none", Decided((), (), ("d1", "d2")), id="capacity for one, and reservations are off"),
    ],
)
def test_two_claims_share_what_there_is(amount: str, reservation: Literal["ledger", "none"], decided: Decided) -> None:
    """B-1 To the byte."""
    ours = KubestowArgs(storage_capacity_reservation=reservation)
    world = World(D1, D2, *tracking(True), a_capacity("o", "D", amount).everywhere(), ours=ours)

    assert decided == world.decide(using("p", "d1", "d2"))


@pytest.mark.parametrize("is_ours", [True, False], ids=["our own pod", "another scheduler"])
def test_what_is_in_flight_is_not_there(is_ours: bool) -> None:
    """B-1 A claim with a selected node and no volume is in flight, for each scheduler."""
    world = World(D1, D2, *tracking(True), GIB)
    if is_ours:
        world.reserved(using("first", "d1"))
    else:
        world.show(D1.selected("n1"))

    assert FULL == world.decide(using("second", "d2"))


def test_a_pod_is_not_in_its_own_way() -> None:
    """B-1 Its own claim, selected for this node already, has reserved the capacity that it finds, in Filter and in Reserve."""
    world = World(*tracking(True), GIB, D1.selected("n1"))
    (entry,) = world.cluster.volumes.reservations
    assert entry.pool is not None

    assert FITS == world.decide(using("p", "d1"))
    assert {"n2"} == set(world.judged(using("p", "d1")))
    assert ("d1",) == tuple(step.claim.metadata.name for step in world.plan(using("p", "d1")).dynamic)


def test_what_is_given_back_is_there_again() -> None:
    """B-1 After Unreserve; and the class is noted for pods that wait for capacity."""
    world = World(D1, D2, *tracking(True), GIB)
    state, assumed = world.reserved(using("first", "d1"))
    world.plugin.unreserve(state, assumed, "n1")

    assert Decided((), (), ("d2",)) == world.decide(using("second", "d2"))
    assert {"D"} == world.cluster.volumes.reservations.freed


@pytest.mark.parametrize("ends", ["written", "given up"])
async def test_a_label_that_comes_before_our_write_gives_nothing_away(ends: str) -> None:
    """B-1 The claim as the watch shows it has no node, and the write is repeated for the node that was chosen."""
    world = World(D1, D2, *tracking(True), GIB)
    world.writer.write_hold = asyncio.Event()
    state, assumed = world.reserved(using("first", "d1"))
    binding = asyncio.ensure_future(world.plugin.pre_bind(state, assumed, "n1"))
    await world.clock.settle()
    world.show(D1.label("a-label", "of-a-user"))

    assert FULL == world.decide(using("second", "d2"))

    if ends == "written":
        world.writer.write_hold.set()
        await world.clock.advance(1.0)
        world.relay()
        assert "n1" == world.claim("d1").selected_node
    binding.cancel()
    await world.clock.settle()
    world.plugin.unreserve(state, assumed, "n1")

    assert (FULL if ends == "written" else Decided((), (), ("d2",))) == world.decide(using("second", "d2"))


@pytest.mark.parametrize(
    ("mode", "decided"),
    [
        pytest.param("none", Decided((), (), ("d1", "e1")), id="they do not share"),
        pytest.param("all", FULL, id="they share, and there is capacity for one"),
    ],
)
def test_a_pod_with_claims_of_classes_that_share_their_capacity(mode: str, decided: Decided) -> None:
    """B-1 Also what one class draws counts for the other."""
    other = a_class("D9", "P").allowed("k", "n1")
    objects = (GIB, a_capacity("p", "D9", "1Gi").everywhere())
    world = World(other, D1, a_claim("e1", "1Gi", "D9"), *tracking(True), *objects)
    world.cluster.volumes.reservations.pools_share(mode)

    assert decided == world.decide(using("p", "d1", "e1"))


SIX, TEN, FIVE = (a_claim(f"c{gib}", f"{gib}Gi", "D") for gib in (6, 10, 5))


@BOTH
@pytest.mark.parametrize("pools", [("10Gi", "6Gi"), ("6Gi", "10Gi")])
def test_a_node_with_two_pools_takes_claims_that_fit_in_some_way(pools: tuple[str, str], ours: KubestowArgs) -> None:
    """B-1 The smaller claim does not keep the larger one from the only pool that it fits."""
    objects = [a_capacity(f"o{at}", "D", amount).where("k", "n1") for at, amount in enumerate(pools)]
    world = World(SIX, TEN, *tracking(True), *objects, ours=ours)

    assert Decided((), (), ("c6", "c10")) == world.decide(using("p", "c6", "c10"))


def test_a_node_with_two_pools_refuses_claims_that_fit_in_no_way() -> None:
    objects = [a_capacity(f"o{at}", "D", amount).where("k", "n1") for at, amount in enumerate(("10Gi", "9Gi"))]
    world = World(SIX, TEN, FIVE, *tracking(True), *objects)

    assert FULL == world.decide(using("p", "c6", "c10", "c5"))


def test_each_claim_has_its_pool() -> None:
    """B-1 Also after claims were moved to other pools."""
    objects = [a_capacity(f"o{amount}", "D", f"{amount}Gi").where("k", "n1") for amount in (10, 6)]
    world = World(SIX, TEN, *tracking(True), *objects)
    state, _ = world.pre_filtered(using("p", "c6", "c10"))
    found = world.binder.find_pod_volumes(state.get(STATE).claims, world.slot("n1")).dynamic

    assert {"c6": "o6", "c10": "o10"} == {p.claim.metadata.name: p.pool.obj.metadata.name for p in found}
