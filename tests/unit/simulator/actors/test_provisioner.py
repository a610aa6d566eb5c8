"""The external provisioner actor: where and when it makes volumes, what it does when it cannot, what it publishes."""

from collections.abc import Mapping
from typing import Any

import pytest

from scheduler.api.storage_v1 import SELECTED_NODE
from simulator.apiserver import ApiServer
from simulator.builders.core import node
from simulator.controllers import ExternalProvisioner, PersistentVolumeController, ProvisionCall
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import a_claim, a_class

GI = 1 << 30
DRIVER = "d.example"
ZONE = "topology.d.example/zone"


class World:
    """A server with two nodes in zones of their own, a class that waits, a PV controller, and the provisioner."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(clock=self.clock)
        for name, zone in (("n1", "z1"), ("n2", "z2")):
            self.server.create("nodes", node(name).label(ZONE, zone).obj())
        self.server.apply(a_class("w", DRIVER).obj())
        self.server.apply(a_class("i", DRIVER).immediate().obj())
        self.controller = PersistentVolumeController(self.server, clock=self.clock)
        self.provisioner = ExternalProvisioner(self.server, DRIVER, clock=self.clock, topology_keys=(ZONE,), **options)

    def claim(self, name: str, size: str = "1Gi", *, on: str = "", class_name: str = "w") -> None:
        claim = a_claim(name, size, class_name)
        self.server.apply((claim.selected(on) if on else claim).obj())
        self.settle()

    def select(self, name: str, on: str) -> None:
        self.server.patch("persistentvolumeclaims", name, {"metadata": {"annotations": {SELECTED_NODE: on}}})
        self.settle()

    def settle(self) -> None:
        while self.controller.step() + self.provisioner.step():
            pass

    async def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.clock.advance(1)
            self.settle()

    def zone(self, name: str) -> str:
        """Where the claim's volume is; empty if it has none."""
        claim = self.server.get("persistentvolumeclaims", name)
        if not claim["spec"].get("volumeName"):
            return ""
        volume = self.server.get("persistentvolumes", claim["spec"]["volumeName"])
        assert volume["spec"]["csi"]["driver"] == DRIVER
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (expression,) = term["matchExpressions"]
        assert (expression["key"], expression["operator"]) == (ZONE, "In")
        zone: str = expression["values"][0]
        return zone

    def selected(self, name: str) -> str | None:
        annotations: Mapping[str, str] = self.server.get("persistentvolumeclaims", name)["metadata"].get(
            "annotations", {}
        )
        return annotations.get(SELECTED_NODE)

    def counts(self) -> tuple[int, int, int]:
        return self.provisioner.provisioned, self.provisioner.failures, self.provisioner.rescheduled

    def published(self) -> dict[str, int]:
        return {
            f"{each['storageClassName']} {each['nodeTopology']['matchLabels'][ZONE]}": int(each["capacity"]) // GI
            for each in self.server.objects("csistoragecapacities")
        }


def test_it_waits_for_a_node() -> None:
    """Then makes the volume there, of the claim's size and class, and the claim is bound to it."""
    world = World()
    world.claim("c", "3Gi")
    assert (world.zone("c"), world.provisioner.calls) == ("", [])
    world.select("c", "n2")
    assert (world.zone("c"), world.counts()) == ("z2", (1, 0, 0))
    assert world.provisioner.calls == [ProvisionCall(1, "default/c", "n2")]
    (volume,) = world.server.objects("persistentvolumes")
    assert (volume["spec"]["capacity"], volume["spec"]["storageClassName"]) == ({"storage": "3Gi"}, "w")
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


def test_an_immediate_claim_goes_where_there_is_most_room() -> None:
    """Nobody chooses a node for it."""
    world = World(space={"z1": 2 * GI, "z2": 3 * GI})
    world.claim("c", class_name="i")
    world.claim("d", "2Gi", class_name="i")
    assert (world.zone("c"), world.zone("d")) == ("z2", "z1")


def test_no_room_gives_the_claim_back() -> None:
    """The scheduler may choose again; an event tells why; never more is made than there is."""
    world = World(space={"z1": 2 * GI, "z2": 2 * GI})
    world.claim("a", "2Gi", on="n1")
    world.claim("b", on="n1")
    assert (world.zone("a"), world.zone("b"), world.selected("b")) == ("z1", "", None)
    assert world.counts() == (1, 1, 1)
    (event,) = [each for each in world.server.objects("events") if each["reason"] == "ProvisioningFailed"]
    assert (event["regarding"]["name"], event["type"]) == ("b", "Warning")
    assert "ResourceExhausted" in event["note"]
    world.select("b", "n2")
    assert (world.zone("b"), world.provisioner.overdrawn()) == ("z2", [])


@pytest.mark.parametrize("deleted_before", [True, False], ids=["gone when it is called", "goes while it tries"])
def test_a_node_that_is_gone_gives_the_claim_back(deleted_before: bool) -> None:
    """Whether it was there at the call or not."""
    world = World(fault=lambda _: "not yet", keeps_trying=True)
    if deleted_before:
        world.server.delete("nodes", "n1")
    world.claim("c", on="n1")
    if not deleted_before:
        assert world.selected("c") == "n1"
        world.server.delete("nodes", "n1")
        world.settle()
    assert (world.selected("c"), world.provisioner.rescheduled) == (None, 1)


async def test_capacity_is_as_old_as_its_publication() -> None:
    """One object per class and segment; at the start and every so often; a new class at once."""
    world = World(space={"z1": 5 * GI, "z2": 2 * GI}, publishes_every_s=60)
    world.settle()
    fresh = {"i z1": 5, "i z2": 2, "w z1": 5, "w z2": 2}
    assert world.published() == fresh
    world.claim("c", "3Gi", on="n1")
    await world.wait(59)
    assert (world.zone("c"), world.published()) == ("z1", fresh)
    await world.wait(1)
    assert world.published() == {"i z1": 2, "i z2": 2, "w z1": 2, "w z2": 2}
    world.server.apply(a_class("x", DRIVER).obj())
    world.settle()
    assert world.published()["x z1"] == 2


def test_lost_storage_is_told() -> None:
    """The check would see an overdraft."""
    world = World(space={"z1": GI})
    world.claim("c", on="n1")
    assert world.provisioner.space is not None
    world.provisioner.space.size_bytes["z1"] = 0
    assert world.provisioner.overdrawn() == [f"segment z1: {GI} bytes made, 0 there"]
