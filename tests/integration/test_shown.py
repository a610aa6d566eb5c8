"""/metrics of a running daemon that stands by."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from scheduler.config.types import LeaderElection
from simulator.apiserver import ApiServer
from tests.integration.clocks import HastyClock
from tests.integration.daemon import Rig, rig_on

ELECTION = LeaderElection(True, lease_duration_s=3600, renew_deadline_s=3000, retry_period_s=20)


def shown(cluster: Rig, name: str) -> dict[tuple[str, ...], float]:
    """Return label values → value of a metric."""
    text = cluster.daemon.metrics.render().decode()
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


async def test_a_standby_that_waits_with_its_mirrors_is_not_called_unsynced(clock: HastyClock) -> None:
    """With delayCacheUntilActive the standby has no informers, so none counts as unsynced."""
    election: dict[str, Any] = {"clock": clock, "leader_election": ELECTION}
    async with ApiServer(clock=clock) as server, rig_on(server, **election) as first:
        await first.until(first.daemon.idle, "never synced")
        await first.until(lambda: shown(first, "kubestow_leading") == {(): 1}, "no replica leads")
        assert set(shown(first, "kubestow_watch_synced").values()) == {1}
        assert {("Pod",), ("Node",), ("ResourceSlice",)} <= set(shown(first, "kubestow_watch_synced"))

        async with rig_on(server, **election, delay_cache_until_active=True) as second:
            await second.until(lambda: "get leases 200" in " ".join(server.requests()), "never stood")
            assert shown(second, "kubestow_leading") == {(): 0}
            assert shown(second, "kubestow_watch_synced") == {}
            await first.daemon.stop()
            await second.until(lambda: set(shown(second, "kubestow_watch_synced").values()) == {1}, "never began")
