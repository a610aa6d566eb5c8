"""The scoring strategies LeastAllocated, MostAllocated and RequestedToCapacityRatio (docs/spec/core.md §5.5).

Upstream computes with integers. Columns divide as float64, which gives the same integers while an amount times 100 is
below 2**53. For larger amounts (90 TB of memory in one node) they use Python's integers.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.cache.nodes.nodes import Matrix, Nodes
from scheduler.config.args import ScoringStrategy
from scheduler.core.nodeset import Mask
from scheduler.framework.interface import MAX_NODE_SCORE, Scores
from scheduler.framework.memo import Index
from scheduler.framework.scoring import Demand, broken_line

_EXACT: Final = 2**53 // MAX_NODE_SCORE
Curve: TypeAlias = npt.NDArray[np.float64]


class Strategy:
    """One configured strategy: scores from 0 to 100 for the pod's demands on a slot, or on an index of slots.

    Upstream: pkg/scheduler/framework/plugins/noderesources/resource_allocation.go resourceAllocationScorer
    """

    def __init__(self, config: ScoringStrategy) -> None:
        self.resources = tuple((resource.name, resource.weight) for resource in config.resources)
        self._counts_free = config.type == "LeastAllocated"
        self._steps = broken_line(config.shape) if config.type == "RequestedToCapacityRatio" else None
        self._curve: Curve | None = None if self._steps is None else np.array(self._steps, dtype=np.float64)

    def one(self, nodes: Nodes, wanted: tuple[Demand, ...], slot: int) -> int:
        """Return the score of one node, computed with integers."""
        total = weights = 0
        for demand in wanted:
            whole, used = demand.of(nodes, slot)
            if not whole:
                continue
            requested = used + demand.amount
            part = max(whole - requested, 0) if self._counts_free else min(requested, whole)
            score = part * MAX_NODE_SCORE // whole
            if self._steps is not None:
                score = self._steps[score]
                if not score:
                    continue
            total += score * demand.weight
            weights += demand.weight
        if not weights:
            return 0
        return (2 * total + weights) // (2 * weights) if self._steps is not None else total // weights

    def many(self, nodes: Nodes, wanted: tuple[Demand, ...], index: Index) -> Scores:
        """Return the scores of an index of slots, equal to `one` of each."""
        total: Curve = np.zeros(nodes.pod_count[index].shape)
        weights: Curve | float = 0.0  # one number as long as every slot has every resource
        for demand in wanted:
            columns = demand.columns(nodes, index)
            if columns is None:
                continue
            score, counted = self._scores(*columns, demand.amount)
            weight = float(demand.weight)
            if counted is None or counted.all():
                total += score if weight == 1.0 else score * weight
                weights = weights + weight
            else:
                total += np.where(counted, score * weight, 0.0)
                weights = weights + np.where(counted, weight, 0.0)
        divisor = np.maximum(weights, 1.0)
        mean = total / divisor if self._curve is None else (2 * total + divisor) / (2 * divisor)
        scores: Scores = mean.astype(np.int64)
        return scores

    def _scores(self, whole: Matrix, used: Matrix, amount: int) -> tuple[Curve, Mask | None]:
        """Return the scores for one resource, and the slots where they count (None: all)."""
        counted = None if not whole.size or whole.min() > 0 else whole > 0
        free = np.maximum(whole - used, amount) - amount  # with the pod; used + amount may exceed int64
        part = free if self._counts_free else whole - free
        score = percent(part, whole if counted is None else np.maximum(whole, 1))
        if self._curve is None:
            return score, counted
        score = self._curve[score.astype(np.intp)]
        positive = score > 0
        return score, positive if counted is None else counted & positive


def percent(part: Matrix, whole: Matrix) -> Curve:
    """Return `part * 100 // whole` exactly, for 0 <= part <= whole and whole > 0."""
    if whole.size and int(whole.max()) >= _EXACT:
        exact: Curve = (part.astype(object) * MAX_NODE_SCORE // whole.astype(object)).astype(np.float64)
        return exact
    return np.floor(part * float(MAX_NODE_SCORE) / whole)
