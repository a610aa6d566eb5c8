"""The claim controller, whose cache lags, creates a second claim for a pod and names it, while the first gets its devices."""

from __future__ import annotations

from typing import Any, Final

import pytest

from simulator.apiserver import Fault
from simulator.builders.claims import a_claim
from tests.integration.daemon import until
from tests.integration.devicejudging import results_of
from tests.integration.deviceworld import DeviceWorld, with_devices
from tests.integration.nodedevices import SLOW

CLAIMS: Final = "resourceclaims"
ALLOCATE: Final[dict[str, Any]] = {"verb": "patch", "resource": CLAIMS, "subresource": "status"}


def name_another(world: DeviceWorld, pod: str, class_name: str) -> None:
    """Create a claim and then name it in the pod's status, as the controller does."""
    uid = world.server.get("pods", pod)["metadata"]["uid"]
    world.server.create(CLAIMS, a_claim("second").owned_by(pod, uid).request("r", class_name).obj())
    status = {"status": {"resourceClaimStatuses": [{"name": "e0", "resourceClaimName": "second"}]}}
    world.server.patch("pods", pod, status, subresource="status")


def users(world: DeviceWorld) -> dict[str, list[str]]:
    """Return claims with devices → pods for which they are reserved."""
    return {
        obj["metadata"]["name"]: [user["name"] for user in obj["status"].get("reservedFor") or ()]
        for obj in world.server.objects(CLAIMS)
        if results_of(obj)
    }


async def runs_with_the_second(world: DeviceWorld) -> None:
    await until(lambda: bool(world.server.get("pods", "p")["spec"].get("nodeName")), lambda: f"{users(world)}")
    assert users(world).get("second") == ["p"]
    await world.settle()
    assert (users(world), world.broken_laws()) == ({"second": ["p"]}, [])


@pytest.mark.parametrize("gpus", [1, 2])
async def test_it_is_named_while_the_first_is_allocated(gpus: int) -> None:
    async with with_devices() as world:
        world.add_node("n1", 4000, "a")
        world.publish("n1", gpus)
        slow = world.server.faults.add(Fault(**ALLOCATE, delay_s=30))
        world.add_pod_with("p", 100, ("gpu-1",))
        await until(lambda: slow.hits > 0, lambda: "not under way")
        name_another(world, "p", "gpu")

        await runs_with_the_second(world)


async def test_it_is_named_while_the_devices_of_the_first_get_ready() -> None:
    async with with_devices() as world:
        world.add_node("n1", 4000, "a")
        world.drivers[SLOW].die()
        world.add_pod_with("p", 100, ("slow-1",))
        await until(lambda: ["p"] in users(world).values(), lambda: f"{users(world)}")
        await world.seconds(3)
        name_another(world, "p", "slow")
        world.drivers[SLOW].revive()

        await runs_with_the_second(world)


async def test_the_daemon_does_not_hear_of_it_in_time() -> None:
    async with with_devices() as world:
        world.add_node("n1", 4000, "a")
        world.add_pod_with("p", 100, ("gpu-1",))
        await until(lambda: bool(world.server.get("pods", "p")["spec"].get("nodeName")), lambda: f"{users(world)}")
        name_another(world, "p", "gpu")
        await world.settle()

        assert [["p"]] == list(users(world).values())
