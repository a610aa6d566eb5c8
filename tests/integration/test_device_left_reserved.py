"""A daemon dies while pods that share a claim wait for its devices: its reservations do not block these pods."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.devicejudging import results_of
from tests.integration.deviceworld import DeviceWorld, with_devices
from tests.integration.judging import Object
from tests.integration.nodedevices import SLOW

CLAIM = "shared-slow-1"


def claim(world: DeviceWorld) -> Object:
    return world.server.get("resourceclaims", CLAIM)


def users(world: DeviceWorld) -> list[str]:
    """Return the pods for which the shared claim is reserved."""
    return sorted(user["name"] for user in (claim(world).get("status") or {}).get("reservedFor") or ())


def nodes_of(world: DeviceWorld, names: Sequence[str]) -> list[str]:
    return [str(world.server.get("pods", name)["spec"].get("nodeName", "")) for name in names]


def has_failed(world: DeviceWorld) -> bool:
    """Return whether the driver has reported a failed device."""
    devices = (claim(world).get("status") or {}).get("devices") or ()
    return any(each["type"] == "failed" for device in devices for each in device.get("conditions") or ())


async def waiting(world: DeviceWorld, names: Sequence[str], *, milli_cpu: int = 100) -> None:
    """Reserve the claim for these pods while its device is not ready. The last pod requests `milli_cpu`."""
    world.drivers[SLOW].die()
    for name in names:
        world.add_pod_with(name, milli_cpu if name == names[-1] else 100, ("slow-1+",))
    await until(lambda: users(world) == sorted(names), lambda: f"reserved for {users(world)}")


@pytest.mark.parametrize("names", [("p",), ("p", "q"), ("p", "q", "r")], ids=lambda names: f"{len(names)} pods")
async def test_the_device_fails_while_no_daemon_runs(names: Sequence[str]) -> None:
    async with with_devices() as world:
        world.add_node("n1", 4000, "a")
        await waiting(world, names)
        await world.kill_daemon()
        world.answer("it is broken", 1)
        world.drivers[SLOW].revive()
        await until(lambda: has_failed(world), lambda: f"no word: {claim(world)}")
        await world.start_daemon()

        await until(lambda: all(nodes_of(world, names)), lambda: f"{names} are on {nodes_of(world, names)}")

        await world.settle()
        assert (users(world), world.broken_laws()) == (sorted(names), [])


async def test_the_node_of_the_device_is_gone_when_the_next_daemon_comes() -> None:
    async with with_devices() as world:
        world.add_node("n1", 4000, "a")
        await waiting(world, ("p", "q"))
        await world.kill_daemon()
        world.add_node("n2", 4000, "a")
        world.server.delete("nodes", "n1")
        world.drivers[SLOW].revive()
        await world.start_daemon()

        await until(lambda: nodes_of(world, ("p", "q")) == ["n2", "n2"], lambda: f"{nodes_of(world, ('p', 'q'))}")

        await world.settle()
        assert (users(world), len(results_of(claim(world))), world.broken_laws()) == (["p", "q"], 1, [])


async def test_one_of_them_cannot_run_for_another_reason() -> None:
    async with with_devices() as world:
        world.add_node("n1", 4000, "a")
        await waiting(world, ("p", "q"), milli_cpu=2000)
        await world.kill_daemon()
        world.server.patch("nodes", "n1", {"status": {"allocatable": {"cpu": "1000m"}}}, subresource="status")
        world.answer("it is broken", 1)
        world.drivers[SLOW].revive()
        await until(lambda: has_failed(world), lambda: f"no word: {claim(world)}")
        await world.start_daemon()

        await until(lambda: bool(nodes_of(world, ("p",))[0]), lambda: f"{users(world)}")

        await world.settle()
        assert (users(world), nodes_of(world, ("q",)), world.broken_laws()) == (["p"], [""], [])


async def test_a_daemon_that_stops_leaves_nothing_reserved() -> None:
    async with with_devices() as world:
        world.add_node("n1", 4000, "a")
        await waiting(world, ("p",))
        slow = world.server.faults.add(Fault(resource="resourceclaims", delay_s=1.0, times=None))
        await world.stop_daemon()

        assert slow.hits
        assert users(world) == []
