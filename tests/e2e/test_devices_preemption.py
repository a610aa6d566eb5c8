"""Pods that are evicted for their devices on a real control plane: the claim controller frees them once the pod is gone.

kube-scheduler never does it (docs/spec/dra.md §3.1); it can be switched off in Kubestow."""

from __future__ import annotations

from typing import Final

import pytest

from simulator.builders.claims import a_claim, a_claim_template
from simulator.builders.devices import a_device
from tests.e2e.controlplane.harness import scheduler_config
from tests.e2e.daemon import daemon
from tests.e2e.devices import DeviceSandbox, a_priority, on
from tests.e2e.sandbox import SharedPlane
from tests.e2e.test_devices import CANNOT, GPU

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PRIORITIES: Final = (a_priority("low", 0), a_priority("high", 1000))
PER_POD: Final = a_claim_template("t").request("r", "gpu")


async def names(sandbox: DeviceSandbox) -> set[str]:
    return {pod["metadata"]["name"] for pod in await sandbox.all("Pod")}


async def something_else_happens(sandbox: DeviceSandbox) -> None:
    """Time enough for an eviction: a later pod is bound and deleted."""
    await sandbox.make(sandbox.pod("later"))
    await sandbox.bound("later")
    await sandbox.gone("later")


async def test_a_pod_is_evicted_for_its_device(devices: DeviceSandbox) -> None:
    await devices.make(devices.node("n1"), devices.node("n2"), GPU, on("n1", a_device("a")), PER_POD, *PRIORITIES)
    await devices.make(devices.pod("victim", templates=["t"], priority="low"))
    await devices.make(*(devices.pod(f"idle-{n}", on=f"n{n}", priority="low") for n in (1, 2)))
    await devices.bound("victim", "idle-1", "idle-2")
    await devices.make(devices.pod("p", templates=["t"], priority="high"))

    assert await devices.bound("p") == ["n1"]
    assert await names(devices) == {"p", "idle-1", "idle-2"}
    assert await devices.devices_of(await devices.claim_of("p", "t")) == ["a"]
    await devices.lawful()


async def test_all_that_share_a_claim_are_evicted_for_its_device(devices: DeviceSandbox) -> None:
    shared = a_claim("shared").request("r", "gpu")
    await devices.make(devices.node("n1"), GPU, on("n1", a_device("a")), PER_POD, shared, *PRIORITIES)
    await devices.make(*(devices.pod(name, "shared", priority="low") for name in ("left", "right")))
    await devices.bound("left", "right")
    await devices.make(devices.pod("p", templates=["t"], priority="high"))

    assert await devices.bound("p") == ["n1"]
    assert await names(devices) == {"p"}
    await devices.lawful()


async def test_no_pod_is_evicted_where_that_is_switched_off(devices: DeviceSandbox, device_plane: SharedPlane) -> None:
    devices.scheduler = "kubestow-without-eviction"
    ours = {"name": "Kubestow", "args": {"devicePreemption": "none"}}
    profile = {"schedulerName": devices.scheduler, "pluginConfig": [ours]}
    config = scheduler_config() | {"profiles": [profile]}
    with daemon(device_plane.plane, config=config, name=devices.scheduler) as server:
        devices.server = server
        await devices.make(devices.node("n1"), GPU, on("n1", a_device("a")), PER_POD, *PRIORITIES)
        await devices.make(devices.pod("low", templates=["t"], priority="low"))
        await devices.bound("low")
        await devices.make(devices.pod("p", templates=["t"], priority="high"))

        await devices.refused("p", CANNOT)
        await something_else_happens(devices)
        assert await names(devices) == {"p", "low"}
