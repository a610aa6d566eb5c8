"""A pod that waits for its volumes is woken by the change that helps it, not by the flush that comes every five minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from simulator.builders.core import Builder
from tests.e2e.cluster import Json
from tests.e2e.storage import DRIVER, World
from tests.e2e.test_volumes import BIND_CONFLICT, NO_SPACE, UNBOUND
from tests.support.volumebuilders import (
    CapacityBuilder,
    StorageClassBuilder,
    a_capacity,
    a_claim,
    a_class,
    a_csi_driver,
    a_csi_node,
    a_pv,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

DEADLINE_S: Final = 60
HOST: Final = "kubernetes.io/hostname"
TRACKED: Final = a_csi_driver(DRIVER).tracks_capacity()
MAX_VOLUMES: Final = "node(s) exceed max volume count"


@dataclass(frozen=True)
class Waiting:
    """What is there before on node n1, what the pod is told, and what comes late: things, and patches of things."""

    things: Sequence[Builder[Any]]
    says: str
    late: Sequence[Builder[Any]] = ()
    patch: tuple[str, str, Json] | None = None


def a_provisioned_class() -> StorageClassBuilder:
    return a_class("d", DRIVER)


def room(amount: str) -> CapacityBuilder:
    return a_capacity("room", "d", amount).where(HOST, "n1")


C: Final = a_claim("c", "5Gi", "d")
CASES: Final[dict[str, Waiting]] = {
    "E6: the class comes late, and a volume is made": Waiting([C], UNBOUND, [a_provisioned_class()]),
    "E6: the class comes late, and then a volume of it": Waiting(
        [a_claim("c", "1Gi", "w")], UNBOUND, [a_class("w"), a_pv("a", "1Gi", "w").on("n1")]
    ),
    "E6: the claim comes late": Waiting(
        [a_class("w"), a_pv("a", "1Gi", "w").on("n1")],
        'persistentvolumeclaim "c" not found',
        [a_claim("c", "1Gi", "w")],
    ),
    "the claim comes late, and a volume is made": Waiting(
        [a_provisioned_class()], 'persistentvolumeclaim "c" not found', [C]
    ),
    "the volume comes late": Waiting(
        [a_class("w"), a_claim("c", "1Gi", "w")], BIND_CONFLICT, [a_pv("a", "1Gi", "w").on("n1")]
    ),
    "E9: the capacity object comes late": Waiting([a_provisioned_class(), TRACKED, C], NO_SPACE, [room("6Gi")]),
    "the node may have more volumes of the driver": Waiting(
        [a_provisioned_class(), a_csi_node("n1").driver(DRIVER, 0), C],
        MAX_VOLUMES,
        patch=("CSINode", "n1", {"spec": {"drivers": [{"name": DRIVER, "nodeID": "n1", "allocatable": {"count": 1}}]}}),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_comes_late_wakes_the_pod(world: World, case: Waiting) -> None:
    """Refused before, bound soon after."""
    await world.make(world.node("n1"), *case.things)
    async with world.provisioner():
        await world.make(world.pod("p", "c"))
        await world.refused("p", case.says)
        await world.make(*case.late)
        if case.patch is not None:
            kind, name, patch = case.patch
            await world.merge(kind, name, patch)
        assert await world.bound("p", within_s=DEADLINE_S) == ["n1"]


async def test_room_that_a_provisioner_publishes_again_and_again(world: World) -> None:
    """Nothing is published at first; what is free is as old as the last time it was published."""
    await world.make(world.node("n1"), a_provisioned_class(), TRACKED)
    await world.make(*(a_claim(name, "5Gi", "d") for name in ("c", "e")))
    async with world.provisioner(room={"n1": 6 * 1024**3}, publishes_every_s=0.5) as provisioner:
        await world.make(world.pod("p", "c"))
        await world.bound("p")
        await world.make(world.pod("q", "e"))
        await world.refused("q", NO_SPACE)
        assert provisioner.space is not None
        provisioner.space.size_bytes[world.own("n1")] = 20 * 1024**3
        await world.bound("q", within_s=DEADLINE_S)
        assert provisioner.taken_back == []
