"""NodeResourcesBalancedAllocation: prefers nodes with even use of resources (docs/spec/core.md §5.6).

The arithmetic is upstream v1.36's to the last bit: float64, truncated where upstream truncates. The score compares
the balance with the pod to the balance without it; 75 means no change.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes.nodes import Nodes
from scheduler.config.args import NodeResourcesBalancedAllocationArgs
from scheduler.core.nodeset import Mask, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import MAX_NODE_SCORE, CycleState, Scores
from scheduler.framework.memo import BySlots, Index, ScoreColumn
from scheduler.framework.scoring import Demand, ScoredDevices, demands, with_pod
from scheduler.framework.status import SKIP, Skip

_HALF: Final = MAX_NODE_SCORE // 2
_Floats: TypeAlias = npt.NDArray[np.float64]


class NodeResourcesBalancedAllocation:
    """PreScore, Score. Scores need no normalization.

    Upstream: pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go BalancedAllocation
    """

    name: Final = "NodeResourcesBalancedAllocation"

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None, handle: Handle) -> None:
        args = args if args is not None else NodeResourcesBalancedAllocationArgs()
        self._resources = tuple((resource.name, resource.weight) for resource in args.resources)
        self._nodes = handle.cluster.nodes
        self._columns: BySlots[ScoreColumn] = BySlots(self._nodes)
        self._bare: BySlots[ScoreColumn] = BySlots(self._nodes)
        """Balance of the nodes without the pod, by set of resources; shared by all pods that request these."""
        self._devices = ScoredDevices(handle, (name for name, _ in self._resources))

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip a pod that requests none of the resources; otherwise such pods would all go to one node."""
        return None if any(pod.requests.get(name) for name, _ in self._resources) else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """Return 50..100; valid until the next call for a pod with the same requests."""
        devices = self._devices.among(pod)
        if devices:
            return self._with_devices(pod, devices)
        requests = pod.requests
        shape = tuple([requests.get(name, 0) for name, _ in self._resources])
        return self._columns.get(shape, lambda: self._column(pod)).column

    def _with_devices(self, pod: PodInfo, served: frozenset[str]) -> Scores:
        """Compute the scores without a cache, because nodes do not change when devices are allocated."""
        nodes = self._nodes
        wanted = self._devices.counted(demands(pod, self._resources, non_zero=False), served)
        nothing = tuple([replace(demand, amount=0) for demand in wanted])
        top = slice(nodes.present.bit_length())
        column: Scores = np.zeros(nodes.capacity, dtype=np.int64)
        column[top] = _HALF + (_HALF + _balance_many(nodes, wanted, top) - _balance_many(nodes, nothing, top)) // 2
        return column

    def _column(self, pod: PodInfo) -> ScoreColumn:
        nodes = self._nodes
        wanted = demands(pod, self._resources, non_zero=False)
        nothing = tuple([replace(demand, amount=0) for demand in wanted])

        names = tuple([demand.resource for demand in wanted])

        def without() -> Scores:
            return self._bare.get(names, lambda: _balances(nodes, nothing)).column

        def many(index: Index) -> Scores:
            better = _balance_many(nodes, wanted, index) - without()[index]
            return _HALF + (_HALF + better) // 2

        def one(slot: int) -> int:
            better = _balance_one(nodes, wanted, slot) - without().item(slot)
            return _HALF + (_HALF + better) // 2

        return ScoreColumn(nodes, many=many, one=one)


def _balances(nodes: Nodes, wanted: tuple[Demand, ...]) -> ScoreColumn:
    return ScoreColumn(
        nodes,
        many=lambda index: _balance_many(nodes, wanted, index),
        one=lambda slot: _balance_one(nodes, wanted, slot),
    )


def _balance_one(nodes: Nodes, wanted: tuple[Demand, ...], slot: int) -> int:
    fractions = []
    for demand in wanted:
        whole, used = demand.of(nodes, slot)
        if whole:
            fractions.append(min(float(used + demand.amount) / float(whole), 1.0))
    return int((1 - _spread_one(fractions)) * MAX_NODE_SCORE)


def _spread_one(fractions: list[float]) -> float:
    if len(fractions) < 2:
        return 0.0
    if len(fractions) == 2:
        return abs((fractions[0] - fractions[1]) / 2)
    mean = _in_order(fractions) / len(fractions)
    return math.sqrt(_in_order([(f - mean) * (f - mean) for f in fractions]) / len(fractions))


def _in_order(values: list[float]) -> float:
    """Add the values one by one: `sum` of Python 3.12 compensates rounding, which Go does not."""
    total = 0.0
    for value in values:
        total += value
    return total


def _balance_many(nodes: Nodes, wanted: tuple[Demand, ...], index: Index) -> Scores:
    fractions: list[_Floats] = []
    counted: list[Mask] = []
    for demand in wanted:
        columns = demand.columns(nodes, index)
        if columns is None:
            continue
        whole, used = columns
        counted.append(whole > 0)
        if not counted[-1].all():
            whole = np.maximum(whole, 1)
        fractions.append(np.minimum(with_pod(used, demand.amount) / whole, 1.0))
    if len(fractions) < 2:
        return np.full(nodes.pod_count[index].shape, MAX_NODE_SCORE, dtype=np.int64)
    spread = _spread_two(fractions, counted) if len(fractions) == 2 else _spread_more(fractions, counted)
    score: Scores = ((1 - spread) * MAX_NODE_SCORE).astype(np.int64)
    return score


def _spread_two(fractions: list[_Floats], counted: list[Mask]) -> _Floats:
    spread = np.abs(fractions[0] - fractions[1]) / 2
    both = counted[0] & counted[1]
    return spread if both.all() else np.where(both, spread, 0.0)


def _spread_more(fractions: list[_Floats], counted: list[Mask]) -> _Floats:
    # Resources that do not count add 0, so the sums are those of the counted ones in their order.
    count = np.zeros(fractions[0].shape)
    total, squares = np.zeros_like(count), np.zeros_like(count)
    for part, mask in zip(fractions, counted):
        count += mask
        total += np.where(mask, part, 0.0)
    mean = total / np.maximum(count, 1.0)
    for part, mask in zip(fractions, counted):
        squares += np.where(mask, (part - mean) * (part - mean), 0.0)
    deviation = np.sqrt(squares / np.maximum(count, 1.0))
    highest = np.maximum.reduce([np.where(mask, part, 0.0) for part, mask in zip(fractions, counted)])
    lowest = np.minimum.reduce([np.where(mask, part, 1.0) for part, mask in zip(fractions, counted)])
    spread: _Floats = np.where(count == 2.0, (highest - lowest) / 2, deviation)
    return np.where(count >= 2.0, spread, 0.0)
