"""Devices in `kubestow simulate`: claims that are allocated, and claims and pods that are being deleted."""

from __future__ import annotations

from scheduler.api.resource_v1 import FINALIZER
from simulator.builders.claims import a_claim as a_device_claim, a_result
from simulator.builders.core import node as a_node, pod as a_pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.integration.conftest import Simulation, nodes_of, placements
from tests.support.volumebuilders import a_claim, a_class

GPU_DRIVER = "gpu.example.com"
GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def test_what_a_dump_has_allocated_stays_allocated(simulate: Simulation) -> None:
    """The claim of a bound pod keeps its device and its user, though both get new uids."""
    used = (
        a_device_claim("used").request("r", "gpu").allocated(a_result("r", f"{GPU_DRIVER}/n1/d0")).reserved_for("old")
    )
    _, shown, _ = simulate.of(
        *(a_node("n1"), a_device_class("gpu"), a_slice("n1", GPU_DRIVER, a_device("d0"))),
        *(used, a_pod("old").claim("e", claim="used").bound_to("n1")),
        *(a_device_claim("new").request("r", "gpu"), a_pod("late").claim("e", claim="new")),
    )

    assert (shown["settled"], nodes_of(shown)) == (True, {"late": ""})


def test_a_pod_that_is_being_deleted_gives_its_devices_back(simulate: Simulation) -> None:
    """It is left out, with its CPU and volumes; its claim is freed as by the claim controller."""
    used = a_device_claim("used").request("r", "gpu").allocated(a_result("r", f"{GPU_DRIVER}/n1/d0"))
    _, shown, _ = simulate.of(
        *(a_node("n1"), a_device_class("gpu"), a_slice("n1", GPU_DRIVER, a_device("d0"))),
        used.finalizer(FINALIZER).reserved_for("old"),
        a_pod("old").claim("e", claim="used").bound_to("n1").set({"metadata": GONE}),
        *(a_device_claim("new").request("r", "gpu"), a_pod("late").claim("e", claim="new")),
    )

    assert (shown["settled"], nodes_of(shown)) == (True, {"late": "n1"})


def test_claims_that_are_being_deleted_are_not_used(simulate: Simulation) -> None:
    volume = a_claim("data", "1Gi", "w").deleting()
    device = a_device_claim("gpu").request("r", "gpu").finalizer("example.com/keep").deleting()
    _, shown, _ = simulate.of(
        *(a_node("n1"), a_class("w", "d.example"), volume, a_pod("with-volume").pvc("data")),
        *(
            a_device_class("gpu"),
            a_slice("n1", GPU_DRIVER, a_device("d0")),
            device,
            a_pod("with-device").claim("e", claim="gpu"),
        ),
    )

    assert nodes_of(shown) == {"with-volume": "", "with-device": ""}
    assert 'persistentvolumeclaim "data" is being deleted' in placements(shown)["with-volume"][1]
