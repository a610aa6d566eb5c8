"""Daemons that end while volumes are bound, and plans that are obsolete: each begun write is finished once, or not at all."""

from __future__ import annotations

from typing import Final

import pytest

from scheduler.config.types import LeaderElection
from scheduler.kube.leader_election import LeaseLost
from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.harness import running_cluster
from tests.integration.pod_steps import SHARED
from tests.integration.test_leader import hand_to
from tests.integration.volume_helpers import (
    CLAIMS,
    FAST,
    THREE,
    VOLUMES,
    answers,
    bound,
    is_selected,
    node_of,
    published,
    refused,
    second_volume,
    selected,
    waiting_for_its_volume,
    well,
    with_local_volumes,
)
from tests.integration.volume_laws import selected_node
from tests.integration.volume_steps import Want

# -- a daemon that ends in the middle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [pytest.param(True, id="SIGKILL"), pytest.param(False, id="SIGTERM")])
async def test_the_daemon_ends_with_one_of_three_volumes_written(is_killed: bool) -> None:
    async with running_cluster(volumes=True) as cluster:
        slow = second_volume(cluster, delay_s=8)
        with_local_volumes(cluster)
        cluster.add_pod_with("p", 100, THREE)
        await until(lambda: any(each.hits for each in slow), lambda: "no write")
        chosen = "n1" if slow[0].hits else "n2"
        if is_killed:
            await cluster.kill_daemon()
        else:
            await cluster.stop_daemon()
            assert node_of(cluster, "p") == chosen
        cluster.end_faults()
        await cluster.start_daemon()
        await bound(cluster, "p")

        assert node_of(cluster, "p") == chosen
        await well(cluster)
        assert sum(bool(v["spec"].get("claimRef")) for v in cluster.server.objects(VOLUMES)) == 3


async def test_what_is_in_flight_is_known_again_before_the_first_decision() -> None:
    """The next daemon reads from the claims the volumes in flight, which old capacity does not show."""
    async with running_cluster(volumes=True, publishes_every_s=100_000) as cluster:
        cluster.add_node("n1", 4000, "a")
        cluster.add_node("n2", 4000, "a")
        await published(cluster)
        cluster.kill_provisioner(in_a_call=False)
        for i in range(2):  # 8 of 10 and 8 of 8, or 8 of 10 in two halves and nothing of 8
            cluster.add_pod_with(f"p{i}", 100, (Want("fast", 4), Want("fast", 4)))
        for i in range(2):
            await is_selected(cluster, f"p{i}-0")
            await is_selected(cluster, f"p{i}-1")
        await cluster.crash_daemon()
        cluster.add_pod_with("late", 100, (Want("fast", 3),))
        await refused(cluster, "late", "2 node(s) did not have enough free storage")
        cluster.revive_provisioner()
        await bound(cluster, "p0", "p1")

        assert cluster.provisioner.failures == 0
        assert selected(cluster, "late-0") == ""


# -- obsolete writes ---------------------------------------------------------------------------------------


async def test_nothing_is_written_for_a_pod_that_has_gone() -> None:
    async with running_cluster(volumes=True) as cluster:
        busy = cluster.server.faults.add(Fault(verb="patch", resource=CLAIMS, status=503, times=None))
        cluster.add_node("n1", 4000, "a")
        cluster.add_pod_with("p", 100, (FAST,))
        await until(lambda: busy.hits > 1, lambda: "not tried again")
        cluster.delete("p", at_once=True)
        await cluster.seconds(1)
        cluster.end_faults()
        await well(cluster)

        assert (selected(cluster, "p-0"), cluster.provisioner.provisioned) == ("", 0)


