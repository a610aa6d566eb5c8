"""Rows 148-179 of docs/spec/core.md §9 through the whole decision side: what the pod is told, and what wakes it.

The plugins' own tables are in tests/unit/plugins/. Ids begin with the row's number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.config.args import NodeResourcesFitArgs, default_args
from scheduler.config.types import Configuration, Profile
from scheduler.core.decode import from_manifest
from scheduler.core.deltas import Delta
from scheduler.core.namespace import Namespace
from scheduler.core.nodeset import NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import Groups
from scheduler.framework.state import CycleState
from tests.unit.brain import Brain
from tests.unit.scenarios.seen import HOST, also_filtering, attempts, beside, pinned, requests
from tests.unit.toys import Refuses

NO, FINAL = "Unschedulable", "UnschedulableAndUnresolvable"
GPU = "example.com/gpu"
TAINT = [{"key": "gpu", "effect": "NoSchedule"}]
OTHERS: dict[str, Any] = {"scheduler": "default-scheduler"}


def host_port(port: int, protocol: str = "TCP", ip: str = "") -> dict[str, Any]:
    """A pod's spec: one container on this port of its node."""
    return {"containers": [{"name": "c", "ports": [{"hostPort": port, "protocol": protocol, "hostIP": ip}]}]}


# -- what the pod is told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "there", "pod", "told"),
    [
        pytest.param(
            {"unschedulable": True},
            [],
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            None,
            id="148 a cordon that the pod tolerates",
        ),
        pytest.param(
            {"taints": [{"key": "gpu", "effect": "NoExecute"}]},
            [],
            {},
            (FINAL, "node(s) had untolerated taint(s)"),
            id="152 a NoExecute taint",
        ),
        pytest.param({}, [], pinned("n1"), None, id="157 a DaemonSet's pod on its node"),
        pytest.param({}, [host_port(80, ip="127.0.0.1")], host_port(80, "UDP"), None, id="160 another protocol"),
        pytest.param(
            {},
            [host_port(80, ip="127.0.0.1")],
            host_port(80),
            (NO, "node(s) didn't have free ports for the requested pod ports"),
            id="160 all addresses against one of them",
        ),
        pytest.param({"pods": "2"}, [{}, {}], {}, (NO, "Too many pods"), id="161 as many pods as a node may have"),
        pytest.param(
            {}, [{"cpu": "3"}], {"cpu": "2"}, (NO, "Insufficient cpu"), id="162 what others hold could be freed"
        ),
        pytest.param({}, [], {"cpu": "5"}, (FINAL, "Insufficient cpu"), id="162 more than the whole node cannot"),
        pytest.param({}, [], requests(**{GPU: "1"}), (FINAL, f"Insufficient {GPU}"), id="163 a resource it lacks"),
        pytest.param({}, [{"cpu": "9"}], {}, None, id="165 an over-committed node takes a pod that asks for nothing"),
        pytest.param(
            {},
            [{"labels": {"app": "web"}}],
            beside("web", away=True),
            (NO, "node(s) didn't match pod anti-affinity rules"),
            id="179 a pod that is in the way can be evicted",
        ),
        pytest.param(
            {},
            [beside("web", away=True)],
            {"labels": {"app": "web"}},
            (NO, "node(s) didn't satisfy existing pods anti-affinity rules"),
            id="179 and so can one that keeps others away",
        ),
        pytest.param(
            {},
            [],
            beside("web"),
            (FINAL, "node(s) didn't match pod affinity rules"),
            id="179 a pod that is missing cannot be evicted",
        ),
    ],
)
async def test_one_node(
    node: dict[str, Any], there: list[dict[str, Any]], pod: dict[str, Any], told: tuple[str, str] | None
) -> None:
    """Refused with upstream's text and code, which tells preemption whether to look at the node; or bound (None)."""
    brain = Brain()
    brain.node("n1", labels={HOST: "n1"}, **node)
    for i, spec in enumerate(there):
        brain.pod(f"there-{i}", on="n1", **OTHERS, **spec)
    brain.pod("p", **pod)
    await brain.settle()

    if told is None:
        assert brain.writer.binds == [("default/p", "n1")]
        return
    assert brain.refusal("p") == f"0/1 nodes are available: 1 {told[1]}."
    record = brain.parts.records.latest("default/p")
    assert record is not None
    assert [group.code for group in record.groups] == [told[0]]


