"""A whole daemon and SchedulerProfile objects: a change decides the next attempt, and kopf's failures cost nothing else."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import kopf
import pytest
from aiohttp import ServerDisconnectedError

from scheduler.config.types import KubeSchedulerProfile, LeaderElection, PluginSet
from scheduler.customresources import kopf_watch as shell
from scheduler.daemon import app
from scheduler.daemon.app import Daemon
from simulator.apiserver import LIKE_1_36, LIKE_1_36_WITH_OURS, ApiServer, Fault
from tests.integration.clocks import HastyClock
from tests.integration.daemon import Rig, options, rig_on, until

ELECTION = LeaderElection(True, lease_duration_s=3600, renew_deadline_s=3000, retry_period_s=0.2)
KOPF = str(Path(kopf.__file__).parent)
Object = dict[str, Any]


@pytest.fixture
async def server(clock: HastyClock) -> AsyncIterator[ApiServer]:
    async with ApiServer(clock=clock, served=LIKE_1_36_WITH_OURS) as server:
        yield server


def wish(server: ApiServer, spec: Object, name: str = "kubestow") -> None:
    """Create the object, or replace its spec."""
    if server.list("schedulerprofiles", field_selector=f"metadata.name={name}"):
        server.patch("schedulerprofiles", name, {"spec": spec | {"$patch": "replace"}})
    else:
        server.create("schedulerprofiles", {"metadata": {"name": name}, "spec": spec})


def status(server: ApiServer, name: str = "kubestow") -> Object:
    found: Object = server.get("schedulerprofiles", name).get("status", {})
    return found


def condition(server: ApiServer, name: str = "kubestow") -> Object:
    (one,) = status(server, name).get("conditions") or [{}]
    found: Object = one
    return found


async def observed(server: ApiServer, state: str, generation: int, name: str = "kubestow") -> Object:
    """Return the condition once it is about this generation."""
    wanted = (state, generation)
    await until(
        lambda: (condition(server, name).get("status"), condition(server, name).get("observedGeneration")) == wanted,
        lambda: f"{wanted}: {status(server, name)}",
    )
    return condition(server, name)


def weight(plugin: str, value: int) -> Object:
    return {"plugins": {"score": {"enabled": [{"name": plugin, "weight": value}], "disabled": [{"name": "*"}]}}}


MOST = {
    **weight("NodeResourcesFit", 1),
    "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
}
LEAST = weight("NodeResourcesFit", 1)


def two_nodes(cluster: Rig) -> None:
    """Create two nodes; one of them is half full."""
    cluster.node("full", cpu="4", memory="8Gi")
    cluster.node("empty", cpu="4", memory="8Gi")
    cluster.pod("there", cpu="2", nodeName="full")


async def placed(cluster: Rig, name: str) -> str:
    cluster.pod(name, cpu="100m")
    await cluster.bound(name)
    return cluster.pods()[name]


def is_up(cluster: Rig) -> bool:
    return cluster.metric("kubestow_shell_up") == {(): 1}


def restarts(cluster: Rig) -> float:
    """Return the count. On a slow machine kopf may miss a change, which costs one more restart."""
    return cluster.metric("kubestow_shell_restarts_total")[()]


async def up(cluster: Rig) -> None:
    await until(lambda: is_up(cluster), lambda: cluster.daemon._shell.remark() or "not up")


def kopfs_tasks() -> list[str]:
    """Return the tasks of this loop that run kopf's code."""
    coroutines = [(task, task.get_coro()) for task in asyncio.all_tasks()]
    return [
        task.get_name()
        for task, coroutine in coroutines
        if getattr(getattr(coroutine, "cr_code", None), "co_filename", "").startswith(KOPF)
    ]


# -- changes ---------------------------------------------------------------------------------------------------------------


async def test_nothing_is_written_but_the_status_and_that_by_us(server: ApiServer) -> None:
    async with rig_on(server) as cluster:
        wish(server, {}, name="theirs")
        wish(server, MOST)
        await observed(server, "True", 1)
        await up(cluster)
        wish(server, LEAST)
        await observed(server, "True", 2)

        for name in ("kubestow", "theirs"):
            assert {"annotations", "finalizers"}.isdisjoint(server.get("schedulerprofiles", name)["metadata"])
        assert status(server, "theirs") == {}
        assert server.list("events") == []
        writes = {key: n for key, n in server.requests().items() if key.split()[0] in {"patch", "update", "create"}}
        assert writes == {"patch schedulerprofiles/status 200": 2}


async def test_an_object_that_is_there_decides_from_the_first_pod_on(server: ApiServer) -> None:
    """A daemon that starts, or takes over, reads the objects before its first attempt."""
    cluster = Rig(server, None)  # type: ignore[arg-type] # before there is a daemon
    two_nodes(cluster)
    wish(server, MOST)
    cluster.pod("first", cpu="100m")
    async with rig_on(server) as cluster:
        await cluster.bound("first")

        assert cluster.pods()["first"] == "full"


