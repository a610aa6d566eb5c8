"""Two schedulers fill one node; its kubelet refuses our pod, and the whole daemon notices (docs/spec/core.md §2.6)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.config.types import OUR_NAME, KubeSchedulerProfile
from simulator.apiserver import ApiServer, Fault
from simulator.controllers.kubelet import Kubelet
from tests.integration.daemon import Rig, rig


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
