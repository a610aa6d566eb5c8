"""Daemons that end while volumes are bound, and plans that are obsolete: each begun write is finished once, or not at all."""

from __future__ import annotations

from typing import Final

import pytest

from scheduler.config.types import LeaderElection
from scheduler.kube.leader_election import LeaseLost
from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.test_leader import hand_to
from tests.integration.volumejudging import selected_node
from tests.integration.volumesteps import (
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
from tests.integration.volumeworld import Want, with_volumes
from tests.integration.world import SHARED

# -- a daemon that ends in the middle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [pytest.param(True, id="SIGKILL"), pytest.param(False, id="SIGTERM")])
async def test_the_daemon_ends_with_one_of_three_volumes_written(is_killed: bool) -> None:
    async with with_volumes() as world:
        slow = second_volume(world, delay_s=8)
        with_local_volumes(world)
        world.add_pod_with("p", 100, THREE)
        await until(lambda: any(each.hits for each in slow), lambda: "no write")
        chosen = "n1" if slow[0].hits else "n2"
        if is_killed:
            await world.kill_daemon()
        else:
            await world.stop_daemon()
            assert node_of(world, "p") == chosen
        world.end_faults()
        await world.start_daemon()
        await bound(world, "p")

        assert node_of(world, "p") == chosen
        await well(world)
        assert sum(bool(v["spec"].get("claimRef")) for v in world.server.objects(VOLUMES)) == 3


async def test_what_is_in_flight_is_known_again_before_the_first_decision() -> None:
    """The next daemon reads from the claims the volumes in flight, which old capacity does not show."""
    async with with_volumes(publishes_every_s=100_000) as world:
        world.add_node("n1", 4000, "a")
        world.add_node("n2", 4000, "a")
        await published(world)
        world.kill_provisioner(in_a_call=False)
        for i in range(2):  # 8 of 10 and 8 of 8, or 8 of 10 in two halves and nothing of 8
            world.add_pod_with(f"p{i}", 100, (Want("fast", 4), Want("fast", 4)))
        for i in range(2):
            await is_selected(world, f"p{i}-0")
            await is_selected(world, f"p{i}-1")
        await world.crash_daemon()
        world.add_pod_with("late", 100, (Want("fast", 3),))
        await refused(world, "late", "2 node(s) did not have enough free storage")
        world.revive_provisioner()
        await bound(world, "p0", "p1")

        assert world.provisioner.failures == 0
        assert selected(world, "late-0") == ""


# -- obsolete writes ---------------------------------------------------------------------------------------


async def test_nothing_is_written_for_a_pod_that_has_gone() -> None:
    async with with_volumes() as world:
        busy = world.server.faults.add(Fault(verb="patch", resource=CLAIMS, status=503, times=None))
        world.add_node("n1", 4000, "a")
        world.add_pod_with("p", 100, (FAST,))
        await until(lambda: busy.hits > 1, lambda: "not tried again")
        world.delete("p", at_once=True)
        await world.seconds(1)
        world.end_faults()
        await well(world)

        assert (selected(world, "p-0"), world.provisioner.provisioned) == ("", 0)


async def test_a_node_that_has_gone_is_not_selected() -> None:
    async with with_volumes() as world:
        busy = world.server.faults.add(Fault(verb="patch", resource=CLAIMS, status=503, times=None))
        world.add_node("n1", 4000, "a")
        world.add_pod_with("p", 100, (FAST,))
        await until(lambda: busy.hits > 1, lambda: "not tried again")
        world.server.delete("nodes", "n1")
        world.add_node("n2", 4000, "a")
        await world.seconds(1)
        named: set[str] = set()
        world.server.subscribe(lambda _, kind, obj: named.add(selected_node(obj)) if kind == CLAIMS else None)
        world.end_faults()
        await bound(world, "p")

        assert named - {""} == {"n2"}
        await well(world)


# -- a leader that is none any more ------------------------------------------------------------------------------------------

ELECTION: Final = LeaderElection(True, lease_duration_s=360_000, renew_deadline_s=300_000, retry_period_s=20)


async def test_leadership_that_is_lost_with_one_of_three_volumes_written() -> None:
    async with with_volumes(election=ELECTION) as world:
        slow = second_volume(world, delay_s=100)
        with_local_volumes(world)
        world.add_pod_with("p", 100, THREE)
        await until(lambda: any(each.hits for each in slow), lambda: "no write")
        chosen = "n1" if slow[0].hits else "n2"
        assert world.daemon is not None
        hand_to(world.server, "thief")
        with pytest.raises(LeaseLost):
            await world.daemon.wait()
        await world.stop_daemon()
        world.forgive_deaths()
        assert sum(answers(world, "patch persistentvolumes").values()) <= 2
        assert node_of(world, "p") == ""

        hand_to(world.server, "")
        await world.start_daemon()
        await bound(world, "p")
        assert node_of(world, "p") == chosen
        await well(world)


async def test_a_standby_clears_no_selected_node() -> None:
    async with with_volumes(election=ELECTION) as world:
        chosen = await waiting_for_its_volume(world)
        await world.kill_daemon()
        hand_to(world.server, "another")
        world.server.delete("nodes", chosen)
        before = answers(world, "get persistentvolumeclaims")
        await world.start_daemon()
        assert world.daemon is not None
        await until(lambda: len(world.daemon.decisions.cluster.volumes.reservations) == 1, lambda: "not synced")  # type: ignore[union-attr]
        await world.seconds(20)
        assert (selected(world, "p-0"), answers(world, "get persistentvolumeclaims")) == (chosen, before)

        hand_to(world.server, "")
        await until(lambda: selected(world, "p-0") == "", lambda: "never cleared")


async def test_the_first_of_two_pods_that_share_a_claim_is_deleted() -> None:
    async with with_volumes() as world:
        busy = world.server.faults.add(Fault(verb="patch", resource=CLAIMS, status=503, times=None))
        world.add_node("n1", 4000, "a")
        world.add_set("s", 2, (Want("fast", 2, "shared"),))
        await until(lambda: busy.hits > 1, lambda: "not tried again")
        world.delete("s0", at_once=True)
        await world.seconds(1)
        world.end_faults()
        await bound(world, "s1")

        assert answers(world, "patch persistentvolumeclaims")["200"] == 1
        await well(world)


async def test_nothing_is_written_for_a_pod_that_another_scheduler_has_bound() -> None:
    async with with_volumes() as world:
        busy = world.server.faults.add(Fault(verb="patch", resource=CLAIMS, status=503, times=None))
        world.add_node("n1", 4000, "a")
        world.add_pod_with("p", 100, (FAST,))
        await until(lambda: busy.hits > 1, lambda: "not tried again")
        world.add_node(SHARED, 4000, "a")
        world.bind_by_others(0)
        await world.seconds(1)
        world.end_faults()
        await well(world)

        assert (selected(world, "p-0"), world.provisioner.provisioned) == ("", 0)
        assert node_of(world, "p") == SHARED
