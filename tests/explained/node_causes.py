"""Causes in nodes, in other pods and in the pod itself. Each function completes the base, yields, and plants its cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from simulator.builders.core import PodBuilder, pod
from tests.explained.draft import ELSEWHERE, GPU, HOSTNAME, POD, ZONE, Draft

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_CORDON: Final = "node.kubernetes.io/unschedulable"
_HARD: Final[dict[str, Any]] = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
_PORT: Final = 8080
_COMPONENT_TAINTS: Final = (
    *("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.cilium.io/agent-not-ready"),
    *("node.cluster.x-k8s.io/uninitialized", "node.kubernetes.io/not-ready", "agent.example.com/starting"),
)
_COMPONENT_LABEL: Final = "provider.example.com/size"


def cpu(c: Draft) -> Iterator[None]:
    """All nodes have too little cpu left."""
    yield
    for at in c.names:
        c.fill(at, "cpu", c.dice.randrange(0, c.cpu, 50), c.dice.randint(1, 3))


def memory(c: Draft) -> Iterator[None]:
    """All nodes have too little memory left."""
    yield
    for at in c.names:
        c.fill(at, "memory", c.dice.randrange(0, c.memory, 64), c.dice.randint(1, 3))


def cpu_and_memory(c: Draft) -> Iterator[None]:
    """Some nodes have too little cpu left, the other ones too little memory, and some have neither."""
    yield
    for at in c.names:
        which = c.dice.choice((("cpu",), ("memory",), ("cpu", "memory")))
        for resource in which:
            c.fill(at, resource, c.dice.randrange(64, getattr(c, resource), 64), c.dice.randint(1, 2))


def extended_resource(c: Draft) -> Iterator[None]:
    """All nodes have too few GPUs left."""
    wanted = c.dice.randint(2, 4)
    c.pod = c.pod.extended(GPU, str(wanted))
    for at in c.names:
        c.nodes[at] = c.nodes[at].resource(GPU, "4")
        c.left[at].gpu = 4
    yield
    for at in c.names:
        c.fill(at, "gpu", c.dice.randrange(0, wanted), c.dice.randint(1, 2))


def pod_slots(c: Draft) -> Iterator[None]:
    """All nodes have as many pods as they take."""
    for at in c.names:
        for _ in range(c.dice.randint(1, 2)):
            c.put(at, cpu=50)
    yield
    for at in c.names:
        c.nodes[at] = c.nodes[at].pods(20 - c.left[at].pods)


def taint(c: Draft) -> Iterator[None]:
    """All nodes have a taint that the pod does not tolerate."""
    c.pod = c.pod.toleration("batch")
    yield
    for at in c.names:
        value, effect = c.dice.choice(("", "x", "y")), c.dice.choice(("NoSchedule", "NoExecute"))
        c.nodes[at] = c.nodes[at].taint(c.dice.choice(("team", "dedicated")), value=value, effect=effect)


def two_taints(c: Draft) -> Iterator[None]:
    """All nodes have one or two taints, one of them everywhere."""
    yield
    for at in c.names:
        c.nodes[at] = c.nodes[at].taint("team", value="a")
        if c.dice.random() < 0.6:
            c.nodes[at] = c.nodes[at].taint("maintenance", effect="NoExecute")


def component_taint(c: Draft) -> Iterator[None]:
    """Some nodes start or leave, by the taints of a component, and the other ones have too little cpu left."""
    yield
    leaving = c.some_nodes()
    for at in c.names:
        if at in leaving:
            c.nodes[at] = c.nodes[at].taint(c.dice.choice(_COMPONENT_TAINTS), effect="NoSchedule")
        else:
            c.fill(at, "cpu", c.dice.randrange(0, c.cpu, 50), c.dice.randint(1, 3))


def component_label(c: Draft) -> Iterator[None]:
    """No node has a label that a component sets."""
    for at in c.names:
        c.nodes[at] = c.nodes[at].label(_COMPONENT_LABEL, "large")
    c.pod = c.pod.node_selector({_COMPONENT_LABEL: "large"})
    yield
    for at in c.names:
        c.nodes[at] = c.nodes[at].label(_COMPONENT_LABEL, "small")


def cordon(c: Draft) -> Iterator[None]:
    """All nodes are cordoned, with or without the taint of the node lifecycle controller."""
    yield
    for at in c.names:
        c.nodes[at] = c.nodes[at].unschedulable()
        if c.dice.random() < 0.5:
            c.nodes[at] = c.nodes[at].taint(_CORDON)


def selector(c: Draft) -> Iterator[None]:
    """No node has the labels of the nodeSelector."""
    for at in c.names:
        c.nodes[at] = c.nodes[at].label("disk", "ssd")
    c.pod = c.pod.node_selector(disk="ssd")
    yield
    if c.dice.random() < 0.5:
        c.pod = c.pod.node_selector({"team": "a", "disk": "ssd"})
    else:
        for at in c.names:
            c.nodes[at] = c.nodes[at].label("disk", c.dice.choice(("hdd", "nvme")))


def affinity(c: Draft) -> Iterator[None]:
    """No node satisfies the required node affinity: one term or two, of one expression or two."""
    c.pod = c.pod.node_affinity("gen", "Gt", "0")
    yield
    wrong: list[dict[str, Any]] = [
        {"key": "gen", "operator": "Gt", "values": ["8"]},
        {"key": "disk", "operator": "In", "values": ["nvme", "optane"]},
        {"key": "rack", "operator": "Exists"},
        {"key": "gen", "operator": "DoesNotExist"},
        {"key": ZONE, "operator": "NotIn", "values": ["a", "b", "c"]},
    ]
    right: list[dict[str, Any]] = [
        {"key": "gen", "operator": "Lt", "values": ["9"]},
        {"key": ZONE, "operator": "Exists"},
    ]
    terms = [
        {"matchExpressions": [c.dice.choice(wrong), *([c.dice.choice(right)] if c.dice.random() < 0.5 else [])]}
        for _ in range(c.dice.randint(1, 2))
    ]
    c.pod = c.pod.affinity({"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}})


def pod_affinity(c: Draft) -> Iterator[None]:
    """No pod exists that one or two required terms of the pod affinity select."""
    labels = [{"app": "db"}, {"tier": "store"}][: c.dice.randint(1, 2)]
    for at in c.some_nodes():
        c.put(at, cpu=50, like=pod("x").label("app", "db").label("tier", "store"))
    c.pod = c.pod.affinity({"podAffinity": _near(c.dice.choice((HOSTNAME, ZONE)), *labels)})
    yield
    c.pods = {name: each for name, each in c.pods.items() if each.obj()["metadata"]["labels"].get("app") != "db"}


def anti_affinity(c: Draft) -> Iterator[None]:
    """All domains have a pod that a required term of the pod's anti-affinity selects."""
    apps = ("db", "cache")[: c.dice.randint(1, 2)]
    c.pod = c.pod.affinity({"podAntiAffinity": _near(c.dice.choice((HOSTNAME, ZONE)), *({"app": app} for app in apps))})
    yield
    for at in c.names:
        for _ in range(c.dice.randint(1, 2)):
            c.put(at, cpu=50, like=pod("x").label("app", c.dice.choice(apps)))


