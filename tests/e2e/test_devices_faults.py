"""Claims behind a proxy that breaks what can break: others write in between, answers are lost, permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from simulator.apiserver import Fault
from simulator.apiserver.faults import Request
from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import a_device, on_node
from tests.e2e.cluster import Json
from tests.e2e.devices import DRIVER, DeviceWorld, gpus, on, results_of, users_of
from tests.e2e.stage import ALL, DEVICES, Stage
from tests.e2e.staged import running, staged
from tests.e2e.test_devices import GPU

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PROTECT: Final[Json] = {"verb": "patch", "resource": "resourceclaims", "subresource": ""}
ALLOCATE: Final[Json] = {"verb": "patch", "resource": "resourceclaims", "subresource": "status"}
CREATE: Final[Json] = {"verb": "create", "resource": "resourceclaims"}
RESOURCE: Final = f"{DRIVER}/gpu"
ONE: Final = a_claim("c").request("r", "gpu")


@pytest.fixture
async def stage(devices: DeviceWorld) -> AsyncIterator[Stage]:
    async with staged(devices) as made:
        yield made


async def is_not_told_of_failures(world: DeviceWorld, *pods: str) -> None:
    for name in pods:
        reasons = {event["reason"] for event in await world.cluster.events(name)}
        assert "FailedScheduling" not in reasons


# -- others write in between -----------------------------------------------------------------------------------------------


async def test_somebody_labels_what_is_about_to_be_written(devices: DeviceWorld, stage: Stage) -> None:
    """The server refuses the first write of each kind, and nobody sees anything of it."""
    stage.proxy.add(Fault(**PROTECT), Fault(**ALLOCATE))

    async def label(request: Request) -> None:
        await devices.merge(
            "ResourceClaim", request.name, {"metadata": {"labels": {"written": request.subresource or "x"}}}
        )

    stage.proxy.meanwhile = label
    async with running(devices, stage):
        await devices.make(devices.node("n1"), GPU, on("n1", a_device("a")), ONE, devices.pod("p", "c"))

        assert await devices.bound("p") == ["n1"]
    assert [rule.hits for rule in stage.proxy.faults.rules] == [1, 1]
    for written in ("resourceclaims", "resourceclaims/status"):
        assert stage.proxy.seen[f"patch {written} 409"] == 1
        assert stage.proxy.seen[f"patch {written} 200"] == 1
    assert (await devices.claim("c"))["metadata"]["labels"] == {"written": "status"}
    await is_not_told_of_failures(devices, "p")
    assert await devices.broken_laws() == []


async def allocate(world: DeviceWorld, claim: str, device: str) -> None:
    """As another scheduler would, and for a pod that is not ours."""
    results = [a_result("r", f"{world.driver}/n1/{device}")]
    allocation = {"devices": {"results": results}, "nodeSelector": on_node(world.own("n1"))}
    await world.cluster.merge(f"{world.path('ResourceClaim', claim)}/status", {"status": {"allocation": allocation}})


async def test_somebody_allocates_the_claim_that_is_about_to_be_written(devices: DeviceWorld, stage: Stage) -> None:
    """Nothing is forced: the pod uses what the claim has got."""
    stage.proxy.add(Fault(**ALLOCATE))

    async def meanwhile(request: Request) -> None:
        stage.proxy.meanwhile = None
        await allocate(devices, request.name, "b")

    stage.proxy.meanwhile = meanwhile
    parts = [a_device("a").attr("is", "wanted"), a_device("b")]
    claim = a_claim("c").request("r", "gpu", cel=f"'is' in device.attributes['{DRIVER}']")
    async with running(devices, stage):
        await devices.make(devices.node("n1"), GPU, on("n1", *parts), claim, devices.pod("p", "c"))

        assert await devices.bound("p") == ["n1"]
    assert await devices.devices_of("c") == ["b"]
    assert users_of(await devices.claim("c")) == ["p"]


async def test_somebody_takes_the_device_that_is_about_to_be_written(devices: DeviceWorld, stage: Stage) -> None:
    """Two claims have it for a moment; ours, which came second, gets another before its pod is bound."""
    stage.proxy.add(Fault(**ALLOCATE))

    async def meanwhile(_: Request) -> None:
        stage.proxy.meanwhile = None
        await allocate(devices, "theirs", "a")
        await devices.make(on("n2", a_device("b")))

    stage.proxy.meanwhile = meanwhile
    theirs = a_claim("theirs").request("r", "gpu")
    async with running(devices, stage):
        await devices.make(devices.node("n1"), devices.node("n2"), GPU, on("n1", a_device("a")), theirs, ONE)
        await devices.make(devices.pod("p", "c"))

        assert await devices.bound("p") == ["n2"]
    assert await devices.devices_of("theirs") == ["a"]
    assert await devices.devices_of("c") == ["b"]
    assert await devices.broken_laws() == []


# -- the wire --------------------------------------------------------------------------------------------------------------

LOST: Final[dict[str, Json]] = {
    "the answers are lost": {"reset": "after"},
    "the requests are lost": {"reset": "before"},
    "it was done, and the server says 500": {"reset": "after", "status": 500},
    "the server is too busy, 429": {"status": 429},
    "the server fails, 500": {"status": 500},
    "a conflict that was none, 409": {"status": 409},
}


@pytest.mark.parametrize("fault", LOST.values(), ids=LOST.keys())
async def test_writes_that_fail_for_a_moment(devices: DeviceWorld, stage: Stage, fault: Json) -> None:
    """Bound in the first attempt all the same, with no device in two claims."""
    faults = [Fault(**PROTECT, **fault), Fault(**ALLOCATE, **fault)]
    stage.proxy.add(*faults)
    async with running(devices, stage):
        await devices.make(devices.node("n1"), GPU, on("n1", a_device("a")), ONE, devices.pod("p", "c"))

        assert await devices.bound("p") == ["n1"]
    assert [fault.hits for fault in faults] == [1, 1]
    assert users_of(await devices.claim("c")) == ["p"]
    await is_not_told_of_failures(devices, "p")
    assert await devices.broken_laws() == []


@pytest.mark.parametrize(
    "how", ["the answers are lost", "it was done, and the server says 500", "a conflict that was none, 409"]
)
async def test_a_claim_for_extended_resources_that_is_made_in_trouble(
    devices: DeviceWorld, stage: Stage, how: str
) -> None:
    """However often it was made, one is left, which has all the devices, and the pod is told of it."""
    stage.proxy.add(Fault(**CREATE, **LOST[how]), Fault(**ALLOCATE, **LOST[how]))
    served = gpus().extended_resource(RESOURCE)
    async with running(devices, stage):
        await devices.make(devices.node("n1"), served, on("n1", a_device("a"), a_device("b")))
        await devices.make(devices.pod("p", **{RESOURCE: "2"}))

        assert await devices.bound("p") == ["n1"]
    (claim,) = await devices.all("ResourceClaim")
    pod = await devices.get("Pod", "p")
    assert pod is not None
    assert pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]
    assert len(results_of(claim)) == 2
    assert await devices.broken_laws() == []


async def test_the_permissions_that_devices_need_are_enough(devices: DeviceWorld, stage: Stage) -> None:
    """Without them pods without claims are bound, and the others say what is missing until it is given."""
    token = await stage.account()
    await stage.permit(ALL - {rule for rule in DEVICES if rule.verb != "get"})
    served = gpus().extended_resource(RESOURCE)
    await devices.make(devices.node("n1"), served, on("n1", a_device("a"), a_device("b")), ONE)
    async with running(devices, stage, token=token):
        await devices.make(devices.pod("q"), devices.pod("p", "c"))
        assert await devices.bound("q") == ["n1"]
        await devices.refused("p", "cannot patch resource", "resourceclaims", reason="SchedulerError")
        assert await devices.devices_of("c") == []
        await stage.permit(ALL)

        await devices.make(devices.pod("e", **{RESOURCE: "1"}))
        assert await devices.bound("p", "e") == ["n1", "n1"]
    assert await devices.broken_laws() == []
