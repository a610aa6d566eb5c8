"""The kubelet: admission in order, rejections with the real kubelet's messages, and the end of deleted pods."""

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.core import NodeBuilder, PodBuilder, node, pod
from simulator.controllers.kubelet import Kubelet
from tests.support.clock import VirtualClock

SMALL = node("n").cpu("2").memory("4Gi").pods(2).resource("x.example/gpu", "1")


def started(*pods: PodBuilder, on: NodeBuilder = SMALL) -> tuple[ApiServer, Kubelet]:
    server = ApiServer(clock=VirtualClock())
    kubelet = Kubelet(server, clock=VirtualClock())
    server.create("nodes", on.obj())
    for each in pods:
        server.create("pods", each.bound_to("n").obj())
    kubelet.step()
    return server, kubelet


def phases(server: ApiServer) -> dict[str, str]:
    return {p["metadata"]["name"]: p["status"].get("reason") or p["status"]["phase"] for p in server.objects("pods")}


def test_a_pod_that_fits_runs_and_is_ready() -> None:
    server, kubelet = started(pod("a").cpu("1"))
    server.create("pods", pod("unbound").obj())
    kubelet.step()
    assert phases(server) == {"a": "Running", "unbound": "Pending"}
    conditions = {c["type"]: c["status"] for c in server.get("pods", "a")["status"]["conditions"]}
    assert conditions["Ready"] == "True"


@pytest.mark.parametrize(("late", "reason", "message"), [
    pytest.param(pod("z").cpu("1500m"), "OutOfcpu", "cpu, requested: 1500, used: 1000, capacity: 2000", id="cpu"),
    pytest.param(pod("z").memory("5Gi"), "OutOfmemory", f"memory, requested: {5 << 30}, used: 0, capacity: {4 << 30}",
        id="memory"),
    pytest.param(pod("z").req("x.example/gpu", "2"), "OutOfx.example/gpu",
        "x.example/gpu, requested: 2, used: 0, capacity: 1", id="a device"),
    pytest.param(pod("z").init_container("i", cpu="1500m"), "OutOfcpu",
        "cpu, requested: 1500, used: 1000, capacity: 2000", id="an init container"),
])  # fmt: skip
def test_a_pod_that_does_not_fit_is_rejected(late: PodBuilder, reason: str, message: str) -> None:
    server, _ = started(pod("a").cpu("1"), late)
    status = server.get("pods", "z")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert status["message"] == f"Pod was rejected: Node didn't have enough resource: {message}"
    assert phases(server)["a"] == "Running"


def test_an_extended_resource_that_the_node_does_not_have_is_not_counted() -> None:
    """Extenders such as those of GPU sharing manage resources that no node reports."""
    server, _ = started(pod("a").req("x.example/memory", "3000"))
    assert phases(server) == {"a": "Running"}


def test_too_many_pods() -> None:
    """Once a pod has finished or is gone, another one may run."""
    server, kubelet = started(pod("a"), pod("b"), pod("c"))
    assert phases(server) == {"a": "Running", "b": "Running", "c": "OutOfpods"}
    server.patch("pods", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    server.delete("pods", "b")
    kubelet.step()
    server.create("pods", pod("d").bound_to("n").obj())
    server.create("pods", pod("e").bound_to("n").obj())
    kubelet.step()
    assert phases(server) == {"a": "Succeeded", "c": "OutOfpods", "d": "Running", "e": "Running"}


def test_a_pod_waits_for_its_node() -> None:
    server = ApiServer()
    kubelet = Kubelet(server)
    server.create("pods", pod("a").bound_to("n").obj())
    kubelet.step()
    assert phases(server) == {"a": "Pending"}
    server.create("nodes", node("n").obj())
    kubelet.step()
    assert phases(server) == {"a": "Running"}


async def test_a_deleted_pod_keeps_its_place_during_its_grace_period() -> None:
    clock = VirtualClock()
    server = ApiServer(clock=clock)
    server.create("nodes", SMALL.obj())
    async with Kubelet(server, clock=clock, grace_used_s=10):
        server.create("pods", pod("a").bound_to("n").obj())
        await clock.settle()
        assert phases(server) == {"a": "Running"}
        server.delete("pods", "a")
        await clock.advance(9)
        assert phases(server) == {"a": "Running"}
        await clock.advance(1)
        assert phases(server) == {}


async def test_a_pod_with_a_finalizer_is_stopped_once() -> None:
    clock = VirtualClock()
    server = ApiServer(clock=clock)
    server.create("nodes", SMALL.obj())
    async with Kubelet(server, clock=clock, grace_used_s=10) as kubelet:
        server.create("pods", pod("a").bound_to("n").set({"metadata": {"finalizers": ["example.com/x"]}}).obj())
        await clock.settle()
        server.delete("pods", "a")
        await clock.advance(10)
        assert phases(server) == {"a": "Running"}
        await clock.advance(60)
        assert kubelet.step() == 0
        server.patch("pods", "a", {"metadata": {"finalizers": None}})
        await clock.settle()
        assert phases(server) == {}
