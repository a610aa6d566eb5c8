"""Preemption by the real daemon over real sockets: the victims, the preemptor, and restarts in between (§3.10, §9.7)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from scheduler.api.apps_and_policy import DISRUPTION_TARGET
from scheduler.api.podinfo import PodInfo
from simulator.apiserver import ApiServer, Fault
from simulator.controllers.kubelet import Kubelet
from tests.integration.daemon import Rig, rig, rig_on, until
from tests.integration.daemon_laws import leftovers
from tests.integration.harness import Harness, running_cluster
from tests.integration.preemption_laws import Plans
from tests.support.invariants import Witness

Object = dict[str, Any]


def prepared() -> ApiServer:
    """Return a server with the priority class `high`."""
    server = ApiServer()
    server.create("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    return server


@contextlib.asynccontextmanager
async def stage(**victims: int) -> AsyncIterator[tuple[Rig, Kubelet, Witness]]:
    """Yield nodes full of this many victims each, `<node>-<n>` of one CPU, and kubelets that act on `step`."""
    server = prepared()
    async with rig(server) as cluster:
        witness, kubelet = Witness(server), Kubelet(server)
        for name, count in victims.items():
            cluster.node(name, cpu=str(count))
            for i in range(count):
                cluster.pod(f"{name}-{i}", cpu="1", nodeName=name)
        kubelet.step()
        yield cluster, kubelet, witness
        witness.close()


def high(cluster: Rig, cpu: str) -> None:
    cluster.pod("p", cpu=cpu, priorityClassName="high")


def victims(witness: Witness) -> list[str]:
    """Return the names of the pods that the daemon has deleted."""
    return sorted(key.partition("/")[2] for key in witness.preempted.values() if key != "default/p")


def leaving(cluster: Rig) -> list[str]:
    return sorted(p["metadata"]["name"] for p in cluster.server.list("pods") if p["metadata"].get("deletionTimestamp"))


def nominated(cluster: Rig) -> str:
    status: Object = cluster.server.get("pods", "p")["status"]
    return str(status.get("nominatedNodeName", ""))


def is_quiet(cluster: Rig) -> bool:
    return cluster.daemon.scheduler.is_idle()


# -- without trouble ---------------------------------------------------------------------------------------------------


async def test_180_victims_end_in_peace_and_the_preemptor_takes_their_place() -> None:
    async with stage(n1=2) as (cluster, kubelet, witness):
        high(cluster, "2")
        await cluster.until(lambda: len(leaving(cluster)) == 2, "not evicted")
        await cluster.until(lambda: is_quiet(cluster), "still at it")

        assert (nominated(cluster), cluster.pods()["p"]) == ("n1", "")
        assert cluster.condition("p")["message"] == (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node n1, "
            "preempting 2 victims."
        )
        for name in ("n1-0", "n1-1"):
            victim = cluster.server.get("pods", name)
            assert victim["metadata"]["deletionGracePeriodSeconds"] == 30
            told = next(c for c in victim["status"]["conditions"] if c["type"] == DISRUPTION_TARGET)
            assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
            assert told["message"] == "kubestow: preempting to accommodate a higher priority pod"

        kubelet.step()
        await cluster.bound("p")
        await cluster.until(lambda: is_quiet(cluster), "still at it")
        assert (cluster.pods(), victims(witness)) == ({"p": "n1"}, ["n1-0", "n1-1"])
        notes = {e["regarding"]["name"]: e["note"] for e in cluster.server.list("events") if e["reason"] == "Preempted"}
        uid = cluster.server.get("pods", "p")["metadata"]["uid"]
        assert notes == dict.fromkeys(("n1-0", "n1-1"), f"Preempted by pod {uid} on node n1")
        await cluster.until(lambda: not leftovers(cluster.server, cluster.daemon), "something is left")


@pytest.mark.parametrize(("spared", "evicted"), [("n1", "n2-0"), ("n2", "n1-0")])
async def test_184_a_disruption_budget_decides_the_node(spared: str, evicted: str) -> None:
    async with stage(n1=1, n2=1) as (cluster, _, _witness):
        for name in ("n1", "n2"):
            cluster.server.patch("pods", f"{name}-0", {"metadata": {"labels": {"on": name}}})
        selector = {"matchLabels": {"on": spared}}
        cluster.server.create("poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": {"selector": selector}})
        known = cluster.daemon.scheduler.cluster.disruptions
        await cluster.until(lambda: bool(known.budgets), "the budget was not seen")
        high(cluster, "1")
        await cluster.until(lambda: bool(leaving(cluster)), "not evicted")

        assert leaving(cluster) == [evicted]


# -- a daemon that is restarted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "begun"),
    [
        pytest.param(
            Fault(verb="patch", resource="pods", subresource="status", status=500, times=None),
            0,
            id="between the nomination and the first victim",
        ),
        pytest.param(
            Fault(verb="delete", resource="pods", status=429, retry_after_s=1, times=None), 1, id="between two victims"
        ),
    ],
)
async def test_a_daemon_that_comes_back_finishes_what_the_first_has_begun(fault: Fault, begun: int) -> None:
    """Both nodes would do. The nomination is stored, so no pod on the other node is evicted."""
    async with prepared() as server:
        witness = Witness(server)
        kubelet = Kubelet(server)
        async with rig_on(server) as first:
            for name in ("n1", "n2"):
                first.node(name, cpu="2")
                for i in range(2):
                    first.pod(f"{name}-{i}", cpu="1", nodeName=name)
            kubelet.step()
            faults = [
                server.faults.add(dataclasses.replace(fault, name=f"{name}-{i}"))
                for name in ("n1", "n2")
                for i in range(begun, 2)
            ]
            high(first, "2")
            await first.until(lambda: any(f.hits for f in faults) and len(leaving(first)) == begun, "not begun")
            where = nominated(first)
            await first.daemon.stop(0)
        assert (len(victims(witness)), where in {"n1", "n2"}) == (begun, True)

        server.faults.clear()
        async with Kubelet(server), rig_on(server) as second:
            await second.bound("p")
            await second.until(lambda: is_quiet(second), "still at it")

        assert second.pods()["p"] in ({where} if begun else {"n1", "n2"})
        assert victims(witness) == [f"{second.pods()['p']}-0", f"{second.pods()['p']}-1"]
        witness.close()


# -- the law about plans finds what is wrong with one ------------------------------------------------------------------


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
    scheduler = cluster.running().scheduler
    uid = cluster.server.get("pods", name)["metadata"]["uid"]
    found = scheduler.cluster.get(uid) or scheduler.shared.pending.get(f"default/{name}")
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