async def test_158_pins_that_exclude_each_other() -> None:
    """No node is asked, and PostFilter misses what PreFilter did not come to, as upstream's does."""
    brain = Brain()
    brain.node("n1")
    terms = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("n1", "n2")]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [terms]}}
    brain.pod("p", affinity={"nodeAffinity": required})
    await brain.settle()

    assert brain.message("p") == "0/1 nodes are available: pod affinity terms conflict. not found"


@dataclass
class Counts(Refuses):
    """A filter that refuses nobody and notes how many nodes reach it."""

    most: int = 0

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        self.most = max(self.most, nodes.bit_count())
        return {}


async def test_157_of_many_nodes_one_is_filtered() -> None:
    """A DaemonSet's pod costs one node's work, however large the cluster."""
    brain = Brain()
    counts = Counts("C")
    also_filtering(brain, counts)
    for i in range(100):
        brain.node(f"n{i}")
    brain.pod("p", **pinned("n42"))
    await brain.settle()

    assert (counts.most, brain.writer.binds) == (1, [("default/p", "n42")])


async def test_164_a_resource_group_that_is_somebody_elses_business() -> None:
    """No node has it, and nobody asks."""
    args = {**default_args(), NodeResourcesFitArgs.plugin: NodeResourcesFitArgs((), ("example.com",))}
    brain = Brain(Configuration(profiles=(Profile("kubestow", args=args),)))
    brain.node("n1")
    brain.pod("p", **requests(**{GPU: "1"}))
    await brain.settle()

    assert brain.writer.binds == [("default/p", "n1")]


async def test_176_the_first_of_a_group() -> None:
    """It may go wherever the key is, the others where it went; a node without the key takes none."""
    brain = Brain()
    brain.node("n1", labels={"zone": "a"}, cpu="2")
    brain.node("n2", cpu="64")
    for name in ("p", "q"):
        brain.pod(name, cpu="1", labels={"app": "web"}, **beside("web", key="zone"))
    await brain.settle()

    assert brain.writer.binds == [("default/p", "n1"), ("default/q", "n1")]
    brain.pod("r", cpu="1", labels={"app": "web"}, **beside("web", key="zone"))
    await brain.settle()
    assert brain.refusal("r") == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod affinity rules."
    )


