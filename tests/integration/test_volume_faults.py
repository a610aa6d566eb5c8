"""One kind of fault at a time for pods with volumes, and its exact result. Seconds are virtual."""

from __future__ import annotations

from typing import Final

import pytest

from scheduler.config.args import KubestowArgs
from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.daemon_laws import Object
from tests.integration.harness import Harness, running_cluster
from tests.integration.volume_helpers import (
    CLAIMS,
    FAST,
    THREE,
    VOLUMES,
    bound,
    is_selected,
    node_of,
    published,
    refused,
    second_volume,
    selected,
    well,
    with_local_volumes,
)
from tests.integration.volume_steps import Want


async def labelled_under_way(cluster: Harness) -> str:
    """Label the second of three volumes while our write is on its way; return the chosen node."""
    slow = second_volume(cluster, delay_s=5)
    with_local_volumes(cluster)
    cluster.add_pod_with("p", 100, THREE)
    await until(lambda: any(each.hits for each in slow), lambda: "no write")
    name = next(each.name for each in slow if each.hits)
    cluster.server.patch(VOLUMES, name, {"metadata": {"labels": {"written": "meantime"}}})
    return "n1" if name == "v002" else "n2"


# -- writes that fail ---------------------------------------------------------------------------------------------------


async def test_a_label_in_between_as_kube_scheduler_takes_it() -> None:
    """`parity: true`: the attempt fails with the server's text, and the written volumes keep the pod on its node."""
    async with running_cluster(volumes=True, ours=KubestowArgs(parity=True)) as cluster:
        node_name = await labelled_under_way(cluster)
        await bound(cluster, "p")

        name = "v002" if node_name == "n1" else "v005"
        told = 'running PreBind plugin "VolumeBinding": Operation cannot be fulfilled on '
        (why,) = [why for _, why in cluster.refusals]
        assert why.startswith(f'{told}persistentvolumes "{name}"'), why
        assert node_of(cluster, "p") == node_name
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
        assert (
            len({v["spec"]["claimRef"]["name"] for v in cluster.server.objects(VOLUMES) if v["spec"].get("claimRef")})
            == 3
        )
        assert sum(bool(v["spec"].get("claimRef")) for v in cluster.server.objects(VOLUMES)) == 3


# -- controllers that fail ----------------------------------------------------------------------------------------------


# -- capacity --------------------------------------------------------------------------------------------------------------


async def burst(cluster: Harness) -> None:
    """Create four pods with two volumes each, which fill both racks; all prefer `n1`. Capacity is not published again."""
    cluster.add_node("n1", 64_000, "a")
    cluster.add_node("n2", 400, "a")
    for n in range(12):
        cluster.raise_limit(n)
    await published(cluster)
    cluster.add_set("b", 4, (FAST, FAST))


async def test_a_burst_on_old_capacity_fails_nowhere() -> None:
    """B-1: capacity in flight is subtracted, so two pods go to each node."""
    async with running_cluster(volumes=True, publishes_every_s=100_000) as cluster:
        await burst(cluster)
        await bound(cluster, *(f"b{i}" for i in range(4)))

        assert (cluster.provisioner.provisioned, cluster.provisioner.failures) == (8, 0)
        assert sorted(node_of(cluster, f"b{i}") for i in range(4)) == ["n1", "n1", "n2", "n2"]


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
        assert (node_of(cluster, "low"), selected(cluster, "low-0"), cluster.witness.preempted) == ("", "n1", {})
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
