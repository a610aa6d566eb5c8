"""NodeResourcesFit at its extension points (docs/spec/core.md §5.5)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from scheduler.cache.extendedresources import ServedResources
from scheduler.config.args import NodeResourcesFitArgs
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.podinfo import CPU, MEMORY, PodInfo, containers_alone
from scheduler.core.verdicts import Groups
from scheduler.framework.devicescoring import ScoredDevices
from scheduler.framework.hints import EventHint
from scheduler.framework.memo import BySlots, ScoreColumn
from scheduler.framework.points import Scores, Tally
from scheduler.framework.ports import Handle
from scheduler.framework.scoring import demands
from scheduler.framework.state import CycleState
from scheduler.plugins.noderesourcesfit.hints import Hints
from scheduler.plugins.noderesourcesfit.shortage import PLUGIN, Ignored, Room, Shortage, checked, number, rejection
from scheduler.plugins.noderesourcesfit.strategies import Strategy

_FEW: Final = 4
"""So many candidates are asked one by one: the second look before Bind, nominations, trials."""


class NodeResourcesFit:
    """Filter, Score. Scores need no normalisation."""

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
        return Room(self._nodes, checked(pod.requests, self._ignored), slot, self._served.among(pod.requests))

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
        return Hints(self._ignored, self._served).events()

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
