"""Claims with several pods, and what pods leave behind, on a real control plane (docs/spec/dra.md §2.3, §3.5, §3.12)."""

from __future__ import annotations

from typing import Final

import pytest

from scheduler.api.resource_v1 import EXTENDED_RESOURCE_CLAIM
from simulator.builders.claims import a_claim, a_claim_template
from simulator.builders.devices import a_device
from tests.e2e.devices import DRIVER, DeviceSandbox, gpus, is_protected, on, results_of, users_of
from tests.e2e.sandbox import together
from tests.e2e.test_devices import GPU

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

NOT_AVAILABLE: Final = "resourceclaim not available on the node"
RESOURCE: Final = f"{DRIVER}/gpu"
ONE: Final = a_claim("c").request("r", "gpu")


async def test_pods_that_share_a_claim_are_on_one_node(devices: DeviceSandbox, their_devices: DeviceSandbox) -> None:
    async def scenario(sandbox: DeviceSandbox) -> None:
        await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), GPU, on("n1", a_device("a")), ONE)
        names = [f"p-{i}" for i in range(5)]
        await sandbox.make(*(sandbox.pod(name, "c") for name in names))

        assert await sandbox.bound(*names) == ["n1"] * 5
        assert sorted(users_of(await sandbox.claim("c"))) == names
        await sandbox.make(sandbox.pod("q", "c", on="n2"))
        await sandbox.refused("q", NOT_AVAILABLE)
        assert sorted(users_of(await sandbox.claim("c"))) == names
        assert await sandbox.broken_laws() == []

    await together(scenario, devices, their_devices)


async def test_an_unused_claim_is_given_up_for_another_node(devices: DeviceSandbox) -> None:
    await devices.make(devices.node("n1"), GPU, on("n1", a_device("a")), ONE)
    await devices.make(devices.pod("p", "c"))
    await devices.bound("p")
    await devices.make(devices.node("n2"), on("n2", a_device("b")), devices.pod("q", "c", on="n2"))
    await devices.refused("q", NOT_AVAILABLE)
    await devices.gone("p")

    assert await devices.bound("q") == ["n2"]
    assert await devices.devices_of("c") == ["b"]
    await devices.lawful()


async def test_devices_go_from_pod_to_pod(devices: DeviceSandbox) -> None:
    slices = [on(f"n{n}", a_device("a"), a_device("b")) for n in range(2)]
    await devices.make(*(devices.node(f"n{n}") for n in range(2)), GPU, *slices)
    await devices.make(a_claim_template("t").request("r", "gpu"))
    waiting = {f"p-{i}" for i in range(12)}
    await devices.make(*(devices.pod(name, templates=["t"]) for name in sorted(waiting)))
    while waiting:

        async def as_many_as_can_be() -> list[str]:
            there = {pod["metadata"]["name"] for pod in await devices.all("Pod") if pod["spec"].get("nodeName")}
            return sorted(there) if len(there) == 4 else []

        running = await devices.until(as_many_as_can_be, "four pods with devices")
        assert await devices.broken_laws() == []
        assert set(running) <= waiting
        waiting -= set(running)
        await devices.gone(*running)


async def test_an_extended_resource_that_a_class_serves(devices: DeviceSandbox, their_devices: DeviceSandbox) -> None:
    async def scenario(sandbox: DeviceSandbox) -> None:
        served = gpus().extended_resource(RESOURCE)
        await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), served, on("n2", a_device("a"), a_device("b")))
        await sandbox.make(sandbox.pod("p", **{RESOURCE: "2"}))

        assert await sandbox.bound("p") == ["n2"]
        (claim,) = await sandbox.all("ResourceClaim")
        assert claim["metadata"]["annotations"] == {EXTENDED_RESOURCE_CLAIM: "true"}
        assert sorted(each["device"] for each in results_of(claim)) == ["a", "b"]
        assert users_of(claim) == ["p"]
        assert is_protected(claim)
        pod = await sandbox.get("Pod", "p")
        assert pod is not None
        told = pod["status"]["extendedResourceClaimStatus"]
        assert told["resourceClaimName"] == claim["metadata"]["name"]
        mapping = {
            "containerName": "main",
            "resourceName": sandbox.named(RESOURCE),
            "requestName": "container-0-request-0",
        }
        assert told["requestMappings"] == [mapping]
        assert await sandbox.broken_laws() == []

    await together(scenario, devices, their_devices)
