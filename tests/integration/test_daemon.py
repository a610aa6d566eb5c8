"""The whole daemon against the in-process API server: pods in, bindings out, and nothing lost on the way."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from typing import Any

import aiohttp
import pytest

from scheduler import app
from scheduler.testing.apiserver import ApiServer, Fault
from tests.integration.daemon import DEADLINE_S, Rig, rig, rig_on, until
from tests.integration.mortal import HastyClock
from tests.support.invariants import Witness, on_missing_nodes, overcommitted, unbound


async def test_pods_are_bound_once_and_confirmed() -> None:
    """A hundred pods on ten nodes: each bound, the cache ends with no assumption, nothing over-committed."""
    async with rig() as world:
        witness = Witness(world.server)
        for i in range(10):
            world.node(f"n{i}")
        for i in range(100):
            world.pod(f"p{i}", cpu="300m")

        await world.bound(*(f"p{i}" for i in range(100)))
        await world.until(lambda: world.daemon.decisions.cluster.sizes()["assumed_pods"] == 0, "never confirmed")

        assert broken_laws(world.server, witness) == []
        assert witness.bindings == 100
        assert world.daemon.decisions.cluster.sizes() == {"nodes": 10, "pods": 100, "assumed_pods": 0}


async def test_a_pod_that_does_not_fit_says_why_and_is_woken_by_a_node() -> None:
    """Condition and event as kube-scheduler writes them; the new node binds it long before any flush."""
    async with rig() as world:
        world.node("small", cpu="1")
        world.pod("big", cpu="2")
        await world.until(lambda: "message" in world.condition("big"), "no condition")

        condition = world.condition("big")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"] == (
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        await world.until(lambda: bool(events(world, "FailedScheduling")), "no event")
        event = events(world, "FailedScheduling")[0]
        assert (event["type"], event["action"], event["reportingController"]) == ("Warning", "Scheduling", "kubestow")
        assert event["note"] == condition["message"]

        world.node("large", cpu="4")
        await world.bound("big")
        await world.until(lambda: bool(events(world, "Scheduled")), "no event")


async def test_pods_of_others_are_left_alone_and_counted() -> None:
    """default-scheduler's pods are never bound by us, and what they take is taken."""
    async with rig() as world:
        world.node("n1", cpu="2")
        world.pod("theirs", cpu="1500m", schedulerName="default-scheduler")
        world.server.bind("theirs", "n1")
        world.pod("waiting", schedulerName="default-scheduler")
        world.pod("ours", cpu="1")

        await world.until(lambda: "message" in world.condition("ours"), "no condition")
        assert world.pods() == {"theirs": "n1", "waiting": "", "ours": ""}

        world.server.delete("pods", "theirs", grace_s=0)
        await world.bound("ours")
        assert world.pods()["waiting"] == ""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(verb="create", subresource="binding", status=500, times=5), id="500"),
        pytest.param(Fault(verb="create", subresource="binding", status=409, times=5), id="409 without a cause"),
        pytest.param(Fault(verb="create", subresource="binding", status=429, times=5), id="429 with Retry-After"),
        pytest.param(Fault(verb="create", subresource="binding", reset="before", times=5), id="reset before commit"),
        pytest.param(Fault(verb="create", subresource="binding", reset="after", times=5), id="reset after commit"),
        pytest.param(Fault(verb="create", resource="events", status=500, times=50), id="events refused"),
        pytest.param(Fault(verb="patch", subresource="status", status=500, times=2), id="conditions refused"),
        pytest.param(Fault(verb="watch", resource="pods", status=500, times=3), id="watches refused"),
        pytest.param(Fault(verb="watch", reset="before", times=3), id="watches reset"),
    ],
)
async def test_a_fault_delays_and_loses_nothing(fault: Fault) -> None:
    """Every pod is bound exactly once in the end, whatever the server did meanwhile."""
    server = ApiServer()
    server.faults.add(fault)
    async with rig(server) as world:
        witness = Witness(world.server)
        world.node("n1", cpu="16")
        for i in range(20):
            world.pod(f"p{i}", cpu="100m")
        world.pod("never", cpu="100")

        await world.bound(*(f"p{i}" for i in range(20)))
        await world.until(lambda: "message" in world.condition("never"), "no condition")

        assert fault.hits > 0
        assert broken_laws(world.server, witness) == ["pod default/never is still without a node"]
        await world.until(lambda: world.daemon.decisions.cluster.sizes()["assumed_pods"] == 0, "never confirmed")


@pytest.mark.parametrize("watch_list", [True, False], ids=["with WatchList", "with paged lists"])
async def test_watches_that_end_and_history_that_is_gone(watch_list: bool) -> None:
    """Streams cut in the middle of a burst, then compaction: what happened meanwhile is found out."""
    async with rig(ApiServer(watch_list=watch_list)) as world:
        world.node("n1", cpu="64")
        world.pod("gone", cpu="60")
        await world.bound("gone")
        for i in range(40):
            world.pod(f"p{i}", cpu="100m")
            if i % 10 == 5:
                world.server.cut_watches(abruptly=i % 20 == 5)
                await asyncio.sleep(0)
        await world.server.stop()
        world.server.delete("pods", "gone", grace_s=0)
        world.pod("large", cpu="50")
        world.server.compact()
        await world.server.start(int(world.server.url.rpartition(":")[2]))

        await world.bound("large", *(f"p{i}" for i in range(40)))
        sizes = world.daemon.decisions.cluster.sizes
        await world.until(lambda: sizes() == {"nodes": 1, "pods": 41, "assumed_pods": 0}, "cache differs")


