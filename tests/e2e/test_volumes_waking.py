"""A pod that waits for its volumes is tried after the change that helps it, not only after the flush of five minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from simulator.builders.core import Builder
from tests.e2e.storage import DRIVER, StorageSandbox
from tests.e2e.test_volumes import BIND_CONFLICT, NO_SPACE, UNBOUND
from tests.support.volumebuilders import (
    a_capacity,
    a_claim,
    a_class,
    a_csi_driver,
    a_pv,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

DEADLINE_S: Final = 60
HOST: Final = "kubernetes.io/hostname"
TRACKED: Final = a_csi_driver(DRIVER).tracks_capacity()


@dataclass(frozen=True)
class Waiting:
    """The objects before, the message of the pod, and the objects after which it fits."""

    things: Sequence[Builder[Any]]
    says: str
    late: Sequence[Builder[Any]] = ()


PROVISIONED: Final = a_class("d", DRIVER)
C: Final = a_claim("c", "5Gi", "d")
CASES: Final[dict[str, Waiting]] = {
    "E6: the class comes late, and a volume is made": Waiting([C], UNBOUND, [PROVISIONED]),
    "E6: the claim comes late": Waiting(
        [a_class("w"), a_pv("a", "1Gi", "w").on("n1")],
        'persistentvolumeclaim "c" not found',
        [a_claim("c", "1Gi", "w")],
    ),
    "the volume comes late": Waiting(
        [a_class("w"), a_claim("c", "1Gi", "w")], BIND_CONFLICT, [a_pv("a", "1Gi", "w").on("n1")]
    ),
    "E9: the capacity object comes late": Waiting(
        [PROVISIONED, TRACKED, C], NO_SPACE, [a_capacity("free", "d", "6Gi").where(HOST, "n1")]
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_comes_late_wakes_the_pod(sandbox: StorageSandbox, case: Waiting) -> None:
    await sandbox.make(sandbox.node("n1"), *case.things)
    async with sandbox.provisioner():
        await sandbox.make(sandbox.pod("p", "c"))
        await sandbox.refused("p", case.says)
        await sandbox.make(*case.late)
        assert await sandbox.bound("p", within_s=DEADLINE_S) == ["n1"]


async def test_capacity_that_a_provisioner_publishes_repeatedly(sandbox: StorageSandbox) -> None:
    """No capacity is published at first, and each value is as old as the last publication."""
    await sandbox.make(sandbox.node("n1"), PROVISIONED, TRACKED)
    await sandbox.make(*(a_claim(name, "5Gi", "d") for name in ("c", "e")))
    async with sandbox.provisioner(capacities={"n1": 6 * 1024**3}, publishes_every_s=0.5) as provisioner:
        await sandbox.make(sandbox.pod("p", "c"))
        await sandbox.bound("p")
        await sandbox.make(sandbox.pod("q", "e"))
        await sandbox.refused("q", NO_SPACE)
        assert provisioner.space is not None
        provisioner.space.size_bytes[sandbox.own("n1")] = 20 * 1024**3
        await sandbox.bound("q", within_s=DEADLINE_S)
        assert provisioner.taken_back == []
