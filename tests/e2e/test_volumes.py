"""Pods with claims on a real control plane: where they go, what becomes of claims and volumes (docs/spec/volumes.md §11.17).

Every row is asked of kube-scheduler too, at the same time in a world of its own: what it answers is what is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from simulator.builders.core import Builder
from tests.e2e.sandbox import together
from tests.e2e.storage import DRIVER, World, annotations_of, is_bound, selected_node
from tests.support.volumebuilders import PersistentVolumeBuilder, a_capacity, a_claim, a_class, a_csi_driver, a_pv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_SPACE: Final = "node(s) did not have enough free storage"
UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True)
class Row:
    """What is there on the nodes n1 and n2, the pod's claims, and where it goes or what it is told."""

    things: Sequence[Builder[Any]]
    claims: Sequence[str] = ("c",)
    node: str = ""
    says: str = ""
    on: str = ""
    """A node that the pod insists on."""
    taken: dict[str, str] = field(default_factory=dict)
    """Volume → claim that has it in the end; volumes that are not named here stay free."""
    selected: dict[str, str] = field(default_factory=dict)
    """Claim → node that is selected for it in the end; those that are not named have none."""


IMMEDIATE = a_class("i").immediate()
WAITING = a_class("w")
PROVISIONED = a_class("d", DRIVER)
CAPACITY = a_csi_driver(DRIVER).tracks_capacity()

