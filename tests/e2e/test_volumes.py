"""Pods with claims on a real control plane: nodes, claims and volumes (docs/spec/volumes.md §11.17).

kube-scheduler gets every row too, in a separate sandbox: its answer is the expected one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from simulator.builders.core import Builder
from tests.e2e.sandbox import together
from tests.e2e.storage import DRIVER, NODE_CONFLICT, StorageSandbox, annotations_of, is_bound, selected_node
from tests.support.volumebuilders import PersistentVolumeBuilder, a_capacity, a_claim, a_class, a_csi_driver, a_pv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"


@dataclass(frozen=True)
class Row:
    """Objects on the nodes n1 and n2, the pod's claims, and the expected node or message."""

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
    "E2: a claim that waits gets a volume": Row(
        [WAITING, a_pv("a", "5Gi", "w").on("n1"), a_claim("c", "1Gi", "w")], node="n1", taken={"a": "c"}
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
    "E13: a bound volume on one node and a pod that insists on another": Row(
        [IMMEDIATE, a_pv("a", "1Gi", "i").on("n1"), a_claim("c", "1Gi", "i")],
        on="n2",
        says=NODE_CONFLICT,
        taken={"a": "c"},
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
async def test_where_it_goes(sandbox: StorageSandbox, theirs: StorageSandbox, row: Row) -> None:
    async def scenario(sandbox: StorageSandbox) -> None:
        await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), *row.things)
        await what_binds_by_itself_is_bound(sandbox, row)
        async with sandbox.provisioner():
            await sandbox.make(sandbox.pod("p", *row.claims, on=row.on))
            if row.node:
                assert await sandbox.bound("p") == [row.node]
            else:
                await sandbox.refused("p", row.says)
            await check(sandbox, row)

    await together(scenario, sandbox, theirs)


async def what_binds_by_itself_is_bound(sandbox: StorageSandbox, row: Row) -> None:
    """Claims that need no pod are bound first. A scheduler that is faster than the PV controller may choose a node for a
    claim whose volume is meant for it elsewhere."""
    meant = {(volume["spec"].get("claimRef") or {}).get("name") for volume in await sandbox.all("PersistentVolume")}
    for name in sorted(set(row.claims) & set(row.taken.values())):
        spec = (await sandbox.claim(name))["spec"]
        if name in meant or spec.get("volumeName") or spec["storageClassName"] == sandbox.own("i"):
            await sandbox.phase("PersistentVolumeClaim", name, "Bound")


async def check(sandbox: StorageSandbox, row: Row) -> None:
    """Which volume has which claim in the end, and which node is selected for it."""
    for name in row.claims:
        claim = await sandbox.claim(name)
        assert is_bound(claim) == (bool(row.node) or name in row.taken.values()), claim
        wanted = row.selected.get(name, "")
        assert selected_node(claim) == (sandbox.own(wanted) if wanted else ""), annotations_of(claim)
    for thing in row.things:
        if not isinstance(thing, PersistentVolumeBuilder):
            continue
        name = thing.obj()["metadata"]["name"]
        volume = await sandbox.volume(name)
        reference = volume["spec"].get("claimRef") or {}
        if name in row.taken:
            assert reference["uid"], volume
            assert row.taken[name] in {"", reference["name"]}
        else:
            assert (reference, volume["status"]["phase"]) == ({}, "Available")
