"""The attach-detach actor, the ephemeral controller, and what lets go of deleted claims and volumes."""

import pytest

from scheduler.testing.actors import (
    AttachDetachController,
    EphemeralVolumeController,
    PersistentVolumeController,
    ProtectionController,
)
from scheduler.testing.apiserver import ApiServer
from scheduler.testing.builders import Builder, PodBuilder, node, pod
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import PersistentVolumeBuilder, a_claim, a_csi_driver, a_pv

CSI = a_pv("v").csi("d.x", "h")


def server_with(*objects: Builder[object], clock: VirtualClock | None = None) -> ApiServer:
    """One node, a volume and a claim that is bound to it, and more."""
    server = ApiServer(clock=clock or VirtualClock())
    server.apply(node("n").obj())
    for each in objects:
        server.apply(each.obj())
    PersistentVolumeController(server, clock=VirtualClock()).step()
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
    """CSI volumes of bound claims of unfinished pods on nodes."""
    server = server_with(volume, a_claim("c"), user)
    AttachDetachController(server, clock=VirtualClock()).step()
    assert attached(server) == expected


def test_a_driver_that_attaches_nothing() -> None:
    """Says so in its CSIDriver."""
    driver = a_csi_driver("d.x").set({"spec": {"attachRequired": False}})
    server = server_with(CSI, a_claim("c"), driver, pod("p").pvc("c").bound_to("n"))
    AttachDetachController(server, clock=VirtualClock()).step()
    assert attached(server) == []


async def test_attaching_and_detaching_take_their_time() -> None:
    """Attached so long after the first pod, detached so long after the last one has left the node."""
    clock = VirtualClock()
    server = server_with(CSI, a_claim("c"), clock=clock)
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


async def test_a_pod_that_comes_back_in_time_keeps_it() -> None:
    """The detachment that was due does not happen."""
    clock = VirtualClock()
    server = server_with(CSI, a_claim("c"), pod("a").pvc("c").bound_to("n"), clock=clock)
    async with AttachDetachController(server, clock=clock, detach_delay_s=10):
        await clock.advance(1)
        server.delete("pods", "a", grace_s=0)
        await clock.advance(5)
        server.create("pods", pod("a").pvc("c").bound_to("n").obj())
        await clock.advance(60)
        assert attached(server) == [ON_N]


def test_an_ephemeral_claim_is_the_pods_own() -> None:
    """By name, controller and uid, with what the template says."""
    volume = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": a_claim("x", "2Gi", "w").obj()["spec"],
    }
    user = pod("p").volume("v", ephemeral={"volumeClaimTemplate": volume}).volume("other", emptyDir={})
    server = server_with(user)
    EphemeralVolumeController(server, clock=VirtualClock()).step()
    (claim,) = server.objects("persistentvolumeclaims")
    metadata = claim["metadata"]
    assert (metadata["name"], metadata["labels"], metadata["annotations"]) == ("p-v", {"a": "b"}, {"c": "d"})
    assert claim["spec"] == volume["spec"]
    uid = server.get("pods", "p")["metadata"]["uid"]
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Pod", "p", uid, True)


def test_anothers_claim_is_left_alone() -> None:
    """And the pod is told."""
    server = server_with(a_claim("p-v", "7Gi"), pod("p").ephemeral("v"))
    EphemeralVolumeController(server, clock=VirtualClock()).step()
    (claim,) = server.objects("persistentvolumeclaims")
    assert "ownerReferences" not in claim["metadata"]
    notes = [event["note"] for event in server.objects("events") if event["regarding"]["name"] == "p"]
    assert notes == ["PVC default/p-v was not created for pod default/p (pod is not owner)"]


def test_a_deleted_ephemeral_claim_is_made_again() -> None:
    """As long as the pod is there; nothing is deleted with the pod."""
    server = server_with(pod("p").ephemeral("v"))
    controller = EphemeralVolumeController(server, clock=VirtualClock())
    protection = ProtectionController(server, clock=VirtualClock())
    controller.step()
    first = server.get("persistentvolumeclaims", "p-v")["metadata"]["uid"]
    server.delete("persistentvolumeclaims", "p-v")
    protection.step()
    controller.step()
    second = server.get("persistentvolumeclaims", "p-v")["metadata"]["uid"]
    assert first != second
    server.delete("pods", "p")
    controller.step()
    assert len(server.objects("persistentvolumeclaims")) == 1


async def test_an_ephemeral_claim_may_be_late() -> None:
    """In the background, on the clock."""
    clock = VirtualClock()
    server = server_with(clock=clock)
    async with EphemeralVolumeController(server, clock=clock, delay_s=5):
        server.create("pods", pod("p").ephemeral("v").obj())
        await clock.advance(4)
        assert server.objects("persistentvolumeclaims") == []
        await clock.advance(1)
        assert len(server.objects("persistentvolumeclaims")) == 1


def test_what_is_in_use_outlives_its_deletion() -> None:
    """A claim until the last pod on a node has gone, then its volume."""
    server = server_with(CSI, a_claim("c"), pod("p").pvc("c").bound_to("n"), pod("q").pvc("c"))
    controller = PersistentVolumeController(server, clock=VirtualClock())
    protection = ProtectionController(server, clock=VirtualClock())

    def settle() -> list[str]:
        while controller.step() + protection.step():
            pass
        kinds = ("persistentvolumeclaims", "persistentvolumes")
        return [each["metadata"]["name"] for kind in kinds for each in server.objects(kind)]

    server.delete("persistentvolumeclaims", "c")
    server.delete("persistentvolumes", "v")
    assert settle() == ["c", "v"]
    server.delete("pods", "p", grace_s=0)
    assert settle() == []
