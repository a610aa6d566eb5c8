"""Two installations that serve the same scheduler name under different Leases: the second one does not act."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from scheduler.config.types import KubeSchedulerProfile, LeaderElection
from scheduler.kube.leader_election import AnotherScheduler
from simulator.apiserver import ApiServer
from tests.integration.clocks import HastyClock
from tests.integration.daemon import Rig, rig_on

CHART = LeaderElection(leader_elect=True, resource_namespace="stow")
BY_HAND = LeaderElection(leader_elect=True)
ALONE = LeaderElection(leader_elect=False)


@pytest.fixture(autouse=True)
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
async def test_a_second_scheduler_of_the_same_name_ends(election: LeaderElection) -> None:
    async with with_chart() as (server, clock), running(server, clock, election) as second:
        with pytest.raises(AnotherScheduler, match=r"Lease stow/kubestow is held by .* which serves kubestow; "):
            await second.daemon.wait()
        assert not second.leads()
        await second.daemon.stop(0)
        assert not server.list("leases", "kube-system")


@pytest.mark.parametrize("election", [BY_HAND, ALONE], ids=["with another Lease", "without leader election"])
@pytest.mark.parametrize(
    "more",
    [pytest.param({"name": "another"}, id="another scheduler name"), pytest.param({"is_forced": True}, id="--force")],
)
async def test_a_second_scheduler_acts(election: LeaderElection, more: dict[str, object]) -> None:
    async with with_chart() as (server, clock), running(server, clock, election, **more) as second:  # type: ignore[arg-type]
        await second.until(second.leads, "it does not act")


async def test_a_second_scheduler_acts_when_the_first_is_dead() -> None:
    clock = HastyClock()
    async with ApiServer(clock=clock) as server:
        server.ensure_namespace("stow")
        async with running(server, clock, CHART) as chart:
            await chart.until(chart.leads, "no replica leads")
            (held,) = server.list("leases", "stow")
        server.patch("leases", "kubestow", {"spec": held["spec"]}, namespace="stow")
        async with running(server, clock, BY_HAND) as second:
            ready = second.daemon.leadership.readyz()["other-schedulers"]
            await second.until(lambda: bool(ready()), "it does not look")
            assert (ready(), second.leads()) == ("looking whether it is renewed: Lease stow/kubestow", False)
            await second.until(second.leads, "it does not act")
            assert ready() is None
