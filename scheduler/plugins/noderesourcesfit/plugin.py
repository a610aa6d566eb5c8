"""NodeResourcesFit at its extension points, and its scoring strategies (docs/spec/core.md §5.5).

The strategies are LeastAllocated, MostAllocated and RequestedToCapacityRatio. Upstream computes with integers.
Columns divide as float64, which gives the same integers while an amount times 100 is below 2**53. For larger
amounts (90 TB of memory in one node) they use Python's integers.
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
    """One configured strategy: scores from 0 to 100 for the pod's demands on a slot, or on an index of slots.

    Upstream: pkg/scheduler/framework/plugins/noderesources/resource_allocation.go resourceAllocationScorer
    """

    def __init__(self, config: ScoringStrategy) -> None:
        self.resources = tuple((resource.name, resource.weight) for resource in config.resources)
        self._counts_free = config.type == "LeastAllocated"
        self._curve = curve(config.shape) if config.type == "RequestedToCapacityRatio" else None
        self._steps = None if self._curve is None else [int(score) for score in self._curve]

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
        out: Scores = mean.astype(np.int64)
        return out

    def _scores(self, whole: Matrix, used: Matrix, amount: int) -> tuple[Curve, Mask | None]:
        """Return the scores for one resource, and the slots where they count (None: all)."""
        counted = None if not whole.size or whole.min() > 0 else whole > 0
        requested = used + amount
        part = np.maximum(whole - requested, 0) if self._counts_free else np.minimum(requested, whole)
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


def curve(shape: tuple[ShapePoint, ...]) -> Curve:
    """Return `broken_line` as a column."""
    return np.array(broken_line(shape), dtype=np.float64)


_FEW: Final = 4
"""Up to this many candidates are checked one by one: the check before Bind, nominated nodes, dry runs."""


class NodeResourcesFit:
    """Filter, Score. Scores need no normalization.

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
        """Reject nodes with too few free resources, each with all resources that are insufficient.

        The rejection is unresolvable if any request is larger than the whole node.
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
        """Count the free resources of this node."""
        return RemainingResources(
            self._nodes, checked(pod.requests, self._ignored), slot, self._served.among(pod.requests)
        )

    def tally_shape(self, pod: PodInfo) -> Hashable:
        """Return the requested amounts, and which of them devices may serve."""
        served, amounts = self._served.among(pod.requests), tuple(pod.requests.items())
        return (amounts, served) if served else amounts

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """Return 0..100 by the configured strategy; valid until the next call for a pod with the same requests.

        Of the pod to schedule only the containers' requests count, as in upstream; of pods on nodes the pod-level
        requests count.
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
        """Return the events that free or add resources, or that lower the pod's requests."""
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
        """Compute the scores without a cache, because nodes do not change when devices are allocated."""
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
