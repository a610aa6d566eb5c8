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
from scheduler.framework.scoring import Demand, ScoredDevices, demands
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

        def many(index: Index) -> Scores:
            without = self._bare.get(names, lambda: _balances(nodes, nothing)).column
            better = _balance_many(nodes, wanted, index) - without[index]
            return _HALF + (_HALF + better) // 2

        def one(slot: int) -> int:
            better = _balance_one(nodes, wanted, slot) - _balance_one(nodes, nothing, slot)
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
    offered = [(*columns, demand.amount) for demand in wanted if (columns := demand.columns(nodes, index)) is not None]
    if len(offered) < 2:
        return np.full(nodes.pod_count[index].shape, MAX_NODE_SCORE, dtype=np.int64)
    # On a thousand slots one operation on `[resource, slot]` costs less than one for each resource.
    whole, used, amounts = (np.array(part, dtype=np.int64) for part in zip(*offered))
    requested = used.view(np.uint64) + amounts.view(np.uint64)[:, np.newaxis]  # may exceed int64, but not uint64
    counted: Mask | None = None  # every slot has every resource
    if whole.min(initial=1) <= 0:
        counted = whole > 0
        whole = np.maximum(whole, 1)
    fractions: _Floats = np.minimum(requested / whole, 1.0)
    spread = (_spread_two if len(offered) == 2 else _spread_more)(fractions, counted)
    score: Scores = ((1 - spread) * MAX_NODE_SCORE).astype(np.int64)
    return score


def _spread_two(fractions: _Floats, counted: Mask | None) -> _Floats:
    spread: _Floats = np.abs(fractions[0] - fractions[1]) / 2
    return spread if counted is None else np.where(counted[0] & counted[1], spread, 0.0)


def _spread_more(fractions: _Floats, counted: Mask | None) -> _Floats:
    # Resources that do not count add 0. `sum` adds the rows in their order, which `np.sum` does not promise.
    if counted is None:
        counted = np.ones(fractions.shape, dtype=np.bool_)
    count = np.add.reduce(counted)
    mean = sum(np.where(counted, fractions, 0.0)) / np.maximum(count, 1)
    squares = sum(np.where(counted, (fractions - mean) * (fractions - mean), 0.0))
    deviation = np.sqrt(squares / np.maximum(count, 1))
    highest, lowest = fractions.max(0, where=counted, initial=0.0), fractions.min(0, where=counted, initial=1.0)
    spread: _Floats = np.where(count == 2, (highest - lowest) / 2, deviation)
    return np.where(count >= 2, spread, 0.0)