async def test_a_plugin_that_reads_other_kinds_waits_for_them(server: ApiServer, clock: HastyClock) -> None:
    without = KubeSchedulerProfile(
        "kubestow", plugins={"multiPoint": PluginSet(disabled=("DynamicResources", "DefaultPreemption"))}
    )
    server.forbidden.add(("delete", "pods"))
    deciding = server.faults.add(Fault(verb="watch", resource="resourceclaims", status=500, times=3))
    async with rig_on(server, clock=clock, profiles=(without,)) as cluster:
        await cluster.until(lambda: cluster.daemon.self_check.permissions() is None, "not checked")
        assert {"ResourceClaim", "PodDisruptionBudget"}.isdisjoint(cluster.daemon.informers.reflectors)

        wish(server, {"plugins": {"multiPoint": {}}})

        await observed(server, "True", 1)
        assert {"ResourceClaim", "PodDisruptionBudget"} <= cluster.daemon.informers.reflectors.keys()
        assert cluster.daemon.informers.reflectors["ResourceClaim"].synced.is_set()
        assert "[+]informer-sync-resourceclaims ok\n" in (await cluster.get("/readyz?verbose"))[1]
        assert deciding.hits == 3
        missing = "missing permission: delete pods: preemption evicts no pods"
        await until(
            lambda: missing in cluster.daemon.self_check.minor("permissions"),
            lambda: str(cluster.daemon.self_check.findings),
        )


async def test_kinds_that_cannot_be_had_are_named(server: ApiServer, clock: HastyClock) -> None:
    without = KubeSchedulerProfile("kubestow", plugins={"multiPoint": PluginSet(disabled=("DynamicResources",))})
    server.forbidden.update({("list", "deviceclasses"), ("watch", "deviceclasses")})
    async with rig_on(server, clock=clock, profiles=(without,)) as cluster:
        wish(server, {"plugins": {"multiPoint": {}}})
        said = await observed(server, "False", 1)
        assert said["reason"] == "WaitingForKinds"
        await until(lambda: "DeviceClass (" in condition(server)["message"], lambda: str(condition(server)))
        cluster.node("n1")
        assert await placed(cluster, "p") == "n1"

        server.forbidden.clear()

        await observed(server, "True", 1)


# -- leader election ------------------------------------------------------------------------------------------------------------


async def test_a_standby_goes_by_the_same_rules_and_says_nothing(server: ApiServer) -> None:
    async with rig_on(server, leader_election=ELECTION) as first:
        two_nodes(first)
        await first.until(first.leads, "no replica leads")
        async with rig_on(server, leader_election=ELECTION) as second:
            wish(server, MOST)
            await observed(server, "True", 1)
            await second.until(
                lambda: second.metric("kubestow_profile_generation") == {("kubestow",): 1}, "not taken in"
            )
            assert server.requests()["patch schedulerprofiles/status 200"] == 1
            await first.daemon.stop()
            await second.until(second.leads, "no replica took over")
            assert await placed(second, "p") == "full"
            wish(server, {"plugins": {"score": {"enabled": [{"name": "Missing"}]}}})
            await observed(server, "False", 2)


# -- kopf and its ends -----------------------------------------------------------------------------------------------------


async def test_without_the_kind_kopf_is_not_even_loaded(monkeypatch: pytest.MonkeyPatch, clock: HastyClock) -> None:
    loaded: list[str] = []
    real = shell._kopf

    def load() -> Any:
        loaded.append("kopf")
        return real()

    monkeypatch.setattr(shell, "_kopf", load)
    async with ApiServer(clock=clock, served=LIKE_1_36) as server, rig_on(server, clock=clock) as cluster:
        two_nodes(cluster)
        assert await placed(cluster, "a") == "empty"
        await cluster.shows(lambda status, text: status == 200 and "[+]scheduler-profiles ok\n" in text)
        assert (loaded, is_up(cluster)) == ([], False)

        wish(server, MOST)
        server.serve(LIKE_1_36_WITH_OURS)
        await observed(server, "True", 1)
        assert await placed(cluster, "b") == "full"

        server.serve(LIKE_1_36)
        await until(lambda: not cluster.daemon.scheduler.reloading._requests, lambda: "still in force")
        assert await placed(cluster, "c") == "empty"
        await cluster.until(lambda: not is_up(cluster), "still up")


async def test_switched_off_nothing_is_read(server: ApiServer) -> None:
    wish(server, MOST)
    async with rig_on(server, scheduler_profiles=False) as cluster:
        two_nodes(cluster)
        assert await placed(cluster, "a") == "empty"

    assert not [key for key in server.requests() if "schedulerprofiles" in key]


def _coroutine(task: asyncio.Task[Any]) -> Any:
    return task.get_coro()


