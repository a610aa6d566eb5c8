"""NodeResourcesFit at its extension points, and its scoring strategies (docs/spec/core.md §5.5).

LeastAllocated, MostAllocated and RequestedToCapacityRatio (docs/spec/core.md §5.5, Scoring).

Upstream computes in whole numbers. Columns divide as float64, which gives the very same whole numbers while an amount
times 100 stays below 2**53; beyond that (90 TB of memory in one node) they fall back to Python's integers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import CPU, MEMORY, PodInfo, containers_alone
from scheduler.cache.devices.manager import ServedResources
from scheduler.cache.nodes.nodes import Matrix, Nodes
from scheduler.config.args import NodeResourcesFitArgs, ScoringStrategy, ShapePoint
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, Mask, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import MAX_NODE_SCORE, CycleState, EventHint, Scores, Tally
from scheduler.framework.memo import BySlots, Index, ScoreColumn
from scheduler.framework.scoring import Demand, ScoredDevices, broken_line, demands
from scheduler.framework.status import Groups
from scheduler.plugins.noderesourcesfit.hints import NodeResourcesFitHints
from scheduler.plugins.noderesourcesfit.shortage import (
    PLUGIN,
    Ignored,
    RemainingResources,
    Shortage,
    checked,
    number,
    rejection,
)

_EXACT: Final = 2**53 // MAX_NODE_SCORE
Curve: TypeAlias = npt.NDArray[np.float64]


class Strategy:
    """One configured strategy: pod's demands and a slot, or an index of slots, → 0..100.

    Upstream: pkg/scheduler/framework/plugins/noderesources/resource_allocation.go resourceAllocationScorer
    """

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


_FEW: Final = 4
"""So many candidates are asked one by one: the second look before Bind, nominations, trials."""


class NodeResourcesFit:
    """Filter, Score. Scores need no normalisation.

    Upstream: pkg/scheduler/framework/plugins/noderesources/fit.go Fit
    """

    name: Final = PLUGIN

    def __init__(self, args: NodeResourcesFitArgs | None, handle: Handle) -> None:
        args = args if args is not None else NodeResourcesFitArgs()
        self._ignored = Ignored(frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups))
        self._strategy = Strategy(args.scoring_strategy)
        self._others = [name for name, _ in self._strategy.resources if name not in {CPU, MEMORY}]
        self._nodes = handle.cluster.nodes
        self._served = ServedResources(handle.cluster.devices.classes, handle.feature_gates)
        self._scored_devices = ScoredDevices(handle, self._others)
        self._shortages: BySlots[Shortage] = BySlots(self._nodes)
        self._columns: BySlots[ScoreColumn] = BySlots(self._nodes)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Nodes without room are out, each with all resources that are short.

        Unresolvable if any request is larger than the whole node.
        """
        if nodes.bit_count() <= _FEW:
            return self._one_by_one(pod, nodes)
        served = self._served.among(pod.requests)
        shape: Hashable = tuple(pod.requests.items())
        if served:
            shape = shape, served
        kept = self._shortages.get(shape, lambda: Shortage(self._nodes, checked(pod.requests, self._ignored), served))
        return kept.among(nodes)

    def tally(self, state: CycleState, pod: PodInfo, slot: int) -> Tally:
        """Room on this node."""
        return RemainingResources(
            self._nodes, checked(pod.requests, self._ignored), slot, self._served.among(pod.requests)
        )

    def tally_shape(self, pod: PodInfo) -> Hashable:
        """The requested amounts, and which of them devices may stand in for."""
        served, amounts = self._served.among(pod.requests), tuple(pod.requests.items())
        return (amounts, served) if served else amounts

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """0..100 by the configured strategy; good until the next call for a pod with the same requests.

        Of the pod that comes its containers count, as upstream: only on nodes do pods count with what they ask for as a whole.
        """
        if pod.pod.spec.resources.requests:
            pod = containers_alone(pod)
        devices = self._scored_devices.among(pod)
        if devices:
            return self._with_devices(pod, devices)
        requests = pod.requests
        others = [requests.get(name, 0) for name in self._others]
        shape = (pod.non_zero_milli_cpu, pod.non_zero_memory_bytes, *others)
        return self._columns.get(shape, lambda: self._column(pod)).column

    def events_to_register(self) -> Sequence[EventHint]:
        """Room appeared: a pod went or shrank, a node came or grew; or the pod itself asks for less."""
        return NodeResourcesFitHints(self._ignored, self._served).events()

    def _one_by_one(self, pod: PodInfo, nodes: NodeSet) -> Groups:
        wanted, served = checked(pod.requests, self._ignored), self._served.among(pod.requests)
        groups: Groups = {}
        for slot in nodeset.each(nodes):
            value = number(self._nodes, wanted, slot, served)
            if value:
                no = rejection(value, wanted)
                groups[no] = groups.get(no, EMPTY) | 1 << slot
        return groups

    def _with_devices(self, pod: PodInfo, served: frozenset[str]) -> Scores:
        """Worked out anew: nodes do not tell when devices are taken."""
        wanted = self._scored_devices.counted(demands(pod, self._strategy.resources, non_zero=True), served)
        column: Scores = np.zeros(self._nodes.capacity, dtype=np.int64)
        top = self._nodes.present.bit_length()
        column[:top] = self._strategy.many(self._nodes, wanted, slice(top))
        return column

    def _column(self, pod: PodInfo) -> ScoreColumn:
        nodes, strategy = self._nodes, self._strategy
        wanted = demands(pod, strategy.resources, non_zero=True)
        return ScoreColumn(
            nodes,
            many=lambda index: strategy.many(nodes, wanted, index),
            one=lambda slot: strategy.one(nodes, wanted, slot),
        )
