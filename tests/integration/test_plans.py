"""The checks of preemption plans: they accept a good plan and name the defect of each other plan."""

from __future__ import annotations

from collections.abc import Callable

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
    decisions = cluster.running().decisions
    uid = cluster.server.get("pods", name)["metadata"]["uid"]
    found = decisions.cluster.get(uid) or decisions.shared.pending.get(f"default/{name}")
    assert found is not None
    return found


async def test_the_defect_of_a_plan_is_named() -> None:
    not_all, equal, gone = "they are not all on the node", "one of them is not less important", "the node is not there"
    async with running_cluster() as cluster:
        await full(cluster)
        assert cluster.plans.broken == []
        for node_name, victims, wrong in (
            ("n1", ["n1-0"], []),
            ("n1", ["n1-1"], [TOO_FEW]),
            ("n1", ["n1-0", "n1-1"], [NOT_NEEDED]),
            ("n2", ["n1-0"], [not_all, TOO_FEW]),
            ("n3", ["equal"], [equal]),
            ("gone", ["n1-0"], [gone]),
        ):
            plans = Plans(lambda _: True)
            judge(plans, cluster, "waits", node_name, *victims)

            says = f"for default/waits on {node_name} were to die {[f'default/{name}' for name in victims]}: "
            assert plans.broken == [says + each for each in wrong]


def judge(plans: Plans, cluster: Harness, preemptor: str, node_name: str, *victims: str) -> None:
    plans.judge(cluster.running(), known(cluster, preemptor), node_name, [known(cluster, name) for name in victims])


@pytest.mark.parametrize(
    ("happens", "is_reason"),
    [
        pytest.param(lambda cluster: cluster.add_node("n4", 50, "b"), False, id="another node came"),
        pytest.param(lambda cluster: cluster.cordon_node(0, True), True, id="the first node was cordoned"),
        pytest.param(lambda cluster: cluster.protect("red", 1), True, id="there is a new budget"),
    ],
)
async def test_another_node_needs_a_reason_once_a_victim_was_deleted(
    happens: Callable[[Harness], None], is_reason: bool
) -> None:
    async with running_cluster() as cluster:
        await full(cluster)
        cautious, careless, of_two = Plans(lambda _: True), Plans(lambda _: False), Plans(lambda _: True)
        judge(of_two, cluster, "equal", "n1", "n1-0")  # a victim of two preemptors counts for neither
        for plans in (cautious, careless, of_two):
            judge(plans, cluster, "waits", "n1", "n1-0")
        happens(cluster)
        await cluster.seconds(3)
        for plans in (cautious, careless, of_two):
            judge(plans, cluster, "waits", "n2", "n2-0")

        found = [any("had died" in each for each in plans.broken) for plans in (cautious, careless, of_two)]
        assert found == [not is_reason, False, False]
