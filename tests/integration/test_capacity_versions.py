"""Capacity objects on servers of several versions and through an upgrade, with the whole daemon (docs/spec/volumes.md §8)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scheduler.cache.storage.capacity import Capacities
from simulator.apiserver import ApiServer
from simulator.apiserver.resources import LIKE_1_23, LIKE_1_25, LIKE_1_36
from tests.integration.clocks import HastyClock
from tests.integration.daemon import Rig, rig_on, until

CAPACITY = "csistoragecapacities"
NOWHERE = tuple(entry for entry in LIKE_1_23 if entry != "storage.k8s.io/v1beta1")


@asynccontextmanager
async def running(served: Sequence[str], version: str = "auto") -> AsyncIterator[Rig]:
    """Run a daemon on a server with these kinds, with one capacity object `a` where the kind is served."""
    clock = HastyClock()
    async with ApiServer(clock=clock, served=LIKE_1_25) as server:
        offer(server, "a")
        server.serve(served)
        async with rig_on(server, clock=clock, csi_storage_capacity_api_version=version) as cluster:
            yield cluster


def offer(server: ApiServer, name: str, room: str = "1Gi") -> None:
    metadata = {"name": name, "namespace": "default"}
    selector: dict[str, Any] = {"matchLabels": {}}
    server.create(CAPACITY, {"metadata": metadata, "storageClassName": "s", "nodeTopology": selector, "capacity": room})


def capacities(cluster: Rig) -> Capacities:
    return cluster.daemon.decisions.cluster.volumes.capacities


def state(cluster: Rig) -> tuple[str | None, bool, int]:
    known = capacities(cluster)
    return cluster.daemon.mirrors.capacity_version(), known.is_served, len(known)


async def shows(cluster: Rig, *wanted: object) -> None:
    await until(
        lambda: cluster.daemon.is_synced and state(cluster) == wanted, lambda: f"{state(cluster)}, not {wanted}"
    )


@pytest.mark.parametrize(
    ("served", "flag", "wanted"),
    [
        pytest.param(LIKE_1_23, "auto", ("v1beta1", True, 1), id="1.23: only v1beta1"),
        pytest.param(LIKE_1_25, "auto", ("v1", True, 1), id="1.25: both, the better one"),
        pytest.param(LIKE_1_36, "auto", ("v1", True, 1), id="1.27: only v1"),
        pytest.param(NOWHERE, "auto", ("none", False, 0), id="neither: capacity everywhere"),
        pytest.param(LIKE_1_25, "v1beta1", ("v1beta1", True, 1), id="both, and the flag names v1beta1"),
        pytest.param(LIKE_1_36, "v1beta1", ("none", False, 0), id="the flag names v1beta1, which is not served"),
        pytest.param(LIKE_1_25, "none", ("none", False, 0), id="the flag is none"),
    ],
)
async def test_servers_of_every_age(served: Sequence[str], flag: str, wanted: tuple[str, bool, int]) -> None:
    """D1, D2, D3, D5, D9: one version is watched or none, and pods are scheduled in any case."""
    async with running(served, flag) as cluster:
        await shows(cluster, *wanted)
        cluster.node("n1")
        cluster.pod("p")
        await cluster.bound("p")
        assert len(cluster.daemon.mirrors.reflectors) > 3
        cluster.daemon.metrics.sample()
        assert cluster.metric("scheduler_volume_capacity_api_info")[wanted[0],] == 1


@pytest.mark.parametrize(
    ("before", "after", "versions"),
    [
        pytest.param(LIKE_1_23, LIKE_1_36, ("v1beta1", "v1"), id="upgraded over the versions that have both"),
        pytest.param(LIKE_1_36, LIKE_1_23, ("v1", "v1beta1"), id="set back"),
    ],
)
async def test_an_upgrade_in_flight(before: Sequence[str], after: Sequence[str], versions: tuple[str, str]) -> None:
    """D6: objects created during the upgrade are seen, and none is missing at any time."""
    async with running(before) as cluster:
        await shows(cluster, versions[0], True, 1)
        least = len(capacities(cluster))
        cluster.server.serve(after)
        offer(cluster.server, "b", "2Gi")

        def has_moved() -> bool:
            nonlocal least
            least = min(least, len(capacities(cluster)))
            return state(cluster) == (versions[1], True, 2)

        await until(has_moved, lambda: str(state(cluster)))
        assert least == 1
        offer(cluster.server, "c")
        await shows(cluster, versions[1], True, 3)


async def test_it_goes_and_comes_back() -> None:
    """D5, D7: without the kind, no pod is refused for lack of capacity."""
    async with running(LIKE_1_36) as cluster:
        await shows(cluster, "v1", True, 1)
        cluster.server.serve(NOWHERE)
        await shows(cluster, "none", False, 1)
        lag = cluster.daemon.mirrors.lag("CSIStorageCapacity")
        assert lag is not None
        assert not lag.matters
        cluster.server.serve(LIKE_1_23)
        await shows(cluster, "v1beta1", True, 1)
        assert cluster.daemon.mirrors.lag("CSIStorageCapacity") is None
