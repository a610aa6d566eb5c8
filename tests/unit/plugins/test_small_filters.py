"""NodeName, NodeUnschedulable, TaintToleration and NodePorts, and hints of these and NodeResourcesFit: docs/spec/core.md §5.1–§5.3, §5.10."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster_events import ASSIGNED_POD_DELETE as GONE, NODE_ADD, Action, ClusterEvent, Resource
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.status import SKIP, Code
from scheduler.plugins.nodename import NodeName
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.nodeunschedulable import NodeUnschedulable
from scheduler.plugins.tainttoleration import TaintToleration
from tests.unit.objects import cluster, handle, info, node, ports
from tests.unit.plugins.ask import hinted, refused, scored

TAINTS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
CORDON_ONLY = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}

UNSCHEDULABLE = (Code.UNRESOLVABLE, ("node(s) were unschedulable",))
TAINTED = (Code.UNRESOLVABLE, ("node(s) had untolerated taint(s)",))
NAMED = (Code.UNRESOLVABLE, ("node(s) didn't match the requested node name",))
PORTS = (Code.UNSCHEDULABLE, ("node(s) didn't have free ports for the requested pod ports",))


@pytest.mark.parametrize(
    ("spec", "out"),
    [
        pytest.param({"on": "n1"}, {"n2": NAMED}, id="all other nodes are out"),
        pytest.param({"on": "n9"}, {"n1": NAMED, "n2": NAMED}, id="a name that no node has"),
    ],
)
def test_node_name(spec: dict[str, Any], out: dict[str, Any]) -> None:
    """A pod that names a node takes no other."""
    seen = cluster(node("n1"), node("n2"))

    assert out == refused(NodeName(None, handle(seen)), seen, info(**spec))


@pytest.mark.parametrize(
    ("spec", "out"),
    [
        pytest.param({}, {"closed": UNSCHEDULABLE}, id="cordoned nodes are out"),
        pytest.param(CORDON_ONLY, {}, id="148 unless the cordon is tolerated"),
    ],
)
def test_cordon(spec: dict[str, Any], out: dict[str, Any]) -> None:
    """`spec.unschedulable` is what counts, with or without the taint."""
    seen = cluster(node("open"), node("closed", cordoned=True))

    assert out == refused(NodeUnschedulable(None, handle(seen)), seen, info(**spec))


def test_taints() -> None:
    """PreferNoSchedule refuses no pod."""
    seen = cluster(
        node("free"),
        node("hard", taints=("a=b:NoSchedule",)),
        node("gone", taints=("x=y:PreferNoSchedule", "c=d:NoExecute")),
        node("soft", taints=("a=b:PreferNoSchedule",)),
    )
    pod = info(tolerations=[{"key": "a", "value": "b"}])

    assert {"gone": TAINTED} == refused(TaintToleration(None, handle(seen)), seen, pod)


@pytest.mark.parametrize(
    ("spec", "scores"),
    [
        pytest.param({}, {"free": 100, "one": 50, "two": 0}, id="140 fewer untolerated soft taints are better"),
        pytest.param(
            {"tolerations": [{"key": "c", "operator": "Exists", "effect": "PreferNoSchedule"}]},
            {"free": 100, "one": 0, "two": 0},
            id="tolerated ones do not count",
        ),
        pytest.param(
            {"tolerations": [{"key": "c", "operator": "Exists", "effect": "NoSchedule"}]},
            {"free": 100, "one": 50, "two": 0},
            id="a toleration of another effect does not help",
        ),
    ],
)
def test_soft_taints(spec: dict[str, Any], scores: dict[str, int] | None) -> None:
    """Reversed normalisation over the candidates."""
    seen = cluster(
        node("free"),
        node("one", taints=("a=b:PreferNoSchedule",)),
        node("two", taints=("a=b:PreferNoSchedule", "c=d:PreferNoSchedule", "e=f:NoSchedule")),
    )

    assert scores == scored(TaintToleration(None, handle(seen)), seen, info(**spec))


def test_soft_taints_elsewhere_are_no_reason_to_score() -> None:
    """Only the candidates' taints count for Skip."""
    seen = cluster(node("free"), node("soft", taints=("a=b:PreferNoSchedule",)))
    plugin = TaintToleration(None, handle(seen))

    assert plugin.pre_score(CycleState(), info(), seen.nodes.by_name(["free"])) is SKIP
    assert plugin.pre_score(CycleState(), info(), seen.nodes.present) is None


