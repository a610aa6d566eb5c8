"""Two schedulers fill one node; its kubelet refuses our pod, and the whole daemon notices (docs/spec/core.md §2.6)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.config.types import OUR_NAME, KubeSchedulerProfile
from simulator.apiserver import ApiServer, Fault
from simulator.controllers.kubelet import Kubelet
from tests.integration.daemon import Rig, rig

COUNT = 'kubestow_admission_rejections_total{profile="kubestow",reason="OutOfcpu"}'


def counted(cluster: Rig) -> float:
    """Return the metric of our pods that kubelets refused for lack of cpu."""
    lines = cluster.daemon.metrics.render().decode().splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(COUNT)), 0.0)


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


@pytest.mark.parametrize("watch_list", [True, False], ids=["with WatchList", "with paged lists"])
async def test_pods_that_failed_before_the_start_are_no_news(watch_list: bool) -> None:
    server = ApiServer(watch_list=watch_list)
    cluster = Rig(server, None)  # type: ignore[arg-type] # before there is a daemon
    cluster.node("n1", cpu="4")
    for i in range(700):
        cluster.pod(f"old-{i}", nodeName="n1")
        server.patch("pods", f"old-{i}", {"status": {"phase": "Failed", "reason": "OutOfcpu"}}, subresource="status")
    async with rig(server) as cluster:
        cluster.node("n2", cpu="500m")
        cluster.pod("p", cpu="100m")
        await cluster.bound("p")
        mirror = cluster.daemon.mirrors.reflectors["FailedPod/kubestow"]
        await cluster.until(mirror.synced.is_set, "old failures were not listed")
        await cluster.until(lambda: not len(cluster.daemon.decisions.inbox), "they were not looked at")

        assert len(mirror.store) == 700
        assert counted(cluster) == 0
        assert not cluster.daemon.decisions.refusals.held_back()