async def test_a_node_that_has_gone_is_not_selected() -> None:
    async with running_cluster(volumes=True) as cluster:
        busy = cluster.server.faults.add(Fault(verb="patch", resource=CLAIMS, status=503, times=None))
        cluster.add_node("n1", 4000, "a")
        cluster.add_pod_with("p", 100, (FAST,))
        await until(lambda: busy.hits > 1, lambda: "not tried again")
        cluster.server.delete("nodes", "n1")
        cluster.add_node("n2", 4000, "a")
        await cluster.seconds(1)
        named: set[str] = set()
        cluster.server.subscribe(lambda _, kind, obj: named.add(selected_node(obj)) if kind == CLAIMS else None)
        cluster.end_faults()
        await bound(cluster, "p")

        assert named - {""} == {"n2"}
        await well(cluster)


# -- a leader that is none any more ------------------------------------------------------------------------------------------

ELECTION: Final = LeaderElection(True, lease_duration_s=360_000, renew_deadline_s=300_000, retry_period_s=20)


async def test_leadership_that_is_lost_with_one_of_three_volumes_written() -> None:
    async with running_cluster(volumes=True, election=ELECTION) as cluster:
        slow = second_volume(cluster, delay_s=100)
        with_local_volumes(cluster)
        cluster.add_pod_with("p", 100, THREE)
        await until(lambda: any(each.hits for each in slow), lambda: "no write")
        chosen = "n1" if slow[0].hits else "n2"
        assert cluster.daemon is not None
        hand_to(cluster.server, "thief")
        with pytest.raises(LeaseLost):
            await cluster.daemon.wait()
        await cluster.stop_daemon()
        assert sum(answers(cluster, "patch persistentvolumes").values()) <= 2
        assert node_of(cluster, "p") == ""

        hand_to(cluster.server, "")
        await cluster.start_daemon()
        await bound(cluster, "p")
        assert node_of(cluster, "p") == chosen
        await well(cluster)


async def test_a_standby_clears_no_selected_node() -> None:
    async with running_cluster(volumes=True, election=ELECTION) as cluster:
        chosen = await waiting_for_its_volume(cluster)
        await cluster.kill_daemon()
        hand_to(cluster.server, "another")
        cluster.server.delete("nodes", chosen)
        before = answers(cluster, "get persistentvolumeclaims")
        await cluster.start_daemon()
        assert cluster.daemon is not None
        await until(lambda: len(cluster.daemon.decisions.cluster.volumes.reservations) == 1, lambda: "not synced")  # type: ignore[union-attr]
        await cluster.seconds(20)
        assert (selected(cluster, "p-0"), answers(cluster, "get persistentvolumeclaims")) == (chosen, before)

        hand_to(cluster.server, "")
        await until(lambda: selected(cluster, "p-0") == "", lambda: "never cleared")


async def test_the_first_of_two_pods_that_share_a_claim_is_deleted() -> None:
    async with running_cluster(volumes=True) as cluster:
        busy = cluster.server.faults.add(Fault(verb="patch", resource=CLAIMS, status=503, times=None))
        cluster.add_node("n1", 4000, "a")
        cluster.add_set("s", 2, (Want("fast", 2, "shared"),))
        await until(lambda: busy.hits > 1, lambda: "not tried again")
        cluster.delete("s0", at_once=True)
        await cluster.seconds(1)
        cluster.end_faults()
        await bound(cluster, "s1")

        assert answers(cluster, "patch persistentvolumeclaims")["200"] == 1
        await well(cluster)


async def test_nothing_is_written_for_a_pod_that_another_scheduler_has_bound() -> None:
    async with running_cluster(volumes=True) as cluster:
        busy = cluster.server.faults.add(Fault(verb="patch", resource=CLAIMS, status=503, times=None))
        cluster.add_node("n1", 4000, "a")
        cluster.add_pod_with("p", 100, (FAST,))
        await until(lambda: busy.hits > 1, lambda: "not tried again")
        cluster.add_node(SHARED, 4000, "a")
        cluster.bind_as_another(0)
        await cluster.seconds(1)
        cluster.end_faults()
        await well(cluster)

        assert (selected(cluster, "p-0"), cluster.provisioner.provisioned) == ("", 0)
        assert node_of(cluster, "p") == SHARED
