"""The whole daemon against the in-process API server: pods in, Bindings out."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from typing import Any

import pytest

from scheduler.config.types import LeaderElection
from scheduler.daemon import app
from simulator.apiserver import ApiServer, Fault
from simulator.controllers.kubelet import Kubelet
from tests.integration.clocks import HastyClock
from tests.integration.daemon import DEADLINE_S, Rig, rig, rig_on, until


async def test_a_pod_that_does_not_fit_says_why_and_is_woken_by_a_node() -> None:
    async with rig() as cluster:
        cluster.node("small", cpu="1")
        cluster.pod("big", cpu="2")
        await cluster.until(lambda: "message" in cluster.condition("big"), "no condition")

        condition = cluster.condition("big")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"] == (
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        await cluster.until(lambda: bool(cluster.events("FailedScheduling")), "no event")
        event = cluster.events("FailedScheduling")[0]
        assert (event["type"], event["action"], event["reportingController"]) == ("Warning", "Scheduling", "kubestow")
        assert event["note"] == condition["message"]

        cluster.node("large", cpu="4")
        await cluster.bound("big")
        await cluster.until(lambda: bool(cluster.events("Scheduled")), "no event")


async def test_after_the_end_nothing_is_written_and_nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions that the server does not answer are dropped, both sent and queued ones."""
    monkeypatch.setattr(app, "_FLUSH_S", 0.1)
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    async with rig() as cluster:
        cluster.node("n1", cpu="1")
        fault = cluster.server.faults.add(Fault(verb="patch", subresource="status", delay_s=3600, times=None))
        for i in range(40):
            cluster.pod(f"p{i}", cpu="2")
        patches = cluster.daemon.scheduler.patches
        await cluster.until(lambda: (fault.hits, len(patches)) == (16, 40), "not tried")
        await cluster.daemon.stop()
        await cluster.until(lambda: not patches, "something is left")
        gc.collect()

        assert fault.hits == 16
        assert not raised


async def test_221_not_ready_until_the_informers_are_synced(clock: HastyClock) -> None:
    server = ApiServer(clock=clock)
    server.forbidden.add(("watch", "pods"))
    server.forbidden.add(("list", "pods"))
    async with rig(server, clock=clock) as cluster:
        await until(
            lambda: [kind for kind, is_synced in cluster.daemon.informers.synced().items() if not is_synced] == ["Pod"],
            lambda: str(cluster.daemon.informers.synced()),
        )
        status, body = await cluster.get("/readyz")

        assert status == 500
        assert "[-]sched-handler-sync failed: informers are not synced: Pod\n" in body
        cluster.node("n1")
        cluster.server.forbidden.clear()
        cluster.pod("p")
        await cluster.bound("p")


@pytest.mark.parametrize("second", [False, True], ids=["SIGTERM drains", "a second SIGTERM stops at once"])
async def test_signals(second: bool) -> None:
    async with ApiServer() as server:
        server.faults.add(Fault(verb="create", subresource="binding", delay_s=3600 if second else 0.5, times=None))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scheduler", "run", "--master", server.url, "--secure-port", "0"),
            *(("--loop", "asyncio") if second else ()),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            cluster = Rig(server, None)  # type: ignore[arg-type] # the daemon is another process here
            cluster.node("n1")
            cluster.pod("p")
            await until(lambda: bool(binding_requests(server)), lambda: "no binding was tried")
            process.send_signal(signal.SIGTERM)
            if second:
                await said(process, b"stopping")
                process.send_signal(signal.SIGTERM)
            _, code = await asyncio.wait_for(process.communicate(), DEADLINE_S), process.returncode
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

        assert code == (130 if second else 0)
        assert bool(cluster.pods()["p"]) is not second


# -- a daemon that is stopped finishes what it has begun (docs/spec/core.md §7.3) -------------------------------------------


def preempted(cluster: Rig) -> list[str]:
    return sorted(event["regarding"]["name"] for event in cluster.events("Preempted"))


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
        assert preempted(cluster) == ["a", "b"]
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
        assert preempted(cluster) == leaving


async def test_the_garbage_collector_is_tuned_and_reset() -> None:
    """The first lists create more objects than any later change."""
    before = gc.get_threshold()
    async with rig():
        assert gc.get_threshold()[0] > before[0]

    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


# -- looking at the server ---------------------------------------------------------------------------------------------


def binding_requests(server: ApiServer) -> list[Any]:
    return [rule for rule in server.faults.rules if rule.hits]


async def said(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        while word not in await process.stderr.readline():
            assert process.returncode is None
