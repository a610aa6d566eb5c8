"""One kind of fault at a time, while a burst of pods fills the cluster exactly: each pod is bound once.

tests/integration/test_daemon.py has single refusals and resets of Bindings, conditions, events and watches. Seconds are virtual."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import structlog

from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.daemon_laws import Object
from tests.integration.harness import Harness, running_cluster

NODES: Final = 4
PER_NODE: Final = 5
FITTING: Final = NODES * PER_NODE


def filled(cluster: Harness, *, from_: int = 0, to: int = FITTING) -> None:
    for i in range(from_, to):
        cluster.add_pod(f"p{i}", 500)
    if to == FITTING:
        cluster.add_pod("never", 100_000)


def with_nodes(cluster: Harness) -> None:
    for i in range(NODES):
        cluster.add_node(f"n{i}", PER_NODE * 500, "a")


async def exactly_filled(cluster: Harness) -> None:
    """Wait until the cluster is quiet; check the laws, and that all pods but the too large one are bound."""
    await cluster.settle()
    assert cluster.broken_laws() == []
    bound = {o["metadata"]["name"]: o["spec"].get("nodeName", "") for o in cluster.server.objects("pods")}
    assert [name for name, node_name in bound.items() if not node_name] == ["never"]
    assert len(bound) == FITTING + 1


BINDING: Final[Object] = {"verb": "create", "resource": "pods", "subresource": "binding"}
FAULTS: Final = {
    "bindings time out at the gateway: carried out or not": [Fault(**BINDING, status=504, times=10)],
    "the server is away for bindings, 503": [Fault(**BINDING, status=503, times=10)],
    "the server is busy for everything, 429 with Retry-After": [Fault(status=429, retry_after_s=2, times=30)],
    "everything fails, 500": [Fault(status=500, times=30)],
    "every connection is reset before anything happens": [Fault(reset="before", times=30)],
    "every connection is reset after it has happened": [Fault(reset="after", times=30)],
    "an answer is lost and the read that would settle it fails": [
        Fault(**BINDING, reset="after", times=8),
        Fault(verb="get", resource="pods", status=500, times=3),
        Fault(verb="get", resource="pods", reset="before", times=3),
    ],
    "an answer is lost and the read that would settle it is slow": [
        Fault(**BINDING, reset="after", times=5),
        Fault(verb="get", resource="pods", delay_s=9, times=5),
    ],
    "an answer is lost that was slow": [Fault(**BINDING, delay_s=5, reset="after", times=10)],
    "bindings are slow": [Fault(**BINDING, delay_s=20, times=None)],
    "everything is slow": [Fault(delay_s=3, times=60)],
    "lists and watches get 410 for their version": [
        Fault(verb="watch", status=410, times=6),
        Fault(verb="list", status=410, times=3),
    ],
    "watches get 429 with Retry-After": [Fault(verb="watch", status=429, retry_after_s=3, times=6)],
    "conditions and events are refused for good": [
        Fault(verb="patch", resource="pods", subresource="status", status=403, times=None),
        Fault(verb="create", resource="events", status=403, times=None),
    ],
    "conditions are slow": [Fault(verb="patch", resource="pods", subresource="status", delay_s=30, times=None)],
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS.keys())
async def test_requests_that_fail(faults: list[Fault]) -> None:
    """Faults begin with the first request, on a server without WatchList, so that lists can fail."""
    async with running_cluster(watch_list=False) as cluster:
        rules = [cluster.server.faults.add(dataclasses.replace(rule)) for rule in faults]
        with_nodes(cluster)
        filled(cluster)
        cluster.cut_watches("", abruptly=True)
        await until(
            lambda: all(rule.hits >= (rule.times or 1) for rule in rules), lambda: f"struck too seldom: {rules}"
        )

        await exactly_filled(cluster)


# -- trouble that goes on while the burst arrives ------------------------------------------------------------------------


def stormed(cluster: Harness) -> None:
    for what in ("heartbeats", "labels", "pods"):
        cluster.storm(what, 5)


async def drained(cluster: Harness) -> None:
    await cluster.stop_daemon()
    await cluster.start_daemon()


def silenced(cluster: Harness) -> None:
    cluster.release_watches()
    cluster.hold_watches("pods")


@pytest.mark.parametrize("watch_list", [True, False], ids=["WatchList", "paged lists"])
@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(
            lambda cluster: cluster.cut_watches("", abruptly=bool(cluster.witness.bindings % 2)),
            id="watches are cut every second",
        ),
        pytest.param(Harness.compact, id="history is compacted every second: 410"),
        pytest.param(Harness.restart_server, id="the server restarts every second"),
        pytest.param(stormed, id="a storm of heartbeats, labels and annotations every second"),
        pytest.param(Harness.crash_daemon, id="the daemon is killed every second"),
        pytest.param(drained, id="the daemon is stopped every second"),
        pytest.param(silenced, id="watches of pods lag by a second"),
    ],
)
async def test_trouble_every_second(happens: Callable[[Harness], Awaitable[None] | None], watch_list: bool) -> None:
    async with running_cluster(watch_list=watch_list) as cluster:
        with_nodes(cluster)
        for i in range(0, FITTING, 4):
            filled(cluster, from_=i, to=i + 4)
            await cluster.seconds(1)
            if (done := happens(cluster)) is not None:
                await done

        await exactly_filled(cluster)


async def test_a_lost_answer_before_a_long_outage_does_not_give_the_place_away() -> None:
    async with running_cluster() as cluster:
        cluster.add_node("n0", 1000, "a")
        lost = cluster.server.faults.add(Fault(**BINDING, name="first", delay_s=3, reset="after"))
        cluster.add_pod("first", 1000)
        await until(lambda: lost.hits == 1, lambda: "no binding")
        for i in range(3):
            cluster.add_pod(f"waits{i}", 1000)
        await cluster.seconds(1)
        for verb in ("get", "list", "watch"):
            cluster.server.faults.add(Fault(verb=verb, resource="pods", reset="before", times=None))
        cluster.server.cut_watches("pods")
        await cluster.seconds(60)
        assert {o["metadata"]["name"] for o in cluster.server.objects("pods") if o["spec"].get("nodeName")} == {"first"}

        await cluster.settle()
        assert cluster.broken_laws() == []


async def test_a_refusal_that_is_still_being_written_when_the_pod_fits() -> None:
    async with running_cluster() as cluster:
        cluster.add_node("small", 500, "a")
        slow = cluster.server.faults.add(Fault(verb="patch", resource="pods", subresource="status", delay_s=30))
        cluster.add_pod("p0", 1000)
        await until(lambda: slow.hits == 1, lambda: "no condition")
        cluster.add_node("large", 1000, "a")

        await cluster.settle()
        assert cluster.broken_laws() == []
        assert [c["status"] for c in cluster.server.get("pods", "p0")["status"]["conditions"]] == ["True"]


# -- preemption: evicted pods do not come back, so each preemptor costs exactly one victim, whatever fails -------------------

COMING: Final = 8
DELETION: Final[Object] = {"verb": "delete", "resource": "pods", "subresource": ""}
STATUS: Final[Object] = {"verb": "patch", "resource": "pods", "subresource": "status"}


async def full(cluster: Harness) -> None:
    with_nodes(cluster)
    for i in range(FITTING):
        cluster.add_pod(f"low{i}", 500)
    await cluster.settle()


def contested(cluster: Harness, *, from_: int = 0, to: int = COMING) -> None:
    """Create pods of high priority; the last come with one that is too large."""
    for i in range(from_, to):
        cluster.add_pod(f"high{i}", 500, class_name="high")
    if to == COMING:
        cluster.add_pod("large", 100_000, class_name="high")


async def exactly_displaced(cluster: Harness) -> None:
    """Wait until the cluster is quiet; check the laws, and that each victim was needed.

    Two refusals of the server may cost another victim. After a refused Binding the pod loses its nomination (docs/spec/core.md §3.8),
    and the pod that takes the place may have had a nomination elsewhere. After a refused nomination no pod is evicted for this one
    yet. If its victim is part of another pod's plan when it tries again, it finds the node full until that eviction ends, and takes another."""
    await cluster.settle()
    assert cluster.broken_laws() == []
    pods = {obj["metadata"]["name"]: obj["spec"].get("nodeName", "") for obj in cluster.server.objects("pods")}
    died = len(cluster.witness.preempted)
    assert {name for name, node_name in pods.items() if not node_name} == {"large"}
    assert len(pods) == FITTING - died + COMING + 1
    answers = cluster.server.requests()
    spare = answers["create pods/binding 500"] + min(COMING, answers["patch pods/status 500"])
    assert COMING <= died <= COMING + spare, cluster.witness.preempted


