"""The self-check of a whole daemon: /readyz and the log name what is missing, and notice when it is given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from structlog.testing import CapturingLogger

from scheduler.config.types import KubeSchedulerProfile, LeaderElection, PluginSet
from scheduler.daemon.app import Daemon
from scheduler.kube import self_check as access
from simulator.apiserver import LIKE_1_36, ApiServer
from simulator.controllers.kubelet import Kubelet
from tests.integration.clocks import HastyClock
from tests.integration.daemon import DEADLINE_S, Rig, options, rig, until


@asynccontextmanager
async def checked(
    server: ApiServer, clock: HastyClock, *profiles: KubeSchedulerProfile
) -> AsyncIterator[tuple[Rig, aiohttp.ClientSession]]:
    """Run a daemon on the server's clock and yield it with a session to its endpoints."""
    more = {"profiles": profiles} if profiles else {}
    async with (
        rig(server, clock=clock, **more) as cluster,
        aiohttp.ClientSession(f"http://127.0.0.1:{cluster.daemon.port}") as http,
    ):
        yield cluster, http


async def answered(http: aiohttp.ClientSession, status: int, *lines: str, starting: str = "") -> None:
    """Wait until /readyz answers with this status, these lines and a line that begins with `starting`."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        async with http.get("/readyz?verbose") as answer:
            said = await answer.text()
            has_start = any(line.startswith(starting) for line in said.splitlines())
            if answer.status == status and set(lines) <= set(said.splitlines()) and has_start:
                return
        assert time.monotonic() < deadline, said
        await asyncio.sleep(0.01)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    logger = CapturingLogger()
    monkeypatch.setattr(access, "_log", logger)
    return logger


def priority_class(server: ApiServer, name: str, value: int) -> None:
    server.create("PriorityClass", {"metadata": {"name": name}, "value": value})


def problems(log: CapturingLogger) -> list[tuple[str, str]]:
    return [(call.method_name, call.kwargs["problem"]) for call in log.calls]


async def test_223_a_missing_permission_is_named_until_it_is_given(log: CapturingLogger, clock: HastyClock) -> None:
    server = ApiServer(clock=clock)
    server.forbidden.add(("create", "pods/binding"))
    async with checked(server, clock) as (cluster, http):
        text = "missing permission: create pods/binding"
        await answered(http, 500, f"[-]permissions failed: {text}", "[+]sched-handler-sync ok")
        cluster.node("n1")
        cluster.pod("p")
        await cluster.until(lambda: "message" in cluster.condition("p"), "not tried")
        assert problems(log) == [("error", text)]

        server.forbidden.clear()
        await answered(http, 200)
        await cluster.bound("p")

        assert problems(log) == [("error", text), ("info", text)]


WITHOUT_BUDGETS = "preemption goes on without budgets"


@pytest.mark.parametrize(
    ("withheld", "said", "line"),
    [
        pytest.param(
            {("list", "poddisruptionbudgets"), ("watch", "poddisruptionbudgets")},
            [
                f"missing permission: {verb} poddisruptionbudgets in group policy: {WITHOUT_BUDGETS}"
                for verb in ("list", "watch")
            ],
            f"[+]informer-sync-poddisruptionbudgets ok ({WITHOUT_BUDGETS}: cannot ",
            id="forbidden",
        ),
        pytest.param(
            {},
            [f"not served: poddisruptionbudgets (policy/v1): {WITHOUT_BUDGETS}"],
            f"[+]informer-sync-poddisruptionbudgets ok ({WITHOUT_BUDGETS})",
            id="not served",
        ),
    ],
)
async def test_without_budgets_preemption_goes_on(
    log: CapturingLogger, withheld: set[tuple[str, str]], said: list[str], line: str, clock: HastyClock
) -> None:
    server = ApiServer(clock=clock, served=[group for group in LIKE_1_36 if withheld or group != "policy/v1"])
    server.forbidden.update(withheld)
    async with checked(server, clock) as (cluster, http), Kubelet(server, clock=clock):
        await answered(http, 200, starting=line)
        cluster.node("n1", cpu="2")
        cluster.pod("low", cpu="2", nodeName="n1")
        priority_class(server, "high", 7)
        cluster.pod("high", cpu="2", priorityClassName="high")
        await cluster.until(lambda: cluster.pods() == {"high": "n1"}, "no pod was evicted")

        assert problems(log) == [("warning", problem) for problem in said]


@pytest.mark.parametrize("binds", [True, False], ids=["with VolumeBinding", "without"])
async def test_the_permissions_of_volumes_are_checked_with_their_plugin(
    log: CapturingLogger, binds: bool, clock: HastyClock
) -> None:
    server = ApiServer(clock=clock)
    server.forbidden.add(("patch", "persistentvolumeclaims"))
    plugins = {} if binds else {"multiPoint": PluginSet(disabled=("VolumeBinding",))}
    text = "missing permission: patch persistentvolumeclaims: pods whose volumes are yet to be bound stay pending"
    async with checked(server, clock, KubeSchedulerProfile("kubestow", plugins=plugins)) as (_, http):
        await answered(http, 200, f"[+]permissions ok ({text})" if binds else "[+]permissions ok")

        assert problems(log) == ([("warning", text)] if binds else [])


async def test_without_pods_and_nodes_no_replica_takes_part_in_the_election(clock: HastyClock) -> None:
    """A proxy in between answers 404 to all: a replica that sees the cluster must get the lease."""
    bare = ApiServer(clock=clock, served=[group for group in LIKE_1_36 if group != "v1"])
    election = LeaderElection(True, lease_duration_s=3600, renew_deadline_s=3000, retry_period_s=20)
    async with bare:
        daemon = Daemon(options(bare.url, leader_election=election), clock=clock)
        await daemon.start()
        try:
            mirrors = daemon.mirrors.reflectors
            outside = {spec.name for spec in daemon.mirrors.kinds if spec.group}
            assert {"ReplicaSet", "StatefulSet", "PodDisruptionBudget"} <= outside
            await until(
                lambda: mirrors.keys() == outside and all(m.synced.is_set() for m in mirrors.values()), mirrors.__repr__
            )
            missing = "not served: pods (v1); not served: nodes (v1)"
            await until(lambda: daemon.self_check.kinds_served() == missing, lambda: str(daemon.self_check.findings))
            for _ in range(50):
                await asyncio.sleep(0)
            assert not daemon.is_synced
            assert not bare.list("leases")
            await bare.stop()
            async with ApiServer(clock=clock) as server:
                await server.stop()
                await server.start(int(bare.url.rpartition(":")[2]))
                cluster = Rig(server, daemon)
                cluster.node("n1")
                cluster.pod("p")
                await cluster.bound("p")
        finally:
            await daemon.stop()
