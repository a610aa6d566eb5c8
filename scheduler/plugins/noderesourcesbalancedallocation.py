"""NodeResourcesBalancedAllocation: prefers nodes whose resources the pod uses more evenly (docs/spec/core.md §5.6).

The arithmetic is upstream v1.36's to the last bit: float64 throughout, truncated where it truncates. The score compares
the balance with the pod to the balance without it, so 75 means no change.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.cache.nodes import Nodes
from scheduler.config.args import NodeResourcesBalancedAllocationArgs
from scheduler.core.nodeset import NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import SKIP, Skip
from scheduler.framework.memo import BySlots, Index, ScoreColumn
from scheduler.framework.points import MAX_NODE_SCORE, Scores
from scheduler.framework.ports import Handle
from scheduler.framework.scoring import Demand, demands
from scheduler.framework.state import CycleState

_HALF: Final = MAX_NODE_SCORE // 2
_Floats: TypeAlias = npt.NDArray[np.float64]


class NodeResourcesBalancedAllocation:
    """PreScore, Score. Scores need no normalisation."""

    name: Final = "NodeResourcesBalancedAllocation"

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None, handle: Handle) -> None:
        args = args if args is not None else NodeResourcesBalancedAllocationArgs()
        self._resources = tuple((resource.name, resource.weight) for resource in args.resources)
        self._nodes = handle.cluster.nodes
        self._columns: BySlots[ScoreColumn] = BySlots(self._nodes)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip for a pod that asks for none of the resources: else such pods would pile up on one node."""
        return None if any(pod.requests.get(name) for name, _ in self._resources) else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """50..100; good until the next call for a pod with the same requests."""
        requests = pod.requests
        shape = tuple([requests.get(name, 0) for name, _ in self._resources])
        return self._columns.get(shape, lambda: self._column(pod)).column

    def _column(self, pod: PodInfo) -> ScoreColumn:
        wanted = demands(pod, self._resources, non_zero=False)
        nodes = self._nodes
        return ScoreColumn(
            nodes,
            many=lambda index: _score_many(nodes, wanted, index),
            one=lambda slot: _score_one(nodes, wanted, slot),
        )


def _score_one(nodes: Nodes, wanted: tuple[Demand, ...], slot: int) -> int:
    with_pod, without = [], []
    for demand in wanted:
        allocatable, used = demand.of(nodes, slot)
        if allocatable:
            whole = float(allocatable)
            with_pod.append(min(float(used + demand.amount) / whole, 1.0))
            without.append(min(float(used) / whole, 1.0))
    return _HALF + (_HALF + _balance_one(with_pod) - _balance_one(without)) // 2


def _balance_one(fractions: list[float]) -> int:
    spread = 0.0
    if len(fractions) == 2:
        spread = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = _in_order(fractions) / len(fractions)
        spread = math.sqrt(_in_order([(f - mean) * (f - mean) for f in fractions]) / len(fractions))
    return int((1 - spread) * MAX_NODE_SCORE)


def _in_order(values: list[float]) -> float:
    """Added one by one: `sum` of Python 3.12 compensates, which Go does not."""
    total = 0.0
    for value in values:
        total += value
    return total


def _score_many(nodes: Nodes, wanted: tuple[Demand, ...], index: Index) -> Scores:
    with_pod: list[_Floats] = []
    without: list[_Floats] = []
    counted: list[npt.NDArray[np.bool_]] = []
    for demand in wanted:
        columns = demand.columns(nodes, index)
        if columns is None:
            continue
        allocatable, used = columns
        whole = np.maximum(allocatable, 1).astype(np.float64)
        with_pod.append(np.minimum((used + demand.amount) / whole, 1.0))
        without.append(np.minimum(used / whole, 1.0))
        counted.append(allocatable > 0)
    if len(counted) < 2:
        return np.full(nodes.pod_count[index].shape, _HALF + _HALF // 2, dtype=np.int64)
    better: Scores = _balance_many(with_pod, counted) - _balance_many(without, counted)
    return _HALF + (_HALF + better) // 2


def _balance_many(fractions: list[_Floats], counted: list[npt.NDArray[np.bool_]]) -> Scores:
    if len(fractions) == 2:
        spread = np.abs(fractions[0] - fractions[1]) / 2
        both = counted[0] & counted[1]
        return _truncated(spread if both.all() else np.where(both, spread, 0.0))
    # Left-out resources add 0, so the sums are those of the counted ones in their order.
    count = sum(mask.astype(np.float64) for mask in counted)
    total = sum(np.where(mask, f, 0.0) for f, mask in zip(fractions, counted))
    mean = total / np.maximum(count, 1.0)
    squares = sum(np.where(mask, (f - mean) * (f - mean), 0.0) for f, mask in zip(fractions, counted))
    spread = np.sqrt(squares / np.maximum(count, 1.0))
    highest = np.maximum.reduce([np.where(mask, f, -1.0) for f, mask in zip(fractions, counted)])
    lowest = np.minimum.reduce([np.where(mask, f, 2.0) for f, mask in zip(fractions, counted)])
    spread = np.where(count == 2.0, (highest - lowest) / 2, spread)
    return _truncated(np.where(count >= 2.0, spread, 0.0))


def _truncated(spread: _Floats) -> Scores:
    score: Scores = ((1 - spread) * MAX_NODE_SCORE).astype(np.int64)
    return score
