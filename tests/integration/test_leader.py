"""Two daemons on one API server, one lease (docs/spec/core.md §7.4, rows 218 and 219)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog

from scheduler import binding
from scheduler.config.types import KubeSchedulerProfile, LeaderElection
from scheduler.core.errors import Fenced
from scheduler.daemon import app
from scheduler.kube.leader_election import AnotherScheduler, LeaseLost
from simulator.apiserver import ApiServer, Fault
from tests.integration.clocks import HastyClock
from tests.integration.daemon import DEADLINE_S, Rig, options, rig_on, until
from tests.integration.harness import running_cluster
from tests.support.invariants import Witness

ELECTION = LeaderElection(True, lease_duration_s=3600, renew_deadline_s=3000, retry_period_s=0.2)
"""Durations longer than a test: a replica takes over only when the lease is given to it, even on a slow machine."""


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


def lease(server: ApiServer) -> dict[str, Any]:
    found = server.list("leases", "kube-system")
    return found[0]["spec"] if found else {}


def hand_to(server: ApiServer, holder: str) -> None:
    """Write the lease as another holder; "" gives it back."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600}
    if lease(server):
        server.patch("leases", "kubestow", {"spec": spec}, namespace="kube-system")
    else:
        server.create("leases", {"metadata": {"name": "kubestow", "namespace": "kube-system"}, "spec": spec})


def writes(server: ApiServer) -> Counter[str]:
    verbs = ("create", "patch", "update", "delete")
    return Counter(
        {what: n for what, n in server.requests().items() if what.startswith(verbs) and "leases" not in what}
    )


async def test_one_leads_and_the_other_is_warm_and_silent(server: ApiServer) -> None:
    async with rig_on(server, leader_election=ELECTION) as first:
        await first.until(first.leads, "no replica leads")
        async with rig_on(server, leader_election=ELECTION) as second:
            first.node("n1", cpu="1")
            first.pod("fits", cpu="500m")
            first.pod("big", cpu="2")
            await first.bound("fits")
            await first.until(lambda: "message" in first.condition("big"), "no condition")
            await second.until(lambda: second.daemon.scheduler.cluster.sizes()["pods"] == 1, "the standby is not warm")
            await second.until(lambda: second.daemon.self_check.permissions() is None, "not checked")

            assert (first.leads(), second.leads()) == (True, False)
            assert lease(server)["holderIdentity"].partition("_")[2]
            assert second.daemon.scheduler.queue.counts()["active"] == 1  # big, as it came
            assert (await second.get("/readyz"))[0] == 200
            assert "[+]leaderElection ok" in (await second.get("/livez?verbose"))[1]
            shown = [(await cluster.get("/metrics"))[1] for cluster in (first, second)]
            assert ['leader_election_master_status{name="kubestow"} 1.0' in text for text in shown] == [True, False]
            assert ['leader_election_master_status{name="kubestow"} 0.0' in text for text in shown] == [False, True]
            assert ["scheduler_scheduling_attempt_duration_seconds_count{" in text for text in shown] == [True, False]
            with pytest.raises(Fenced):
                await second.daemon._writer.create_event("default", b"{}")


async def test_a_leader_that_stops_hands_over_at_once(server: ApiServer) -> None:
    witness = Witness(server)
    async with rig_on(server, leader_election=ELECTION) as heir_after:
        await heir_after.until(heir_after.leads, "no replica leads")
        async with rig_on(server, leader_election=ELECTION) as heir:
            heir.node("n1", cpu="64")
            for i in range(60):
                heir.pod(f"p{i}", cpu="100m")
            await heir.until(lambda: sum(map(bool, heir.pods().values())) >= 5, "no progress")
            await heir_after.daemon.stop()
            for i in range(60, 80):
                heir.pod(f"p{i}", cpu="100m")
            await heir.bound(*(f"p{i}" for i in range(80)))

            assert heir.leads()
            assert lease(server)["leaseTransitions"] == 1
            assert (witness.bound_twice(), witness.lost(), witness.bindings) == ([], [], 80)
    assert lease(server)["holderIdentity"] == ""