PREEMPTION_FAULTS: Final = {
    "deletions fail, 500": [Fault(**DELETION, status=500, times=10)],
    "the server is busy for deletions, 429 with Retry-After": [
        Fault(**DELETION, status=429, retry_after_s=2, times=10)
    ],
    "deletions are cut off before they are carried out": [Fault(**DELETION, reset="before", times=20)],
    "deletions are carried out and their answers lost": [Fault(**DELETION, reset="after", times=20)],
    "deletions are slow": [Fault(**DELETION, delay_s=10, times=None)],
    "conditions and nominations fail, 500": [Fault(**STATUS, status=500, times=30)],
    "conditions and nominations are lost": [
        Fault(**STATUS, reset="before", times=10),
        Fault(**STATUS, reset="after", times=10),
    ],
    "bindings are carried out and their answers lost": [Fault(**BINDING, reset="after", times=10)],
    "every write is refused once in a while": [
        Fault(**DELETION, status=500, times=20, probability=0.5),
        Fault(**STATUS, status=500, times=20, probability=0.5),
        Fault(**BINDING, status=500, times=20, probability=0.5),
    ],
    "the server is busy for everything, 429 with Retry-After": [Fault(status=429, retry_after_s=2, times=30)],
}


@pytest.mark.parametrize("faults", PREEMPTION_FAULTS.values(), ids=PREEMPTION_FAULTS.keys())
async def test_requests_that_fail_during_preemption(faults: list[Fault]) -> None:
    async with running_cluster(kubelets_grace_s=0) as cluster:
        await full(cluster)
        rules = [cluster.server.faults.add(dataclasses.replace(rule)) for rule in faults]
        contested(cluster)
        await until(lambda: all(rule.hits for rule in rules), lambda: f"struck too seldom: {rules}")
        await cluster.seconds(5)

        await exactly_displaced(cluster)


async def test_what_goes_wrong_again_and_again_is_said_once() -> None:
    with structlog.testing.capture_logs() as log:
        async with running_cluster(kubelets_grace_s=0) as cluster:
            await full(cluster)
            cluster.forbid([("delete", "pods")])
            cluster.add_pod("high", 500, class_name="high")
            await until(lambda: cluster.server.requests()["delete pods 403"] >= 5, lambda: "not tried again")
            condition = next(
                c for c in cluster.server.get("pods", "high")["status"]["conditions"] if c["type"] == "PodScheduled"
            )
            cluster.allow_all()
            await cluster.settle()
            assert cluster.broken_laws() == []
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    failed = [line for line in log if line["event"] == "preemption failed"]
    assert ["default/high"] == [line["preemptor"] for line in failed]
    assert "cannot delete" in failed[0]["error"] or "forbidden" in failed[0]["error"]
