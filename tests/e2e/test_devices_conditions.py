"""Devices that have to become ready before their pod is bound (docs/spec/dra.md §3.11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from simulator.builders.claims import a_claim
from simulator.builders.devices import a_device
from tests.e2e.controlplane.harness import scheduler_config
from tests.e2e.controlplane.process import Server
from tests.e2e.daemon import daemon
from tests.e2e.devices import CANNOT, GPU, DeviceSandbox, on, users_of
from tests.e2e.sandbox import SharedPlane, together

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PENDING: Final = "BindingConditionsPending"
IN_A_HURRY: Final = "kubestow-in-a-hurry-for-devices"
SLOW: Final = a_device("slow").binds_to_node().binding("Attached", "Warm").binding_failure("Broken")
ONE: Final = a_claim("c").request("r", "gpu")


async def waits(sandbox: DeviceSandbox, pod: str = "p") -> None:
    """Wait until the pod has its devices and a condition that it waits for them."""
    await sandbox.event_note("Pod", pod, PENDING, "waiting for binding conditions for device on node")
    assert not await sandbox.cluster.node_of(pod)


async def test_a_pod_waits_for_its_device(devices: DeviceSandbox, their_devices: DeviceSandbox) -> None:
    async def scenario(sandbox: DeviceSandbox) -> None:
        await sandbox.make(sandbox.node("n1"), GPU, on("n1", SLOW), ONE, sandbox.pod("p", "c"))
        await waits(sandbox)
        await sandbox.say("c", Attached="True", Warm="False")
        await sandbox.say("c", Attached="True", Warm="False", Broken="False")
        await sandbox.make(sandbox.pod("other"))
        await sandbox.bound("other")
        assert users_of(await sandbox.claim("c")) == ["p"]
        assert not await sandbox.cluster.node_of("p")
        await sandbox.say("c", Attached="True", Warm="True", Broken="False")

        assert await sandbox.bound("p") == ["n1"]
        assert await sandbox.broken_laws() == []

    await together(scenario, devices, their_devices)


async def test_a_device_that_fails_is_given_back(devices: DeviceSandbox) -> None:
    await devices.make(devices.node("n1"), devices.node("n2"), GPU, on("n1", SLOW), ONE, devices.pod("p", "c"))
    await waits(devices)
    tainted = {"spec": {"devices": [SLOW.taint("broken").obj()]}}
    await devices.merge("ResourceSlice", "n1-gpu.example.com", tainted)
    await devices.say("c", Attached="True", Warm="False", Broken="True")
    await devices.event_note("Pod", "p", "FailedScheduling", "device binding failed: claim=c, reason=Written")
    await devices.refused("p", CANNOT)
    await devices.make(on("n2", a_device("sound")))

    assert await devices.bound("p") == ["n2"]
    assert await devices.devices_of("c") == ["sound"]
    await devices.lawful()


async def test_a_pod_that_is_deleted_while_it_waits(devices: DeviceSandbox) -> None:
    await devices.make(devices.node("n1"), GPU, on("n1", SLOW), ONE, a_claim("d").request("r", "gpu"))
    await devices.make(devices.pod("p", "c"))
    await waits(devices)
    await devices.make(devices.pod("q", "d"))
    await devices.refused("q", CANNOT)
    await devices.gone("p")
    await waits(devices, "q")
    await devices.free("c")
    await devices.say("d", Attached="True", Warm="True")

    assert await devices.bound("q") == ["n1"]
    await devices.lawful()


@pytest.fixture
def in_a_hurry(device_plane: SharedPlane) -> Iterator[Server]:
    args = {"name": "DynamicResources", "args": {"bindingTimeout": "3s"}}
    profile = {"schedulerName": IN_A_HURRY, "pluginConfig": [args]}
    config = scheduler_config() | {"profiles": [profile]}
    with daemon(device_plane.plane, config=config, name=IN_A_HURRY) as server:
        yield server


async def test_a_device_that_is_never_ready(devices: DeviceSandbox, in_a_hurry: Server) -> None:
    devices.scheduler, devices.server = IN_A_HURRY, in_a_hurry
    await devices.make(devices.node("n1"), GPU, on("n1", SLOW), ONE, devices.pod("p", "c"))
    await waits(devices)
    await devices.event_note("Pod", "p", "FailedScheduling", "device binding timeout")
    await devices.make(devices.node("n2"), on("n2", a_device("sound")))
    await devices.merge("ResourceSlice", "n1-gpu.example.com", {"spec": {"devices": [SLOW.taint("broken").obj()]}})

    assert await devices.bound("p") == ["n2"]
    await devices.lawful()
