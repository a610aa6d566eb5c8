"""The law behind the resource plugins' speed: memoised answers equal upstream's formula, node by node, after any history."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from hypothesis import given, settings, strategies as st

from scheduler.api.podinfo import PodInfo, allocatable
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.nodes import Nodes
from scheduler.config.args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringStrategy,
    ShapePoint,
)
from scheduler.core import nodeset
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code
from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from tests.examples import SLOW_SHARE, examples
from tests.unit.objects import handle, node, pod_requesting
from tests.unit.plugins.ask import Refusals, named

X = "example.com/x"
SHAPE = ((0, 10), (30, 3), (77, 9), (100, 0))
SCORED = (("cpu", 3), ("memory", 1), (X, 2))
BALANCED = ("cpu", "memory", "ephemeral-storage", X)

AMOUNTS = {
    "cpu": ("0", "100m", "333m", "1", "2", "7"),
    "memory": ("0", "1", "200Mi", "1Gi", "3Gi", "200Ti"),
    "ephemeral-storage": ("0", "1Gi"),
    X: ("0", "1", "3"),
}
amounts = st.fixed_dictionaries({}, optional={name: st.sampled_from(texts) for name, texts in AMOUNTS.items()})
SHAPES = [
    pod_requesting(f"shape{at}", **requests)
    for at, requests in enumerate(
        (
            {},
            {"cpu": "1"},
            {"cpu": "333m", "memory": "200Mi"},
            {X: "1", "memory": "1Gi"},
            {"example.com/unknown": "1"},
            {"cpu": "2", "ephemeral-storage": "1Gi", X: "3"},
            {"cpu": "2", "memory": "1Gi", X: "1", **{f"example.com/unknown-{at}": "1" for at in range(70)}},
        )
    )
]

capacities = st.sampled_from((4, 1024))
"""Small: columns grow, and too much changes to refresh. Large: slots are refreshed, one by one or as an array."""

steps = st.tuples(
    st.sampled_from(["set_node", "set_node", "remove_node", "add", "add", "add", "remove", "many"]),
    st.integers(0, 40),
    amounts,
    st.integers(0, 5),
)


def apply(seen: Cluster, step: tuple[str, int, dict[str, str], int], serial: int) -> None:
    what, at, requests, pods = step
    name = f"n{at}"
    match what:
        case "set_node":
            seen.set_node(node(name, pods=str(pods), **requests))
        case "remove_node":
            seen.remove_node(name)
        case "add":
            seen.add_pod(pod_requesting(f"p{serial}", on=name, **requests))
        case "remove":
            held = [pod.uid for pod in seen.pods() if pod.node_name == name]
            for uid in held[:1]:
                seen.remove_pod(uid)
        case "many":
            for other in range(10 + at):
                seen.add_pod(pod_requesting(f"p{serial}-{other}", on=f"n{other}", **requests))


class Slow:
    """One node as upstream sees it, summed from its pods."""

    def __init__(self, seen: Cluster, slot: int) -> None:
        here = seen.nodes.node(slot)
        assert here is not None
        self.whole = allocatable(here.status.allocatable)
        self.pods = [pod for pod in seen.pods() if pod.node_name == here.metadata.name]

    def used(self, resource: str) -> int:
        return sum(pod.requests.get(resource, 0) for pod in self.pods)

    def refusal(self, pod: PodInfo) -> tuple[Code, tuple[str, ...]] | None:
        reasons = ["Too many pods"] if len(self.pods) + 1 > self.whole.get("pods", 0) else []
        final = False
        order = ["cpu", "memory", "ephemeral-storage", *sorted(set(pod.requests) - set(AMOUNTS) | {X})]
        for resource in order:
            amount = pod.requests.get(resource, 0)
            whole = self.whole.get(resource, 0)
            if amount > 0 and amount > whole - self.used(resource):
                reasons.append(f"Insufficient {resource}")
                final = final or amount > whole
        return (Code.UNRESOLVABLE if final else Code.UNSCHEDULABLE, tuple(reasons)) if reasons else None

    def requested(self, resource: str, pod: PodInfo) -> int:
        """§A.2 for cpu and memory, of the pod and of what is there."""
        if resource == "cpu":
            return sum(p.non_zero_milli_cpu for p in (*self.pods, pod))
        if resource == "memory":
            return sum(p.non_zero_memory_bytes for p in (*self.pods, pod))
        return self.used(resource) + pod.requests.get(resource, 0)

    def fit_score(self, type_: str, pod: PodInfo) -> int:
        total = weights = 0
        for resource, weight in SCORED:
            whole = self.whole.get(resource, 0)
            if not whole or (resource == X and not pod.requests.get(X)):
                continue
            asked = self.requested(resource, pod)
            if type_ == "LeastAllocated":
                score = 0 if asked > whole else (whole - asked) * 100 // whole
            elif type_ == "MostAllocated":
                score = min(asked, whole) * 100 // whole
            else:
                score = on_shape(100 if asked > whole else asked * 100 // whole)
                if not score:
                    continue
            total, weights = total + score * weight, weights + weight
        if not weights:
            return 0
        mean = Fraction(total, weights)
        return math.floor(mean + Fraction(1, 2)) if type_ == "RequestedToCapacityRatio" else math.floor(mean)

    def balance(self, pod: PodInfo | None, wanted: PodInfo) -> int:
        parts = []
        for resource in BALANCED:
            whole = self.whole.get(resource, 0)
            if not whole or (resource == X and not wanted.requests.get(X)):
                continue
            asked = self.used(resource) + (pod.requests.get(resource, 0) if pod else 0)
            parts.append(min(float(asked) / float(whole), 1.0))
        spread = 0.0
        if len(parts) == 2:
            spread = abs((parts[0] - parts[1]) / 2)
        elif len(parts) > 2:
            total = 0.0
            for part in parts:
                total += part
            mean, squares = total / len(parts), 0.0
            for part in parts:
                squares += (part - mean) * (part - mean)
            spread = math.sqrt(squares / len(parts))
        return int((1 - spread) * 100.0)


def on_shape(utilization: int) -> int:
    for at, (right, high) in enumerate(SHAPE):
        if utilization <= right:
            if at == 0:
                return high * 10
            left, low = SHAPE[at - 1]
            return low * 10 + math.trunc(Fraction((high - low) * 10 * (utilization - left), right - left))
    return SHAPE[-1][1] * 10


def fit(type_: str, seen: Cluster) -> NodeResourcesFit:
    resources = tuple(ResourceWeight(name, weight) for name, weight in SCORED)
    shape = tuple(ShapePoint(u, s) for u, s in SHAPE) if type_ == "RequestedToCapacityRatio" else ()
    return NodeResourcesFit(
        NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type_, resources, shape)), handle(seen)
    )


class Checked:
    """All plugins on one cluster, compared with the slow formula after every few steps."""

    def __init__(self, capacity: int) -> None:
        self.seen = Cluster()
        self.seen.nodes = Nodes(capacity=capacity)
        self.fits = {t: fit(t, self.seen) for t in ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")}
        resources = tuple(ResourceWeight(name) for name in BALANCED)
        self.balance = NodeResourcesBalancedAllocation(
            NodeResourcesBalancedAllocationArgs(resources), handle(self.seen)
        )

    def check(self, pod: PodInfo) -> None:
        nodes = self.seen.nodes
        slow = {slot: Slow(self.seen, slot) for slot in nodeset.each(nodes.present)}
        refusals: Refusals = {
            nodes.name(slot): no for slot, here in slow.items() if (no := here.refusal(pod)) is not None
        }
        for type_, plugin in self.fits.items():
            assert refusals == named(self.seen, plugin.filter(CycleState(), pod, nodes.present))
            assert {s: here.fit_score(type_, pod) for s, here in slow.items()} == self.column(plugin, pod)
        if self.balance.pre_score(CycleState(), pod, nodes.present) is None:
            expected = {s: 50 + (50 + h.balance(pod, pod) - h.balance(None, pod)) // 2 for s, h in slow.items()}
            assert expected == self.column(self.balance, pod)

    def column(self, plugin: Any, pod: PodInfo) -> dict[int, int]:
        scores = plugin.score(CycleState(), pod, self.seen.nodes.present)
        return {slot: int(scores[slot]) for slot in nodeset.each(self.seen.nodes.present)}


@settings(max_examples=examples(120, share=SLOW_SHARE), deadline=None)
@given(capacities, st.lists(st.tuples(steps, st.integers(0, len(SHAPES) * 2)), max_size=30))
def test_memoised_equals_slow(capacity: int, history: list[tuple[tuple[str, int, dict[str, str], int], int]]) -> None:
    """133, 135, 136, 137, 138, 161, 162, 163, 165: memos of all sizes and ages.

    Shapes are checked at different times, so that each memo meets few changes, many, and a grown cluster.
    """
    checked = Checked(capacity)
    for serial, (step, asked) in enumerate(history):
        apply(checked.seen, step, serial)
        if asked < len(SHAPES):
            checked.check(SHAPES[asked])
    for pod in SHAPES:
        checked.check(pod)


@settings(max_examples=examples(40), deadline=None)
@given(
    capacities, st.lists(steps, min_size=5, max_size=15), st.lists(st.tuples(st.integers(0, 40), amounts), max_size=12)
)
def test_memos_follow_trials(
    capacity: int, history: list[tuple[str, int, dict[str, str], int]], extra: list[tuple[int, dict[str, str]]]
) -> None:
    """After a trial of any size every answer is as before."""
    checked = Checked(capacity)
    for serial, step in enumerate(history):
        apply(checked.seen, step, serial)
    for pod in SHAPES:
        checked.check(pod)
    coming = [(pod_requesting(f"t{at}", **requests), f"n{where}") for at, (where, requests) in enumerate(extra)]
    with checked.seen.trial(add=coming, remove=list(checked.seen.pods())[:5]):
        for plugin in (*checked.fits.values(), checked.balance):
            for pod in SHAPES:
                checked.column(plugin, pod)
        for plugin in checked.fits.values():
            for pod in SHAPES:
                plugin.filter(CycleState(), pod, checked.seen.nodes.present)
    for pod in SHAPES:
        checked.check(pod)
