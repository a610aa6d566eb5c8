"""What tests of pods with volumes say again and again."""

from __future__ import annotations

from typing import Any, Final

from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.judging import Object
from tests.integration.volumejudging import selected_node
from tests.integration.volumeworld import VolumeWorld, Want

VOLUMES: Final = "persistentvolumes"
CLAIMS: Final = "persistentvolumeclaims"
THREE: Final = (Want("local", 1), Want("local", 2), Want("local", 3))
FAST: Final = Want("fast", 2)


def with_local_volumes(world: VolumeWorld) -> None:
    """Both nodes could take the pod; v001 to v003 are on `n1`, v004 to v006 on `n2`, by size."""
    for name in ("n1", "n2"):
        world.add_node(name, 4000, "a")
        for size in (1, 2, 3):
            world.add_volume("local", size, name)


def node_of(world: VolumeWorld, name: str) -> str:
    return str(world.server.get("pods", name)["spec"].get("nodeName", ""))


def claim(world: VolumeWorld, name: str) -> Object:
    return world.server.get(CLAIMS, name)


def selected(world: VolumeWorld, name: str) -> str:
    return selected_node(claim(world, name))


def answers(world: VolumeWorld, what: str) -> dict[str, int]:
    """Of requests that start so: by status."""
    found = {key: count for key, count in world.server.requests().items() if key.startswith(f"{what} ")}
    return {key.rpartition(" ")[2]: count for key, count in found.items()}


async def bound(world: VolumeWorld, *names: str) -> None:
    await until(lambda: all(node_of(world, name) for name in names), lambda: f"never bound: {world.refusals}")


async def refused(world: VolumeWorld, name: str, words: str) -> None:
    """The pod was told so."""
    await until(
        lambda: any(who == name and words in why for who, why in world.refusals),
        lambda: f"never told: {world.refusals}",
    )


async def is_selected(world: VolumeWorld, name: str, node_name: str = "") -> None:
    await until(
        lambda: bool(selected(world, name)) and selected(world, name) == (node_name or selected(world, name)),
        lambda: f"never selected: {world.refusals}",
    )


async def published(world: VolumeWorld) -> None:
    """The daemon knows what room there is."""
    assert world.daemon is not None
    capacities = world.daemon.decisions.cluster.volumes.capacities
    await until(lambda: len(capacities) == 2, lambda: "nothing published")


async def well(world: VolumeWorld) -> None:
    """Quiet, and every law kept."""
    await world.settle()
    assert world.broken_laws() == []


def second_volume(world: VolumeWorld, **harm: Any) -> list[Fault]:
    """Whichever node is chosen, what the daemon writes as its second volume has this happen to it."""
    faults = [Fault(verb="patch", resource=VOLUMES, name=name, **harm) for name in ("v002", "v005")]
    return [world.server.faults.add(each) for each in faults]


async def waiting_for_its_volume(world: VolumeWorld, *more: str) -> str:
    """A pod that waits for a volume which nobody makes; the node that was selected."""
    for name in ("n1", *more):
        world.add_node(name, 4000, "a")
    await published(world)
    world.kill_provisioner(in_a_call=False)
    world.add_pod_with("p", 100, (FAST,))
    await is_selected(world, "p-0")
    return selected(world, "p-0")
