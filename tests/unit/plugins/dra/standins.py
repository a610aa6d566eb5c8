"""Build devices that serve example.com/gpu, and pods that request it, for the tests of extended resources."""

from __future__ import annotations

from typing import Any

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.resource_v1 import DeviceAttribute, ResourceClaim
from scheduler.cache.devices.pools import DeviceKind
from scheduler.core.cooperative import Work
from simulator.builders.core import pod
from simulator.builders.devices import a_device_class
from tests.unit.plugins.dra.served import Served, Under

GPU = "example.com/gpu"
SERVES = a_device_class("gpu", 'device.driver == "a"').extended_resource(GPU)
PREFIX = "p-extended-resources-"


def gpus(count: int = 1, *, claim: str = "", name: str = "p") -> PodInfo:
    built = pod(name).uid(name).extended(GPU, str(count))
    return pod_info((built.claim("e", claim=claim) if claim else built).typed())


def a_world(*things: Any, **more: Any) -> Served:
    """Return a world with two devices on each node, which serve example.com/gpu."""
    return Served(SERVES, *things, **more)


def made(world: Served) -> list[ResourceClaim]:
    """Return the claims for extended resources that are on the server."""
    claims = world.writer.resource_claims.values()
    return [each for each in claims if each.metadata.name.startswith(PREFIX)]


def the_one(world: Served) -> str:
    """Return the name of the only claim for extended resources."""
    (claim,) = made(world)
    return claim.metadata.name


def creates(world: Served) -> int:
    return world.writes.count("create <extended-resources>")


async def undone(world: Served, under: Under) -> tuple[list[ResourceClaim], list[str], list[str]]:
    """Undo the binding; return the claims that remain, the devices in use and the claims in flight."""
    await world.undo(under)
    return made(world), world.used, world.in_flight


def no_derived(expression: str, _: DeviceKind) -> Work[DeviceAttribute | str]:
    """Take the place of `SharedDRAManager.deriving` for claims without derived attributes."""
    raise AssertionError(expression)
