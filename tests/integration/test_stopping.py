"""A daemon that is stopped finishes what it has begun, preemptions included (docs/spec/core.md §7.3)."""

from __future__ import annotations

import gc

from scheduler.config.types import LeaderElection
from simulator.apiserver import ApiServer, Fault
from simulator.controllers.kubelet import Kubelet
from tests.integration.daemon import Rig, rig, rig_on, until


def events(server: ApiServer, reason: str) -> list[str]:
    return sorted(event["regarding"]["name"] for event in server.list("events") if event["reason"] == reason)


async def preempting(cluster: Rig) -> None:
    """Create a pod that needs the CPUs of two pods; return once an eviction is on the wire."""
    deleting = cluster.server.faults.add(Fault(verb="delete", resource="pods", delay_s=0.2, times=None))
    cluster.node("n1", cpu="2")
    cluster.server.create("PriorityClass", {"metadata": {"name": "high"}, "value": 7})
    for name in ("a", "b"):
        cluster.pod(name, cpu="1", nodeName="n1")
    cluster.pod("high", cpu="2", priorityClassName="high")
    await until(lambda: bool(deleting.hits), lambda: "no pod was evicted")


async def test_evictions_end_within_the_drain_time_and_before_the_lease() -> None:
    elected = LeaderElection(True, lease_duration_s=3600, renew_deadline_s=3000, retry_period_s=0.2)
    async with ApiServer() as server, Kubelet(server):
        async with rig_on(server, leader_election=elected) as cluster:
            await preempting(cluster)
            await cluster.daemon.stop(60)

        assert [pod["metadata"]["name"] for pod in server.list("pods")] == ["high"]
        high = server.get("pods", "high")
        assert (high["spec"].get("nodeName"), high["status"]["nominatedNodeName"]) == (None, "n1")
        assert events(server, "Preempted") == ["a", "b"]
        (lease,) = server.list("leases")
        assert lease["spec"]["holderIdentity"] == ""
        order = [(logged.request.verb, logged.request.resource) for logged in server.log]
        assert [each for each in order if each in {("delete", "pods"), ("patch", "leases")}][-1] == ("patch", "leases")


async def test_without_drain_time_the_second_victim_lives() -> None:
    async with ApiServer() as server:
        async with rig_on(server) as cluster:
            await preempting(cluster)
            await cluster.daemon.stop(0)

        leaving = [pod["metadata"]["name"] for pod in server.list("pods") if "deletionTimestamp" in pod["metadata"]]
        assert len(leaving) == 1
        assert events(server, "Preempted") == leaving


async def test_the_garbage_collector_is_tuned_and_reset() -> None:
    """The first lists create more objects than any later change."""
    before = gc.get_threshold()
    async with rig():
        assert gc.get_threshold()[0] > before[0]

    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
