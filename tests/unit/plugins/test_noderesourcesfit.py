"""NodeResourcesFit: docs/spec/core.md §5.5, rows 133–137, 161–168."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.config.args import NodeResourcesFitArgs, ResourceWeight, ScoringStrategy, ShapePoint
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, Action, ClusterEvent, Resource
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.status import Code
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.noderesourcesfit.plugin import curve, percent
from tests.unit.objects import cluster, container, handle, info, node, pod_requesting
from tests.unit.plugins.ask import hinted, refused, scored

GREW = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
ITSELF_SHRANK = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN)
X = "example.com/x"


def no(*reasons: str, final: bool = False) -> tuple[Code, tuple[str, ...]]:
    return (Code.UNRESOLVABLE if final else Code.UNSCHEDULABLE, reasons)


def full(count: int) -> list[PodInfo]:
    return [info(f"other{at}", on="n1") for at in range(count)]


@pytest.mark.parametrize("offered_elsewhere", [False, True], ids=["by no node", "by another node"])
def test_what_a_node_does_not_offer_is_not_given_back(offered_elsewhere: bool) -> None:
    """A pod on it, which was bound by hand, holds none, so its end frees nothing."""
    holder = pod_requesting("holder", on="n1", **{X: "2"})
    more = [node("n2", **{X: "2"})] if offered_elsewhere else []
    world = cluster(node("n1"), holder, *more)
    slot = world.nodes.slot("n1")
    assert slot is not None
    room = NodeResourcesFit(None, handle(world)).tally(CycleState(), pod_requesting(**{X: "2"}), slot)

    room.remove(holder)

    no_more = room.verdict()
    assert no_more is not None
    assert (no_more.code, no_more.reasons) == no(f"Insufficient {X}", final=True)


@pytest.mark.parametrize("more_nodes", [0, 8], ids=["one candidate", "many candidates"])
@pytest.mark.parametrize(
    ("things", "pod", "verdict"),
    [
        pytest.param(
            [node()], pod_requesting(cpu="5"), no("Insufficient cpu", final=True), id="162 larger than the node"
        ),
        pytest.param([node(pods="2"), *full(2)], info(), no("Too many pods"), id="161 pods 2 of 2"),
        pytest.param(
            [node()], pod_requesting(**{X: "1"}), no(f"Insufficient {X}", final=True), id="163 node without it"
        ),
        pytest.param(
            [node(), pod_requesting("a", on="n1", cpu="5")],
            info(),
            None,
            id="165 zero-request pod on an over-committed node",
        ),
        pytest.param([node()], pod_requesting(storage="1"), None, id="a name that no node counts is ignored"),
    ],
)
def test_filter(things: list[Any], pod: PodInfo, verdict: Any, more_nodes: int) -> None:
    """A node is refused iff the request does not fit what is left; alone or among more nodes, the verdict is the same."""
    seen = cluster(*things, *(node(f"m{at}", cpu="64", memory="1Ti", **{X: "9"}) for at in range(more_nodes)))
    plugin = NodeResourcesFit(None, handle(seen))

    assert refused(plugin, seen, pod).get("n1") == verdict


@pytest.mark.parametrize(
    ("args", "out"),
    [
        pytest.param(NodeResourcesFitArgs(), True, id="checked by default"),
        pytest.param(NodeResourcesFitArgs(ignored_resources=(X,)), False, id="ignored by name"),
        pytest.param(NodeResourcesFitArgs(ignored_resource_groups=("example.com",)), False, id="164 ignored by group"),
        pytest.param(NodeResourcesFitArgs(ignored_resource_groups=("example.org",)), True, id="another group"),
    ],
)
def test_ignored(args: NodeResourcesFitArgs, out: bool) -> None:
    """Ignored resources are not checked, neither in Filter nor when a node comes."""
    seen = cluster(*(node(f"n{at}") for at in range(6)))
    plugin = NodeResourcesFit(args, handle(seen))
    hint = hinted(plugin, NODE_ADD, pod_requesting(**{X: "1"}), new=node())

    assert out is bool(refused(plugin, seen, pod_requesting(**{X: "1"})))
    assert (Hint.SKIP if out else Hint.QUEUE) is hint


def test_native_resources_cannot_be_ignored() -> None:
    """Only extended resources can be ignored."""
    seen = cluster(node())
    plugin = NodeResourcesFit(NodeResourcesFitArgs(ignored_resources=("cpu",)), handle(seen))

    assert refused(plugin, seen, pod_requesting(cpu="9")) == {"n1": no("Insufficient cpu", final=True)}


def strategy(type_: str, *shape: tuple[int, int], **weights: int) -> NodeResourcesFitArgs:
    resources = tuple(ResourceWeight(name, weight) for name, weight in (weights or {"cpu": 1, "memory": 1}).items())
    points = tuple(ShapePoint(utilization, score) for utilization, score in shape)
    return NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type_, resources, points))


UP = ((0, 0), (100, 10))
USED = [node(), pod_requesting("a", on="n1", cpu="1", memory="2Gi")]
WHOLE = {"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}}


@pytest.mark.parametrize(
    ("args", "things", "pod", "score"),
    [
        pytest.param(None, USED, pod_requesting(cpu="1", memory="2Gi"), 50, id="133 half is left"),
        pytest.param(strategy("MostAllocated"), USED, pod_requesting(cpu="1", memory="2Gi"), 50, id="135 half is used"),
        pytest.param(
            None, [node(cpu="1", memory="400Mi")], info(), 70, id="134 a pod without requests weighs something"
        ),
        pytest.param(strategy("LeastAllocated", odd=1), [node()], pod_requesting(cpu="1"), 0, id="nothing to score"),
        pytest.param(
            strategy("RequestedToCapacityRatio", *UP),
            [node(cpu="4", memory="4Gi")],
            pod_requesting(cpu="3", memory="1Gi"),
            50,
            id="136 75 % and 25 %",
        ),
        pytest.param(
            strategy("RequestedToCapacityRatio", (0, 0), (50, 0), (100, 10)),
            [node(cpu="4", memory="4Gi")],
            pod_requesting(cpu="3", memory="1Gi"),
            50,
            id="137 a resource that scores 0 does not count",
        ),
        pytest.param(
            None,
            USED,
            info(containers=[container(cpu="1"), container()], resources={"requests": {"cpu": "3", "memory": "6Gi"}}),
            58,
            id="its pod-level request does not count, its containers do",
        ),
        pytest.param(
            strategy("MostAllocated", **{"cpu": 1, "hugepages-2Mi": 1}),
            [node(**{"hugepages-2Mi": "16Mi"}), info("a", on="n1", containers=[container()], resources=WHOLE)],
            info(containers=[container(cpu="1")], resources=WHOLE),
            50,
            id="of a pod that is there it counts",
        ),
    ],
)
@pytest.mark.parametrize("more_nodes", [0, 20], ids=["alone", "among more nodes"])
def test_score(args: Any, things: list[Any], pod: PodInfo, score: int, more_nodes: int) -> None:
    """The configured strategy, in whole numbers."""
    seen = cluster(*things, *(node(f"m{at}", **{X: "9"}) for at in range(more_nodes)))
    scores = scored(NodeResourcesFit(args, handle(seen)), seen, pod)

    assert scores is not None
    assert scores["n1"] == score


@pytest.mark.parametrize(
    ("shape", "at", "score"),
    [
        pytest.param(((10, 2), (90, 8)), 5, 20, id="flat before the first point"),
        pytest.param(((10, 2), (90, 8)), 95, 80, id="flat behind the last"),
        pytest.param(((0, 10), (3, 0)), 1, 67, id="falling: divided towards zero"),
        pytest.param(((0, 0), (40, 10), (100, 0)), 70, 50, id="three points"),
    ],
)
def test_curve(shape: tuple[tuple[int, int], ...], at: int, score: int) -> None:
    """Piecewise linear with Go's integer division."""
    assert curve(tuple(ShapePoint(u, s) for u, s in shape))[at] == score


