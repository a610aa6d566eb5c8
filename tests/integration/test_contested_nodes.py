"""Another scheduler binds a pod to our node while the watch of pods is held back (docs/spec/core.md §2.6, docs/adr/0017)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from simulator.apiserver import Fault
from tests.integration.daemon import Rig, rig


@contextlib.asynccontextmanager
async def two_schedulers(*, binds: bool = True) -> AsyncIterator[Rig]:
    """A pod of ours waits for a node. Another scheduler has filled the only node, and its next pod waits as well."""
    async with rig() as run:
        await run.until(lambda: run.daemon.is_synced, "the informers are synced")
        run.node("n0", cpu="1")
        theirs = {"schedulerName": "theirs"}
        run.pod("first", "1", **theirs)
        run.pod("q", "1", **theirs)
        if binds:
            run.server.bind("first", "n0")
        else:
            run.pod("direct", "1", **theirs, nodeName="n0")
        await run.until(lambda: run.daemon.decisions.cluster.sizes()["pods"] == 1, "the first pod is seen")
        run.pod("p", "1")
        await run.until(lambda: bool(run.condition("p")), "the pod waits")
        run.server.hold_watches("pods")
        yield run


def lists_of_pods(run: Rig) -> int:
    """Lists that were answered; only reads of nodes and the informer's first list send one."""
    return sum((each.request.verb, each.request.resource) == ("list", "pods") for each in run.server.log)


async def test_the_pod_is_refused() -> None:
    async with two_schedulers() as run:
        run.server.bind("q", "n1")
        run.node("n1", cpu="1")
        conflicts = "kubestow_binding_conflicts_total"
        await run.until(lambda: run.metric(conflicts).get(("node",)) == 1, "the pod is refused")
        run.server.release_watches()
        run.node("n2", cpu="1")
        await run.bound("p")

        assert run.pods()["p"] == "n2"


@pytest.mark.parametrize("fault", [
    pytest.param(Fault(status=500), id="500"),
    pytest.param(Fault(status=429, retry_after_s=60), id="429"),
    pytest.param(Fault(reset="before"), id="reset"),
    pytest.param(Fault(delay_s=60), id="no answer"),
])  # fmt: skip
async def test_the_pod_is_bound_if_the_read_fails(fault: Fault) -> None:
    async with two_schedulers() as run:
        fault.verb, fault.resource, fault.times = "list", "pods", None
        run.server.faults.add(fault)
        run.server.bind("q", "n1")
        run.node("n1", cpu="1")
        await run.until(lambda: run.pods()["p"] == "n1", "the pod is bound without a read")

        assert run.metric("kubestow_node_reads_total")["failed",] == 1


async def test_no_request_is_sent_where_no_other_scheduler_binds() -> None:
    async with two_schedulers(binds=False) as run:
        before = lists_of_pods(run)
        run.node("n1", cpu="1")
        await run.until(lambda: run.pods()["p"] == "n1", "the pod is bound")

        assert lists_of_pods(run) == before
        assert sum(run.metric("kubestow_node_reads_total").values()) == 0
