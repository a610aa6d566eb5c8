"""Pods with volumes under one kind of fault at a time, its exact result, and daemons that end while volumes are bound.

Each begun write is finished once, or not at all. Seconds are virtual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.config.types import LeaderElection
from scheduler.controllers.node_name_pods import OPT_IN_LABEL
from scheduler.kube.leader_election import LeaseLost
from simulator.apiserver import Fault
from simulator.builders.core import pod
from tests.integration.daemon import until
from tests.integration.daemon_laws import Object
from tests.integration.harness import Harness, running_cluster
from tests.integration.pod_steps import SHARED, THEIRS
from tests.integration.test_leader import hand_to
from tests.integration.volume_laws import selected_node
from tests.integration.volume_steps import CLAIMS, VOLUMES, Want

THREE: Final = (Want("local", 1), Want("local", 2), Want("local", 3))
FAST: Final = Want("fast", 2)


def with_local_volumes(cluster: Harness) -> None:
    """Create v001 to v003 on `n1` and v004 to v006 on `n2`, by size: the pod fits both nodes."""
    for name in ("n1", "n2"):
        cluster.add_node(name, 4000, "a")
        for size in (1, 2, 3):
            cluster.add_volume("local", size, name)


def claim(cluster: Harness, name: str) -> Object:
    return cluster.server.get(CLAIMS, name)


def selected(cluster: Harness, name: str) -> str:
    return selected_node(claim(cluster, name))


def answers(cluster: Harness, what: str) -> dict[str, int]:
    """Return status → number of requests that begin with these words."""
    found = {key: count for key, count in cluster.server.requests().items() if key.startswith(f"{what} ")}
    return {key.rpartition(" ")[2]: count for key, count in found.items()}


async def bound(cluster: Harness, *names: str) -> None:
    await until(lambda: all(cluster.node_of(name) for name in names), lambda: f"never bound: {cluster.refusals}")


async def refused(cluster: Harness, name: str, words: str) -> None:
    await until(
        lambda: any(refused == name and words in why for refused, why in cluster.refusals),
        lambda: f"never refused: {cluster.refusals}",
    )


async def is_selected(cluster: Harness, name: str, node_name: str = "") -> None:
    await until(
        lambda: bool(selected(cluster, name)) and selected(cluster, name) == (node_name or selected(cluster, name)),
        lambda: f"never selected: {cluster.refusals}",
    )


async def published(cluster: Harness) -> None:
    """Wait until the daemon has the published capacity."""
    capacities = cluster.running().scheduler.cluster.volumes.capacities
    await until(lambda: len(capacities) == 2, lambda: "nothing published")


async def well(cluster: Harness) -> None:
    """Wait until the cluster is quiet, and check the laws."""
    await cluster.settle()
    assert cluster.broken_laws() == []


def second_volume(cluster: Harness, **harm: Any) -> list[Fault]:
    """Add a fault to the write of the second volume, on either node."""
    faults = [Fault(verb="patch", resource=VOLUMES, name=name, **harm) for name in ("v002", "v005")]
    return [cluster.server.faults.add(each) for each in faults]


# -- writes that fail ---------------------------------------------------------------------------------------------------


async def second_under_way(cluster: Harness, delay_s: float) -> tuple[str, str]:
    """Return the second of three volumes while our write is on its way, and the chosen node."""
    slow = second_volume(cluster, delay_s=delay_s)
    with_local_volumes(cluster)
    cluster.add_pod_with("p", 100, THREE)
    await until(lambda: any(each.hits for each in slow), lambda: "no write")
    return ("v002", "n1") if slow[0].hits else ("v005", "n2")


async def test_a_label_in_between_as_kube_scheduler_takes_it() -> None:
    """`parity: true`: the attempt fails with the server's text, and the written volumes keep the pod on its node."""
    async with running_cluster(volumes=True, ours=KubestowArgs(parity=True)) as cluster:
        name, node_name = await second_under_way(cluster, delay_s=5)
        cluster.server.patch(VOLUMES, name, {"metadata": {"labels": {"written": "meantime"}}})
        await bound(cluster, "p")

        told = 'running PreBind plugin "VolumeBinding": Operation cannot be fulfilled on '
        (why,) = [why for _, why in cluster.refusals]
        assert why.startswith(f'{told}persistentvolumes "{name}"'), why
        assert cluster.node_of("p") == node_name
        await well(cluster)


