"""LeastAllocated, MostAllocated and RequestedToCapacityRatio (docs/spec/core.md §5.5, Scoring).

Upstream computes in whole numbers. Columns divide as float64, which gives the very same whole numbers while an amount
times 100 stays below 2**53; beyond that (90 TB of memory in one node) they fall back to Python's integers.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.cache.nodes import Matrix, Nodes
from scheduler.config.args import ScoringStrategy, ShapePoint
from scheduler.core.nodeset import Mask
from scheduler.framework.memo import Index
from scheduler.framework.points import MAX_NODE_SCORE, Scores
from scheduler.framework.scoring import Demand, broken_line

_EXACT: Final = 2**53 // MAX_NODE_SCORE
Curve: TypeAlias = npt.NDArray[np.float64]


class Strategy:
    """One configured strategy: pod's demands and a slot, or an index of slots, → 0..100."""

    def __init__(self, config: ScoringStrategy) -> None:
        self.resources = tuple((resource.name, resource.weight) for resource in config.resources)
        self._counts_free = config.type == "LeastAllocated"
        self._curve = curve(config.shape) if config.type == "RequestedToCapacityRatio" else None
        self._steps = None if self._curve is None else [int(score) for score in self._curve]

    def one(self, nodes: Nodes, wanted: tuple[Demand, ...], slot: int) -> int:
        """The score of one node, in integers."""
        total = weights = 0
        for demand in wanted:
            whole, used = demand.of(nodes, slot)
            if not whole:
                continue
            asked = used + demand.amount
            part = max(whole - asked, 0) if self._counts_free else min(asked, whole)
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
        """The scores of an index of slots, equal to `one` of each."""
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
        out: Scores = mean.astype(np.int64)
        return out

    def _scores(self, whole: Matrix, used: Matrix, amount: int) -> tuple[Curve, Mask | None]:
        """Scores for one resource, and the slots where they count (None: all)."""
        counted = None if not whole.size or whole.min() > 0 else whole > 0
        asked = used + amount
        part = np.maximum(whole - asked, 0) if self._counts_free else np.minimum(asked, whole)
        score = percent(part, whole if counted is None else np.maximum(whole, 1))
        if self._curve is None:
            return score, counted
        score = self._curve[score.astype(np.intp)]
        positive = score > 0
        return score, positive if counted is None else counted & positive


def percent(part: Matrix, whole: Matrix) -> Curve:
    """`part * 100 // whole` for 0 <= part <= whole and whole > 0, exactly."""
    if whole.size and int(whole.max()) >= _EXACT:
        exact: Curve = (part.astype(object) * MAX_NODE_SCORE // whole.astype(object)).astype(np.float64)
        return exact
    return np.floor(part * float(MAX_NODE_SCORE) / whole)


def curve(shape: tuple[ShapePoint, ...]) -> Curve:
    """`broken_line` as a column."""
    return np.array(broken_line(shape), dtype=np.float64)
