"""What /metrics shows of a daemon that runs: of the whole, where parts were tested alone."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from scheduler.config.types import LeaderElection
from scheduler.testing.apiserver import ApiServer
from tests.integration.daemon import Rig, rig_on
from tests.integration.mortal import HastyClock

ELECTION = LeaderElection(True, lease_duration_s=3600, renew_deadline_s=3000, retry_period_s=20)


def shown(world: Rig, name: str) -> dict[tuple[str, ...], float]:
    """Label values, by the labels' names → value."""
    text = world.daemon.metrics.render().decode()
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


async def test_a_standby_that_waits_with_its_mirrors_is_not_called_unsynced(clock: HastyClock) -> None:
    """delayCacheUntilActive: it has no picture, and none is missing; a warm one has all."""
    election: dict[str, Any] = {"clock": clock, "leader_election": ELECTION}
    async with ApiServer(clock=clock) as server, rig_on(server, **election) as first:
        await first.until(first.daemon.idle, "never synced")
        await first.until(lambda: shown(first, "kubestow_leading") == {(): 1}, "nobody leads")
        assert set(shown(first, "kubestow_watch_synced").values()) == {1}
        assert {("Pod",), ("Node",), ("ResourceSlice",)} <= set(shown(first, "kubestow_watch_synced"))

        async with rig_on(server, **election, delay_cache_until_active=True) as second:
            await second.until(lambda: "get leases 200" in " ".join(server.requests()), "never stood")
            assert shown(second, "kubestow_leading") == {(): 0}
            assert shown(second, "kubestow_watch_synced") == {}
            await first.daemon.stop()
            await second.until(lambda: set(shown(second, "kubestow_watch_synced").values()) == {1}, "never began")


async def test_requests_to_the_server_are_counted() -> None:
    """By method and code, watches included."""
    async with ApiServer() as server, rig_on(server) as world:
        world.node("n1")
        world.pod("p")
        await world.bound("p")
        host = server.url.removeprefix("http://")
        assert shown(world, "rest_client_requests_total")["201", host, "POST"] >= 1
        reads = shown(world, "rest_client_requests_total")["200", host, "GET"]
        timed = shown(world, "rest_client_request_duration_seconds_count")[host, "GET"]
        assert reads > timed > 0  # watches take as long as they take


async def test_a_pod_that_is_bound_and_shown_is_on_its_way_no_more() -> None:
    """Nothing is left of it in the gauges."""
    async with ApiServer() as server, rig_on(server) as world:
        world.node("n1")
        world.pod("p")
        await world.bound("p")
        await world.until(lambda: world.daemon.decisions.cluster.sizes()["assumed_pods"] == 0, "never confirmed")
        await world.until(world.daemon.idle, "busy")
        assert shown(world, "kubestow_assumed_oldest_seconds") == {("binding",): 0, ("bound",): 0}
        assert shown(world, "kubestow_self_check_findings")["permissions", "true"] == 0