ROWS: Final[dict[str, Row]] = {
    "E1: an Immediate claim is bound already": Row(
        [IMMEDIATE, a_pv("a", "5Gi", "i").on("n1"), a_claim("c", "1Gi", "i")], node="n1", taken={"a": "c"}
    ),
    "E1: an Immediate claim that nothing can serve": Row([IMMEDIATE, a_claim("c", "1Gi", "i")], says=UNBOUND),
    "E1: an Immediate claim that names its volume": Row(
        [
            IMMEDIATE,
            a_pv("a", "5Gi", "i").on("n1"),
            a_pv("b", "1Gi", "i").on("n2"),
            a_claim("c", "1Gi", "i").wants("a"),
        ],
        node="n1",
        taken={"a": "c"},
    ),
    "E1: an Immediate claim that is named by its volume": Row(
        [
            IMMEDIATE,
            a_pv("a", "5Gi", "i").on("n1").claimed_by("c"),
            a_pv("b", "1Gi", "i").on("n2"),
            a_claim("c", "1Gi", "i"),
        ],
        node="n1",
        taken={"a": "c"},
    ),
    "E2: a claim that waits gets a volume": Row(
        [WAITING, a_pv("a", "5Gi", "w").on("n1"), a_claim("c", "1Gi", "w")], node="n1", taken={"a": "c"}
    ),
    "E2: a claim that waits and that nothing can serve": Row(
        [WAITING, a_pv("a", "1Gi", "w").on("n1"), a_claim("c", "5Gi", "w")], says=BIND_CONFLICT
    ),
    "E2: a claim that waits names its volume": Row(
        [WAITING, a_pv("a", "5Gi", "w").on("n1"), a_pv("b", "1Gi", "w").on("n2"), a_claim("c", "1Gi", "w").wants("a")],
        node="n1",
        taken={"a": "c"},
    ),
    "E2: a claim that waits is named by its volume": Row(
        [
            WAITING,
            a_pv("a", "5Gi", "w").on("n1").claimed_by("c"),
            a_pv("b", "1Gi", "w").on("n2"),
            a_claim("c", "1Gi", "w"),
        ],
        node="n1",
        taken={"a": "c"},
    ),
    "E3: two claims whose volumes are on one node": Row(
        [
            WAITING,
            a_pv("a", "5Gi", "w").on("n2"),
            a_pv("b", "5Gi", "w").on("n2"),
            a_pv("spare", "5Gi", "w").on("n1"),
            a_claim("c", "1Gi", "w"),
            a_claim("d", "1Gi", "w"),
        ],
        ["c", "d"],
        node="n2",
        taken={"a": "", "b": ""},
    ),
    "E4: two claims whose volumes are on different nodes": Row(
        [
            WAITING,
            a_pv("a", "1Gi", "w").on("n1").label("is", "a"),
            a_pv("b", "9Gi", "w").on("n2"),
            a_claim("c", "1Gi", "w").matching({"is": "a"}),
            a_claim("d", "5Gi", "w"),
        ],
        ["c", "d"],
        says=BIND_CONFLICT,
    ),
    "E5: an Immediate claim and one that waits": Row(
        [
            IMMEDIATE,
            WAITING,
            a_pv("a", "5Gi", "i").on("n1"),
            a_pv("b", "5Gi", "w").on("n1"),
            a_pv("elsewhere", "5Gi", "w").on("n2"),
            a_claim("c", "1Gi", "i"),
            a_claim("d", "1Gi", "w"),
        ],
        ["c", "d"],
        node="n1",
        taken={"a": "c", "b": "d"},
    ),
    "E7: a claim is provisioned": Row(
        [PROVISIONED.allowed("kubernetes.io/hostname", "n2"), a_claim("c", "1Gi", "d")], node="n2", selected={"c": "n2"}
    ),
    "E7: no node is in the topology of the class": Row(
        [PROVISIONED.allowed("kubernetes.io/hostname", "n3"), a_claim("c", "1Gi", "d")], says=BIND_CONFLICT
    ),
    "E7: one claim is bound and one is provisioned": Row(
        [IMMEDIATE, PROVISIONED, a_pv("a", "1Gi", "i").on("n2"), a_claim("c", "1Gi", "i"), a_claim("d", "1Gi", "d")],
        ["c", "d"],
        node="n2",
        taken={"a": "c"},
        selected={"d": "n2"},
    ),
    "E7: a volume is meant for one claim and the other is provisioned": Row(
        [
            PROVISIONED,
            a_pv("a", "1Gi", "d").on("n2").claimed_by("c"),
            a_claim("c", "1Gi", "d"),
            a_claim("d", "1Gi", "d"),
        ],
        ["c", "d"],
        node="n2",
        taken={"a": "c"},
        selected={"d": "n2"},
    ),
    "E8: capacity of a driver that says nothing of itself": Row(
        [PROVISIONED, a_claim("c", "5Gi", "d")], on="n1", node="n1", selected={"c": "n1"}
    ),
    "E8: capacity of a driver that tracks it and has published none": Row(
        [PROVISIONED, CAPACITY, a_claim("c", "5Gi", "d")], says=NO_SPACE
    ),
    "E8: capacity that is large enough on one node": Row(
        [
            PROVISIONED,
            CAPACITY,
            a_capacity("small", "d", "4Gi").where("kubernetes.io/hostname", "n1"),
            a_capacity("large", "d", "6Gi").where("kubernetes.io/hostname", "n2"),
            a_claim("c", "5Gi", "d"),
        ],
        node="n2",
        selected={"c": "n2"},
    ),
    "E8: capacity objects of a driver that does not track it": Row(
        [PROVISIONED, a_csi_driver(DRIVER), a_capacity("small", "d", "1Gi").everywhere(), a_claim("c", "5Gi", "d")],
        on="n1",
        node="n1",
        selected={"c": "n1"},
    ),
    "E13: a bound volume on one node and a pod that insists on another": Row(
        [IMMEDIATE, a_pv("a", "1Gi", "i").on("n1"), a_claim("c", "1Gi", "i")],
        on="n2",
        says=NODE_CONFLICT,
        taken={"a": "c"},
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
async def test_where_it_goes(world: World, theirs: World, row: Row) -> None:
    """Nothing else is taken, and nothing else selected."""

    async def scenario(world: World) -> None:
        await world.make(world.node("n1"), world.node("n2"), *row.things)
        await what_binds_by_itself_is_bound(world, row)
        async with world.provisioner():
            await world.make(world.pod("p", *row.claims, on=row.on))
            if row.node:
                assert await world.bound("p") == [row.node]
            else:
                await world.refused("p", row.says)
            await check(world, row)

    await together(scenario, world, theirs)


async def what_binds_by_itself_is_bound(world: World, row: Row) -> None:
    """Claims that need no pod are bound first. A scheduler that is faster than the PV controller may choose a node for a
    claim whose volume is meant for it elsewhere.
    """
    meant = {(volume["spec"].get("claimRef") or {}).get("name") for volume in await world.all("PersistentVolume")}
    for name in sorted(set(row.claims) & set(row.taken.values())):
        spec = (await world.claim(name))["spec"]
        if name in meant or spec.get("volumeName") or spec["storageClassName"] == world.own("i"):
            await world.phase("PersistentVolumeClaim", name, "Bound")


async def check(world: World, row: Row) -> None:
    """In the end: which volume has which claim, and which node is selected for whom."""
    for name in row.claims:
        claim = await world.claim(name)
        assert is_bound(claim) == (bool(row.node) or name in row.taken.values()), claim
        wanted = row.selected.get(name, "")
        assert selected_node(claim) == (world.own(wanted) if wanted else ""), annotations_of(claim)
    for thing in row.things:
        if not isinstance(thing, PersistentVolumeBuilder):
            continue
        name = thing.obj()["metadata"]["name"]
        volume = await world.volume(name)
        reference = volume["spec"].get("claimRef") or {}
        if name in row.taken:
            assert reference["uid"], volume
            assert row.taken[name] in {"", reference["name"]}
        else:
            assert (reference, volume["status"]["phase"]) == ({}, "Available")
