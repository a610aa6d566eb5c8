"""StorageCapacityScoring: docs/spec/volumes.md §4, rows S1–S15 of §11.7."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from scheduler.config.args import CAPACITY_SHAPE, KubestowArgs, ShapePoint, VolumeBindingArgs
from scheduler.framework.status import SKIP
from scheduler.plugins.volumebinding.scorer import CapacityScore
from simulator.builders.core import node
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_pv
from tests.unit.plugins.volumebinding.world import BND, PB, World, tracking, using

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


def scored(shape: Any, claims: list[str], *things: Any, ours: KubestowArgs | None = None) -> dict[str, int] | None:
    """Node → score of those that pass; None if the plugin skips."""
    world = World(*things, args=VolumeBindingArgs(shape=shape), ours=ours)
    info = using("p", *claims)
    state, no = world.pre_filtered(info)
    assert no is None or no is SKIP
    nodes = world.cluster.nodes
    out = world.judged(info, state=state) if no is None else {}
    passed = sum(1 << world.slot(name) for name in ("n1", "n2", "n3") if name not in out)
    if world.plugin.pre_score(state, info, passed) is not None:
        return None
    column = world.plugin.score(state, info, passed)
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


@pytest.mark.parametrize(
    ("shape", "claims", "things", "scores"),
    [
        pytest.param((), ["x"], [X, *pvs("W", n1="200Gi")], None, id="S1 the gate is off"),
        pytest.param(
            FULLEST,
            ["x", "y"],
            [a_class("V"), X, Y, *pvs("W", n1="200Gi", n2="100Gi"), *pvs("V", n1="200Gi", n2="100Gi")],
            {"n1": 38, "n2": 75},
            id="S6 of two classes",
        ),
        pytest.param(
            FULLEST,
            ["dyn"],
            [E, DYN, *tracking(True), *pools(n1="100Gi", n2="50Gi", n3="10Gi")],
            {"n1": 10, "n2": 20, "n3": 100},
            id="S8 to be provisioned",
        ),
        pytest.param(
            FULLEST,
            ["dyn", "x"],
            [E, DYN, X, *tracking(True), *pools(n1="100Gi", n2="50Gi"), *pvs("W", n1="100Gi", n2="100Gi")],
            {"n1": 50, "n2": 50},
            id="S9 next to existing volumes it does not count",
        ),
        pytest.param(
            FULLEST,
            ["d", "e"],
            [E, a_claim("d", "50Gi", "E"), a_claim("e", "50Gi", "E"), *tracking(True), *pools(n1="100Gi")],
            {"n1": 100},
            id="S10 two from one pool, which counts once",
        ),
        pytest.param(
            CAPACITY_SHAPE,
            ["dyn"],
            [E, DYN, *tracking(True), *pools(n1="100Gi", n2="20Gi", n3="10Gi")],
            {"n1": 90, "n2": 50, "n3": 0},
            id="S11 the default: most free space wins",
        ),
        pytest.param(
            FULLEST,
            ["dyn"],
            [E, DYN, *tracking(True), a_capacity("o", "E").everywhere().maximum("20Gi")],
            {"n1": 100, "n2": 100, "n3": 100},
            id="S14 (B-23) its object has no amount",
        ),
        pytest.param(
            FULLEST,
            ["dyn"],
            [E, a_claim("dyn", "10Gi", "I").legacy_class("E"), *tracking(True), *pools(n1="100Gi")],
            {"n1": 10},
            id="S14 (B-23) the class is an annotation",
        ),
        pytest.param(FULLEST, ["dyn"], [E, DYN], {"n1": 0, "n2": 0, "n3": 0}, id="S15 no driver tracks capacity"),
        pytest.param(FULLEST, ["bnd"], [BND, PB], {"n1": 0}, id="S15 everything is bound"),
        pytest.param(FULLEST, [], [], {"n1": 0, "n2": 0, "n3": 0}, id="S15 no claims"),
    ],
)
def test_nodes(shape: Any, claims: list[str], things: list[Any], scores: dict[str, int] | None) -> None:
    """The nodes that pass, each by what it would do."""
    assert scores == scored(shape, claims, N3, *things)


BOUND = a_claim("b", "10Gi", "E").bound_to("net")
NET = a_pv("net", "10Gi", "E").claimed_by("b")
MORE = a_claim("c", "30Gi", "E").bound_to("net-c")


@pytest.mark.parametrize(
    ("switch", "claims", "things", "scores"),
    [
        pytest.param("none", ["b"], pools(n1="100Gi"), {"n1": 0, "n2": 0, "n3": 0}, id="off"),
        pytest.param("score", ["b"], pools(n1="100Gi", n2="20Gi"), {"n1": 90, "n2": 50, "n3": 0}, id="most free space"),
        pytest.param("score", ["b"], [], {"n1": 0, "n2": 0, "n3": 0}, id="no capacity objects"),
        pytest.param(
            "score",
            ["b"],
            [*pools(n1="20Gi"), a_capacity("p", "E", "100Gi").where("k", "n1")],
            {"n1": 90, "n2": 0, "n3": 0},
            id="the largest of two pools",
        ),
        pytest.param(
            "score",
            ["b", "c"],
            [MORE, a_pv("net-c", "30Gi", "E").claimed_by("c"), *pools(n1="100Gi")],
            {"n1": 60, "n2": 0, "n3": 0},
            id="two claims of one class",
        ),
        pytest.param(
            "score",
            ["b", "dyn"],
            [DYN, *tracking(True), *pools(n1="100Gi", n2="20Gi", n3="10Gi")],
            {"n1": 90, "n2": 50, "n3": 0},
            id="claims to provision count alone",
        ),
    ],
)
def test_capacity_where_volumes_exist(
    switch: Literal["none", "score"], claims: list[str], things: list[Any], scores: dict[str, int]
) -> None:
    """B-22: a volume that every node reaches."""
    ours = KubestowArgs(bound_claim_capacity=switch)

    assert scores == scored(CAPACITY_SHAPE, claims, N3, E, BOUND, NET, *things, ours=ours)