async def test_a_stolen_lease_stops_every_write(server: ApiServer) -> None:
    """The daemon fails, and queued writes are not sent: each pod is bound or pending."""
    async with rig_on(server, leader_election=ELECTION) as cluster:
        witness = Witness(server)
        cluster.node("n1", cpu="64", pods="1000")
        server.faults.add(Fault(verb="create", subresource="binding", delay_s=0.5, times=None))
        for i in range(600):
            cluster.pod(f"p{i}", cpu="100m")
        await cluster.until(lambda: sum(map(bool, cluster.pods().values())) >= 5, "no progress")
        hand_to(server, "thief")
        with pytest.raises(LeaseLost, match="lease kube-system/kubestow is held by thief"):
            await asyncio.wait_for(cluster.daemon.wait(), DEADLINE_S)
        assert not cluster.leads()
        sent = writes(server)
        cluster.pod("late")
        cluster.pod("never", cpu="100")
        await cluster.until(lambda: not cluster.daemon.scheduler.binder, "bindings have not ended")
        await cluster.daemon.stop(0)
        on_the_wire = writes(server) - sent

        assert set(on_the_wire) <= {"create pods/binding 201", "create events 201"}
        assert sum(on_the_wire.values()) <= 128 + 8
        placed = cluster.pods()
        assert (placed["late"], placed["never"]) == ("", "")
        assert sum(map(bool, placed.values())) == writes(server)["create pods/binding 201"] < 600
        assert "message" not in cluster.condition("never")
        assert (witness.bound_twice(), witness.lost()) == ([], [])
        assert lease(server)["holderIdentity"] == "thief"


async def test_218_a_killed_leader_is_replaced_and_nothing_is_bound_twice() -> None:
    async with running_cluster(replicas=2) as cluster:
        for n in range(8):
            cluster.add_node(f"n{n}", 4000, "a")
        slow = cluster.server.faults.add(Fault(verb="create", subresource="binding", delay_s=2, times=None))
        cluster.add_burst(40, 100)
        await until(lambda: slow.hits >= 20, lambda: "no progress")
        await cluster.kill_daemon()
        by_first = cluster.witness.bindings
        slow.times = 0
        await until(lambda: cluster.witness.bindings == 40, lambda: f"{cluster.witness.bindings} are bound")

        assert by_first < 40
        assert lease(cluster.server)["leaseTransitions"] == 1
        await cluster.settle()
        assert cluster.broken_laws() == []


async def test_219_a_stolen_lease_ends_the_process_with_1(server: ApiServer) -> None:
    running = asyncio.ensure_future(app.run_daemon(options(server.url, leader_election=ELECTION)))
    await until(lambda: bool(lease(server)), lambda: "no replica leads")
    hand_to(server, "thief")

    with structlog.testing.capture_logs() as said:
        assert await asyncio.wait_for(running, DEADLINE_S) == 1
    assert [line["event"] for line in said if line["log_level"] == "error"] == ["leader election lost"]


