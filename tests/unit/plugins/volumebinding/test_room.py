"""Capacity (docs/spec/volumes.md §3.4, §12.1 B-1, rows K1–K16) and StorageCapacityScoring (§4, rows S1–S15)."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from scheduler.config.args import CAPACITY_SHAPE, KubestowArgs, ShapePoint, VolumeBindingArgs
from scheduler.core.cooperative import finish
from scheduler.framework.status import SKIP
from scheduler.plugins.volumebinding.plugin import STATE
from scheduler.plugins.volumebinding.scorer import CapacityScore
from simulator.builders.core import node
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_pv
from tests.unit.plugins.volumebinding.world import (
    BND,
    D1,
    D2,
    NOT_ENOUGH_SPACE,
    PARITY,
    PB,
    Decided,
    VolumeWorld,
    tracking,
    using,
)

FITS = Decided((), (), ("d1",))
FULL = Decided((NOT_ENOUGH_SPACE,))
OURS = KubestowArgs()
BOTH = pytest.mark.parametrize("ours", [OURS, PARITY], ids=["ours", "parity"])
GIB = a_capacity("o", "D", "1Gi").everywhere()


@BOTH
@pytest.mark.parametrize("field", ["capacity", "maximum"])
@pytest.mark.parametrize(("claim", "pool", "decided"), [
    pytest.param("200E", "9Ei", FULL, id="beyond 64 bits, and less is there"),
    pytest.param("20E", "30E", FITS, id="beyond 64 bits, and more is there"),
    pytest.param("30E", "30E", FITS, id="the same beyond 64 bits"),
    pytest.param("30E", "20E", FULL, id="both beyond 64 bits"),
    pytest.param("9E", "20E", FITS, id="within 64 bits, and more is there"),
    pytest.param("1500m", "1400m", FULL, id="within one byte, and less is there"),
    pytest.param("1400m", "1500m", FITS, id="within one byte, and more is there"),
    pytest.param("1500m", "1500m", FITS, id="the same fraction of a byte"),
    pytest.param("2", "1500m", FULL, id="a whole byte more than is there"),
    pytest.param("1", "1500m", FITS, id="whole bytes, and a fraction more is there"),
    pytest.param("1500m", "1", FULL, id="a fraction more than is there"),
])  # fmt: skip
def test_capacity_is_compared_exactly(claim: str, pool: str, decided: Decided, field: str, ours: KubestowArgs) -> None:
    """On a node with one pool, and on a node with two of which the other is smaller."""
    offered = a_capacity("o", "D", pool).everywhere()
    if field == "maximum":
        offered = a_capacity("o", "D", "90E").everywhere().maximum(pool)
    for more in ((), (a_capacity("p", "D", "0").everywhere(),)):
        world = VolumeWorld(a_claim("d1", claim, "D"), *tracking(True), offered, *more, ours=ours)

        assert decided == world.decide(using("p", "d1"))


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
    world = VolumeWorld(D1, D2, *tracking(True), a_capacity("o", "D", amount).everywhere(), ours=ours)

    assert decided == world.decide(using("p", "d1", "d2"))


@pytest.mark.parametrize("is_ours", [True, False], ids=["our own pod", "another scheduler"])
def test_what_is_in_flight_is_not_there(is_ours: bool) -> None:
    """B-1 A claim with a selected node and no volume is in flight, for each scheduler."""
    world = VolumeWorld(D1, D2, *tracking(True), GIB)
    if is_ours:
        world.reserved(using("first", "d1"))
    else:
        world.cluster.volumes.reservations.users.add("first", ["default/d1"])
        world.show(D1.selected("n1"))

    assert FULL == world.decide(using("second", "d2"))


def test_a_pod_is_not_in_its_own_way() -> None:
    """B-1 Its own claim, selected for this node already, has reserved the capacity that it finds, in Filter and in Reserve."""
    world = VolumeWorld(*tracking(True), GIB)
    world.cluster.volumes.reservations.users.add("p", ["default/d1"])
    world.show(D1.selected("n1"))
    (entry,) = world.cluster.volumes.reservations
    assert entry.pool is not None

    assert FITS == world.decide(using("p", "d1"))
    assert {"n2"} == set(world.judged(using("p", "d1")))
    assert ("d1",) == tuple(step.claim.metadata.name for step in world.plan(using("p", "d1")).dynamic)


def test_what_is_given_back_is_there_again() -> None:
    """B-1 After Unreserve; and the class is noted for pods that wait for capacity."""
    world = VolumeWorld(D1, D2, *tracking(True), GIB)
    state, assumed = world.reserved(using("first", "d1"))
    world.plugin.unreserve(state, assumed, "n1")

    assert Decided((), (), ("d2",)) == world.decide(using("second", "d2"))
    assert {"D"} == world.cluster.volumes.reservations.freed


@pytest.mark.parametrize("ends", ["written", "given up"])
async def test_a_label_that_comes_before_our_write_gives_nothing_away(ends: str) -> None:
    """B-1 The claim as the watch shows it has no node, and the write is repeated for the node that was chosen."""
    world = VolumeWorld(D1, D2, *tracking(True), GIB)
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
    world = VolumeWorld(other, D1, a_claim("e1", "1Gi", "D9"), *tracking(True), *objects)
    world.cluster.volumes.reservations.pools_share(mode)

    assert decided == world.decide(using("p", "d1", "e1"))


SIX, TEN, FIVE = (a_claim(f"c{gib}", f"{gib}Gi", "D") for gib in (6, 10, 5))


@BOTH
@pytest.mark.parametrize("pools", [("10Gi", "6Gi"), ("6Gi", "10Gi")])
def test_a_node_with_two_pools_takes_claims_that_fit_in_some_way(pools: tuple[str, str], ours: KubestowArgs) -> None:
    """B-1 The smaller claim does not keep the larger one from the only pool that it fits."""
    objects = [a_capacity(f"o{at}", "D", amount).where("k", "n1") for at, amount in enumerate(pools)]
    world = VolumeWorld(SIX, TEN, *tracking(True), *objects, ours=ours)

    assert Decided((), (), ("c6", "c10")) == world.decide(using("p", "c6", "c10"))


def test_a_node_with_two_pools_refuses_claims_that_fit_in_no_way() -> None:
    objects = [a_capacity(f"o{at}", "D", amount).where("k", "n1") for at, amount in enumerate(("10Gi", "9Gi"))]
    world = VolumeWorld(SIX, TEN, FIVE, *tracking(True), *objects)

    assert FULL == world.decide(using("p", "c6", "c10", "c5"))


def test_each_claim_has_its_pool() -> None:
    """B-1 Also after claims were moved to other pools."""
    objects = [a_capacity(f"o{amount}", "D", f"{amount}Gi").where("k", "n1") for amount in (10, 6)]
    world = VolumeWorld(SIX, TEN, *tracking(True), *objects)
    state, _ = world.pre_filtered(using("p", "c6", "c10"))
    found = world.binder.find_pod_volumes(state.get(STATE).claims, world.slot("n1")).dynamic

    assert {"c6": "o6", "c10": "o10"} == {p.claim.metadata.name: p.pool.obj.metadata.name for p in found}


FULLEST = (ShapePoint(0, 0), ShapePoint(100, 10))
STEPS = (ShapePoint(50, 0), ShapePoint(80, 3), ShapePoint(100, 5))
FALLING = (ShapePoint(0, 10), ShapePoint(30, 0))


@pytest.mark.parametrize(
    ("shape", "classes", "score"),
    [
        pytest.param(FULLEST, [(30, 100), (60, 100)], 45, id="S3 30 and 60"),
        pytest.param(STEPS, [(30, 100), (60, 100)], 5, id="S4 30 and 60 on another shape"),
        pytest.param(FALLING, [(10, 100)], 67, id="S12 towards zero, also where it falls"),
        pytest.param(FULLEST, [(101, 100)], 100, id="S13 more than there is"),
        pytest.param(FULLEST, [(1, 0)], 100, id="S13 of nothing"),
        pytest.param(CAPACITY_SHAPE, [(1, 0)], 0, id="S13 of nothing, and the emptiest wins"),
        pytest.param(FULLEST, [(0, 100), (25, 100)], 13, id="12.5 is 13"),
        pytest.param(FULLEST, [(199, 1000)], 19, id="percent are cut"),
        pytest.param(FULLEST, [], 0, id="no classes"),
    ],
)
def test_the_curve(shape: Any, classes: list[tuple[int, int]], score: int) -> None:
    """Requested and capacity of each class to one number."""
    assert score == CapacityScore(shape).average(classes)


def scored(shape: Any, claims: list[str], *things: Any) -> dict[str, int] | None:
    """Node → score of those that pass; None if the plugin skips."""
    world = VolumeWorld(*things, args=VolumeBindingArgs(shape=shape))
    info = using("p", *claims)
    state, no = world.pre_filtered(info)
    assert no is None or no is SKIP
    nodes = world.cluster.nodes
    out = world.judged(info, state=state) if no is None else {}
    passed = sum(1 << world.slot(name) for name in ("n1", "n2", "n3") if name not in out)
    if world.plugin.pre_score(state, info, passed) is not None:
        return None
    work = world.plugin.score(state, info, passed)
    column = finish(work)
    assert len(column) == nodes.capacity
    return {nodes.name(slot): int(column[slot]) for slot in range(3) if passed >> slot & 1}


N3 = node("n3").label("k", "n3")
E = a_class("E", "P")
X = a_claim("x", "50Gi", "W")
Y = a_claim("y", "100Gi", "V")
DYN = a_claim("dyn", "10Gi", "E")


def pvs(storage_class: str, **sizes: str) -> list[Any]:
    return [a_pv(f"{storage_class.lower()}-{at}", size, storage_class).where("k", at) for at, size in sizes.items()]


def pools(**rooms: str) -> list[Any]:
    return [a_capacity(f"o-{at}", "E", room).where("k", at) for at, room in rooms.items()]


def test_scoring_lets_the_event_loop_run_between_nodes_that_it_tries() -> None:
    several = [*pools(n1="50Gi", n2="70Gi"), a_capacity("more", "E", "60Gi").everywhere()]
    world = VolumeWorld(E, DYN, *tracking(True), *several, args=VolumeBindingArgs(shape=CAPACITY_SHAPE))
    info = using("p", "dyn")
    state, _ = world.pre_filtered(info)
    passed = world.cluster.nodes.present

    assert sum(1 for _ in world.plugin.score(state, info, passed)) == passed.bit_count()


@pytest.mark.parametrize(("shape", "claims", "things", "scores"), [
    pytest.param((), ["x"], [X, *pvs("W", n1="200Gi")], None, id="S1 the gate is off"),
    pytest.param(FULLEST, ["x", "y"],
        [a_class("V"), X, Y, *pvs("W", n1="200Gi", n2="100Gi"), *pvs("V", n1="200Gi", n2="100Gi")],
        {"n1": 38, "n2": 75}, id="S6 of two classes"),
    pytest.param(FULLEST, ["dyn"], [E, DYN, *tracking(True), *pools(n1="100Gi", n2="50Gi", n3="10Gi")],
        {"n1": 10, "n2": 20, "n3": 100}, id="S8 to be provisioned"),
    pytest.param(FULLEST, ["dyn", "x"],
        [E, DYN, X, *tracking(True), *pools(n1="100Gi", n2="50Gi"), *pvs("W", n1="100Gi", n2="100Gi")],
        {"n1": 50, "n2": 50}, id="S9 next to existing volumes it does not count"),
    pytest.param(FULLEST, ["d", "e"],
        [E, a_claim("d", "50Gi", "E"), a_claim("e", "50Gi", "E"), *tracking(True), *pools(n1="100Gi")], {"n1": 100},
        id="S10 two from one pool, which counts once"),
    pytest.param(CAPACITY_SHAPE, ["dyn"], [E, DYN, *tracking(True), *pools(n1="100Gi", n2="20Gi", n3="10Gi")],
        {"n1": 90, "n2": 50, "n3": 0}, id="S11 the default: most free space wins"),
    pytest.param(FULLEST, ["dyn"], [E, DYN, *tracking(True), a_capacity("o", "E").everywhere().maximum("20Gi")],
        {"n1": 100, "n2": 100, "n3": 100}, id="S14 (B-23) its object has no amount"),
    pytest.param(FULLEST, ["dyn"],
        [E, a_claim("dyn", "10Gi", "I").legacy_class("E"), *tracking(True), *pools(n1="100Gi")], {"n1": 10},
        id="S14 (B-23) the class is an annotation"),
    pytest.param(FULLEST, ["dyn", "f"],
        [E, a_class("F", "P"), DYN, a_claim("f", "15Gi", "F"), *tracking(True), *pools(n1="100Gi", n2="50Gi", n3="20Gi"),
         a_capacity("f", "F", "100Gi").everywhere()],
        {"n1": 13, "n2": 18, "n3": 33}, id="two classes to be provisioned, and 12.5 is 13"),
    pytest.param(FULLEST, ["x"], [X, *pvs("W", n1="200Gi", n2="100Gi"), a_pv("net", "150Gi", "W")],
        {"n1": 33, "n2": 50, "n3": 33}, id="the smallest of the volumes that a node reaches"),
    pytest.param(FULLEST, ["x"], [X, *pvs("W", n1="60Gi", n2="100Gi"), a_pv("m", "200Gi", "W").claimed_by("x")],
        {"n1": 25, "n2": 25, "n3": 25}, id="the volume that is meant for the claim"),
    pytest.param(FULLEST, ["x"],
        [a_class("W", "P"), a_claim("x", "50Gi", "W").selected("n1"), *tracking(True), *pvs("W", n1="60Gi"),
         a_capacity("w", "W", "100Gi").everywhere()],
        {"n1": 50}, id="a selected node provisions, whatever volumes it has"),
    pytest.param(FULLEST, ["x"], [a_claim("x", "50Gi", "W").request(None), *pvs("W", n1="60Gi", n2="0")],
        {"n1": 0, "n2": 100}, id="no request takes nothing of a volume"),
    pytest.param(FULLEST, ["dyn"],
        [E, a_claim("dyn", "10Gi", "E").request(None), *tracking(True), *pools(n1="100Gi", n2="0")],
        {"n1": 0, "n2": 0, "n3": 0}, id="no request needs no pool"),
    pytest.param(FULLEST, ["dyn"], [E, a_claim("dyn", "3E", "E"), *tracking(True), *pools(n1="9E", n2="90E", n3="4E")],
        {"n1": 33, "n2": 32, "n3": 75}, id="beyond float64, and saturated at int64"),
    pytest.param(FULLEST, ["dyn"], [E, DYN], {"n1": 0, "n2": 0, "n3": 0}, id="S15 no driver tracks capacity"),
    pytest.param(FULLEST, ["bnd"], [BND, PB], {"n1": 0}, id="S15 everything is bound"),
    pytest.param(FULLEST, [], [], {"n1": 0, "n2": 0, "n3": 0}, id="S15 no claims"),
])  # fmt: skip
def test_nodes(shape: Any, claims: list[str], things: list[Any], scores: dict[str, int] | None) -> None:
    """The nodes that pass, each by what it would do."""
    assert scores == scored(shape, claims, N3, *things)


def test_bound_claims_alone_do_not_count() -> None:
    """A volume that every node reaches scores 0, as with kube-scheduler."""
    bound, net = a_claim("b", "10Gi", "E").bound_to("net"), a_pv("net", "10Gi", "E").claimed_by("b")

    assert scored(CAPACITY_SHAPE, ["b"], N3, E, bound, net, *pools(n1="100Gi")) == {"n1": 0, "n2": 0, "n3": 0}


def test_claims_to_provision_count_without_bound_claims() -> None:
    bound, net = a_claim("b", "10Gi", "E").bound_to("net"), a_pv("net", "10Gi", "E").claimed_by("b")
    things = [DYN, *tracking(True), *pools(n1="100Gi", n2="20Gi", n3="10Gi")]

    assert scored(CAPACITY_SHAPE, ["b", "dyn"], N3, E, bound, net, *things) == {"n1": 90, "n2": 50, "n3": 0}
