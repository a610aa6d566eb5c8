"""Claims for devices whose device is not ready, and claims behind a proxy: concurrent writes, lost answers, missing permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from simulator.apiserver import Fault
from simulator.apiserver.faults import Request
from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import a_device, on_node
from tests.e2e.cluster import Json
from tests.e2e.devices import DRIVER, GPU, DeviceSandbox, gpus, on, results_of, users_of
from tests.e2e.faultproxy import ALL, DEVICES, ProxyStage, has_no_failure_event, running, staged
from tests.e2e.sandbox import together

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

PROTECT: Final[Json] = {"verb": "patch", "resource": "resourceclaims", "subresource": ""}
ALLOCATE: Final[Json] = {"resource": "resourceclaims", "subresource": "status"}
CREATE: Final[Json] = {"verb": "create", "resource": "resourceclaims"}
RESOURCE: Final = f"{DRIVER}/gpu"
SLOW: Final = a_device("slow").binds_to_node().binding("Attached", "Warm").binding_failure("Broken")
ONE: Final = a_claim("c").request("r", "gpu")


@pytest.fixture
async def stage(devices: DeviceSandbox) -> AsyncIterator[ProxyStage]:
    async with staged(devices) as made:
        yield made


async def test_a_pod_waits_for_its_device(devices: DeviceSandbox, their_devices: DeviceSandbox) -> None:
    async def scenario(sandbox: DeviceSandbox) -> None:
        await sandbox.make(sandbox.node("n1"), GPU, on("n1", SLOW), ONE, sandbox.pod("p", "c"))
        await sandbox.event_note(
            "Pod", "p", "BindingConditionsPending", "waiting for binding conditions for device on node"
        )
        assert not await sandbox.cluster.node_of("p")
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


# -- concurrent writes --------------------------------------------------------------------------------------------------------


async def test_an_object_gets_a_label_before_it_is_written(devices: DeviceSandbox, stage: ProxyStage) -> None:
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
    claims = ("patch resourceclaims 409", "patch resourceclaims 200")
    statuses = ("update resourceclaims/status 409", "patch resourceclaims/status 200")  # the second of another version
    assert [stage.proxy.seen[written] for written in (*claims, *statuses)] == [1, 1, 1, 1]
    assert (await devices.claim("c"))["metadata"]["labels"] == {"written": "status"}
    await has_no_failure_event(devices, "p")
    assert await devices.broken_laws() == []


async def allocate(sandbox: DeviceSandbox, claim: str, device: str) -> None:
    """As another scheduler does, for a pod of it."""
    results = [a_result("r", f"{sandbox.driver}/n1/{device}")]
    allocation = {"devices": {"results": results}, "nodeSelector": on_node(sandbox.own("n1"))}
    await sandbox.cluster.merge(
        f"{sandbox.path('ResourceClaim', claim)}/status", {"status": {"allocation": allocation}}
    )


async def test_a_claim_is_allocated_by_another_before_it_is_written(devices: DeviceSandbox, stage: ProxyStage) -> None:
    stage.proxy.add(Fault(**ALLOCATE))

    async def allocate_first(request: Request) -> None:
        stage.proxy.meanwhile = None
        await allocate(devices, request.name, "b")

    stage.proxy.meanwhile = allocate_first
    parts = [a_device("a").attr("is", "wanted"), a_device("b")]
    claim = a_claim("c").request("r", "gpu", cel=f"'is' in device.attributes['{DRIVER}']")
    async with running(devices, stage):
        await devices.make(devices.node("n1"), GPU, on("n1", *parts), claim, devices.pod("p", "c"))

        assert await devices.bound("p") == ["n1"]
    assert await devices.devices_of("c") == ["b"]
    assert users_of(await devices.claim("c")) == ["p"]


async def test_a_device_is_allocated_by_another_before_it_is_written(devices: DeviceSandbox, stage: ProxyStage) -> None:
    stage.proxy.add(Fault(**ALLOCATE))

    async def allocate_first(_: Request) -> None:
        stage.proxy.meanwhile = None
        await allocate(devices, "theirs", "a")
        await devices.make(on("n2", a_device("b")))

    stage.proxy.meanwhile = allocate_first
    theirs = a_claim("theirs").request("r", "gpu")
    async with running(devices, stage):
        await devices.make(devices.node("n1"), devices.node("n2"), GPU, on("n1", a_device("a")), theirs, ONE)
        await devices.make(devices.pod("p", "c"))

        assert await devices.bound("p") == ["n2"]
    assert await devices.devices_of("theirs") == ["a"]
    assert await devices.devices_of("c") == ["b"]
    assert await devices.broken_laws() == []


# -- the wire --------------------------------------------------------------------------------------------------------------

LOST: Final[Json] = {"reset": "after"}


async def test_writes_whose_answers_are_lost(devices: DeviceSandbox, stage: ProxyStage) -> None:
    faults = [Fault(**PROTECT, **LOST), Fault(**ALLOCATE, **LOST)]
    stage.proxy.add(*faults)
    async with running(devices, stage):
        await devices.make(devices.node("n1"), GPU, on("n1", a_device("a")), ONE, devices.pod("p", "c"))

        assert await devices.bound("p") == ["n1"]
    assert [fault.hits for fault in faults] == [1, 1]
    assert users_of(await devices.claim("c")) == ["p"]
    await has_no_failure_event(devices, "p")
    assert await devices.broken_laws() == []


async def test_a_claim_for_extended_resources_whose_answers_are_lost(devices: DeviceSandbox, stage: ProxyStage) -> None:
    stage.proxy.add(Fault(**CREATE, **LOST), Fault(**ALLOCATE, **LOST))
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


async def test_the_permissions_that_devices_need_are_enough(devices: DeviceSandbox, stage: ProxyStage) -> None:
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
