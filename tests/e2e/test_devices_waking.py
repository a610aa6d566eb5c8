"""A pod that waits for devices is woken by the change that helps it, not by the flush that comes every five minutes."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from simulator.builders.claims import a_claim, a_claim_template
from simulator.builders.core import Builder
from simulator.builders.devices import a_device, a_taint_rule
from tests.e2e.cluster import Json
from tests.e2e.devices import DRIVER, DeviceWorld, on
from tests.e2e.test_devices import CANNOT, GPU, HALVES, PARTED, WHOLES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

DEADLINE_S: Final = 60
ONE: Final = a_claim("c").request("r", "gpu")
SLICE: Final = on("n1", a_device("a"))


async def nothing(_: DeviceWorld) -> None:
    """Nobody does anything else."""


@dataclass(frozen=True)
class Waiting:
    """What is there before on node n1, what the pod with claim c is told, and what comes late: things, or what is done."""

    things: Sequence[Builder[Any]]
    says: str
    late: Sequence[Builder[Any]] = ()
    does: Callable[[DeviceWorld], Awaitable[None]] = nothing
    holder: str = ""
    """A claim of another pod, which is bound before."""


def patched(kind: str, name: str, patch: Json) -> Callable[[DeviceWorld], Awaitable[None]]:
    async def patch_it(world: DeviceWorld) -> None:
        await world.merge(kind, name, world.named(patch))

    return patch_it


async def delete_the_holder(world: DeviceWorld) -> None:
    await world.delete("Pod", "holder")


async def end_the_holder(world: DeviceWorld) -> None:
    await world.cluster.merge(f"{world.path('Pod', 'holder')}/status", {"status": {"phase": "Succeeded"}})


CASES: Final[dict[str, Waiting]] = {
    "the slice comes late": Waiting([GPU, ONE], CANNOT, [SLICE]),
    "a taint is taken away": Waiting(
        [GPU, on("n1", a_device("a").taint("broken")), ONE],
        CANNOT,
        does=patched("ResourceSlice", f"n1-{DRIVER}", {"spec": {"devices": [a_device("a").obj()]}}),
    ),
    "the class takes more devices": Waiting(
        [GPU.selector("false"), SLICE, ONE], CANNOT, does=patched("DeviceClass", "gpu", {"spec": GPU.obj()["spec"]})
    ),
    "the node gets the label that the slice asks for": Waiting(
        [GPU, on("rack", a_device("a")).where("rack", "r1"), ONE],
        CANNOT,
        does=patched("Node", "n1", {"metadata": {"labels": {"rack": "r1"}}}),
    ),
    "the pod that has the device ends": Waiting(
        [GPU, SLICE, ONE, a_claim("held").request("r", "gpu")], CANNOT, does=end_the_holder, holder="held"
    ),
    "the counters of the pool are free again": Waiting(
        [GPU, *PARTED, a_claim("held").request("r", "gpu", cel=HALVES), a_claim("c").request("r", "gpu", cel=WHOLES)],
        CANNOT,
        does=delete_the_holder,
        holder="held",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_comes_late_wakes_the_pod(devices: DeviceWorld, case: Waiting) -> None:
    """Refused before, bound soon after."""
    await devices.make(devices.node("n1"), *case.things)
    if case.holder:
        await devices.make(devices.pod("holder", case.holder))
        await devices.bound("holder")
    await devices.make(devices.pod("p", "c"))
    await devices.refused("p", case.says)
    await devices.make(*case.late)
    await case.does(devices)

    assert await devices.bound("p", within_s=DEADLINE_S) == ["n1"]
    await devices.lawful()


@pytest.mark.parametrize("is_made_late", ["the claim", "the template"])
async def test_a_pod_without_its_claim_is_not_tried(devices: DeviceWorld, is_made_late: str) -> None:
    """Until the claim is there. A pod behind it is tried at once."""
    template = a_claim_template("t").request("r", "gpu")
    pod = devices.pod("p", templates=["t"]) if is_made_late == "the template" else devices.pod("p", "c")
    await devices.make(devices.node("n1"), GPU, SLICE, pod, devices.pod("behind"))

    assert await devices.bound("behind") == ["n1"]
    assert "FailedScheduling" not in {event["reason"] for event in await devices.cluster.events("p")}
    assert await devices.cluster.condition("p") is None
    await devices.make(template if is_made_late == "the template" else ONE)
    assert await devices.bound("p", within_s=DEADLINE_S) == ["n1"]


async def test_a_rule_keeps_devices_from_those_that_have_none_yet(devices: DeviceWorld) -> None:
    """Who has a device keeps it; nobody else gets one, until the rule is deleted."""
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


async def rule_is_known(world: DeviceWorld, claim: str) -> None:
    """To the daemon: it refuses the claim to pods, where it gave it devices before."""
    for number in itertools.count():
        probe = f"probe-{number}"
        await world.make(world.pod(probe, claim))

        async def condition(probe: str = probe) -> Json | None:
            return await world.cluster.condition(probe)

        told = await world.until(condition, f"a decision about {probe}")
        await world.gone(probe)
        await world.free(claim)
        if told["status"] == "False":
            return
