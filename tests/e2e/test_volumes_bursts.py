"""Many pods with volumes at once, and two schedulers that reach for the same ones (docs/spec/volumes.md §11.17, E10–E12, E19–E22)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from scheduler.api.storage_v1 import BOUND_BY_CONTROLLER
from simulator.builders.core import Builder
from tests.e2e.cluster import Json
from tests.e2e.sandbox import THEIRS
from tests.e2e.storage import DRIVER, GI, NO_SPACE, StorageSandbox, annotations_of, is_bound, selected_node
from tests.support.volumebuilders import a_claim, a_class, a_csi_driver, a_pv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PODS: Final = 30
PATIENCE_S: Final = 120.0
HOST: Final = "kubernetes.io/hostname"
WAITING: Final = a_class("w")
PROVISIONED: Final = a_class("d", DRIVER)
TRACKED: Final = a_csi_driver(DRIVER).tracks_capacity()


async def each_volume_is_used_once(sandbox: StorageSandbox) -> None:
    """Every claim has a separate volume, and claim and volume agree."""
    claims = await sandbox.all("PersistentVolumeClaim")
    assert [claim["metadata"]["name"] for claim in claims if not is_bound(claim)] == []
    uids = {claim["spec"]["volumeName"]: claim["metadata"]["uid"] for claim in claims}
    assert len(uids) == len(claims)
    for volume in await sandbox.all("PersistentVolume"):
        reference = volume["spec"].get("claimRef") or {}
        assert uids.get(volume["metadata"]["name"]) == reference.get("uid"), volume


async def test_e10_pods_with_three_static_claims_on_one_node(sandbox: StorageSandbox) -> None:
    things: list[Builder[Any]] = [WAITING]
    for i in range(PODS):
        things += [a_pv(f"meant-{i}", "1Gi", "w").on("n1").claimed_by(f"c-{i}-0")]
        things += [a_pv(f"free-{i}-{j}", "1Gi", "w").on("n1") for j in (1, 2)]
        things += [a_claim(f"c-{i}-{j}", "1Gi", "w") for j in range(3)]
    await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), *things)
    names = [f"p-{i}" for i in range(PODS)]
    await sandbox.make(*(sandbox.pod(name, *(f"c-{i}-{j}" for j in range(3))) for i, name in enumerate(names)))

    assert set(await sandbox.bound(*names, within_s=PATIENCE_S)) == {"n1"}
    await each_volume_is_used_once(sandbox)
    for i in range(PODS):
        assert (await sandbox.claim(f"c-{i}-0"))["spec"]["volumeName"] == sandbox.own(f"meant-{i}")


@pytest.mark.parametrize("delay_s", [0, 2], ids=["at once", "after two seconds"])
async def test_e11_pods_with_static_and_provisioned_claims(sandbox: StorageSandbox, delay_s: float) -> None:
    things: list[Builder[Any]] = [WAITING, PROVISIONED]
    for i in range(PODS):
        things += [a_pv(f"meant-{i}", "1Gi", "w").on(f"n{i % 3}").claimed_by(f"c-{i}-0")]
        things += [a_pv(f"free-{i}", "1Gi", "w").on(f"n{i % 3}")]
        things += [a_claim(f"c-{i}-{j}", "1Gi", "d" if j == 2 else "w") for j in range(3)]
    await sandbox.make(*(sandbox.node(f"n{n}") for n in range(3)), *things)
    names = [f"p-{i}" for i in range(PODS)]
    async with sandbox.provisioner(delay_s=delay_s) as provisioner:
        await sandbox.make(*(sandbox.pod(name, *(f"c-{i}-{j}" for j in range(3))) for i, name in enumerate(names)))

        assert await sandbox.bound(*names, within_s=PATIENCE_S) == [f"n{i % 3}" for i in range(PODS)]
    await each_volume_is_used_once(sandbox)
    assert len(provisioner.calls) == PODS


async def test_e12_pods_that_avoid_each_other_go_where_volumes_are(sandbox: StorageSandbox) -> None:
    many = [a_pv(f"many-{i}", "1Gi", "w").on("n0") for i in range(30)]
    single = [a_pv(f"single-{i}", "1Gi", "w").on(f"n{i}") for i in range(1, 10)]
    names = [f"p-{i}" for i in range(10)]
    claims = [a_claim(f"c-{i}", "1Gi", "w") for i in range(10)]
    await sandbox.make(*(sandbox.node(f"n{n}") for n in range(10)), WAITING, *many, *single, *claims)
    apart: Json = {"labelSelector": {"matchLabels": {"team": "apart"}}, "topologyKey": HOST}
    spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}
    pods = [sandbox.pod(name, f"c-{i}", spec=spec) for i, name in enumerate(names)]
    for made in pods:
        made["metadata"]["labels"] = {"team": "apart"}
    await sandbox.make(*pods)

    assert sorted(await sandbox.bound(*names, within_s=PATIENCE_S)) == [f"n{n}" for n in range(10)]


async def test_e19_two_schedulers_reach_for_the_same_volumes(sandbox: StorageSandbox) -> None:
    count = 12
    volumes = [a_pv(f"v-{i}", "1Gi", "w").on(f"n{i % 2}") for i in range(2 * count)]
    claims = [a_claim(f"c-{i}", "1Gi", "w") for i in range(2 * count)]
    await sandbox.make(sandbox.node("n0"), sandbox.node("n1"), WAITING, *volumes, *claims)
    pods = [sandbox.pod(f"p-{i}", f"c-{i}") for i in range(2 * count)]
    for theirs in pods[count:]:
        theirs["spec"]["schedulerName"] = THEIRS
    await sandbox.make(*pods)

    await sandbox.bound(*(f"p-{i}" for i in range(2 * count)), within_s=PATIENCE_S)
    await each_volume_is_used_once(sandbox)
    assert {annotations_of(volume)[BOUND_BY_CONTROLLER] for volume in await sandbox.all("PersistentVolume")} == {"yes"}


async def test_e21_a_burst_larger_than_the_capacity_that_was_published(sandbox: StorageSandbox) -> None:
    await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), PROVISIONED, TRACKED)
    names = [f"p-{i}" for i in range(5)]
    await sandbox.make(*(a_claim(f"c-{i}", "100Gi", "d") for i in range(5)))
    room = {"n1": 150 * GI, "n2": 150 * GI}
    async with sandbox.provisioner(capacities=room, delay_s=0.5, publishes_every_s=0) as provisioner:
        await sandbox.make(*(sandbox.pod(name, f"c-{i}") for i, name in enumerate(names)))

        async def settled() -> bool:
            conditions = [await sandbox.cluster.condition(name) for name in names]
            refused = [c for c in conditions if c and c["status"] == "False" and NO_SPACE in c["message"]]
            return len(refused) == 3 and sum(bool(c and c["status"] == "True") for c in conditions) == 2

        await sandbox.until(settled, "two bound pods and three that wait for capacity")
        assert provisioner.taken_back == []
        claims = await sandbox.all("PersistentVolumeClaim")
        nodes = Counter(node for claim in claims if (node := selected_node(claim)))
        assert nodes == {sandbox.own("n1"): 1, sandbox.own("n2"): 1}


@pytest.mark.parametrize("is_provisioned", [False, True], ids=["a static volume", "a provisioned volume"])
async def test_e22_replicas_share_one_claim(sandbox: StorageSandbox, is_provisioned: bool) -> None:
    shared = a_claim("c", "1Gi", "d" if is_provisioned else "w").modes("ReadWriteMany")
    volumes = [] if is_provisioned else [a_pv(f"v-{i}", "1Gi", "w").modes("ReadWriteMany") for i in range(3)]
    await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), WAITING, PROVISIONED, *volumes, shared)
    names = [f"p-{i}" for i in range(10)]
    async with sandbox.provisioner() as provisioner:
        await sandbox.make(*(sandbox.pod(name, "c") for name in names))

        nodes = await sandbox.bound(*names, within_s=PATIENCE_S)
        if is_provisioned:
            assert len(set(nodes)) == 1
    taken = [v for v in await sandbox.all("PersistentVolume") if v["spec"].get("claimRef")]
    assert len(taken) == 1
    assert len(provisioner.calls) == is_provisioned
    notes = [event["note"] for name in names for event in await sandbox.cluster.events(name)]
    assert [note for note in notes if "object has been modified" in note] == []
