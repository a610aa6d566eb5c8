"""The attach-detach controller and the ephemeral volume controller."""

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.core import Builder, PodBuilder, node, pod
from simulator.controllers import AttachDetachController, EphemeralVolumeController, PersistentVolumeController
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import PersistentVolumeBuilder, a_claim, a_pv
from tests.unit.simulator.stage import server_with, settle

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