def test_160_ports() -> None:
    """Nodes where a wanted port is taken are out, and could be freed."""
    held = [info("a", on="n1", containers=ports("TCP/80/127.0.0.1")), info("b", on="n2", containers=ports("UDP/80"))]
    seen = cluster(node("n1"), node("n2"), *held)
    plugin = NodePorts(None, handle(seen))

    assert refused(plugin, seen, info(containers=ports("TCP/80"))) == {"n1": PORTS}
    assert refused(plugin, seen, info(containers=ports("TCP/80/127.0.0.2"))) == {}
    assert plugin.pre_filter(CycleState(), info(), seen.nodes.present) is SKIP
    assert plugin.pre_filter(CycleState(), info(containers=ports("TCP/1")), seen.nodes.present) is None

    seen.remove_pod("a")

    assert refused(plugin, seen, info(containers=ports("TCP/80"))) == {}


@pytest.mark.parametrize(
    ("held", "leave", "is_free"),
    [
        pytest.param(["TCP/80"], [0], True, id="the pod that held it leaves"),
        pytest.param(["TCP/80", "TCP/80"], [0], False, id="one of two pods that hold it leaves"),
        pytest.param(["TCP/80", "TCP/80"], [0, 1], True, id="both leave"),
        pytest.param(["TCP/80/10.0.0.1"], [], False, id="it is held on one address, and wanted on all"),
        pytest.param(["TCP/80", "TCP/81"], [1], False, id="a pod with another port leaves, and it is held"),
        pytest.param(["TCP/81"], [0], True, id="a pod with another port leaves, and it is free"),
        pytest.param(["UDP/80"], [], True, id="the port of another protocol is held"),
    ],
)
def test_ports_that_preemption_frees(held: list[str], leave: list[int], is_free: bool) -> None:
    """Counted in a tally: a port is free when no pod is left that holds it."""
    pods = [info(f"h{at}", on="n1", containers=ports(each)) for at, each in enumerate(held)]
    seen = cluster(node("n1"), *pods)
    slot = seen.nodes.slot("n1")
    assert slot is not None
    tally = NodePorts(None, handle(seen)).tally(CycleState(), info(containers=ports("TCP/80")), slot)
    for at in leave:
        tally.remove(pods[at])

    assert is_free is (tally.verdict() is None)


def test_a_node_comes_to_a_pod_without_ports() -> None:
    assert hinted(NodePorts(None, handle(cluster())), NODE_ADD, info(), new=node()) is Hint.QUEUE


WANTS: dict[str, Any] = {"containers": ports("TCP/80")}
NOMINATED = {"nominatedNodeName": "n1"}


@pytest.mark.parametrize(
    ("plugin", "event", "old", "new", "hint"),
    [
        pytest.param(NodeUnschedulable, TAINTS, node(), node(), Hint.SKIP, id="a node was open before"),
        pytest.param(NodeUnschedulable, TAINTS, node(), node(cordoned=True), Hint.SKIP, id="150 a cordon"),
        pytest.param(TaintToleration, TAINTS, node(), node(), Hint.SKIP, id="153 a node was never tainted"),
        pytest.param(NodePorts, GONE, info("q", **WANTS), None, Hint.SKIP, id="a pod with its port held no place"),
        pytest.param(
            NodePorts, GONE, info("q", **WANTS, status=NOMINATED), None, Hint.QUEUE, id="a nominated pod with its port"
        ),
        pytest.param(NodeResourcesFit, GONE, info("q"), None, Hint.SKIP, id="a pod held no place"),
        pytest.param(NodeResourcesFit, GONE, info("q", status=NOMINATED), None, Hint.QUEUE, id="a nominated pod"),
    ],
)
def test_hints(plugin: Any, event: ClusterEvent, old: Any, new: Any, hint: Hint) -> None:
    """Queue exactly when this event can have opened the way; more rows are in the table of hints."""
    assert hint is hinted(plugin(None, handle(cluster())), event, info("p", **WANTS), old=old, new=new)
