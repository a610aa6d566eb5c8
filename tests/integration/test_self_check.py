"""The self-check of a whole daemon: /readyz and the log name what is missing, and notice when it is given."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import CapturingLogger

from scheduler.config.types import KubeSchedulerProfile, LeaderElection, PluginSet
from scheduler.kube import self_check as access
from simulator.apiserver import GROUPS, LIKE_1_36, ApiServer
from simulator.controllers.kubelet import Kubelet
from tests.integration.clocks import HastyClock
from tests.integration.daemon import Rig, rig, rig_on, until


async def answered(cluster: Rig, status: int, *lines: str) -> None:
    """Wait until /readyz answers with this status and lines that begin like these."""
    await cluster.shows(lambda found, text: found == status and all(f"\n{line}" in f"\n{text}" for line in lines))


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
    async with rig(server, clock=clock) as cluster:
        text = "missing permission: create pods/binding"
        await answered(cluster, 500, f"[-]permissions failed: {text}", "[+]sched-handler-sync ok")
        cluster.node("n1")
        cluster.pod("p")
        await cluster.until(lambda: "message" in cluster.condition("p"), "not tried")
        assert problems(log) == [("error", text)]

        server.forbidden.clear()
        await answered(cluster, 200)
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
    async with rig(server, clock=clock) as cluster, Kubelet(server, clock=clock):
        await answered(cluster, 200, line)
        cluster.node("n1", cpu="2")
        cluster.pod("low", cpu="2", nodeName="n1")
        priority_class(server, "high", 7)
        cluster.pod("high", cpu="2", priorityClassName="high")
        await cluster.until(lambda: cluster.pods() == {"high": "n1"}, "no pod was evicted")

        assert problems(log) == [("warning", problem) for problem in said]


@pytest.mark.parametrize("is_enabled", [True, False], ids=["is enabled", "is disabled"])
@pytest.mark.parametrize(
    ("plugin", "resource", "what"),
    [
        ("VolumeBinding", "persistentvolumeclaims", "persistentvolumeclaims: pods whose volumes are yet to be bound"),
        (
            "DynamicResources",
            "resourceclaims/binding",
            "resourceclaims/binding in group resource.k8s.io: pods whose devices are yet to be allocated",
        ),
    ],
    ids=["VolumeBinding", "DynamicResources"],
)
async def test_permissions_are_checked_where_a_plugin_needs_them(
    log: CapturingLogger, clock: HastyClock, plugin: str, resource: str, what: str, is_enabled: bool
) -> None:
    server = ApiServer(clock=clock)
    server.forbidden.add(("patch", resource))
    plugins = {} if is_enabled else {"multiPoint": PluginSet(disabled=(plugin,))}
    text = f"missing permission: patch {what} stay pending"
    async with rig(server, clock=clock, profiles=(KubeSchedulerProfile("kubestow", plugins=plugins),)) as cluster:
        await answered(cluster, 200, f"[+]permissions ok ({text})\n" if is_enabled else "[+]permissions ok\n")

        assert problems(log) == ([("warning", text)] if is_enabled else [])


async def test_without_pods_and_nodes_no_replica_takes_part_in_the_election(clock: HastyClock) -> None:
    """A proxy in between answers 404 to all: a replica that sees the cluster must get the lease."""
    bare = ApiServer(clock=clock, served=[*(group for group in LIKE_1_36 if group != "v1"), *GROUPS])
    election = LeaderElection(True, lease_duration_s=3600, renew_deadline_s=3000, retry_period_s=20)
    async with bare, rig_on(bare, clock=clock, leader_election=election) as cluster:
        daemon = cluster.daemon
        informers = daemon.informers.reflectors
        outside = {spec.name for spec in daemon.informers.kinds if spec.group}
        assert {"ReplicaSet", "StatefulSet", "PodDisruptionBudget"} <= outside
        await until(
            lambda: informers.keys() == outside and all(m.synced.is_set() for m in informers.values()),
            informers.__repr__,
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
            cluster.server = server
            cluster.node("n1")
            cluster.pod("p")
            await cluster.bound("p")
