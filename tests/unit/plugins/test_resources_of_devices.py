"""NodeResourcesFit and NodeResourcesBalancedAllocation where a device class serves a resource: docs/spec/dra.md §3.12, rows 315–319."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.config.args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringStrategy,
    ShapePoint,
)
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.feature_gates import DEVICE_GATES_ON, EXTENDED_RESOURCE
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.status import Code
from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import DeviceClassBuilder, a_device, a_device_class, a_slice
from tests.unit.objects import cluster, handle, node, pod_requesting
from tests.unit.plugins.ask import hinted, refused, scored

X, Y = "example.com/x", "example.com/y"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
SERVES_X = a_device_class("gpu").extended_resource(X)
CLASS_CAME = ClusterEvent(Resource.DEVICE_CLASS, Action.ADD)
CLASS_CHANGED = ClusterEvent(Resource.DEVICE_CLASS, Action.UPDATE_OTHER)
NODE_GREW = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)


def a_cluster(*things: Node | PodInfo, classes: tuple[DeviceClassBuilder, ...] = (SERVES_X,)) -> Cluster:
    seen = cluster(*things)
    for each in classes:
        built = each.typed()
        seen.devices.classes.put(built.key, built)
    return seen


def a_fit(
    seen: Cluster, args: NodeResourcesFitArgs | None = None, *, gates: frozenset[str] = DEVICE_GATES_ON
) -> NodeResourcesFit:
    return NodeResourcesFit(args, replace(handle(seen), feature_gates=gates))


def short(*names: str, final: bool = True) -> tuple[Code, tuple[str, ...]]:
    reasons = tuple(f"Insufficient {name}" for name in names)
    return (Code.UNRESOLVABLE if final else Code.UNSCHEDULABLE, reasons)


@pytest.mark.parametrize("more_nodes", [0, 8], ids=["one candidate", "many candidates"])
@pytest.mark.parametrize(("things", "pod", "classes", "verdict"), [
    pytest.param([node(**{X: "2"}), pod_requesting("a", on="n1", **{X: "1"})], pod_requesting(**{X: "2"}), (SERVES_X,),
        short(X, final=False), id="315 also by what is left there"),
    pytest.param([node()], pod_requesting(cpu="5", **{X: "1", Y: "1"}), (SERVES_X,), short("cpu", Y),
        id="316 the other requests count"),
    pytest.param([node(), pod_requesting("a", on="n1", **{X: "5"})], pod_requesting(**{X: "1"}), (SERVES_X,), None,
        id="317 other pods there have devices"),
])  # fmt: skip
def test_filter(
    things: list[Any], pod: PodInfo, classes: tuple[DeviceClassBuilder, ...], verdict: Any, more_nodes: int
) -> None:
    """Alone, among more nodes, and in the tally of preemption: the verdict is the same."""
    more = (node(f"m{at}", cpu="64", **{X: "9", Y: "9"}) for at in range(more_nodes))
    seen = a_cluster(*things, *more, classes=classes)
    plugin = a_fit(seen)
    slot = seen.nodes.present_slot("n1")
    assert slot is not None
    counted = plugin.tally(CycleState(), pod, slot).verdict()

    assert refused(plugin, seen, pod).get("n1") == verdict
    assert (None if counted is None else (counted.code, counted.reasons)) == verdict


def test_the_gate_is_off() -> None:
    seen = a_cluster(node())
    plugin = a_fit(seen, gates=DEVICE_GATES_ON - {EXTENDED_RESOURCE})

    assert refused(plugin, seen, pod_requesting(**{X: "1"})) == {"n1": short(X)}
    assert hinted(plugin, CLASS_CAME, pod_requesting(**{X: "1"}), new=SERVES_X.typed()) is None


@pytest.mark.parametrize("more_nodes", [0, 8], ids=["one candidate", "many candidates"])
def test_332_classes_come_and_go(more_nodes: int) -> None:
    """What is remembered of equal requests does not outlive the class."""
    seen = a_cluster(node(), *(node(f"m{at}") for at in range(more_nodes)), classes=())
    plugin, pod = a_fit(seen), pod_requesting(**{X: "1"})
    shapes = [plugin.tally_shape(pod)]
    assert 1 + more_nodes == len(refused(plugin, seen, pod))

    seen.devices.classes.put("gpu", SERVES_X.typed())
    shapes.append(plugin.tally_shape(pod))
    assert {} == refused(plugin, seen, pod)

    seen.set_node(node(**{X: "0"}))
    seen.set_node(node("m1", **{X: "1"}))
    assert {} == refused(plugin, seen, pod)

    seen.devices.classes.put("gpu", None)
    shapes.append(plugin.tally_shape(pod))
    assert {"n1", *(f"m{at}" for at in range(more_nodes) if at != 1)} == set(refused(plugin, seen, pod))
    assert shapes[0] == shapes[2] != shapes[1]


def test_kept_verdicts_follow_nodes() -> None:
    """A node gets some of it itself, is used up, and loses it again, one node at a time and many at once."""
    for count in (1, 30):
        names = [f"n{at}" for at in range(count)] + [f"m{at}" for at in range(8)]
        seen = a_cluster(*(node(name) for name in names))
        plugin, pod = a_fit(seen), pod_requesting(**{X: "2"})
        assert {} == refused(plugin, seen, pod)
        for name in names[:count]:
            seen.set_node(node(name, **{X: "1"}))
        assert dict.fromkeys(names[:count], short(X)) == refused(plugin, seen, pod)
        for name in names[:count]:
            seen.set_node(node(name))
        assert {} == refused(plugin, seen, pod)


# -- scores ------------------------------------------------------------------------------------------------------------


def strategy(type_: str, *shape: tuple[int, int], **weights: int) -> NodeResourcesFitArgs:
    resources = tuple(ResourceWeight(name, weight) for name, weight in weights.items())
    points = tuple(ShapePoint(utilization, score) for utilization, score in shape)
    return NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type_, resources, points))


def with_devices(seen: Cluster, count: int, used: int, on: str = "n1") -> Cluster:
    """Add `count` devices to a node, `used` of them in use."""
    devices = (a_device(f"d{at}") for at in range(count))
    seen.devices.set_slice(a_slice(on, "a", *devices).typed())
    results = [a_result("r", f"a/{on}/d{at}") for at in range(used)]
    claim = a_claim(f"c-{on}").uid(on).resource_version("1").allocated(*results).typed()
    seen.devices.use.hold(on, claim.status.allocation)
    return seen


MOST = strategy("MostAllocated", **{X: 1})


@pytest.mark.parametrize("more_nodes", [0, 20], ids=["alone", "among more nodes"])
@pytest.mark.parametrize(("args", "allocatable", "pod", "score"), [
    pytest.param(MOST, {}, pod_requesting(**{X: "2"}), 60, id="most allocated"),
    pytest.param(MOST, {X: "0"}, pod_requesting(**{X: "2"}), 60, id="the node says 0"),
    pytest.param(MOST, {X: "4"}, pod_requesting(**{X: "2"}), 50, id="a node that has some itself counts that"),
    pytest.param(strategy("MostAllocated", cpu=1, **{X: 3}), {"cpu": "10"}, pod_requesting(cpu="2", **{X: "2"}), 50,
        id="weighted with other resources"),
    pytest.param(strategy("RequestedToCapacityRatio", (0, 0), (100, 10), **{X: 1}), {}, pod_requesting(**{X: "2"}), 60,
        id="by a shape"),
])  # fmt: skip
def test_fit_scores_devices(
    args: NodeResourcesFitArgs, allocatable: dict[str, str], pod: PodInfo, score: int, more_nodes: int
) -> None:
    """Ten devices of the class, four of them in use; pods that have requested it do not count there."""
    held = () if allocatable.get(X, "0") != "0" else (pod_requesting("a", on="n1", **{X: "9"}),)
    seen = a_cluster(node(**allocatable), *held, *(node(f"m{at}") for at in range(more_nodes)))
    with_devices(seen, 10, 4)
    scores = scored(a_fit(seen, args), seen, pod)

    assert scores is not None
    assert score == scores["n1"]
    assert {0} >= {scores[f"m{at}"] for at in range(more_nodes)} or "cpu" in allocatable


def test_scores_follow_devices() -> None:
    """Nodes do not change when a device is taken; the score does."""
    seen = with_devices(a_cluster(node(), node("n2")), 10, 4)
    plugin, pod = a_fit(seen, MOST), pod_requesting(**{X: "1"})
    assert {"n1": 50, "n2": 0} == scored(plugin, seen, pod)

    with_devices(seen, 10, 8)
    with_devices(seen, 2, 0, on="n2")
    assert {"n1": 90, "n2": 50} == scored(plugin, seen, pod)

    seen.devices.classes.put("gpu", a_device_class("gpu", 'device.driver == "b"').extended_resource(X).typed())
    assert {"n1": 0, "n2": 0} == scored(plugin, seen, pod)

    seen.devices.classes.put("gpu", None)
    assert {"n1": 0, "n2": 0} == scored(plugin, seen, pod)


def test_balance_counts_devices() -> None:
    """80 % of the CPU and of the devices is balanced; 80 % of the one alone is not."""
    args = NodeResourcesBalancedAllocationArgs((ResourceWeight("cpu"), ResourceWeight(X)))
    seen = a_cluster(node(cpu="10"), node("n2", cpu="10"), node("n3", cpu="10"))
    with_devices(with_devices(seen, 10, 0), 10, 8, on="n2")
    plugin = NodeResourcesBalancedAllocation(args, replace(handle(seen), feature_gates=DEVICE_GATES_ON))
    pod = pod_requesting(cpu="8", **{X: "8"})

    even = 50 + (50 + 100 - 100) // 2
    mended = 50 + (50 + 90 - 60) // 2
    assert {"n1": even, "n2": mended, "n3": even} == scored(plugin, seen, pod)

    with_devices(seen, 10, 8)
    assert {"n1": mended, "n2": mended, "n3": even} == scored(plugin, seen, pod)


# -- waking ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "old", "new", "woken"),
    [
        pytest.param({X: "0"}, None, SERVES_X, False, id="nothing of it is wanted"),
        pytest.param({X: "1"}, a_device_class("gpu").extended_resource(Y), SERVES_X, True, id="in place of another"),
        pytest.param({IMPLICIT: "1"}, a_device_class("gpu"), SERVES_X, False, id="it had its own name before"),
    ],
)
def test_after_a_class(
    requests: dict[str, str], old: DeviceClassBuilder | None, new: DeviceClassBuilder, woken: bool
) -> None:
    seen = a_cluster(node(), classes=(new,))
    event = CLASS_CAME if old is None else CLASS_CHANGED
    hint = hinted(a_fit(seen), event, pod_requesting(**requests), old=old and old.typed(), new=new.typed())

    assert (Hint.QUEUE if woken else Hint.SKIP) is hint


@pytest.mark.parametrize(
    ("old", "new", "requests", "woken"),
    [
        pytest.param(node(**{X: "1"}), node(), {X: "2"}, True, id="devices stand in from now on"),
        pytest.param(node(), node(cpu="9"), {X: "2"}, True, id="anything of a node where they do"),
        pytest.param(node(), node(**{X: "1"}), {X: "2"}, False, id="it has too few itself now"),
    ],
)
def test_after_a_node_grew(old: Node, new: Node, requests: dict[str, str], woken: bool) -> None:
    hint = hinted(a_fit(a_cluster(new)), NODE_GREW, pod_requesting(**requests), old=old, new=new)

    assert (Hint.QUEUE if woken else Hint.SKIP) is hint
