"""The PV controller, the attach-detach controller and the ephemeral volume controller."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.storage_v1 import BIND_COMPLETED, BOUND_BY_CONTROLLER
from simulator.apiserver import ApiServer
from simulator.builders.core import Builder, PodBuilder, node, pod
from simulator.controllers import (
    EphemeralVolumeController,
    PersistentVolumeController,
)
from simulator.controllers.protection import ProtectionController
from tests.actors.attach_detach import AttachDetachController
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import ClaimBuilder, PersistentVolumeBuilder, a_claim, a_class, a_pv
from tests.unit.simulator.stage import add, server_with, settle

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


@pytest.mark.parametrize(("wanted", "capacity", "phase"), [
    pytest.param("20E", "10E", "Pending", id="too small, beyond 64 bits"),
    pytest.param("1500m", "1400m", "Pending", id="too small, within a byte"),
    pytest.param("1500m", "1500m", "Bound", id="the same fraction of a byte"),
])  # fmt: skip
def test_the_size_of_the_volume_that_a_claim_names(wanted: str, capacity: str, phase: str) -> None:
    server = server_with(WAITS, NOW, a_pv("a", capacity), a_claim("c", wanted).wants("a"))
    settle(PersistentVolumeController(server, clock=VirtualClock()))

    assert volume_of(server) == ("a", phase)


FIRST = ("WaitForFirstConsumer", "waiting for first consumer to be created before binding")


@pytest.mark.parametrize(("pods", "expected"), [
    pytest.param([], FIRST, id="no pod"),
    pytest.param([pod("p")], FIRST, id="a pod with other volumes"),
    pytest.param([pod("p").pvc("c")], ("WaitForPodScheduled", "waiting for pod p to be scheduled"), id="a pod"),
    pytest.param([pod("q").pvc("c"), pod("p").pvc("c")],
        ("WaitForPodScheduled", "waiting for pods p,q to be scheduled"), id="two pods"),
    pytest.param([pod("p").pvc("c").bound_to("n")], FIRST, id="a pod with a node"),
    pytest.param([pod("p").pvc("c").phase("Failed")], FIRST, id="a pod that has failed"),
])  # fmt: skip
@pytest.mark.parametrize("comes_later", [False, True], ids=["pods first", "claim first"])
def test_the_event_of_a_claim_that_waits(pods: list[PodBuilder], expected: tuple[str, str], comes_later: bool) -> None:
    claim = a_claim("c", storage_class="w")
    server = server_with(WAITS, node("n"), *([claim] if comes_later else pods))
    controller = PersistentVolumeController(server, clock=VirtualClock())
    settle(controller)
    add(server, *(pods if comes_later else [claim]))
    settle(controller)
    events = {(each["reason"], each["note"]) for each in server.objects("events")}
    assert events == {expected, *([FIRST] if comes_later else [])}


def test_the_event_of_an_ephemeral_claim_names_its_pod() -> None:
    server = server_with(WAITS, pod("p").ephemeral("v", storage_class="w"))
    settle(EphemeralVolumeController(server, clock=VirtualClock()), PersistentVolumeController(server))
    assert [each["note"] for each in server.objects("events")] == ["waiting for pod p to be scheduled"]


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
