"""A daemon dies while pods that share a claim wait for its devices: what it has reserved for them keeps none of them back."""

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
    """Of the claim that all of them share."""
    return sorted(user["name"] for user in (claim(world).get("status") or {}).get("reservedFor") or ())


def nodes_of(world: DeviceWorld, names: Sequence[str]) -> list[str]:
    return [str(world.server.get("pods", name)["spec"].get("nodeName", "")) for name in names]


def has_failed(world: DeviceWorld) -> bool:
    """Whether the driver has said so."""
    devices = (claim(world).get("status") or {}).get("devices") or ()
    return any(each["type"] == "failed" for device in devices for each in device.get("conditions") or ())


async def waiting(world: DeviceWorld, names: Sequence[str], *, milli_cpu: int = 100) -> None:
    """They have the claim reserved, and its device is not ready. The last of them asks for so much."""
    world.drivers[SLOW].die()
    for name in names:
        world.add_pod_with(name, milli_cpu if name == names[-1] else 100, ("slow-1+",))
    await until(lambda: users(world) == sorted(names), lambda: f"reserved for {users(world)}")


@pytest.mark.parametrize("names", [("p",), ("p", "q"), ("p", "q", "r")], ids=lambda names: f"{len(names)} pods")
async def test_the_device_fails_when_nobody_is_there_any_more(names: Sequence[str]) -> None:
    """The next daemon finds a claim that is of no use and that several wait for: another device is taken, for all."""
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
    """As well: devices that no node can use."""
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
    """What is reserved for it does not keep the other back."""
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


async def test_a_daemon_that_is_told_to_stop_leaves_nothing_reserved() -> None:
    """What its bindings took is given back before it goes, though the server is slow."""
    async with with_devices() as world:
        world.add_node("n1", 4000, "a")
        await waiting(world, ("p",))
        slow = world.server.faults.add(Fault(resource="resourceclaims", delay_s=1.0, times=None))
        await world.stop_daemon()

        assert slow.hits
        assert users(world) == []
