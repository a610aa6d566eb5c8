"""Rows of docs/spec/core.md §9 that need answers of a server: conflicts over one pod, a node that is full, texts, a restart.

The other rows are in tests/unit/; ids begin with the row's number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.config.types import OUR_NAME, KubeSchedulerProfile
from simulator.apiserver import ApiServer, Fault
from simulator.controllers.kubelet import Kubelet
from tests.integration.daemon import Rig, rig
from tests.integration.daemon_laws import leftovers
from tests.integration.placement_laws import cache_differences

POST = "create pods/binding"


def is_quiet(cluster: Rig) -> bool:
    """Return whether the daemon has no changes to apply, pods to try, Bindings or writes."""
    return cluster.daemon.scheduler.is_idle() and not cluster.daemon.scheduler.cluster.sizes()["assumed_pods"]


# -- conflicts ---------------------------------------------------------------------------------------------------------


def bound_elsewhere(server: ApiServer) -> None:
    server.bind("p", "elsewhere")


def deleted(server: ApiServer) -> None:
    server.delete("pods", "p")


def recreated(server: ApiServer) -> None:
    old = server.get("pods", "p")
    server.patch("pods", "p", {"metadata": {"finalizers": None}})
    server.delete("pods", "p")
    server.create("pods", {"metadata": {"name": "p", "namespace": "default"}, "spec": old["spec"]})


@pytest.mark.parametrize(
    ("change", "posts", "where"),
    [
        pytest.param(bound_elsewhere, 1, "elsewhere", id="200 another scheduler has bound the pod"),
        pytest.param(deleted, 1, "", id="201 the pod is being deleted"),
        pytest.param(recreated, 2, "n1", id="203 another pod has its name"),
    ],
)
async def test_a_binding_that_comes_too_late(change: Callable[[ApiServer], None], posts: int, where: str) -> None:
    """Our watch lags: the server answers 409, and nothing is retried. A new pod of that name is tried once the watch shows it."""
    async with rig() as cluster:
        cluster.node("n1", cpu="1")
        requests = {"requests": {"cpu": "2"}}
        body = {"schedulerName": "kubestow", "containers": [{"name": "c", "image": "none", "resources": requests}]}
        metadata = {"name": "p", "namespace": "default", "finalizers": ["example.com/wait"]}
        cluster.server.create("pods", {"metadata": metadata, "spec": body})
        # The condition is written before its event.
        await cluster.until(lambda: bool(cluster.events("FailedScheduling")), "not tried")
        await cluster.until(lambda: "message" in cluster.condition("p"), "no condition")
        cluster.server.hold_watches("pods")
        change(cluster.server)
        said = len(cluster.events("FailedScheduling"))

        cluster.server.patch("nodes", "n1", {"status": {"allocatable": {"cpu": "4"}}}, subresource="status")
        await cluster.until(lambda: cluster.server.requests()[f"{POST} 409"] == 1, "no Binding was sent")
        await cluster.until(lambda: is_quiet(cluster), "still at it")
        assert cluster.daemon.scheduler.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
        assert cluster.server.requests()["get pods 200"] == 1

        cluster.server.release_watches()
        if where:
            await cluster.bound("p")
            await cluster.until(lambda: cluster.daemon.scheduler.cluster.sizes()["pods"] == 1, "not seen")
        else:
            await cluster.until(lambda: len(cluster.events("FailedScheduling")) > said, "not seen")
            assert cluster.events("FailedScheduling")[-1]["note"] == "skip schedule deleting pod: default/p"
        await cluster.until(lambda: is_quiet(cluster), "still at it")

        sent = sum(count for what, count in cluster.server.requests().items() if what.startswith(POST))
        assert (sent, cluster.pods()["p"]) == (posts, where)


# -- a node that another scheduler has filled (docs/spec/core.md §2.6) ----------------------------------------------------


def counted(cluster: Rig) -> float:
    """Return the number of our pods that kubelets refused for lack of cpu."""
    return cluster.metric("kubestow_admission_rejections_total").get(("kubestow", "OutOfcpu"), 0.0)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, "n2", id="93 its successor goes elsewhere"),
        pytest.param(
            {"profiles": (KubeSchedulerProfile(OUR_NAME, args={"Kubestow": KubestowArgs(parity=True)}),)},
            "n1",
            id="parity: where kube-scheduler would put it",
        ),
    ],
)
async def test_a_pod_that_its_kubelet_refuses(more: dict[str, Any], expected: str) -> None:
    server = ApiServer()
    on_the_wire = server.faults.add(Fault(verb="create", subresource="binding", name="ours", delay_s=0.5))
    async with rig(server, **more) as cluster, Kubelet(server):
        cluster.node("n1", cpu="4")
        cluster.node("n2", cpu="500m")
        cluster.pod("ours", cpu="3")
        await cluster.until(lambda: on_the_wire.hits > 0, "no binding was tried")
        cluster.pod("theirs", cpu="2", schedulerName="default-scheduler")
        server.bind("theirs", "n1")

        await cluster.until(lambda: counted(cluster) == 1, "the refusal was not counted")
        assert server.get("pods", "ours")["status"]["reason"] == "OutOfcpu"
        cluster.pod("successor", cpu="400m")
        await cluster.bound("successor")

        assert cluster.pods()["successor"] == expected
        assert counted(cluster) == 1


# -- texts -------------------------------------------------------------------------------------------------------------


async def test_119_a_long_message() -> None:
    names = [f"example.com/a-device-with-quite-a-long-name-{i:03}" for i in range(60)]
    async with rig() as cluster:
        cluster.node("n1")
        amounts = dict.fromkeys(names, "1")
        resources = {"requests": amounts, "limits": amounts}
        cluster.pod("p", containers=[{"name": "c", "image": "none", "resources": resources}])
        await cluster.until(lambda: "message" in cluster.condition("p"), "not tried")
        await cluster.until(lambda: bool(cluster.events("FailedScheduling")), "no event")

        message, note = cluster.condition("p")["message"], cluster.events("FailedScheduling")[0]["note"]
        reasons = ", ".join(f"1 Insufficient {name}" for name in names)
        assert message == (
            f"0/1 nodes are available: {reasons}. no new claims to deallocate, "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        assert len(message) > 3000
        assert note == message[:1020] + " ..."


# -- a restart ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forgets", [False, True], ids=["it remembers its history", "it has compacted it"])
async def test_222_the_server_restarts(forgets: bool) -> None:
    async with rig() as cluster:
        server = cluster.server
        for name in ("n1", "n2"):
            cluster.node(name, cpu="2000m", labels={"zone": "a"})
        for name, cpu in (("a", "2000m"), ("b", "2000m"), ("waits", "1000m"), ("large", "9000m")):
            cluster.pod(name, cpu=cpu)
        await cluster.bound("a", "b")
        await cluster.until(lambda: "message" in cluster.condition("waits"), "not tried")
        cluster.pod("gated", cpu="100m", schedulingGates=[{"name": "example.com/wait"}])

        await server.stop()
        server.delete("pods", "b", grace_s=0)
        server.patch("nodes", "n2", {"metadata": {"labels": {"zone": "z"}}})
        cluster.node("n3", cpu="500m", labels={"zone": "a"})
        cluster.pod("new", cpu="400m")
        if forgets:
            server.compact()
        await server.start(int(server.url.rpartition(":")[2]))

        await cluster.bound("waits", "new")
        await cluster.until(
            lambda: not cache_differences(server, cluster.daemon.scheduler.cluster), "the cache differs"
        )
        await cluster.until(lambda: not leftovers(server, cluster.daemon), "the queue differs")
        assert sorted(name for name, node in cluster.pods().items() if not node) == ["gated", "large"]
        assert server.requests()[f"{POST} 201"] == 4
