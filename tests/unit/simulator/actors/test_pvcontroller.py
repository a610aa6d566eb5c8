"""The PV controller, the external provisioner, the attach-detach controller and the ephemeral volume controller."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.storage_v1 import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from simulator.apiserver import ApiServer
from simulator.builders.core import Builder, PodBuilder, node, pod
from simulator.controllers import (
    AttachDetachController,
    EphemeralVolumeController,
    ExternalProvisioner,
    PersistentVolumeController,
    ProtectionController,
    ProvisionCall,
)
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import ClaimBuilder, PersistentVolumeBuilder, a_claim, a_class, a_pv
from tests.unit.simulator.stage import server_with, settle

WAITS = a_class("w")
NOW = a_class("i", "d.x").immediate()


def volume_of(server: ApiServer) -> tuple[str, str]:
    """Return the volume and the phase of the claim."""
    claim = server.get("persistentvolumeclaims", "c")
    return claim["spec"].get("volumeName", ""), claim["status"]["phase"]


@pytest.mark.parametrize(("claim", "volumes", "chosen"), [
    pytest.param(a_claim("c", "2Gi", "i"), [a_pv("a", "1Gi", "i")], "", id="none is large enough"),
    pytest.param(a_claim("c", "2G", "i"), [a_pv("a", "2Gi", "i")], "a", id="sizes in other units"),
    pytest.param(a_claim("c"), [a_pv("a", storage_class="i")], "", id="another class"),
    pytest.param(a_claim("c"), [a_pv("a")], "a", id="no class on either side"),
    pytest.param(a_claim("c"), [a_pv("a").modes("ReadWriteMany"), a_pv("b", "5Gi")], "b",
        id="a volume without the mode"),
    pytest.param(a_claim("c"), [a_pv("a").modes("ReadWriteOnce", "ReadWriteMany"), a_pv("b", "5Gi")], "b",
        id="fewer modes before smaller"),
    pytest.param(a_claim("c").volume_mode("Block"), [a_pv("a")], "", id="another volume mode"),
    pytest.param(a_claim("c").attributes_class("g"), [a_pv("a")], "", id="another attributes class"),
    pytest.param(a_claim("c").matching({"x": "y"}), [a_pv("a"), a_pv("b", "5Gi").label("x", "y")], "b", id="by label"),
    pytest.param(a_claim("c"), [a_pv("a").claimed_by("other"), a_pv("b", "5Gi")], "b",
        id="the volume of another claim"),
    pytest.param(a_claim("c"), [a_pv("a"), a_pv("b", "5Gi").claimed_by("c")], "b",
        id="a volume that names the claim, though larger"),
    pytest.param(a_claim("c").wants("b"), [a_pv("a"), a_pv("b", "5Gi")], "b", id="the volume that the claim names"),
    pytest.param(a_claim("c", storage_class="w"), [a_pv("a", storage_class="w")], "", id="waits for its consumer"),
])  # fmt: skip
def test_which_volume_a_claim_gets(claim: ClaimBuilder, volumes: list[PersistentVolumeBuilder], chosen: str) -> None:
    """As the matcher of docs/spec/volumes.md §3.3.2 does without a node."""
    server = server_with(WAITS, NOW, *volumes, claim)
    settle(PersistentVolumeController(server, clock=VirtualClock()))
    assert volume_of(server) == (chosen, "Bound" if chosen else "Pending")


def test_the_writes_come_in_order() -> None:
    server = server_with(NOW, a_pv("a", storage_class="i"), a_claim("c", storage_class="i"))
    writes = []
    server.subscribe(lambda _, resource, obj: writes.append((resource, obj)))
    PersistentVolumeController(server, clock=VirtualClock()).step()
    written = [(resource, obj["spec"].get("volumeName", ""), obj["status"]["phase"]) for resource, obj in writes]
    assert written == [
        ("persistentvolumes", "", "Available"),
        ("persistentvolumes", "", "Bound"),
        ("persistentvolumeclaims", "a", "Pending"),
        ("persistentvolumeclaims", "a", "Bound"),
    ]
    assert [obj["metadata"]["annotations"] for _, obj in (writes[0], writes[2])] == [
        {BOUND_BY_CONTROLLER: "yes"},
        {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"},
    ]
    reference = writes[0][1]["spec"]["claimRef"]
    assert (reference["uid"], reference["kind"]) == (writes[2][1]["metadata"]["uid"], "PersistentVolumeClaim")


@pytest.mark.parametrize(
    ("policy", "reclaims", "phase"),
    [
        pytest.param("Delete", True, "", id="deleted"),
        pytest.param("Delete", False, "Failed", id="no plugin can delete it"),
        pytest.param("Recycle", True, "Failed", id="no plugin can recycle it"),
    ],
)
def test_the_phase_of_a_volume_whose_claim_was_deleted(policy: str, reclaims: bool, phase: str) -> None:
    server = server_with(NOW, a_pv("a", storage_class="i").reclaim(policy), a_claim("c", storage_class="i"))
    clock = VirtualClock()
    controller = PersistentVolumeController(server, clock=clock, reclaims=reclaims)
    protection = ProtectionController(server, clock=clock)
    controller.step()
    server.delete("persistentvolumeclaims", "c")
    protection.step()
    server.apply(a_claim("c", storage_class="i").obj())
    controller.step()
    protection.step()
    assert [volume["status"]["phase"] for volume in server.objects("persistentvolumes")] == ([phase] if phase else [])
    assert server.get("persistentvolumeclaims", "c")["status"]["phase"] == "Pending"


async def test_a_conflict_is_retried() -> None:
    """Another client labels the claim when its volume is taken."""
    clock = VirtualClock()
    server = server_with(NOW, a_pv("a", storage_class="i"), a_claim("c", storage_class="i"))

    def meddle(_: str, resource: str, volume: dict[str, Any]) -> None:
        if resource == "persistentvolumes" and "claimRef" in volume["spec"]:
            server.patch("persistentvolumeclaims", "c", {"metadata": {"labels": {"seen": "yes"}}})

    server.subscribe(meddle)
    async with PersistentVolumeController(server, clock=clock):
        await clock.advance(2)
    assert volume_of(server) == ("a", "Bound")


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


CSI = a_pv("v").csi("d.x", "h")


def prepared(*objects: Builder[object], clock: VirtualClock | None = None) -> ApiServer:
    """Return a server with a node and these objects, after the PV controller has worked."""
    server = server_with(node("n"), *objects, clock=clock)
    settle(PersistentVolumeController(server, clock=VirtualClock()))
    return server


def attached(server: ApiServer) -> list[tuple[str, str, str, bool]]:
    return [
        (spec["attacher"], spec["source"]["persistentVolumeName"], spec["nodeName"], each["status"]["attached"])
        for each in server.objects("volumeattachments")
        for spec in (each["spec"],)
    ]


ON_N = ("d.x", "v", "n", True)


@pytest.mark.parametrize(
    ("volume", "user", "expected"),
    [
        pytest.param(CSI, pod("p").pvc("c").bound_to("n"), [ON_N], id="a pod on a node"),
        pytest.param(CSI, pod("p").pvc("c"), [], id="a pod without a node"),
        pytest.param(a_pv("v"), pod("p").pvc("c").bound_to("n"), [], id="not a CSI volume"),
        pytest.param(CSI, pod("p").pvc("other").bound_to("n"), [], id="a claim that is not there"),
        pytest.param(CSI, pod("p").pvc("c").bound_to("n").phase("Succeeded"), [], id="a finished pod"),
    ],
)
def test_what_is_attached(volume: PersistentVolumeBuilder, user: PodBuilder, expected: list[object]) -> None:
    server = prepared(volume, a_claim("c"), user)
    AttachDetachController(server, clock=VirtualClock()).step()
    assert attached(server) == expected


async def test_attach_and_detach_delays() -> None:
    """The delays count from the first pod, and from the end of the last pod on the node."""
    clock = VirtualClock()
    server = prepared(CSI, a_claim("c"), clock=clock)
    async with AttachDetachController(server, clock=clock, attach_delay_s=3, detach_delay_s=10):
        for name in ("a", "b"):
            server.create("pods", pod(name).pvc("c").bound_to("n").obj())
        await clock.advance(2)
        assert attached(server) == [("d.x", "v", "n", False)]
        await clock.advance(1)
        assert attached(server) == [ON_N]
        server.delete("pods", "a", grace_s=0)
        await clock.advance(60)
        assert attached(server) == [ON_N]
        server.delete("pods", "b", grace_s=0)
        await clock.advance(9)
        assert attached(server) == [ON_N]
        await clock.advance(1)
        assert attached(server) == []


async def test_a_volume_stays_attached_if_a_pod_returns_in_time() -> None:
    clock = VirtualClock()
    server = prepared(CSI, a_claim("c"), pod("a").pvc("c").bound_to("n"), clock=clock)
    async with AttachDetachController(server, clock=clock, detach_delay_s=10):
        await clock.advance(1)
        server.delete("pods", "a", grace_s=0)
        await clock.advance(5)
        server.create("pods", pod("a").pvc("c").bound_to("n").obj())
        await clock.advance(60)
        assert attached(server) == [ON_N]


def test_the_claim_of_another_owner_stays_and_an_event_is_written() -> None:
    server = prepared(a_claim("p-v", "7Gi"), pod("p").ephemeral("v"))
    EphemeralVolumeController(server, clock=VirtualClock()).step()
    (claim,) = server.objects("persistentvolumeclaims")
    assert "ownerReferences" not in claim["metadata"]
    notes = [event["note"] for event in server.objects("events") if event["regarding"]["name"] == "p"]
    assert notes == ["PVC default/p-v was not created for pod default/p (pod is not owner)"]
