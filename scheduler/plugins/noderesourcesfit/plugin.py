"""NodeResourcesFit at its extension points (docs/spec/core.md §5.5)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from scheduler.config.args import NodeResourcesFitArgs
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.podinfo import CPU, MEMORY, PodInfo
from scheduler.core.verdicts import Groups
from scheduler.framework.hints import EventHint
from scheduler.framework.memo import BySlots, ScoreColumn
from scheduler.framework.points import Scores
from scheduler.framework.ports import Handle
from scheduler.framework.scoring import demands
from scheduler.framework.state import CycleState
from scheduler.framework.whatif import Tally
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
        self._shortages: BySlots[Shortage] = BySlots(self._nodes)
        self._columns: BySlots[ScoreColumn] = BySlots(self._nodes)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Nodes without room are out, each with all resources that are short.

        Unresolvable if any request is larger than the whole node.
        """
        if nodes.bit_count() <= _FEW:
            return self._one_by_one(pod, nodes)
        shape = tuple(pod.requests.items())
        kept = self._shortages.get(shape, lambda: Shortage(self._nodes, checked(pod.requests, self._ignored)))
        return kept.among(nodes)

    def tally(self, state: CycleState, pod: PodInfo, slot: int) -> Tally:
        """Room on this node."""
        return Room(self._nodes, checked(pod.requests, self._ignored), slot)

    def tally_shape(self, pod: PodInfo) -> Hashable:
        """The requested amounts."""
        return tuple(pod.requests.items())

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """0..100 by the configured strategy; good until the next call for a pod with the same requests."""
        requests = pod.requests
        others = [requests.get(name, 0) for name in self._others]
        shape = (pod.non_zero_milli_cpu, pod.non_zero_memory_bytes, *others)
        return self._columns.get(shape, lambda: self._column(pod)).column

    def events_to_register(self) -> Sequence[EventHint]:
        """Room appeared: a pod went or shrank, a node came or grew; or the pod itself asks for less."""
        return Hints(self._ignored).events()

    def _one_by_one(self, pod: PodInfo, nodes: NodeSet) -> Groups:
        wanted = checked(pod.requests, self._ignored)
        groups: Groups = {}
        for slot in nodeset.each(nodes):
            value = number(self._nodes, wanted, slot)
            if value:
                no = rejection(value, wanted)
                groups[no] = groups.get(no, EMPTY) | 1 << slot
        return groups

    def _column(self, pod: PodInfo) -> ScoreColumn:
        nodes, strategy = self._nodes, self._strategy
        wanted = demands(pod, strategy.resources, non_zero=True)
        return ScoreColumn(
            nodes,
            many=lambda index: strategy.many(nodes, wanted, index),
            one=lambda slot: strategy.one(nodes, wanted, slot),
        )
