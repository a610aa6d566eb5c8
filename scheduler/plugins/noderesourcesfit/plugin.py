"""NodeResourcesFit at its extension points (docs/spec/core.md §5.5)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from scheduler.config.args import NodeResourcesFitArgs
from scheduler.core import nodeset
from scheduler.core.events import Action, ClusterEvent, Resource
from scheduler.core.node import Node
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.podinfo import CPU, MEMORY, PodInfo, Requests, allocatable
from scheduler.core.verdicts import Groups
from scheduler.framework.hints import EventHint, Hint, Topics
from scheduler.framework.memo import BySlots, ScoreColumn
from scheduler.framework.points import Scores
from scheduler.framework.ports import Handle
from scheduler.framework.scoring import demands
from scheduler.framework.shapes import by_requests, everyone, queue_itself
from scheduler.framework.state import CycleState
from scheduler.framework.whatif import Tally
from scheduler.plugins.noderesourcesfit.shortage import PLUGIN, Ignored, Room, Shortage, checked, number, rejection
from scheduler.plugins.noderesourcesfit.strategies import Strategy

_POD_GONE: Final = ClusterEvent(Resource.POD, Action.DELETE)
_NEIGHBOUR_SHRANK: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
_POD_ITSELF_SHRANK: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCALE_DOWN)
_NODE: Final = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
_PODS: Final = "pods"
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
        return (
            EventHint(_POD_GONE, _after_pod_gone, everyone),
            EventHint(_NEIGHBOUR_SHRANK, _after_neighbour_shrank, by_requests, Topics(_wanted, _given_back)),
            EventHint(_POD_ITSELF_SHRANK, queue_itself),
            EventHint(_NODE, self._after_node, by_requests, Topics(_wanted, _grown)),
        )

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

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        # Upstream forgets the ignored resources here, and leaves pods asleep that a new node could take.
        if new is None:
            return Hint.SKIP
        wanted = checked(pod.requests, self._ignored)
        now = allocatable(new.status.allocatable)
        if now.get(_PODS, 0) < 1 or any(amount > now.get(name, 0) for name, amount in wanted):
            return Hint.SKIP
        if old is None:
            return Hint.QUEUE
        before = allocatable(old.status.allocatable)
        grew = any(now.get(name, 0) > before.get(name, 0) for name in (_PODS, *(name for name, _ in wanted)))
        return Hint.QUEUE if grew else Hint.SKIP


def _after_pod_gone(_pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
    held_a_place = old is not None and (old.node_name or old.pod.status.nominated_node_name)
    return Hint.QUEUE if held_a_place else Hint.SKIP


def _after_neighbour_shrank(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
    if old is None or new is None or not new.node_name:
        return Hint.SKIP
    freed = any(
        amount > 0 and old.requests.get(name, 0) > new.requests.get(name, 0) for name, amount in pod.requests.items()
    )
    return Hint.QUEUE if freed else Hint.SKIP


def _wanted(pod: PodInfo) -> Iterator[Hashable]:
    """Resources of which the pod needs some; a place for itself it always needs."""
    yield _PODS
    yield from (name for name, amount in pod.requests.items() if amount > 0)


def _given_back(old: PodInfo | None, new: PodInfo | None) -> Iterator[Hashable]:
    return _larger(old.requests, new.requests) if old is not None and new is not None else iter(())


def _grown(old: Node | None, new: Node | None) -> Iterator[Hashable] | None:
    """None for a node that came: it may have room for anybody."""
    if old is None or new is None:
        return None
    return _larger(allocatable(new.status.allocatable), allocatable(old.status.allocatable))


def _larger(one: Requests, other: Requests) -> Iterator[Hashable]:
    return (name for name in (*one, *other) if one.get(name, 0) > other.get(name, 0))
