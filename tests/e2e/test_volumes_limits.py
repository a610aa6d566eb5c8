"""Volumes that not every node, or not every pod, can have besides: attach limits, ReadWriteOncePod, ephemeral ones, zones.

What kube-scheduler answers in a world of its own is what is expected; preemption makes room as it does for anything else.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.e2e.cluster import Json
from tests.e2e.sandbox import together
from tests.e2e.storage import DRIVER, World
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


async def disks(world: World, *names: str) -> None:
    """Bound claims of these names."""
    await world.make(IMMEDIATE, *(disk(f"v-{name}", name) for name in names), *(a_claim(n, "1Gi", "i") for n in names))
    for name in names:
        await world.phase("PersistentVolumeClaim", name, "Bound")


async def test_as_many_disks_as_nodes_can_attach(world: World, theirs: World) -> None:
    """Two on one node and one on the other; the fourth pod goes where a disk is there already, the next waits for one to go."""

    async def scenario(world: World) -> None:
        await world.make(world.node("n1"), world.node("n2"))
        await world.make(a_csi_node("n1").driver(DRIVER, 2), a_csi_node("n2").driver(DRIVER, 1))
        await disks(world, "a", "b", "c", "d")
        await world.make(*(world.pod(f"p-{name}", name) for name in "abc"))
        nodes = await world.bound("p-a", "p-b", "p-c")
        assert sorted(nodes) == ["n1", "n1", "n2"]
        await world.make(world.pod("late", "d"))
        await world.refused("late", f"2 {MAX_VOLUMES}")
        await world.make(world.pod("shares", "c"))
        assert await world.bound("shares") == nodes[2:]
        await world.delete("Pod", "p-a")

        assert await world.bound("late") == nodes[:1]

    await together(scenario, world, theirs)


async def test_a_pod_comes_back_to_its_disk(world: World, theirs: World) -> None:
    """Its own disk is attached already: B-12. kube-scheduler counts it twice and lets it wait."""

    async def prepare(world: World) -> None:
        await world.make(world.node("n1"), a_csi_node("n1").driver(DRIVER, 1))
        await disks(world, "a")
        await world.make(an_attachment("v-a", "n1", DRIVER))
        await world.make(world.pod("p", "a"))

    await together(prepare, world, theirs)
    assert await world.bound("p") == ["n1"]
    await theirs.refused("p", MAX_VOLUMES)


async def test_one_pod_at_a_time(world: World, theirs: World) -> None:
    """ReadWriteOncePod: the second pod waits until the first is gone."""

    async def scenario(world: World) -> None:
        once = "ReadWriteOncePod"
        await world.make(world.node("n1"), world.node("n2"), IMMEDIATE)
        await world.make(a_pv("v", "1Gi", "i").csi(DRIVER).modes(once).claimed_by("c"))
        await world.make(a_claim("c", "1Gi", "i").modes(once))
        await world.phase("PersistentVolumeClaim", "c", "Bound")
        await world.make(world.pod("first", "c"))
        await world.bound("first")
        await world.make(world.pod("second", "c"))
        await world.refused("second", IN_USE)
        await world.delete("Pod", "first")

        await world.bound("second")

    await together(scenario, world, theirs)


async def test_ephemeral_volumes(world: World, theirs: World) -> None:
    """Each pod's own claim, made by the controller and provisioned where the pod goes."""

    async def scenario(world: World) -> None:
        await world.make(world.node("n1"), world.node("n2"), PROVISIONED)
        async with world.provisioner() as provisioner:
            await world.make(*(ephemeral(world, f"p-{i}", on=f"n{1 + i % 2}") for i in range(4)))

            assert await world.bound(*(f"p-{i}" for i in range(4))) == ["n1", "n2", "n1", "n2"]
        assert sorted(call.claim for call in provisioner.calls) == [f"p-{i}-scratch" for i in range(4)]

    await together(scenario, world, theirs)


def ephemeral(world: World, name: str, *, on: str = "") -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "d"}
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    return world.pod(name, on=on, spec={"volumes": [volume]})


# -- preemption ----------------------------------------------------------------------------------------------------------


async def classes(world: World) -> None:
    await world.make(*({"kind": "PriorityClass", "metadata": {"name": n}, "value": v} for n, v in PRIORITIES.items()))


PRIORITIES: Final = {"low": 0, "high": 1000}


def valued(world: World, name: str, claim: str, value: str) -> Json:
    return world.pod(name, claim, spec={"priorityClassName": world.own(value)})


async def test_a_holder_of_an_attach_slot_is_evicted(world: World, theirs: World) -> None:
    """The one whose disk frees the slot, not its neighbour without a disk."""

    async def scenario(world: World) -> None:
        await classes(world)
        await world.make(world.node("n1"), a_csi_node("n1").driver(DRIVER, 1))
        await disks(world, "a", "b")
        neighbour = world.pod("neighbour", spec={"priorityClassName": world.own("low")})
        await world.make(neighbour, valued(world, "holder", "a", "low"))
        await world.bound("neighbour", "holder")
        await world.make(valued(world, "important", "b", "high"))

        assert await world.bound("important") == ["n1"]
        assert [item["metadata"]["name"] for item in await world.all("Pod")] == ["important", "neighbour"]

    await together(scenario, world, theirs)


async def test_the_user_of_a_claim_for_one_pod_is_evicted(world: World, theirs: World) -> None:
    """ReadWriteOncePod: wherever it is, and nobody else."""

    async def scenario(world: World) -> None:
        once = "ReadWriteOncePod"
        await classes(world)
        await world.make(world.node("n1"), world.node("n2"), IMMEDIATE)
        await world.make(a_pv("v", "1Gi", "i").csi(DRIVER).modes(once).claimed_by("c"))
        await world.make(a_claim("c", "1Gi", "i").modes(once))
        await world.phase("PersistentVolumeClaim", "c", "Bound")
        bystanders = [world.pod(f"by-{n}", on=n, spec={"priorityClassName": world.own("low")}) for n in ("n1", "n2")]
        await world.make(*bystanders, valued(world, "user", "c", "low"))
        await world.bound("by-n1", "by-n2", "user")
        await world.make(valued(world, "important", "c", "high"))

        await world.bound("important")
        assert [item["metadata"]["name"] for item in await world.all("Pod")] == ["by-n1", "by-n2", "important"]

    await together(scenario, world, theirs)
