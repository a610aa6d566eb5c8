"""A daemon dies while pods that share a claim wait for its devices: its reservations do not block these pods."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.daemon_laws import Object
from tests.integration.device_laws import results_of
from tests.integration.device_steps import SLOW
from tests.integration.harness import Harness, running_cluster

CLAIM = "shared-slow-1"


def claim(cluster: Harness) -> Object:
    return cluster.server.get("resourceclaims", CLAIM)


def users(cluster: Harness) -> list[str]:
    return sorted(user["name"] for user in (claim(cluster).get("status") or {}).get("reservedFor") or ())


def nodes_of(cluster: Harness, names: Sequence[str]) -> list[str]:
    return [str(cluster.server.get("pods", name)["spec"].get("nodeName", "")) for name in names]


def has_failed(cluster: Harness) -> bool:
    devices = (claim(cluster).get("status") or {}).get("devices") or ()
    return any(each["type"] == "failed" for device in devices for each in device.get("conditions") or ())


async def waiting(cluster: Harness, names: Sequence[str], *, milli_cpu: int = 100) -> None:
    """Reserve the claim for these pods while its device is not ready. The last pod requests `milli_cpu`."""
    cluster.drivers[SLOW].die()
    for name in names:
        cluster.add_pod_with(name, milli_cpu if name == names[-1] else 100, devices=("slow-1+",))
    await until(lambda: users(cluster) == sorted(names), lambda: f"reserved for {users(cluster)}")


@pytest.mark.parametrize("names", [("p",), ("p", "q"), ("p", "q", "r")], ids=lambda names: f"{len(names)} pods")
async def test_the_device_fails_while_no_daemon_runs(names: Sequence[str]) -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await waiting(cluster, names)
        await cluster.kill_daemon()
        cluster.answer("it is broken", 1)
        cluster.drivers[SLOW].revive()
        await until(lambda: has_failed(cluster), lambda: f"no word: {claim(cluster)}")
        await cluster.start_daemon()

        await until(lambda: all(nodes_of(cluster, names)), lambda: f"{names} are on {nodes_of(cluster, names)}")

        await cluster.settle()
        assert (users(cluster), cluster.broken_laws()) == (sorted(names), [])


async def test_the_node_of_the_device_is_gone_when_the_next_daemon_comes() -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await waiting(cluster, ("p", "q"))
        await cluster.kill_daemon()
        cluster.add_node("n2", 4000, "a")
        cluster.server.delete("nodes", "n1")
        cluster.drivers[SLOW].revive()
        await cluster.start_daemon()

        await until(lambda: nodes_of(cluster, ("p", "q")) == ["n2", "n2"], lambda: f"{nodes_of(cluster, ('p', 'q'))}")

        await cluster.settle()
        assert (users(cluster), len(results_of(claim(cluster))), cluster.broken_laws()) == (["p", "q"], 1, [])


async def test_one_of_them_cannot_run_for_another_reason() -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await waiting(cluster, ("p", "q"), milli_cpu=2000)
        await cluster.kill_daemon()
        cluster.server.patch("nodes", "n1", {"status": {"allocatable": {"cpu": "1000m"}}}, subresource="status")
        cluster.answer("it is broken", 1)
        cluster.drivers[SLOW].revive()
        await until(lambda: has_failed(cluster), lambda: f"no word: {claim(cluster)}")
        await cluster.start_daemon()

        await until(lambda: bool(nodes_of(cluster, ("p",))[0]), lambda: f"{users(cluster)}")

        await cluster.settle()
        assert (users(cluster), nodes_of(cluster, ("q",)), cluster.broken_laws()) == (["p"], [""], [])


async def test_a_daemon_that_stops_leaves_nothing_reserved() -> None:
    async with running_cluster(devices=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await waiting(cluster, ("p",))
        slow = cluster.server.faults.add(Fault(resource="resourceclaims", delay_s=1.0, times=None))
        await cluster.stop_daemon()

        assert slow.hits
        assert users(cluster) == []
