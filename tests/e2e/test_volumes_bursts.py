"""Many pods with volumes at once, and two schedulers that reach for the same ones (docs/spec/volumes.md §11.17, E10–E12, E19–E22)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from scheduler.api.storage_v1 import BOUND_BY_CONTROLLER
from simulator.builders.core import Builder
from tests.e2e.cluster import Json
from tests.e2e.sandbox import THEIRS
from tests.e2e.storage import DRIVER, GI, World, annotations_of, is_bound, selected_node
from tests.e2e.test_volumes import NO_SPACE
from tests.support.volumebuilders import a_claim, a_class, a_csi_driver, a_pv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PODS: Final = 30
PATIENCE_S: Final = 120.0
HOST: Final = "kubernetes.io/hostname"
WAITING: Final = a_class("w")
PROVISIONED: Final = a_class("d", DRIVER)
TRACKED: Final = a_csi_driver(DRIVER).tracks_capacity()


async def each_volume_is_used_once(world: World) -> None:
    """Every claim has its own volume, and what the claim says is what the volume says."""
    claims = await world.all("PersistentVolumeClaim")
    assert [claim["metadata"]["name"] for claim in claims if not is_bound(claim)] == []
    uids = {claim["spec"]["volumeName"]: claim["metadata"]["uid"] for claim in claims}
    assert len(uids) == len(claims)
    for volume in await world.all("PersistentVolume"):
        reference = volume["spec"].get("claimRef") or {}
        assert uids.get(volume["metadata"]["name"]) == reference.get("uid"), volume


async def test_e10_pods_with_three_static_claims_on_one_node(world: World) -> None:
    """Two claims find a volume, one has been meant for its volume; every volume is used, and none twice."""
    things: list[Builder[Any]] = [WAITING]
    for i in range(PODS):
        things += [a_pv(f"meant-{i}", "1Gi", "w").on("n1").claimed_by(f"c-{i}-0")]
        things += [a_pv(f"free-{i}-{j}", "1Gi", "w").on("n1") for j in (1, 2)]
        things += [a_claim(f"c-{i}-{j}", "1Gi", "w") for j in range(3)]
    await world.make(world.node("n1"), world.node("n2"), *things)
    names = [f"p-{i}" for i in range(PODS)]
    await world.make(*(world.pod(name, *(f"c-{i}-{j}" for j in range(3))) for i, name in enumerate(names)))

    assert set(await world.bound(*names, within_s=PATIENCE_S)) == {"n1"}
    await each_volume_is_used_once(world)
    for i in range(PODS):
        assert (await world.claim(f"c-{i}-0"))["spec"]["volumeName"] == world.own(f"meant-{i}")


@pytest.mark.parametrize("delay_s", [0, 2], ids=["at once", "after two seconds"])
async def test_e11_pods_with_static_and_provisioned_claims(world: World, delay_s: float) -> None:
    """One claim of each kind; a provisioned volume is where the static one is."""
    things: list[Builder[Any]] = [WAITING, PROVISIONED]
    for i in range(PODS):
        things += [a_pv(f"meant-{i}", "1Gi", "w").on(f"n{i % 3}").claimed_by(f"c-{i}-0")]
        things += [a_pv(f"free-{i}", "1Gi", "w").on(f"n{i % 3}")]
        things += [a_claim(f"c-{i}-{j}", "1Gi", "d" if j == 2 else "w") for j in range(3)]
    await world.make(*(world.node(f"n{n}") for n in range(3)), *things)
    names = [f"p-{i}" for i in range(PODS)]
    async with world.provisioner(delay_s=delay_s) as provisioner:
        await world.make(*(world.pod(name, *(f"c-{i}-{j}" for j in range(3))) for i, name in enumerate(names)))

        assert await world.bound(*names, within_s=PATIENCE_S) == [f"n{i % 3}" for i in range(PODS)]
    await each_volume_is_used_once(world)
    assert len(provisioner.calls) == PODS


async def test_e12_pods_that_avoid_each_other_go_where_volumes_are(world: World) -> None:
    """Most volumes are on one node, one on each other: ten different nodes."""
    many = [a_pv(f"many-{i}", "1Gi", "w").on("n0") for i in range(30)]
    single = [a_pv(f"single-{i}", "1Gi", "w").on(f"n{i}") for i in range(1, 10)]
    names = [f"p-{i}" for i in range(10)]
    claims = [a_claim(f"c-{i}", "1Gi", "w") for i in range(10)]
    await world.make(*(world.node(f"n{n}") for n in range(10)), WAITING, *many, *single, *claims)
    apart: Json = {"labelSelector": {"matchLabels": {"team": "apart"}}, "topologyKey": HOST}
    spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}
    pods = [world.pod(name, f"c-{i}", spec=spec) for i, name in enumerate(names)]
    for made in pods:
        made["metadata"]["labels"] = {"team": "apart"}
    await world.make(*pods)

    assert sorted(await world.bound(*names, within_s=PATIENCE_S)) == [f"n{n}" for n in range(10)]


async def test_e19_two_schedulers_reach_for_the_same_volumes(world: World) -> None:
    """As many volumes as claims; each is used once, and who comes too late takes another one."""
    count = 12
    volumes = [a_pv(f"v-{i}", "1Gi", "w").on(f"n{i % 2}") for i in range(2 * count)]
    claims = [a_claim(f"c-{i}", "1Gi", "w") for i in range(2 * count)]
    await world.make(world.node("n0"), world.node("n1"), WAITING, *volumes, *claims)
    pods = [world.pod(f"p-{i}", f"c-{i}") for i in range(2 * count)]
    for theirs in pods[count:]:
        theirs["spec"]["schedulerName"] = THEIRS
    await world.make(*pods)

    await world.bound(*(f"p-{i}" for i in range(2 * count)), within_s=PATIENCE_S)
    await each_volume_is_used_once(world)
    assert {annotations_of(volume)[BOUND_BY_CONTROLLER] for volume in await world.all("PersistentVolume")} == {"yes"}


async def test_e21_a_burst_larger_than_the_capacity_that_was_published(world: World) -> None:
    """One fits on each node; the others wait, and the provisioner never has to refuse."""
    await world.make(world.node("n1"), world.node("n2"), PROVISIONED, TRACKED)
    names = [f"p-{i}" for i in range(5)]
    await world.make(*(a_claim(f"c-{i}", "100Gi", "d") for i in range(5)))
    room = {"n1": 150 * GI, "n2": 150 * GI}
    async with world.provisioner(room=room, delay_s=0.5, publishes_every_s=0) as provisioner:
        await world.make(*(world.pod(name, f"c-{i}") for i, name in enumerate(names)))

        async def settled() -> bool:
            conditions = [await world.cluster.condition(name) for name in names]
            refused = [c for c in conditions if c and c["status"] == "False" and NO_SPACE in c["message"]]
            return len(refused) == 3 and sum(bool(c and c["status"] == "True") for c in conditions) == 2

        await world.until(settled, "two bound pods and three that wait for room")
        assert provisioner.taken_back == []
        claims = await world.all("PersistentVolumeClaim")
        nodes = Counter(node for claim in claims if (node := selected_node(claim)))
        assert nodes == {world.own("n1"): 1, world.own("n2"): 1}


async def test_e21_what_another_scheduler_has_selected_counts(world: World) -> None:
    """kube-scheduler's claim has no volume yet; a pod of ours goes to the other node, or waits if it insists."""
    await world.make(world.node("n1"), world.node("n2"), PROVISIONED, TRACKED)
    await world.make(*(a_claim(name, "100Gi", "d") for name in ("theirs", "stays", "goes")))
    allowed: list[str] = ["goes"]
    room = {"n1": 150 * GI, "n2": 150 * GI}
    behaviour = {"refuses": lambda call: call.claim not in allowed, "keeps_trying": True}
    async with world.provisioner(room=room, publishes_every_s=0, **behaviour) as provisioner:
        first = world.pod("theirs", "theirs", on="n1")
        first["spec"]["schedulerName"] = THEIRS
        await world.make(first)
        await world.selected("theirs", "n1")
        await world.in_flight("d", 100 * GI)
        await world.make(world.pod("stays", "stays", on="n1"))
        await world.refused("stays", NO_SPACE)
        await world.make(world.pod("goes", "goes"))

        assert await world.bound("goes") == ["n2"]
        allowed.append("theirs")
        assert await world.bound("theirs") == ["n1"]
        await world.refused("stays", NO_SPACE)
        assert provisioner.taken_back == []


@pytest.mark.parametrize("is_provisioned", [False, True], ids=["a static volume", "a provisioned volume"])
async def test_e22_replicas_share_one_claim(world: World, is_provisioned: bool) -> None:
    """Ten pods of one Deployment: one volume for all, and no pod is told of a conflict."""
    shared = a_claim("c", "1Gi", "d" if is_provisioned else "w").modes("ReadWriteMany")
    volumes = [] if is_provisioned else [a_pv(f"v-{i}", "1Gi", "w").modes("ReadWriteMany") for i in range(3)]
    await world.make(world.node("n1"), world.node("n2"), WAITING, PROVISIONED, *volumes, shared)
    names = [f"p-{i}" for i in range(10)]
    async with world.provisioner() as provisioner:
        await world.make(*(world.pod(name, "c") for name in names))

        nodes = await world.bound(*names, within_s=PATIENCE_S)
        if is_provisioned:
            assert len(set(nodes)) == 1
    taken = [v for v in await world.all("PersistentVolume") if v["spec"].get("claimRef")]
    assert len(taken) == 1
    assert len(provisioner.calls) == is_provisioned
    notes = [event["note"] for name in names for event in await world.cluster.events(name)]
    assert [note for note in notes if "object has been modified" in note] == []
