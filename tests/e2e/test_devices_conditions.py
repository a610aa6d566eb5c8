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
from tests.e2e.devices import DeviceWorld, on, users_of
from tests.e2e.sandbox import SharedPlane, together
from tests.e2e.test_devices import CANNOT, GPU

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PENDING: Final = "BindingConditionsPending"
IN_A_HURRY: Final = "kubestow-in-a-hurry-for-devices"
SLOW: Final = a_device("slow").binds_to_node().binding("Attached", "Warm").binding_failure("Broken")
ONE: Final = a_claim("c").request("r", "gpu")


async def waits(world: DeviceWorld, pod: str = "p") -> None:
    """Until the pod's devices are its own, and it says that it waits for them."""
    await world.told("Pod", pod, PENDING, "waiting for binding conditions for device on node")
    assert not await world.cluster.node_of(pod)


async def test_a_pod_waits_for_its_device(devices: DeviceWorld, their_devices: DeviceWorld) -> None:
    """All conditions count, and none of those that mean failure."""

    async def scenario(world: DeviceWorld) -> None:
        await world.make(world.node("n1"), GPU, on("n1", SLOW), ONE, world.pod("p", "c"))
        await waits(world)
        await world.say("c", Attached="True", Warm="False")
        await world.say("c", Attached="True", Warm="False", Broken="False")
        await world.make(world.pod("other"))
        await world.bound("other")
        assert users_of(await world.claim("c")) == ["p"]
        assert not await world.cluster.node_of("p")
        await world.say("c", Attached="True", Warm="True", Broken="False")

        assert await world.bound("p") == ["n1"]
        assert await world.broken_laws() == []

    await together(scenario, devices, their_devices)


async def test_a_device_that_fails_is_given_back(devices: DeviceWorld) -> None:
    """The pod is told, and gets another one; the driver has tainted the broken one."""
    await devices.make(devices.node("n1"), devices.node("n2"), GPU, on("n1", SLOW), ONE, devices.pod("p", "c"))
    await waits(devices)
    tainted = {"spec": {"devices": [SLOW.taint("broken").obj()]}}
    await devices.merge("ResourceSlice", "n1-gpu.example.com", tainted)
    await devices.say("c", Attached="True", Warm="False", Broken="True")
    await devices.told("Pod", "p", "FailedScheduling", "device binding failed: claim=c, reason=Told")
    await devices.refused("p", CANNOT)
    await devices.make(on("n2", a_device("sound")))

    assert await devices.bound("p") == ["n2"]
    assert await devices.devices_of("c") == ["sound"]
    await devices.lawful()


async def test_a_pod_that_is_deleted_while_it_waits(devices: DeviceWorld) -> None:
    """Its device goes to the next pod, which does not wait for what the first was told."""
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
    """A daemon that waits three seconds for devices."""
    args = {"name": "DynamicResources", "args": {"bindingTimeout": "3s"}}
    profile = {"schedulerName": IN_A_HURRY, "pluginConfig": [args]}
    config = scheduler_config() | {"profiles": [profile]}
    with daemon(device_plane.plane, config=config, name=IN_A_HURRY) as server:
        yield server


async def test_a_device_that_is_never_ready(devices: DeviceWorld, in_a_hurry: Server) -> None:
    """After the time it is given back, and the pod is bound with one that is ready at once."""
    devices.scheduler, devices.server = IN_A_HURRY, in_a_hurry
    await devices.make(devices.node("n1"), GPU, on("n1", SLOW), ONE, devices.pod("p", "c"))
    await waits(devices)
    await devices.told("Pod", "p", "FailedScheduling", "device binding timeout")
    await devices.make(devices.node("n2"), on("n2", a_device("sound")))
    await devices.merge("ResourceSlice", "n1-gpu.example.com", {"spec": {"devices": [SLOW.taint("broken").obj()]}})

    assert await devices.bound("p") == ["n2"]
    await devices.lawful()
