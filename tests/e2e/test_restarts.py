"""SIGKILL at several moments of a burst of pods with volumes and devices, on real controllers: no pod is stuck (ADR 0012)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from simulator.apiserver import Fault
from simulator.builders.core import Builder
from tests.e2e.cluster import collection, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, scheduler_config
from tests.e2e.faultproxy import FaultProxy, ProxyStage
from tests.e2e.provisioner import Provisioner
from tests.e2e.storage import CONTROLLERS
from tests.integration.restart_bursts import MADE, classes, nodes, replicas, with_claims

PATCHES_BETWEEN_KILLS: Final = (5, 40)
PATIENCE_S: Final = 90.0
FOR_EVER_S: Final = 3600
IS_LONG: Final = float(os.environ.get("KUBESTOW_EXAMPLES") or 1) >= 10
SEEDS: Final = 5 if IS_LONG else 1
KILLS: Final = 20 if IS_LONG else 4
"""A daemon takes a second or more to start."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900 if IS_LONG else 280)]


async def create(stage: ProxyStage, things: Iterable[Builder[Any]]) -> None:
    await stage.cluster.create(*(thing.obj() for thing in things))


async def unbound(stage: ProxyStage) -> list[str]:
    """Each with its last condition."""
    items = (await stage.cluster.get(collection("Pod")))["items"]
    return [
        f"{item['metadata']['name']}: {[c.get('message') for c in item['status'].get('conditions') or []]}"
        for item in items
        if not item["spec"].get("nodeName")
    ]


async def killed_again_and_again(stage: ProxyStage, rng: random.Random) -> None:
    """Each daemon sends this number of patches; it is killed when the next one is on its way."""
    for _ in range(KILLS):
        stage.proxy.faults.clear()
        last = Fault(verb="patch", delay_s=FOR_EVER_S, times=None)
        stage.proxy.add(Fault(verb="patch", times=rng.randint(*PATCHES_BETWEEN_KILLS)), last)
        with stage.daemon(config=scheduler_config(SCHEDULER_NAME)) as server:

            async def is_over(last: Fault = last) -> bool:
                return bool(last.hits) or not await unbound(stage)

            await until(is_over, "a patch that hangs, or nothing more to do", server=server, within_s=PATIENCE_S)
            server.kill()
    stage.proxy.faults.clear()


@pytest.mark.parametrize("nth", range(SEEDS))
async def test_no_pod_is_stuck_after_a_daemon_has_been_killed_again_and_again(
    control_plane_binaries: Path, nth: int, seed: int
) -> None:
    seed = seed * SEEDS + nth
    rng = random.Random(seed)
    async with ControlPlane() as plane:
        await plane.start_controllers(CONTROLLERS)
        async with plane.client() as admin, FaultProxy(plane) as proxy:
            stage = ProxyStage(plane, proxy, admin)
            await create(stage, classes())
            await create(stage, nodes())
            await until(lambda: are_available(stage), "volumes that the PV controller knows")
            made = [list(with_claims(*each)) for each in replicas(rng)]
            async with Provisioner(admin, "default", MADE, delay_s=0.3):
                await create(stage, (claim for *claims, _ in made for claim in claims))
                await create(stage, (built for *_, built in made))
                await killed_again_and_again(stage, rng)
                with stage.daemon(config=scheduler_config(SCHEDULER_NAME)) as server:

                    async def all_bound() -> bool:
                        return not await unbound(stage)

                    try:
                        await until(all_bound, "all pods bound", server=server, within_s=PATIENCE_S)
                    except AssertionError as failed:
                        raise AssertionError(f"seed {seed}: {await unbound(stage)}") from failed
            assert await together(stage) == []


async def are_available(stage: ProxyStage) -> bool:
    listed = (await stage.cluster.get(collection("PersistentVolume")))["items"]
    return all(volume["status"].get("phase") == "Available" for volume in listed)


async def together(stage: ProxyStage) -> list[tuple[str, str]]:
    """Nodes with two pods of one app."""
    items = (await stage.cluster.get(collection("Pod")))["items"]
    where = [(item["metadata"]["labels"]["app"], item["spec"]["nodeName"]) for item in items]
    return sorted({each for each in where if where.count(each) > 1})
