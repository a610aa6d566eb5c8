"""The plugin NodeResourcesFit: Filter by free resources, Score by the configured strategy."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from scheduler.api.podinfo import CPU, MEMORY, PodInfo, containers_alone
from scheduler.cache.devices.manager import ServedResources
from scheduler.config.args import NodeResourcesFitArgs
from scheduler.core import nodeset
from scheduler.core.feature_gates import POD_LEVEL_SCORES
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Scores, Tally
from scheduler.framework.memo import BySlots, ScoreColumn
from scheduler.framework.scoring import ScoredDevices, demands
from scheduler.framework.status import Groups
from scheduler.plugins.noderesourcesfit.hints import NodeResourcesFitHints
from scheduler.plugins.noderesourcesfit.shortage import (
    PLUGIN,
    Ignored,
    RemainingResources,
    Shortage,
    checked,
    number,
    rejection_of,
)
from scheduler.plugins.noderesourcesfit.strategy import Strategy

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
        self._scores_pod_level = POD_LEVEL_SCORES in handle.feature_gates
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

        Before 1.38, of the pod to schedule only the containers' requests count; of pods on nodes the pod-level requests
        count in every version.
        """
        if pod.pod.spec.resources.requests and not self._scores_pod_level:
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
        return NodeResourcesFitHints(self._nodes, self._ignored, self._served).events()

    def _one_by_one(self, pod: PodInfo, nodes: NodeSet) -> Groups:
        wanted, served = checked(pod.requests, self._ignored), self._served.among(pod.requests)
        groups: Groups = {}
        for slot in nodeset.each(nodes):
            value = number(self._nodes, wanted, slot, served)
            if value:
                rejection = rejection_of(value, wanted)
                groups[rejection] = groups.get(rejection, EMPTY) | 1 << slot
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