async def test_a_restart_carries_on_where_the_last_one_was() -> None:
    """What was bound stays, what was pending is scheduled by the next daemon; nothing twice."""
    async with ApiServer() as server:
        witness = Witness(server)
        async with rig_on(server) as world:
            world.node("n1", cpu="64")
            for i in range(30):
                world.pod(f"p{i}", cpu="100m")
            await world.until(lambda: sum(map(bool, world.pods().values())) >= 5, "no progress")
        async with rig_on(server) as world:
            for i in range(30, 40):
                world.pod(f"p{i}", cpu="100m")
            await world.bound(*(f"p{i}" for i in range(40)))
            assert broken_laws(server, witness) == []


async def test_after_the_end_nothing_is_written_and_nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions that a server does not answer are given up, those on the wire and those that wait behind them."""
    monkeypatch.setattr(app, "_FLUSH_S", 0.1)
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    async with rig() as world:
        world.node("n1", cpu="1")
        fault = world.server.faults.add(Fault(verb="patch", subresource="status", delay_s=3600, times=None))
        for i in range(40):
            world.pod(f"p{i}", cpu="2")
        patches = world.daemon.decisions.patches
        await world.until(lambda: (fault.hits, len(patches)) == (16, 40), "not tried")
        await world.daemon.stop()
        await world.until(lambda: not patches, "something is left")
        gc.collect()

        assert fault.hits == 16
        assert not raised


async def test_endpoints_tell_the_state() -> None:
    """Health, metrics, configuration, queue, cache and the last decision about a pod."""
    async with rig() as world, aiohttp.ClientSession(f"http://127.0.0.1:{world.daemon.port}") as http:
        world.node("n1", cpu="1")
        world.pod("fits", cpu="500m")
        world.pod("big", cpu="2")
        await world.bound("fits")
        await world.until(lambda: "message" in world.condition("big"), "no condition")

        assert await text(http, "/livez") == "ok"
        await world.until(lambda: world.daemon._check.permissions() is None, "permissions were not asked")
        assert "[+]informer-sync-pods ok" in await text(http, "/readyz?verbose")
        metrics = await text(http, "/metrics")
        assert 'scheduler_schedule_attempts_total{profile="kubestow",result="scheduled"} 1.0' in metrics
        assert 'scheduler_pending_pods{queue="unschedulable"} 1.0' in metrics
        assert 'scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="kubestow"} 1.0' in metrics
        assert "kubestow" in await text(http, "/configz")
        assert '"default/big"' in await text(http, "/debug/queue")
        assert '"n1"' in await text(http, "/debug/cache")
        assert "Insufficient cpu" in await text(http, "/debug/pod/default/big")
        assert '"scheduled"' in await text(http, "/debug/pod/default/fits")


async def test_221_not_ready_until_the_first_picture_is_complete(clock: HastyClock) -> None:
    """/readyz fails and names the check while the pod list is refused; nothing is scheduled meanwhile."""
    server = ApiServer(clock=clock)
    server.forbidden.add(("watch", "pods"))
    server.forbidden.add(("list", "pods"))
    async with (
        rig(server, clock=clock) as world,
        aiohttp.ClientSession(f"http://127.0.0.1:{world.daemon.port}") as http,
    ):
        await until(lambda: bool(world.daemon.mirrors.reflectors.get("Pod")), lambda: "not started")
        async with http.get("/readyz") as answer:
            body = await answer.text()

        assert answer.status == 500
        assert "sched-handler-sync" in body
        world.node("n1")
        world.server.forbidden.clear()
        world.pod("p")
        await world.bound("p")


async def test_broken_objects_are_named_and_stop_nothing() -> None:
    """A bad quantity in a node, another in a bound pod, another in a pod of ours; the good pod is bound to the good node."""
    async with rig() as world:
        world.node("good")
        world.node("bad", cpu="four")
        world.node("holder")
        world.pod("odd", cpu="1x", schedulerName="other", nodeName="holder")
        world.pod("ours", cpu="1y")
        world.pod("fine", cpu="1")

        await world.bound("fine")
        await world.until(lambda: "1y" in world.condition("ours").get("message", ""), "not refused")

        assert world.pods()["fine"] == "good"
        assert "requests" in world.condition("ours")["message"]


@pytest.mark.parametrize("second", [False, True], ids=["SIGTERM drains", "a second SIGTERM stops at once"])
async def test_signals(second: bool) -> None:
    """The process ends by itself: 0 after draining what is on the wire, at once when told twice."""
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
            world = Rig(server, None)  # type: ignore[arg-type] # the daemon is another process here
            world.node("n1")
            world.pod("p")
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
        assert bool(world.pods()["p"]) is not second


# -- looking at the server ---------------------------------------------------------------------------------------------


def broken_laws(server: ApiServer, witness: Witness) -> list[str]:
    """Nothing promised twice, nobody bound twice or lost or left; on no node that is not there."""
    return [
        *witness.bound_twice(),
        *witness.lost(),
        *overcommitted(server),
        *on_missing_nodes(server),
        *unbound(server),
    ]


def events(world: Rig, reason: str) -> list[Any]:
    """Events of that reason."""
    return [event for event in world.server.list("events") if event["reason"] == reason]


def binding_requests(server: ApiServer) -> list[Any]:
    """Faults that struck a binding."""
    return [rule for rule in server.faults.rules if rule.hits]


async def said(process: asyncio.subprocess.Process, word: bytes) -> None:
    """Read the log until a line has the word."""
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        while word not in await process.stderr.readline():
            assert process.returncode is None


async def text(http: aiohttp.ClientSession, path: str) -> str:
    """The body of a 200."""
    async with http.get(path) as answer:
        body = await answer.text()
        assert answer.status == 200, body
        return body