async def kopfs(name: str) -> asyncio.Task[Any]:
    """Return a task that has started: the coroutine of a task that is cancelled before would never be awaited."""
    victims: list[asyncio.Task[Any]] = []

    def found() -> bool:
        named = [task for task in asyncio.all_tasks() if task.get_name().startswith(name)]
        victims[:] = [task for task in named if inspect.getcoroutinestate(_coroutine(task)) == inspect.CORO_SUSPENDED]
        return bool(victims)

    await until(found, lambda: str(kopfs_tasks()))
    return victims[0]


@pytest.mark.parametrize("name", ["resource observer", "multidimensional multitasker", "credentials retriever"])
async def test_whatever_part_of_kopf_dies_scheduling_goes_on(server: ApiServer, name: str, clock: HastyClock) -> None:
    async with rig_on(server, clock=clock) as cluster:
        two_nodes(cluster)
        await up(cluster)
        (await kopfs(name)).cancel()
        await until(lambda: restarts(cluster) > 0, lambda: "not noticed")

        assert await placed(cluster, "a") == "empty"
        wish(server, MOST)
        await observed(server, "True", 1)
        assert await placed(cluster, "b") == "full"
        await up(cluster)


async def test_a_watch_that_falls_silent_is_noticed(server: ApiServer, clock: HastyClock) -> None:
    """Our own list finds changes that kopf does not report, and kopf is restarted."""
    async with rig_on(server, clock=clock) as cluster:
        two_nodes(cluster)
        await up(cluster)
        (await kopfs("watcher for schedulerprofiles")).cancel()
        wish(server, MOST)
        await observed(server, "True", 1)
        assert await placed(cluster, "a") == "full"

        await until(lambda: restarts(cluster) > 0, lambda: "not noticed")
        await up(cluster)


async def test_a_kopf_that_cannot_be_loaded_costs_a_minute_per_change(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, clock: HastyClock
) -> None:
    def missing() -> Any:
        return importlib.import_module("no_such_kopf")

    monkeypatch.setattr(shell, "_kopf", missing)
    async with rig_on(server, clock=clock) as cluster:
        two_nodes(cluster)
        remark = "the shell is down, changes are noticed once a minute: ModuleNotFoundError("
        await cluster.shows(lambda status, text: status == 200 and remark in text)
        wish(server, MOST)
        await observed(server, "True", 1)

        assert await placed(cluster, "a") == "full"


async def test_the_process_keeps_its_signals_and_nothing_of_kopf_is_left(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons: list[Daemon] = []
    real = Daemon.start

    async def start(daemon: Daemon) -> None:
        daemons.append(daemon)
        await real(daemon)

    monkeypatch.setattr(Daemon, "start", start)
    running = asyncio.ensure_future(app.run_daemon(options(server.url)))
    await until(lambda: bool(daemons) and hasattr(daemons[0], "_shell"), lambda: "not started")
    cluster = Rig(server, daemons[0])
    await up(cluster)
    cluster.node("n1")
    cluster.pod("p")
    await cluster.bound("p")
    assert kopfs_tasks()

    signal.raise_signal(signal.SIGTERM)

    assert await asyncio.wait_for(running, 60) == 0
    assert kopfs_tasks() == []
    assert "kopf" in sys.modules


async def test_stopped_while_it_looks_around_it_leaves_nothing_behind(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf's discovery requests are separate tasks, which do not end with it. Those of another daemon's shell continue."""
    asking: list[asyncio.Task[Any] | None] = []

    async def never(*_: object, **__: object) -> None:
        asking.append(asyncio.current_task())
        await asyncio.Event().wait()

    monkeypatch.setattr(importlib.import_module("kopf._cogs.clients.api"), "get", never)
    async with rig_on(server):
        await until(lambda: len(asking) == 2, lambda: str(kopfs_tasks()))
        async with rig_on(server):
            await until(lambda: len(asking) == 4, lambda: str(kopfs_tasks()))

        assert [task is not None and task.done() for task in asking] == [False, False, True, True]
    assert kopfs_tasks() == []


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConnectionRefusedError, id="the server refuses connections"),
        pytest.param(ServerDisconnectedError, id="the server closes connections"),
    ],
)
async def test_requests_that_kopf_leaves_behind_are_no_errors_of_ours(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    """kopf's discovery reports one failed request of several. The remaining errors have no reader."""
    failed: list[str] = []

    async def fails(url: str, **_: object) -> None:
        failed.append(url)
        raise error

    monkeypatch.setattr(importlib.import_module("kopf._cogs.clients.api"), "get", fails)
    async with rig_on(server) as cluster:
        await until(lambda: restarts(cluster) > 0, lambda: "not noticed")
        assert len(failed) >= 2
        assert repr(error()) in cluster.daemon._shell.remark()
    gc.collect()
    assert not any(cluster.daemon._errors.counts.values())
    assert [record.getMessage() for record in caplog.records if "never retrieved" in record.getMessage()] == []
