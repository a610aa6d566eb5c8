"""Builders: immutable, plain manifests, and what `core` makes of them."""

from scheduler.core.podinfo import pod_info
from scheduler.testing.builders import node, pod


def test_every_call_makes_a_new_builder() -> None:
    """A base can be shared, and a manifest belongs to whoever asked for it."""
    base = pod("a").cpu("1")
    big = base.cpu("2").label("x", "y")
    assert base.obj()["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert "labels" not in base.obj()["metadata"]
    big.obj()["metadata"]["labels"]["x"] = "changed"
    assert big.obj()["metadata"]["labels"] == {"x": "y"}


def test_a_pod_with_everything_decodes() -> None:
    """All of it arrives in the typed pod."""
    typed = (
        pod("a", "ns")
        .cpu("500m")
        .memory("1Gi")
        .req("x.example/gpu", "2")
        .container("side", cpu="1")
        .init_container("init", cpu="3")
        .overhead(cpu="100m")
        .node_selector({"kubernetes.io/os": "linux"}, disk="ssd")
        .node_affinity("zone", "In", "a", "b")
        .preferred_node_affinity(5, "zone", "In", "a")
        .toleration("k", value="v", effect="NoSchedule")
        .toleration()
        .host_port(80)
        .priority(7)
        .gate("g")
        .pvc("claim")
        .nominated_to("n")
        .typed()
    )
    info = pod_info(typed)
    assert info.requests == {"cpu": 3100, "memory": 1 << 30, "x.example/gpu": 2}
    assert [port.port for port in info.host_ports] == [80]
    spec = typed.spec
    assert (spec.scheduler_name, spec.node_selector) == ("kubestow", {"kubernetes.io/os": "linux", "disk": "ssd"})
    assert [t.operator for t in spec.tolerations] == ["Equal", "Exists"]
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    assert len(spec.affinity.node_affinity.preferred) == 1
    assert (typed.priority, spec.scheduling_gates[0].name, typed.status.nominated_node_name) == (7, "g", "n")


def test_a_node_with_everything_decodes() -> None:
    """Allocatable, labels, taints."""
    typed = (
        node("n").cpu("4").memory("8Gi").pods(10).label("zone", "a").taint("k", value="v").unschedulable().image("i", size_bytes=5).typed()
    )  # fmt: skip
    assert typed.status.allocatable["pods"].value == 10
    assert (typed.metadata.labels["zone"], typed.spec.taints[0].effect, typed.spec.unschedulable) == (
        "a",
        "NoSchedule",
        True,
    )
    assert typed.status.images[0].size_bytes == 5