@pytest.mark.parametrize(
    ("team", "bound"),
    [
        pytest.param("a", False, id="177 a pod that keeps a team's pods away, and the pod's namespace is the team's"),
        pytest.param("b", True, id="177 and the namespace is another team's"),
    ],
)
async def test_a_rule_about_namespaces(team: str, bound: bool) -> None:
    """The labels that count are those of the incoming pod's namespace."""
    brain = Brain()
    own = from_manifest(Namespace, {"metadata": {"name": "default", "labels": {"team": team}}})
    brain.parts.intake.apply("Namespace", [Delta(None, own)])
    brain.node("n1", labels={HOST: "n1"})
    rule = {
        "topologyKey": HOST,
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    brain.pod("there", on="n1", affinity=affinity, **OTHERS)
    brain.pod("p", labels={"app": "web"})
    await brain.settle()

    assert brain.writer.binds == ([("default/p", "n1")] if bound else [])


async def test_178_replicas_that_avoid_each_other() -> None:
    """One per node, though one node has room for all; the third waits."""
    brain = Brain()
    brain.node("n1", labels={HOST: "n1"}, cpu="64")
    brain.node("n2", labels={HOST: "n2"})
    for name in ("p", "q", "r"):
        brain.pod(name, cpu="1", labels={"app": "web"}, **beside("web", away=True))
    await brain.settle()

    assert brain.writer.binds == [("default/p", "n1"), ("default/q", "n2")]
    assert brain.refusal("r") == "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."


# -- what wakes it -----------------------------------------------------------------------------------------------------


def closed(brain: Brain) -> None:
    brain.node("n1", unschedulable=True)


def small(brain: Brain) -> None:
    brain.node("n1", cpu="1")


def full(brain: Brain) -> None:
    brain.node("n1")
    brain.pod("there", on="n1", **OTHERS, **requests(cpu="3", memory="4Gi"))


def scaled(brain: Brain, **amounts: str) -> None:
    brain.pod("there", on="n1", **OTHERS, **requests(**amounts))


@pytest.mark.parametrize(
    ("before", "event", "tried"),
    [
        pytest.param(closed, lambda brain: brain.node("n1"), True, id="149 a node is uncordoned"),
        pytest.param(small, lambda brain: brain.node("n1", cpu="1", unschedulable=True), False, id="150 cordoned"),
        pytest.param(small, small, False, id="151 a heartbeat"),
        pytest.param(small, lambda brain: brain.node("n2", cpu="1"), False, id="166 a node that is too small came"),
        pytest.param(small, lambda brain: brain.node("n2", cpu="2"), True, id="166 one that is large enough came"),
        pytest.param(
            small,
            lambda brain: brain.node("n1", cpu="1", pods="110", labels={"a": "b"}),
            False,
            id="a label that nobody asked for came",
        ),
        pytest.param(
            full, lambda brain: scaled(brain, cpu="3", memory="1Gi"), False, id="168 a neighbour gave up memory"
        ),
        pytest.param(full, lambda brain: scaled(brain, cpu="1", memory="4Gi"), True, id="168 a neighbour gave up cpu"),
    ],
)
async def test_an_event(before: Callable[[Brain], None], event: Callable[[Brain], None], tried: bool) -> None:
    """A pod that wants two cpus is tried again exactly when the event can have made room for it."""
    brain = Brain()
    before(brain)
    brain.pod("p", cpu="2")
    await brain.settle()
    await brain.later(20)
    assert brain.places() == {"p": "unschedulable"}

    event(brain)
    await brain.settle()

    assert attempts(brain, "p") == 1 + tried
    assert bool(brain.writer.binds) == tried


@pytest.mark.parametrize(
    ("grown", "tried"),
    [
        pytest.param({"memory": "64Gi"}, False, id="167 more of what the pod does not want"),
        pytest.param({"cpu": "2"}, True, id="167 more of what it wants"),
        pytest.param({"cpu": "1500m"}, False, id="167 more of it, and not enough"),
    ],
)
async def test_a_node_grows(grown: dict[str, str], tried: bool) -> None:
    """Allocatable is looked at by resource."""
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.pod("p", cpu="2")
    await brain.settle()
    await brain.later(20)

    brain.node("n1", **{"cpu": "1", **grown})
    await brain.settle()

    assert attempts(brain, "p") == 1 + tried


async def test_153_of_a_hundred_tainted_nodes_one_is_freed() -> None:
    """Ninety-nine changes that leave their node tainted wake nobody."""
    brain = Brain()
    for i in range(100):
        brain.node(f"n{i}", taints=TAINT)
    brain.pod("p")
    await brain.settle()
    await brain.later(20)

    for i in range(99):
        brain.node(f"n{i}", taints=[*TAINT, {"key": "more", "effect": "NoSchedule"}])
    await brain.settle()
    assert attempts(brain, "p") == 1
    brain.node("n99")
    await brain.settle()

    assert (attempts(brain, "p"), brain.writer.binds) == (2, [("default/p", "n99")])
