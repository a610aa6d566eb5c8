"""The checks of preemption plans: they accept a good plan and name the defect of each other plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from scheduler.api.podinfo import PodInfo
from tests.integration.daemon import until
from tests.integration.harness import Harness, running_cluster
from tests.integration.preemption_laws import Plans

NOT_NEEDED = "one of them less would do"
TOO_FEW = "it does not fit without them either"


async def full(cluster: Harness) -> None:
    """Create two nodes of 1000m with pods of 600m and 400m and priority 0, a third with a pod of equal priority, and a pod of 500m that waits."""
    for name in ("n1", "n2"):
        cluster.add_node(name, 1000, "a")
        for i, size in enumerate((600, 400)):
            cluster.add_pod(f"{name}-{i}", size)
            cluster.server.bind(f"{name}-{i}", name)
    cluster.add_node("n3", 500, "a")
    cluster.add_pod("equal", 500, class_name="mid")
    cluster.server.bind("equal", "n3")
    cluster.forbid([("patch", "pods/status")])  # so that what waits waits
    cluster.add_pod("waits", 500, class_name="mid")
    await until(lambda: len(cluster.plans) > 0, lambda: "nothing was planned")


def known(cluster: Harness, name: str) -> PodInfo:
    assert cluster.daemon is not None
    decisions = cluster.daemon.decisions
    uid = cluster.server.get("pods", name)["metadata"]["uid"]
    found = decisions.cluster.get(uid) or decisions.shared.pending.get(f"default/{name}")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("node_name", "victims", "wrong"),
    [
        pytest.param("n1", ["n1-0"], [], id="the one that is large enough"),
        pytest.param("n1", ["n1-1"], [TOO_FEW], id="one that is too small"),
        pytest.param("n1", ["n1-0", "n1-1"], [NOT_NEEDED], id="one more than needed"),
        pytest.param("n2", ["n1-0"], ["they are not all on the node", TOO_FEW], id="on another node"),
        pytest.param("n3", ["equal"], ["one of them is not less important"], id="an equal"),
        pytest.param("gone", ["n1-0"], ["the node is not there"], id="a node that is not there"),
    ],
)
async def test_a_plan(node_name: str, victims: list[str], wrong: list[str]) -> None:
    async with running_cluster() as cluster:
        await full(cluster)
        assert cluster.plans.broken == []
        assert cluster.daemon is not None
        plans = Plans(lambda _: True)
        plans.judge(cluster.daemon, known(cluster, "waits"), node_name, [known(cluster, name) for name in victims])

        says = f"for default/waits on {node_name} were to die {[f'default/{name}' for name in victims]}: "
        assert plans.broken == [says + each for each in wrong]


async def nothing(_: Harness) -> None:
    pass


async def cordoned(cluster: Harness) -> None:
    cluster.cordon_node(0, True)


async def protected(cluster: Harness) -> None:
    cluster.protect("red", 1)


async def joined(cluster: Harness) -> None:
    cluster.add_node("n4", 50, "b")


@pytest.mark.parametrize("has_died", [True, False], ids=["a victim was deleted", "no victim was deleted"])
@pytest.mark.parametrize(
    ("happens", "is_reason"),
    [
        pytest.param(nothing, False, id="nothing has happened"),
        pytest.param(joined, False, id="another node came"),
        pytest.param(cordoned, True, id="the first node was cordoned"),
        pytest.param(protected, True, id="there is a new budget"),
    ],
)
async def test_another_node(happens: Callable[[Harness], Awaitable[None]], is_reason: bool, has_died: bool) -> None:
    async with running_cluster() as cluster:
        await full(cluster)
        daemon = cluster.daemon
        assert daemon is not None
        plans = Plans(lambda _: has_died)
        waits = known(cluster, "waits")
        plans.judge(daemon, waits, "n1", [known(cluster, "n1-0")])
        await happens(cluster)
        await cluster.seconds(3)
        plans.judge(daemon, waits, "n2", [known(cluster, "n2-0")])

        assert bool(plans.broken) == (has_died and not is_reason)


async def test_a_victim_of_two_preemptors_counts_for_neither() -> None:
    async with running_cluster() as cluster:
        await full(cluster)
        daemon = cluster.daemon
        assert daemon is not None
        plans = Plans(lambda _: True)
        cluster.add_pod("also", 500, class_name="mid")
        await cluster.seconds(3)
        for name in ("waits", "also"):
            plans.judge(daemon, known(cluster, name), "n1", [known(cluster, "n1-0")])
        plans.judge(daemon, known(cluster, "also"), "n2", [known(cluster, "n2-0")])

        assert [wrong for wrong in plans.broken if "had died" in wrong] == []