def kept_away(c: Draft) -> Iterator[None]:
    """All domains have a pod whose required anti-affinity selects the pod."""
    yield
    away = pod("x").label("app", "db").affinity({"podAntiAffinity": _near(HOSTNAME, {"app": POD})})
    for at in c.names:
        c.put(at, cpu=50, like=away)


def spread(c: Draft) -> Iterator[None]:
    """The zone that may take the pod has too little cpu, and all other zones have too many of its pods."""
    first, second, *_ = c.names
    _in_zone(c, first, "a")
    _in_zone(c, second, "b")
    rule: dict[str, Any] = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    c.pod = c.pod.set(
        {"spec": {"topologySpreadConstraints": [rule | {"labelSelector": {"matchLabels": {"app": POD}}}]}}
    )
    yield
    for at in c.names:
        if c.zones[at] == "a":
            c.fill(at, "cpu", c.dice.randrange(0, c.cpu, 50))
        else:
            for _ in range(c.dice.randint(1, 3)):
                c.put(at, cpu=50, like=pod("x").label("app", POD))


def _in_zone(c: Draft, at: str, zone: str) -> None:
    c.nodes[at] = c.nodes[at].label(ZONE, zone)
    c.zones[at] = zone


def spread_min_domains(c: Draft) -> Iterator[None]:
    """No node has the topology key of the spread constraint, which has minDomains."""
    yield from _spread_over_racks(c, _HARD | {"minDomains": c.dice.randint(1, 3)})