async def test_a_lease_is_not_given_back_while_a_binding_may_still_take_effect(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not answer, so the next leader must wait until the lease expires."""
    monkeypatch.setattr(binding, "_ANSWER_S", 0.1)
    fault = server.faults.add(Fault(verb="create", subresource="binding", delay_s=3600, times=None))
    async with rig_on(server, leader_election=ELECTION) as cluster:
        cluster.node("n1")
        cluster.pod("p")
        await cluster.until(lambda: fault.hits > 0, "no binding was tried")
        await cluster.daemon.stop(0)

        assert not cluster.leads()
        assert lease(server)["holderIdentity"]
        server.faults.clear()


async def test_a_lease_that_may_not_be_had_is_named(server: ApiServer) -> None:
    server.forbidden.add(("create", "leases"))
    async with rig_on(server, leader_election=ELECTION) as cluster:
        cluster.node("n1")
        cluster.pod("p")
        text = await cluster.shows(lambda _, text: "cannot create resource" in text)
        assert "[-]leaderElection failed: lease kube-system/kubestow: leases.coordination.k8s.io is forbidden" in text
        assert (await cluster.get("/livez"))[0] == 200
        assert cluster.pods()["p"] == ""
        server.forbidden.clear()
        await cluster.bound("p")

        assert (await cluster.get("/readyz/leaderElection"))[0] == 200


async def test_the_lease_has_an_event(server: ApiServer) -> None:
    async with rig_on(server, leader_election=ELECTION) as cluster:
        await cluster.until(lambda: bool(server.list("events", "kube-system")), "no event")
        (event,) = server.list("events", "kube-system")

        assert (event["reason"], event["type"], event["reportingController"]) == (
            "LeaderElection",
            "Normal",
            "kubestow",
        )
        assert event["note"] == f"{lease(server)['holderIdentity']} became leader"
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Lease", "kubestow")
        assert event["regarding"]["uid"] == server.list("leases")[0]["metadata"]["uid"]


async def test_a_standby_that_waits_with_its_mirrors_is_not_called_unsynced(clock: HastyClock) -> None:
    """With delayCacheUntilActive the standby has no informers, so none counts as unsynced."""
    election: dict[str, Any] = {"clock": clock, "leader_election": dataclasses.replace(ELECTION, retry_period_s=20)}
    async with ApiServer(clock=clock) as server, rig_on(server, **election) as first:
        await first.until(first.daemon.idle, "never synced")
        await first.until(lambda: first.metric("kubestow_leading") == {(): 1}, "no replica leads")
        assert set(first.metric("kubestow_watch_synced").values()) == {1}
        assert {("Pod",), ("Node",), ("ResourceSlice",)} <= set(first.metric("kubestow_watch_synced"))

        async with rig_on(server, **election, delay_cache_until_active=True) as second:
            await second.until(lambda: "get leases 200" in " ".join(server.requests()), "never stood")
            assert second.metric("kubestow_leading") == {(): 0}
            assert second.metric("kubestow_watch_synced") == {}
            await first.daemon.stop()
            await second.until(lambda: set(second.metric("kubestow_watch_synced").values()) == {1}, "never began")


async def test_without_election_there_is_no_lease(server: ApiServer) -> None:
    async with rig_on(server) as cluster:
        cluster.node("n1")
        cluster.pod("p")
        await cluster.bound("p")

        assert [what for what in server.requests() if "leases" in what] == ["list leases 200"]
        assert "leaderElection" not in (await cluster.get("/readyz?verbose"))[1]
        assert "leader_election_master_status{" not in (await cluster.get("/metrics"))[1]


# -- two installations that serve the same scheduler name under different Leases: the second one does not act ---------------

CHART = LeaderElection(leader_elect=True, resource_namespace="stow")
BY_HAND = LeaderElection(leader_elect=True)
ALONE = LeaderElection(leader_elect=False)


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the environment that a pod would have."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@contextlib.asynccontextmanager
async def running(
    server: ApiServer, clock: HastyClock, election: LeaderElection, name: str = "kubestow", *, is_forced: bool = False
) -> AsyncIterator[Rig]:
    """Run a daemon with one profile of this name, which is stopped without a drain."""
    more = {"leader_election": election, "profiles": (KubeSchedulerProfile(name),), "is_forced": is_forced}
    async with rig_on(server, clock=clock, **more) as cluster:
        yield cluster
        await cluster.daemon.stop(0)


@contextlib.asynccontextmanager
async def with_chart() -> AsyncIterator[tuple[ApiServer, HastyClock]]:
    """Yield a cluster with a leader whose Lease is in another namespace."""
    clock = HastyClock()
    async with ApiServer(clock=clock) as server:
        server.ensure_namespace("stow")
        async with running(server, clock, CHART) as chart:
            await chart.until(chart.leads, "no replica leads")
            yield server, clock
            assert chart.leads()


@pytest.mark.parametrize("election", [BY_HAND, ALONE], ids=["with another Lease", "without leader election"])
async def test_a_second_scheduler_of_the_same_name_ends(outside: None, election: LeaderElection) -> None:
    async with with_chart() as (server, clock), running(server, clock, election) as second:
        with pytest.raises(AnotherScheduler, match=r"Lease stow/kubestow is held by .* which serves kubestow; "):
            await second.daemon.wait()
        assert not second.leads()
        await second.daemon.stop(0)
        assert not server.list("leases", "kube-system")


async def test_the_log_of_a_second_scheduler_of_the_same_name_says_why_it_ends(outside: None) -> None:
    """It has never led, so it has not lost an election."""
    async with with_chart() as (server, _):
        with structlog.testing.capture_logs() as said:
            assert await app.run_daemon(options(server.url, leader_election=BY_HAND)) == 1
    errors = [line["event"] for line in said if line["log_level"] == "error"]
    assert errors == ["another scheduler serves the same names"]


@pytest.mark.parametrize("election", [BY_HAND, ALONE], ids=["with another Lease", "without leader election"])
@pytest.mark.parametrize(
    "more",
    [pytest.param({"name": "another"}, id="another scheduler name"), pytest.param({"is_forced": True}, id="--force")],
)
async def test_a_second_scheduler_acts(outside: None, election: LeaderElection, more: dict[str, object]) -> None:
    async with with_chart() as (server, clock), running(server, clock, election, **more) as second:  # type: ignore[arg-type]
        await second.until(second.leads, "it does not act")


async def test_a_second_scheduler_acts_when_the_first_is_dead(outside: None, clock: HastyClock) -> None:
    async with ApiServer(clock=clock) as server:
        server.ensure_namespace("stow")
        async with running(server, clock, CHART) as chart:
            await chart.until(chart.leads, "no replica leads")
            (held,) = server.list("leases", "stow")
        server.patch("leases", "kubestow", {"spec": held["spec"]}, namespace="stow")
        async with running(server, clock, BY_HAND) as second:
            ready = second.daemon.leadership.readyz()["other-schedulers"]
            await second.until(lambda: bool(ready()), "it does not look")
            looking = "looking whether other Leases with our scheduler names are renewed; number: 1"
            assert (ready(), second.leads()) == (looking, False)
            await second.until(second.leads, "it does not act")
            assert ready() is None
