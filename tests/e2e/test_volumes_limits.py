"""Volumes that not every node or pod can have: attach limits, ReadWriteOncePod, ephemeral ones, zones.

kube-scheduler's answer in a separate sandbox is the expected one; preemption works as for other resources."""

from __future__ import annotations

from typing import Final

import pytest

from tests.e2e.cluster import Json
from tests.e2e.sandbox import together
from tests.e2e.storage import DRIVER, StorageSandbox
from tests.support.volumebuilders import PersistentVolumeBuilder, a_claim, a_class, a_csi_node, a_pv, an_attachment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

IMMEDIATE: Final = a_class("i").immediate()
PROVISIONED: Final = a_class("d", DRIVER)
MAX_VOLUMES: Final = "node(s) exceed max volume count"
IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def disk(name: str, claim: str) -> PersistentVolumeBuilder:
    """A volume of the driver that every node can attach, meant for this claim."""
    return a_pv(name, "1Gi", "i").csi(DRIVER).claimed_by(claim)


async def disks(sandbox: StorageSandbox, *names: str) -> None:
    await sandbox.make(
        IMMEDIATE, *(disk(f"v-{name}", name) for name in names), *(a_claim(n, "1Gi", "i") for n in names)
    )
    for name in names:
        await sandbox.phase("PersistentVolumeClaim", name, "Bound")


async def test_as_many_disks_as_nodes_can_attach(sandbox: StorageSandbox, theirs: StorageSandbox) -> None:
    async def scenario(sandbox: StorageSandbox) -> None:
        await sandbox.make(sandbox.node("n1"), sandbox.node("n2"))
        await sandbox.make(a_csi_node("n1").driver(DRIVER, 2), a_csi_node("n2").driver(DRIVER, 1))
        await disks(sandbox, "a", "b", "c", "d")
        await sandbox.make(*(sandbox.pod(f"p-{name}", name) for name in "abc"))
        nodes = await sandbox.bound("p-a", "p-b", "p-c")
        assert sorted(nodes) == ["n1", "n1", "n2"]
        await sandbox.make(sandbox.pod("late", "d"))
        await sandbox.refused("late", f"2 {MAX_VOLUMES}")
        await sandbox.make(sandbox.pod("shares", "c"))
        assert await sandbox.bound("shares") == nodes[2:]
        await sandbox.delete("Pod", "p-a")

        assert await sandbox.bound("late") == nodes[:1]

    await together(scenario, sandbox, theirs)


async def test_a_pod_comes_back_to_its_disk(sandbox: StorageSandbox, theirs: StorageSandbox) -> None:
    """B-12: its disk is attached already. kube-scheduler counts it twice, and the pod waits."""

    async def prepare(sandbox: StorageSandbox) -> None:
        await sandbox.make(sandbox.node("n1"), a_csi_node("n1").driver(DRIVER, 1))
        await disks(sandbox, "a")
        await sandbox.make(an_attachment("v-a", "n1", DRIVER))
        await sandbox.make(sandbox.pod("p", "a"))

    await together(prepare, sandbox, theirs)
    assert await sandbox.bound("p") == ["n1"]
    await theirs.refused("p", MAX_VOLUMES)


async def test_one_pod_at_a_time(sandbox: StorageSandbox, theirs: StorageSandbox) -> None:
    async def scenario(sandbox: StorageSandbox) -> None:
        once = "ReadWriteOncePod"
        await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), IMMEDIATE)
        await sandbox.make(a_pv("v", "1Gi", "i").csi(DRIVER).modes(once).claimed_by("c"))
        await sandbox.make(a_claim("c", "1Gi", "i").modes(once))
        await sandbox.phase("PersistentVolumeClaim", "c", "Bound")
        await sandbox.make(sandbox.pod("first", "c"))
        await sandbox.bound("first")
        await sandbox.make(sandbox.pod("second", "c"))
        await sandbox.refused("second", IN_USE)
        await sandbox.delete("Pod", "first")

        await sandbox.bound("second")

    await together(scenario, sandbox, theirs)


async def test_ephemeral_volumes(sandbox: StorageSandbox, theirs: StorageSandbox) -> None:
    async def scenario(sandbox: StorageSandbox) -> None:
        await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), PROVISIONED)
        async with sandbox.provisioner() as provisioner:
            await sandbox.make(*(ephemeral(sandbox, f"p-{i}", on=f"n{1 + i % 2}") for i in range(4)))

            assert await sandbox.bound(*(f"p-{i}" for i in range(4))) == ["n1", "n2", "n1", "n2"]
        assert sorted(call.claim for call in provisioner.calls) == [f"p-{i}-scratch" for i in range(4)]

    await together(scenario, sandbox, theirs)


def ephemeral(sandbox: StorageSandbox, name: str, *, on: str = "") -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "d"}
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    return sandbox.pod(name, on=on, spec={"volumes": [volume]})


# -- preemption ----------------------------------------------------------------------------------------------------------


async def classes(sandbox: StorageSandbox) -> None:
    await sandbox.make(*({"kind": "PriorityClass", "metadata": {"name": n}, "value": v} for n, v in PRIORITIES.items()))


PRIORITIES: Final = {"low": 0, "high": 1000}


def valued(sandbox: StorageSandbox, name: str, claim: str, value: str) -> Json:
    return sandbox.pod(name, claim, spec={"priorityClassName": sandbox.own(value)})


async def test_a_holder_of_an_attach_slot_is_evicted(sandbox: StorageSandbox, theirs: StorageSandbox) -> None:
    async def scenario(sandbox: StorageSandbox) -> None:
        await classes(sandbox)
        await sandbox.make(sandbox.node("n1"), a_csi_node("n1").driver(DRIVER, 1))
        await disks(sandbox, "a", "b")
        neighbour = sandbox.pod("neighbour", spec={"priorityClassName": sandbox.own("low")})
        await sandbox.make(neighbour, valued(sandbox, "holder", "a", "low"))
        await sandbox.bound("neighbour", "holder")
        await sandbox.make(valued(sandbox, "important", "b", "high"))

        assert await sandbox.bound("important") == ["n1"]
        assert [item["metadata"]["name"] for item in await sandbox.all("Pod")] == ["important", "neighbour"]

    await together(scenario, sandbox, theirs)


async def test_the_user_of_a_claim_for_one_pod_is_evicted(sandbox: StorageSandbox, theirs: StorageSandbox) -> None:
    async def scenario(sandbox: StorageSandbox) -> None:
        once = "ReadWriteOncePod"
        await classes(sandbox)
        await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), IMMEDIATE)
        await sandbox.make(a_pv("v", "1Gi", "i").csi(DRIVER).modes(once).claimed_by("c"))
        await sandbox.make(a_claim("c", "1Gi", "i").modes(once))
        await sandbox.phase("PersistentVolumeClaim", "c", "Bound")
        bystanders = [
            sandbox.pod(f"by-{n}", on=n, spec={"priorityClassName": sandbox.own("low")}) for n in ("n1", "n2")
        ]
        await sandbox.make(*bystanders, valued(sandbox, "user", "c", "low"))
        await sandbox.bound("by-n1", "by-n2", "user")
        await sandbox.make(valued(sandbox, "important", "c", "high"))

        await sandbox.bound("important")
        assert [item["metadata"]["name"] for item in await sandbox.all("Pod")] == ["by-n1", "by-n2", "important"]

    await together(scenario, sandbox, theirs)