HARMS: Final[dict[str, Object]] = {
    "429 with Retry-After": {"status": 429, "retry_after_s": 2},
    "503": {"status": 503},
    "500": {"status": 500},
    "504, carried out or not": {"status": 504},
    "409 three times": {"status": 409, "times": 3},
    "the connection is cut before it was carried out": {"reset": "before"},
    "the connection is cut after it was carried out": {"reset": "after"},
    "an answer that is slow, and lost": {"reset": "after", "delay_s": 5},
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
async def test_the_second_of_three_volumes_is_hard_to_write(harm: Object) -> None:
    async with running_cluster(volumes=True) as cluster:
        faults = second_volume(cluster, **harm)
        with_local_volumes(cluster)
        cluster.add_pod_with("p", 100, THREE)
        await bound(cluster, "p")

        assert (sum(each.hits for each in faults), cluster.refusals) == (harm.get("times", 1), [])
        await well(cluster)
        references = [v["spec"]["claimRef"] for v in cluster.server.objects(VOLUMES) if v["spec"].get("claimRef")]
        assert (len(references), len({each["name"] for each in references})) == (3, 3)


# -- capacity --------------------------------------------------------------------------------------------------------------


async def test_a_burst_on_old_capacity_fails_nowhere() -> None:
    """B-1: capacity in flight is subtracted, so two pods go to each node, though all prefer `n1`."""
    async with running_cluster(volumes=True, publishes_every_s=100_000) as cluster:
        cluster.add_node("n1", 64_000, "a")
        cluster.add_node("n2", 400, "a")
        for n in range(12):
            cluster.raise_limit(n)
        await published(cluster)
        for i in range(4):
            cluster.add_pod_with(f"b{i}", 100, (FAST, FAST))
        await bound(cluster, *(f"b{i}" for i in range(4)))

        assert (cluster.provisioner.provisioned, cluster.provisioner.failures) == (8, 0)
        assert sorted(cluster.node_of(f"b{i}") for i in range(4)) == ["n1", "n1", "n2", "n2"]


# -- several pods ------------------------------------------------------------------------------------------------


async def test_a_pod_that_waits_for_its_volume_gives_way() -> None:
    async with running_cluster(volumes=True) as cluster:
        cluster.add_node("n1", 1000, "a")
        await published(cluster)
        cluster.kill_provisioner(in_a_call=False)
        cluster.add_pod_with("low", 600, (FAST,))
        await is_selected(cluster, "low-0")
        cluster.add_pod("high", 600, class_name="high")
        await bound(cluster, "high")
        assert (cluster.node_of("low"), selected(cluster, "low-0"), cluster.witness.preempted) == ("", "n1", {})
        cluster.revive_provisioner()
        cluster.delete("high", at_once=True)
        await bound(cluster, "low")
        await well(cluster)


async def test_a_volume_that_is_given_back_by_a_claim_that_is_gone() -> None:
    async with running_cluster(volumes=True) as cluster:
        refuses = cluster.server.faults.add(Fault(verb="patch", resource=VOLUMES, delay_s=8, status=403))
        cluster.add_node("n1", 4000, "a")
        cluster.add_volume("local", 1, "n1")
        cluster.add_pod_with("first", 100, (Want("local", 1),))
        await until(lambda: refuses.hits == 1, lambda: "no write")
        cluster.add_pod_with("second", 100, (Want("local", 1),))
        await refused(cluster, "second", "didn't find available persistent volumes to bind")
        cluster.server.delete(CLAIMS, "first-0")
        await bound(cluster, "second")
        await well(cluster)


# -- a daemon that ends in the middle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [pytest.param(True, id="SIGKILL"), pytest.param(False, id="SIGTERM")])
async def test_the_daemon_ends_with_one_of_three_volumes_written(is_killed: bool) -> None:
    async with running_cluster(volumes=True) as cluster:
        _, chosen = await second_under_way(cluster, delay_s=8)
        if is_killed:
            await cluster.kill_daemon()
        else:
            await cluster.stop_daemon()
            assert cluster.node_of("p") == chosen
        cluster.end_faults()
        await cluster.start_daemon()
        await bound(cluster, "p")

        assert cluster.node_of("p") == chosen
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


async def stuck(cluster: Harness, *volumes: Want, pods: Sequence[str] = ("p",)) -> None:
    """Create pods with these volumes on `n1`, whose claims cannot be written until the faults end."""
    busy = cluster.server.faults.add(Fault(verb="patch", resource=CLAIMS, status=503, times=None))
    cluster.add_node("n1", 4000, "a")
    for name in pods:
        cluster.add_pod_with(name, 100, volumes)
    await until(lambda: busy.hits > 1, lambda: "not tried again")


@pytest.mark.parametrize("is_bound", [False, True], ids=["deleted", "bound by another scheduler"])
async def test_nothing_is_written_for_a_pod_that_is(is_bound: bool) -> None:
    async with running_cluster(volumes=True) as cluster:
        await stuck(cluster, FAST)
        if is_bound:
            cluster.add_node(SHARED, 4000, "a")
            cluster.bind_as_another(0)
        else:
            cluster.delete("p", at_once=True)
        await cluster.seconds(1)
        cluster.end_faults()
        await well(cluster)

        assert (selected(cluster, "p-0"), cluster.provisioner.provisioned) == ("", 0)
        assert not is_bound or cluster.node_of("p") == SHARED


async def test_the_first_of_two_pods_that_share_a_claim_is_deleted() -> None:
    async with running_cluster(volumes=True) as cluster:
        await stuck(cluster, Want("fast", 2, "shared"), pods=("s0", "s1"))
        cluster.delete("s0", at_once=True)
        await cluster.seconds(1)
        cluster.end_faults()
        await bound(cluster, "s1")

        assert answers(cluster, "patch persistentvolumeclaims")["200"] == 1
        await well(cluster)


async def test_a_node_that_has_gone_is_not_selected() -> None:
    async with running_cluster(volumes=True) as cluster:
        await stuck(cluster, FAST)
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
        _, chosen = await second_under_way(cluster, delay_s=100)
        assert cluster.daemon is not None
        hand_to(cluster.server, "thief")
        with pytest.raises(LeaseLost):
            await cluster.daemon.wait()
        await cluster.stop_daemon()
        assert sum(answers(cluster, "patch persistentvolumes").values()) <= 2
        assert cluster.node_of("p") == ""

        hand_to(cluster.server, "")
        await cluster.start_daemon()
        await bound(cluster, "p")
        assert cluster.node_of("p") == chosen
        await well(cluster)


async def test_a_standby_clears_no_selected_node() -> None:
    async with running_cluster(volumes=True, election=ELECTION) as cluster:
        cluster.add_node("n1", 4000, "a")
        await published(cluster)
        cluster.kill_provisioner(in_a_call=False)
        cluster.add_pod_with("p", 100, (FAST,))
        await is_selected(cluster, "p-0", "n1")
        await cluster.kill_daemon()
        hand_to(cluster.server, "another")
        cluster.server.delete("nodes", "n1")
        before = answers(cluster, "get persistentvolumeclaims")
        await cluster.start_daemon()
        assert cluster.daemon is not None
        await until(lambda: len(cluster.daemon.scheduler.cluster.volumes.reservations) == 1, lambda: "not synced")  # type: ignore[union-attr]
        await cluster.seconds(20)
        assert (selected(cluster, "p-0"), answers(cluster, "get persistentvolumeclaims")) == ("n1", before)

        hand_to(cluster.server, "")
        await until(lambda: selected(cluster, "p-0") == "", lambda: "never cleared")


# -- pods created with a node name -----------------------------------------------------------------------------------------


async def test_a_pod_with_a_node_name_gets_its_volume_once_its_namespace_opts_in() -> None:
    async with running_cluster(volumes=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await published(cluster)
        cluster.add_claim("c", "fast", 2)
        cluster.server.create("pods", pod("p").cpu("100m").scheduler(THEIRS).bound_to("n1").pvc("c").obj())
        await cluster.seconds(5)
        assert selected(cluster, "c") == ""

        cluster.server.ensure_namespace("default")
        cluster.server.patch("namespaces", "default", {"metadata": {"labels": {OPT_IN_LABEL: "true"}}})
        await is_selected(cluster, "c", "n1")
        await until(lambda: bool(claim(cluster, "c")["spec"].get("volumeName")), lambda: "no volume")
        await well(cluster)
