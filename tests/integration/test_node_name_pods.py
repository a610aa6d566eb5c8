"""Pods created with `spec.nodeName` whose claims wait for their first consumer: served where the namespace opts in."""

from __future__ import annotations

import pytest

from scheduler.controllers.node_name_pods import OPT_IN_LABEL
from simulator.builders.core import pod
from tests.integration.daemon import until
from tests.integration.volumesteps import CLAIMS, claim, is_selected, published, selected, well
from tests.integration.volumeworld import VolumeWorld, with_volumes
from tests.integration.world import THEIRS


def opt_in(world: VolumeWorld) -> None:
    world.server.ensure_namespace("default")
    world.server.patch("namespaces", "default", {"metadata": {"labels": {OPT_IN_LABEL: "true"}}})


def add_bound_pod(world: VolumeWorld, *, is_ephemeral: bool = False) -> str:
    """Create a pod of another scheduler on `n1`; return the name of its claim."""
    built = pod("p").cpu("100m").scheduler(THEIRS).bound_to("n1")
    if is_ephemeral:
        world.server.create("pods", built.ephemeral("e", "2Gi", "fast").obj())
        return "p-e"
    world.add_claim("c", "fast", 2)
    world.server.create("pods", built.pvc("c").obj())
    return "c"


async def has_volume(world: VolumeWorld, name: str) -> None:
    def is_there() -> bool:
        names = {found["metadata"]["name"] for found in world.server.objects(CLAIMS)}
        return name in names and bool(claim(world, name)["spec"].get("volumeName"))

    await until(is_there, lambda: f"no volume: {world.server.objects(CLAIMS)}")


@pytest.mark.parametrize("is_ephemeral", [False, True], ids=["a claim", "an ephemeral volume"])
async def test_a_pod_with_a_node_name_gets_its_volume_once_its_namespace_opts_in(is_ephemeral: bool) -> None:
    async with with_volumes() as world:
        world.add_node("n1", 4000, "a")
        await published(world)
        name = add_bound_pod(world, is_ephemeral=is_ephemeral)
        await world.seconds(5)
        assert selected(world, name) == ""

        opt_in(world)
        await is_selected(world, name, "n1")
        await has_volume(world, name)
        await well(world)
