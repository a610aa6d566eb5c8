"""One kind of fault at a time, while pods of high priority preempt pods in a full cluster.

Evicted pods do not come back, so each preemptor costs exactly one victim, whatever fails. Seconds are virtual."""

from __future__ import annotations

import dataclasses
from typing import Final

import pytest
import structlog

from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.daemon_laws import Object
from tests.integration.harness import Harness, running_cluster
from tests.integration.test_faults import BINDING

NODES: Final = 4
PER_NODE: Final = 5
COMING: Final = 8
DELETION: Final[Object] = {"verb": "delete", "resource": "pods", "subresource": ""}
STATUS: Final[Object] = {"verb": "patch", "resource": "pods", "subresource": "status"}


async def full(cluster: Harness) -> None:
    for i in range(NODES):
        cluster.add_node(f"n{i}", PER_NODE * 500, "a")
    for i in range(NODES * PER_NODE):
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

    Only a Binding that the server refuses may cost another victim: the pod loses its nomination (docs/spec/core.md §3.8), and the
    pod that takes the place may have had a nomination elsewhere."""
    await cluster.settle()
    assert cluster.broken_laws() == []
    pods = {obj["metadata"]["name"]: obj["spec"].get("nodeName", "") for obj in cluster.server.objects("pods")}
    died = len(cluster.witness.preempted)
    assert {name for name, node_name in pods.items() if not node_name} == {"large"}
    assert len(pods) == NODES * PER_NODE - died + COMING + 1
    assert COMING <= died <= COMING + cluster.server.requests()["create pods/binding 500"], cluster.witness.preempted


FAULTS: Final = {
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


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS.keys())
async def test_requests_that_fail(faults: list[Fault]) -> None:
    async with running_cluster(kubelets_grace_s=0) as cluster:
        await full(cluster)
        rules = [cluster.server.faults.add(dataclasses.replace(rule)) for rule in faults]
        contested(cluster)
        await until(lambda: all(rule.hits for rule in rules), lambda: f"struck too seldom: {rules}")
        await cluster.seconds(5)

        await exactly_displaced(cluster)


# -- trouble that goes on while they arrive ------------------------------------------------------------------------------


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