def test_percent_is_exact() -> None:
    """Just below a whole percent is not rounded up to it, however large the amounts."""
    whole = np.array([2**53 // 100 - 1, 2**53, 2**62, 7], dtype=np.int64)

    for chosen in (whole[[0, 3]], whole):
        part = chosen - 1
        assert percent(part, chosen).tolist() == [int(p) * 100 // int(w) for p, w in zip(part, chosen)]


def test_absurd_amounts_do_not_break_scores() -> None:
    """Amounts are bounded before they are counted: such a node looks full, and nothing overflows."""
    seen = cluster(node(memory="8Ei"), pod_requesting("a", on="n1", memory="4Ei"))

    assert scored(NodeResourcesFit(None, handle(seen)), seen, pod_requesting(memory="1Ei")) == {"n1": 47}


WANTS_CPU = pod_requesting("p", cpu="1")


@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        pytest.param(ASSIGNED_POD_DELETE, pod_requesting("q"), None, Hint.SKIP, id="it held no place"),
        pytest.param(
            ASSIGNED_POD_DELETE, info("q", status={"nominatedNodeName": "n1"}), None, Hint.QUEUE, id="it was nominated"
        ),
        pytest.param(
            ITSELF_SHRANK,
            pod_requesting("q", cpu="2"),
            pod_requesting("q", cpu="1"),
            Hint.SKIP,
            id="another waiting pod does",
        ),
        pytest.param(NODE_ADD, None, node(pods="0"), Hint.SKIP, id="a node came that takes no pods"),
        pytest.param(GREW, node(cpu="100m"), node(cpu="500m"), Hint.SKIP, id="grew, still too small"),
        pytest.param(GREW, node(), node(memory="64Gi"), Hint.SKIP, id="167 an unwanted resource grew"),
        pytest.param(
            ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN),
            pod_requesting("q", on="n1", memory="2Gi"),
            pod_requesting("q", on="n1", memory="1Gi"),
            Hint.SKIP,
            id="168 a neighbour gave up memory only",
        ),
        pytest.param(GREW, node(cpu="8"), node(), Hint.SKIP, id="a wanted resource shrank"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), node(), node(), None, id="labels"),
        pytest.param(NODE_ADD, None, node(cpu="500m"), Hint.SKIP, id="166 too small a node came"),
    ],
)
def test_hints(event: ClusterEvent, old: Any, new: Any, hint: Hint | None) -> None:
    """Queue exactly when resources appeared that this pod can use."""
    assert hint is hinted(NodeResourcesFit(None, handle(cluster())), event, WANTS_CPU, old=old, new=new)


def test_sidecars_and_overhead_count() -> None:
    """The filter compares the pod's effective request."""
    seen = cluster(node(cpu="2"))
    sidecar = container("s", cpu="1") | {"restartPolicy": "Always"}
    pod = info(containers=[container(cpu="1")], initContainers=[sidecar], overhead={"cpu": "1m"})

    assert refused(NodeResourcesFit(None, handle(seen)), seen, pod) == {"n1": no("Insufficient cpu", final=True)}
