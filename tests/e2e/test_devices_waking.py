"""A pod that waits for devices is tried after the change that helps it, not only after the flush of five minutes."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from simulator.builders.claims import a_claim, a_claim_template
from simulator.builders.devices import a_device, a_taint_rule
from tests.e2e.cluster import Json
from tests.e2e.devices import DRIVER, DeviceSandbox, on
from tests.e2e.test_devices import CANNOT, GPU

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

DEADLINE_S: Final = 60
ONE: Final = a_claim("c").request("r", "gpu")
SLICE: Final = on("n1", a_device("a"))


async def test_a_slice_that_comes_late(devices: DeviceSandbox) -> None:
    await devices.make(devices.node("n1"), GPU, ONE, devices.pod("p", "c"))
    await devices.refused("p", CANNOT)
    await devices.make(SLICE)

    assert await devices.bound("p", within_s=DEADLINE_S) == ["n1"]
    await devices.lawful()


async def test_a_device_is_free_again(devices: DeviceSandbox) -> None:
    await devices.make(devices.node("n1"), GPU, SLICE, ONE, a_claim("held").request("r", "gpu"))
    await devices.make(devices.pod("holder", "held"))
    await devices.bound("holder")
    await devices.make(devices.pod("p", "c"))
    await devices.refused("p", CANNOT)
    await devices.cluster.merge(f"{devices.path('Pod', 'holder')}/status", {"status": {"phase": "Succeeded"}})

    assert await devices.bound("p", within_s=DEADLINE_S) == ["n1"]
    await devices.lawful()


@pytest.mark.parametrize("is_made_late", ["the claim", "the template"])
async def test_a_pod_without_its_claim_is_not_tried(devices: DeviceSandbox, is_made_late: str) -> None:
    template = a_claim_template("t").request("r", "gpu")
    pod = devices.pod("p", templates=["t"]) if is_made_late == "the template" else devices.pod("p", "c")
    await devices.make(devices.node("n1"), GPU, SLICE, pod, devices.pod("behind"))

    assert await devices.bound("behind") == ["n1"]
    assert "FailedScheduling" not in {event["reason"] for event in await devices.cluster.events("p")}
    assert await devices.cluster.condition("p") is None
    await devices.make(template if is_made_late == "the template" else ONE)
    assert await devices.bound("p", within_s=DEADLINE_S) == ["n1"]


async def test_a_rule_keeps_devices_from_those_that_have_none_yet(devices: DeviceSandbox) -> None:
    slices = [on("n1", a_device("a"), a_device("b"))]
    await devices.make(devices.node("n1"), GPU, *slices, ONE, devices.pod("p", "c"))
    await devices.bound("p")
    await devices.make(a_taint_rule("rule", "broken").driver(DRIVER), a_claim("d").request("r", "gpu"))
    await rule_is_known(devices, "d")
    await devices.make(devices.pod("q", "d"))

    await devices.refused("q", CANNOT)
    assert len(await devices.devices_of("c")) == 1
    await devices.delete("DeviceTaintRule", "rule")
    assert await devices.bound("q", within_s=DEADLINE_S) == ["n1"]
    await devices.lawful()


async def rule_is_known(sandbox: DeviceSandbox, claim: str) -> None:
    """Wait until the daemon refuses the claim to pods; it gave it devices before."""
    for number in itertools.count():
        probe = f"probe-{number}"
        await sandbox.make(sandbox.pod(probe, claim))

        async def condition(probe: str = probe) -> Json | None:
            return await sandbox.cluster.condition(probe)

        decided = await sandbox.until(condition, f"a decision about {probe}")
        await sandbox.gone(probe)
        await sandbox.free(claim)
        if decided["status"] == "False":
            return
