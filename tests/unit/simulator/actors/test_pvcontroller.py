"""The PV controller: bindings, releases and phases, in the order of the real one."""

from typing import Any

import pytest

from scheduler.api.storage_v1 import BIND_COMPLETED, BOUND_BY_CONTROLLER
from simulator.apiserver import ApiServer
from simulator.controllers import PersistentVolumeController, ProtectionController
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import ClaimBuilder, PersistentVolumeBuilder, a_claim, a_class, a_pv
from tests.unit.simulator.stage import server_with, settle

WAITS = a_class("w")
NOW = a_class("i", "d.x").immediate()


def volume_of(server: ApiServer) -> tuple[str, str]:
    """Return the volume and the phase of the claim."""
    claim = server.get("persistentvolumeclaims", "c")
    return claim["spec"].get("volumeName", ""), claim["status"]["phase"]


@pytest.mark.parametrize(
    ("claim", "volumes", "chosen"),
    [
        pytest.param(a_claim("c", "2Gi", "i"), [a_pv("a", "1Gi", "i")], "", id="none is large enough"),
        pytest.param(a_claim("c", "2G", "i"), [a_pv("a", "2Gi", "i")], "a", id="sizes in other units"),
        pytest.param(a_claim("c"), [a_pv("a", storage_class="i")], "", id="another class"),
        pytest.param(a_claim("c"), [a_pv("a")], "a", id="no class on either side"),
        pytest.param(
            a_claim("c"), [a_pv("a").modes("ReadWriteMany"), a_pv("b", "5Gi")], "b", id="a volume without the mode"
        ),
        pytest.param(
            a_claim("c"),
            [a_pv("a").modes("ReadWriteOnce", "ReadWriteMany"), a_pv("b", "5Gi")],
            "b",
            id="fewer modes before smaller",
        ),
        pytest.param(a_claim("c").volume_mode("Block"), [a_pv("a")], "", id="another volume mode"),
        pytest.param(a_claim("c").attributes_class("g"), [a_pv("a")], "", id="another attributes class"),
        pytest.param(
            a_claim("c").matching({"x": "y"}), [a_pv("a"), a_pv("b", "5Gi").label("x", "y")], "b", id="by label"
        ),
        pytest.param(
            a_claim("c"), [a_pv("a").claimed_by("other"), a_pv("b", "5Gi")], "b", id="the volume of another claim"
        ),
        pytest.param(
            a_claim("c"),
            [a_pv("a"), a_pv("b", "5Gi").claimed_by("c")],
            "b",
            id="a volume that names the claim, though larger",
        ),
        pytest.param(a_claim("c").wants("b"), [a_pv("a"), a_pv("b", "5Gi")], "b", id="the volume that the claim names"),
        pytest.param(a_claim("c", storage_class="w"), [a_pv("a", storage_class="w")], "", id="waits for its consumer"),
    ],
)
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
