"""NodeResourcesFit and NodeResourcesBalancedAllocation, what their laws do not draw: docs/spec/core.md §5.5, §5.6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.config.args import NodeResourcesFitArgs, ResourceWeight, ScoringStrategy, ShapePoint
from scheduler.core.cluster_events import NODE_ADD, Action, ClusterEvent, Resource
from scheduler.core.feature_gates import CHANGES
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.scoring import broken_line
from scheduler.framework.status import Code
from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.noderesourcesfit.strategy import percent
from tests.unit.harness import SchedulerHarness
from tests.unit.objects import cluster, container, handle, info, node, pod_requesting
from tests.unit.plugins.ask import hinted, refused, scored

X = "example.com/x"


def no(*reasons: str, final: bool = False) -> tuple[Code, tuple[str, ...]]:
    return (Code.UNRESOLVABLE if final else Code.UNSCHEDULABLE, reasons)


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


def test_a_resource_that_no_node_counts_is_ignored() -> None:
    seen = cluster(node())

    assert {} == refused(NodeResourcesFit(None, handle(seen)), seen, pod_requesting(storage="1"))


@pytest.mark.parametrize(
    ("args", "out"),
    [
        pytest.param(NodeResourcesFitArgs(), True, id="checked by default"),
        pytest.param(NodeResourcesFitArgs(ignored_resources=(X,)), False, id="ignored by name"),
        pytest.param(NodeResourcesFitArgs(ignored_resource_groups=("example.com",)), False, id="164 ignored by group"),
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


def strategy(type_: str, *resources: str) -> NodeResourcesFitArgs:
    weighted = tuple(ResourceWeight(name, 1) for name in resources)
    return NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type_, weighted, ()))


USED: list[Any] = [node(), pod_requesting("a", on="n1", cpu="1", memory="2Gi")]
WHOLE = {"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}}


@pytest.mark.parametrize(("args", "things", "pod", "score"), [
    pytest.param(None, [node(cpu="1", memory="400Mi")], info(), 70, id="134 a pod without requests weighs something"),
    pytest.param(strategy("LeastAllocated", "odd"), [node()], pod_requesting(cpu="1"), 0, id="nothing to score"),
    pytest.param(None, USED,
        info(containers=[container(cpu="1"), container()], resources={"requests": {"cpu": "3", "memory": "6Gi"}}), 58,
        id="its pod-level request does not count, its containers do"),
    pytest.param(strategy("MostAllocated", "cpu", "hugepages-2Mi"),
        [node(**{"hugepages-2Mi": "16Mi"}), info("a", on="n1", containers=[container()], resources=WHOLE)],
        info(containers=[container(cpu="1")], resources=WHOLE), 50, id="of a pod that is there it counts"),
])  # fmt: skip
@pytest.mark.parametrize("more_nodes", [0, 20], ids=["alone", "among more nodes"])
def test_score(args: Any, things: list[Any], pod: PodInfo, score: int, more_nodes: int) -> None:
    """The configured strategy, in whole numbers."""
    seen = cluster(*things, *(node(f"m{at}", **{X: "9"}) for at in range(more_nodes)))
    scores = scored(NodeResourcesFit(args, handle(seen)), seen, pod)

    assert scores is not None
    assert scores["n1"] == score


OF_POD = {"requests": {"cpu": "2", "memory": "5Gi"}}


@pytest.mark.parametrize(("pod", "before", "now"), [
    pytest.param(info(containers=[container(cpu="1"), container()], resources=OF_POD), 58, 18, id="its own requests"),
    pytest.param(info(containers=[container()], resources={"requests": {"cpu": "2"}}), 72, 48,
        id="what the pod does not name counts by default"),
    pytest.param(info(containers=[container(cpu="1", memory="1Gi")]), 56, 56, id="a pod without pod-level requests"),
    pytest.param(info(containers=[container(cpu="1")], resources=OF_POD, overhead={"cpu": "1"}), 48, 6,
        id="overhead is added"),
])  # fmt: skip
@pytest.mark.parametrize("version", ["1.37", "1.38"])
def test_the_score_of_pod_level_requests(pod: PodInfo, before: int, now: int, version: str) -> None:
    """Up to 1.37 only the containers of the pod to place count."""
    seen = cluster(*USED)
    scores = scored(NodeResourcesFit(None, handle(seen, feature_gates=CHANGES[version])), seen, pod)

    assert scores is not None
    assert scores["n1"] == (now if version == "1.38" else before)


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
    assert broken_line(tuple(ShapePoint(u, s) for u, s in shape))[at] == score


def test_percent_is_exact() -> None:
    """Just below a whole percent is not rounded up to it, however large the amounts."""
    whole = np.array([2**53 // 100 - 1, 2**53, 2**62, 7], dtype=np.int64)

    for chosen in (whole[[0, 3]], whole):
        part = chosen - 1
        assert percent(part, chosen).tolist() == [int(p) * 100 // int(w) for p, w in zip(part, chosen)]


def test_absurd_amounts_do_not_break_scores() -> None:
    """Scores are exact up to the limit of int64, and a sum beyond it is a full node."""
    seen = cluster(node(memory="8Ei"), pod_requesting("a", on="n1", memory="4Ei"))
    fit, balance = NodeResourcesFit(None, handle(seen)), NodeResourcesBalancedAllocation(None, handle(seen))

    assert scored(fit, seen, pod_requesting(memory="1Ei")) == {"n1": (37 + 95) // 2}
    assert scored(fit, seen, pod_requesting(memory="8Ei")) == {"n1": (0 + 95) // 2}
    assert scored(balance, seen, pod_requesting(memory="8Ei")) == {"n1": 62}


@pytest.mark.parametrize("more_nodes", [0, 20], ids=["one by one", "by columns"])
@pytest.mark.parametrize(
    ("offered", "on_node", "wanted", "fits"),
    [
        pytest.param("64Gi", [], "10E", False, id="a request beyond int64"),
        pytest.param("64Gi", [], "12345678901234567890", False, id="with more digits than int64 has"),
        pytest.param("64Gi", [], "9E", False, id="a request just below the limit"),
        pytest.param("20E", [], "9E", True, id="a node beyond int64 offers the limit"),
        pytest.param("20E", ["5E"], "5E", False, id="and no more"),
        pytest.param("20E", ["5E", "5E"], "1", False, id="a saturated node is full"),
        pytest.param("20E", ["10E"] * 3, "1", False, id="whatever its pods request"),
        pytest.param("9E", ["8E"], "1E", True, id="sums are exact below the limit"),
        pytest.param("9E", ["8E", "1"], "1E", False, id="to the byte"),
    ],
)
def test_amounts_beyond_int64(offered: str, on_node: list[str], wanted: str, fits: bool, more_nodes: int) -> None:
    names = ("n1", *(f"m{at}" for at in range(more_nodes)))
    pods = [pod_requesting(f"{name}-{at}", on=name, memory=held) for name in names for at, held in enumerate(on_node)]
    seen = cluster(*(node(name, memory=offered) for name in names), *pods)

    found = refused(NodeResourcesFit(None, handle(seen)), seen, pod_requesting(memory=wanted))

    assert set(found) == (set() if fits else set(names))
    assert all(reasons == ("Insufficient memory",) for _, reasons in found.values())


@pytest.mark.parametrize("leaving", [["a"], ["b"], ["a", "b"], ["b", "a"]], ids="-".join)
def test_a_saturated_sum_is_exact_again_when_pods_leave(leaving: list[str]) -> None:
    sizes = {"a": "9E", "b": "10E", "c": "1Gi"}
    seen = cluster(node(memory="20E"), *(pod_requesting(name, on="n1", memory=size) for name, size in sizes.items()))
    slot = seen.nodes.slot("n1")
    assert slot is not None
    room = NodeResourcesFit(None, handle(seen)).tally(CycleState(), pod_requesting(memory="1Gi"), slot)
    fits = NodeResourcesFit(None, handle(seen))

    for name in leaving:
        gone = seen.nodes.remove_pod("n1", name)
        assert gone is not None
        room.remove(gone)

    left = seen.nodes.requested_at(slot, "memory")
    assert left == sum(int(info.requests["memory"]) for info in seen.nodes.pods(slot).values())
    is_full = "b" not in leaving
    assert (room.verdict() is not None) == is_full == bool(refused(fits, seen, pod_requesting(memory="1Gi")))


@pytest.mark.parametrize(
    ("pod", "score"),
    [
        pytest.param(pod_requesting(cpu="5", memory="5Gi"), {"n1": 75}, id="half of both resources"),
        pytest.param(info(), None, id="139 a pod without requests is skipped"),
    ],
)
def test_balance(pod: PodInfo, score: dict[str, int] | None) -> None:
    """The balance with the pod against the balance without it, by the default arguments."""
    seen = cluster(node(cpu="10", memory="10Gi"))

    assert score == scored(NodeResourcesBalancedAllocation(None, handle(seen)), seen, pod)


SHRANK = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)


@pytest.mark.parametrize(("nominated", "wanted", "before", "now", "hint"), [
    pytest.param("n1", {"cpu": "2"}, {"cpu": "2"}, {"cpu": "1"}, Hint.QUEUE, id="too small for the pod"),
    pytest.param("n1", {X: "1"}, {X: "1"}, {X: "0"}, Hint.QUEUE, id="too few extended resources"),
    pytest.param("n1", {"cpu": "1"}, {"cpu": "1"}, {"cpu": "1", "pods": "0"}, Hint.QUEUE, id="too few pods"),
    pytest.param("n1", {"cpu": "1"}, {"cpu": "2"}, {"cpu": "1"}, Hint.SKIP, id="large enough still"),
    pytest.param("n1", {"cpu": "2"}, {"cpu": "1"}, {"cpu": "500m"}, Hint.SKIP, id="too small before"),
    pytest.param("n1", {"cpu": "1"}, {X: "1"}, {X: "0"}, Hint.SKIP, id="less of another resource"),
    pytest.param("n2", {"cpu": "2"}, {"cpu": "2"}, {"cpu": "1"}, Hint.SKIP, id="another node"),
    pytest.param("", {"cpu": "2"}, {"cpu": "2"}, {"cpu": "1"}, Hint.SKIP, id="no nominated node"),
])  # fmt: skip
def test_a_nominated_node_that_shrinks(
    nominated: str, wanted: dict[str, str], before: dict[str, str], now: dict[str, str], hint: Hint
) -> None:
    pod = info(containers=[container(**wanted)], status={"nominatedNodeName": nominated})
    plugin = NodeResourcesFit(None, handle(cluster()))

    assert hinted(plugin, SHRANK, pod, old=node(**before), new=node(**now)) is hint


async def test_a_preemptor_looks_elsewhere_when_its_nominated_node_shrank() -> None:
    sched = SchedulerHarness()
    for at in (1, 2):
        sched.node(f"n{at}", cpu="2")
        sched.pod(f"low{at}", cpu="2", on=f"n{at}", priority=at)
    sched.pod("high", cpu="2", priority=9)
    await sched.settle()
    sched.pod("high", cpu="2", priority=9, nominated="n1")
    await sched.settle()
    assert (sched.writer.deletions, sched.places()) == (["default/low1"], {"high": "unschedulable"})

    sched.node("n1", cpu="1")
    await sched.later(20)

    assert sched.writer.deletions == ["default/low1", "default/low2"]


POD_GONE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)


@pytest.mark.parametrize(("spec", "hint"), [
    pytest.param({}, Hint.SKIP, id="a pod that may evict none of them"),
    pytest.param({"schedulingGroup": {"podGroupName": "g"}}, Hint.QUEUE, id="a pod whose group decides about evictions"),
])  # fmt: skip
def test_a_pod_ends_on_a_node_that_another_one_fills(spec: dict[str, Any], hint: Hint) -> None:
    seen = cluster(node(cpu="4"), pod_requesting("q", on="n1", cpu="3"))
    pod = info(containers=[container(cpu="4")], **spec)

    ended = pod_requesting("r", on="n1", cpu="1")
    assert hint is hinted(NodeResourcesFit(None, handle(seen)), POD_GONE, pod, old=ended)
