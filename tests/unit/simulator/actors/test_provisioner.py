"""The external provisioner: new volumes, failures, and published capacity."""

from typing import Any

import pytest

from scheduler.api.storage_v1 import SELECTED_NODE
from simulator.builders.core import node
from simulator.controllers import ExternalProvisioner, PersistentVolumeController, ProvisionCall
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import a_claim, a_class
from tests.unit.simulator.stage import server_with, settle

GI = 1 << 30
DRIVER = "d.example"
ZONE = "topology.d.example/zone"


class Harness:
    """A server with two nodes in two zones, two classes, a PV controller, and the provisioner."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        nodes = (node(name).label(ZONE, zone) for name, zone in (("n1", "z1"), ("n2", "z2")))
        classes = (a_class("w", DRIVER), a_class("i", DRIVER).immediate())
        self.server = server_with(*nodes, *classes, clock=self.clock)
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
        settle(self.controller, self.provisioner)

    async def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.clock.advance(1)
            self.settle()

    def zone(self, name: str) -> str:
        """Return the zone of the claim's volume, or ""."""
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
        annotations: dict[str, str] = self.server.get("persistentvolumeclaims", name)["metadata"].get("annotations", {})
        return annotations.get(SELECTED_NODE)

    def counts(self) -> tuple[int, int, int]:
        return self.provisioner.provisioned, self.provisioner.failures, self.provisioner.rescheduled

    def published(self) -> dict[str, int]:
        return {
            f"{each['storageClassName']} {each['nodeTopology']['matchLabels'][ZONE]}": int(each["capacity"]) // GI
            for each in self.server.objects("csistoragecapacities")
        }


def test_a_volume_is_created_on_the_selected_node() -> None:
    harness = Harness()
    harness.claim("c", "3Gi")
    assert (harness.zone("c"), harness.provisioner.calls) == ("", [])
    harness.select("c", "n2")
    assert (harness.zone("c"), harness.counts()) == ("z2", (1, 0, 0))
    assert harness.provisioner.calls == [ProvisionCall(1, "default/c", "n2")]
    (volume,) = harness.server.objects("persistentvolumes")
    assert (volume["spec"]["capacity"], volume["spec"]["storageClassName"]) == ({"storage": "3Gi"}, "w")
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


def test_an_immediate_claim_gets_the_zone_with_the_most_capacity() -> None:
    harness = Harness(space={"z1": 2 * GI, "z2": 3 * GI})
    harness.claim("c", class_name="i")
    harness.claim("d", "2Gi", class_name="i")
    assert (harness.zone("c"), harness.zone("d")) == ("z2", "z1")


def test_without_capacity_the_selected_node_is_removed() -> None:
    harness = Harness(space={"z1": 2 * GI, "z2": 2 * GI})
    harness.claim("a", "2Gi", on="n1")
    harness.claim("b", on="n1")
    assert (harness.zone("a"), harness.zone("b"), harness.selected("b")) == ("z1", "", None)
    assert harness.counts() == (1, 1, 1)
    (event,) = [each for each in harness.server.objects("events") if each["reason"] == "ProvisioningFailed"]
    assert (event["regarding"]["name"], event["type"]) == ("b", "Warning")
    assert "ResourceExhausted" in event["note"]
    harness.select("b", "n2")
    assert (harness.zone("b"), harness.provisioner.overdrawn()) == ("z2", [])


@pytest.mark.parametrize("deleted_before", [True, False], ids=["deleted before the call", "deleted during the call"])
def test_the_selection_of_a_deleted_node_is_removed(deleted_before: bool) -> None:
    harness = Harness(fault=lambda _: "not yet", keeps_trying=True)
    if deleted_before:
        harness.server.delete("nodes", "n1")
    harness.claim("c", on="n1")
    if not deleted_before:
        assert harness.selected("c") == "n1"
        harness.server.delete("nodes", "n1")
        harness.settle()
    assert (harness.selected("c"), harness.provisioner.rescheduled) == (None, 1)


async def test_capacity_is_as_old_as_its_publication() -> None:
    """A new class is published at once."""
    harness = Harness(space={"z1": 5 * GI, "z2": 2 * GI}, publishes_every_s=60)
    harness.settle()
    fresh = {"i z1": 5, "i z2": 2, "w z1": 5, "w z2": 2}
    assert harness.published() == fresh
    harness.claim("c", "3Gi", on="n1")
    await harness.wait(59)
    assert (harness.zone("c"), harness.published()) == ("z1", fresh)
    await harness.wait(1)
    assert harness.published() == {"i z1": 2, "i z2": 2, "w z1": 2, "w z2": 2}
    harness.server.apply(a_class("x", DRIVER).obj())
    harness.settle()
    assert harness.published()["x z1"] == 2


def test_lost_storage_is_reported() -> None:
    harness = Harness(space={"z1": GI})
    harness.claim("c", on="n1")
    assert harness.provisioner.space is not None
    harness.provisioner.space.size_bytes["z1"] = 0
    assert harness.provisioner.overdrawn() == [f"segment z1: {GI} bytes made, 0 there"]