def spread_hard_and_soft(c: Draft) -> Iterator[None]:
    """No node has the topology key of a hard constraint, next to which the pod has a soft one with this key."""
    rules = [_HARD, _HARD | {"whenUnsatisfiable": "ScheduleAnyway"}]
    c.dice.shuffle(rules)
    yield from _spread_over_racks(c, *rules)


def spread_label(c: Draft) -> Iterator[None]:
    """No node has the topology key of the spread constraint."""
    yield from _spread_over_racks(c, _HARD)


def _spread_over_racks(c: Draft, *rules: dict[str, Any]) -> Iterator[None]:
    for at in c.names:
        c.nodes[at] = c.nodes[at].label("rack", c.dice.choice("rs"))
    selecting = {"labelSelector": {"matchLabels": {"app": POD}}}
    c.pod = c.pod.set({"spec": {"topologySpreadConstraints": [rule | selecting for rule in rules]}})
    yield
    for at in c.names:
        c.nodes[at] = c.nodes[at].set({"metadata": {"labels": {"rack": None}}})


def host_port(c: Draft) -> Iterator[None]:
    """All nodes have a pod with the host port."""
    c.pod = c.pod.host_port(_PORT)
    yield
    for at in c.names:
        c.put(at, cpu=50, like=pod("x").host_port(_PORT))


def nominated_capacity(c: Draft) -> Iterator[None]:
    """The free cpu of all nodes is kept for nominated pods of higher priority."""
    yield
    for number, at in enumerate(c.names):
        spare = c.left[at].cpu - c.dice.randrange(0, c.cpu, 50)
        if spare > 0:
            name = f"nominated-{number}"
            made = pod(name).cpu(f"{spare}m").priority_class("p1000").scheduler(ELSEWHERE)
            c.pods[name] = made.nominated_to(at).label("app", "nominated")


def gate(c: Draft) -> Iterator[None]:
    """The pod has one or two scheduling gates."""
    yield
    for name in ("quota", "review")[: c.dice.randint(1, 2)]:
        c.pod = c.pod.gate(name)


def _near(key: str, *labels: dict[str, str]) -> dict[str, Any]:
    return {_REQUIRED: [{"labelSelector": {"matchLabels": each}, "topologyKey": key} for each in labels]}


def second_cause(c: Draft) -> None:
    """Give some nodes, but not all, one more reason to reject the pod."""
    which = c.dice.choice(("taint", "cordon", "cpu", "selector", "port"))
    if which == "selector":
        c.pod = c.pod.node_selector({"pool": "batch"})
        for at in c.some_nodes():
            c.nodes[at] = c.nodes[at].label("pool", "batch")
        return
    if which == "port":
        c.pod = c.pod.host_port(9090)
    for at in c.some_nodes():
        _block(c, at, which)


def _block(c: Draft, at: str, which: str) -> None:
    holder: PodBuilder = pod("x").host_port(9090)
    if which == "taint":
        c.nodes[at] = c.nodes[at].taint("second", value="b")
    elif which == "cordon":
        c.nodes[at] = c.nodes[at].unschedulable()
    elif which == "cpu":
        c.fill(at, "cpu", c.dice.randrange(0, c.cpu, 50))
    else:
        c.put(at, like=holder)
