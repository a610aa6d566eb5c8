"""NodeResourcesFit at its extension points, and its scoring strategies (docs/spec/core.md §5.5).

The strategies are LeastAllocated, MostAllocated and RequestedToCapacityRatio. Upstream computes with integers.
Columns divide as float64, which gives the same integers while an amount times 100 is below 2**53. For larger
amounts (90 TB of memory in one node) they use Python's integers.

Upstream does not exclude ignored resources when a node is added or grows, and leaves pods waiting that would fit. Here
such events retry the pod.
A larger amount of an ignored resource alone retries no pod.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import CPU, MEMORY, PodInfo, Requests, allocatable, containers_alone
from scheduler.api.quantity import NATIVE
from scheduler.api.resource_v1 import IMPLICIT_EXTENDED_RESOURCE, DeviceClass
from scheduler.cache.devices.manager import ServedResources
from scheduler.cache.nodes.nodes import Matrix, Nodes
from scheduler.config.args import NodeResourcesFitArgs, ScoringStrategy
from scheduler.core import nodeset
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.core.nodeset import EMPTY, Mask, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import MAX_NODE_SCORE, CycleState, EventHint, Hint, Scores, Tally, Topics
from scheduler.framework.memo import BySlots, Index, ScoreColumn, all_alike, by_requests, queue_itself
from scheduler.framework.scoring import Demand, ScoredDevices, broken_line, demands
from scheduler.framework.status import Groups
from scheduler.plugins.noderesourcesfit.shortage import (
    PLUGIN,
    Ignored,
    RemainingResources,
    Shortage,
    checked,
    number,
    rejection,
)

_PODS: Final = "pods"
_CAME: Final = "a node came"
_BYTES_PER_MILLI_CPU: Final = 4 * 1024**2
"""A common ratio on nodes; it decides which of the two a pod requests more of."""

Size: TypeAlias = tuple[str, int]
"""A resource and the bit length of an amount: a node with a shorter one is too small for the pod."""


class NodeResourcesFitHints:
    """The hints of one profile.

    Upstream: pkg/scheduler/framework/plugins/noderesources/fit.go EventsToRegister
    """

    def __init__(self, ignored: Ignored, served: ServedResources) -> None:
        self._ignored = ignored
        self._served = served
        self._seen: tuple[tuple[Node, Requests], ...] = ()

    def events(self) -> Sequence[EventHint]:
        """Return the events that free or add resources, or that lower the pod's requests.

        A device class may also begin to serve a resource that no node has.
        """
        shrank = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
        events = (
            EventHint(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), _after_pod_gone, all_alike),
            EventHint(shrank, _after_neighbour_shrank, by_requests, Topics(_wanted, _given_back)),
            EventHint(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN), queue_itself),
            EventHint(node, self._after_node, by_requests, Topics(self._waits_for, self._offers)),
        )
        if not self._served.is_on:
            return events
        return (*events, EventHint(ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | UPDATE), _after_class, by_requests))

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        if new is None:
            return Hint.SKIP
        wanted, served = checked(pod.requests, self._ignored), self._served.among(pod.requests)
        now = self._amounts(new)
        by_devices = [name for name in served if not now.get(name, 0)]
        wanted = tuple(each for each in wanted if each[0] not in by_devices)
        if now.get(_PODS, 0) < 1 or any(amount > now.get(name, 0) for name, amount in wanted):
            return Hint.SKIP
        if old is None or by_devices:
            return Hint.QUEUE
        before = self._amounts(old)
        grew = any(now.get(name, 0) > before.get(name, 0) for name in (_PODS, *(name for name, _ in wanted)))
        return Hint.QUEUE if grew else Hint.SKIP

    def _waits_for(self, pod: PodInfo) -> Iterator[Hashable] | None:
        """Yield topics of nodes that are new or grew, and are large enough in the resource the pod requests most of.

        Returns None for pods with resources that devices may serve: any change of a node may help them.
        """
        if self._served.among(pod.requests):
            return None
        wanted = checked(pod.requests, self._ignored)
        size = _size(wanted)
        return ((name, size) for name in (_CAME, _PODS, *(name for name, _ in wanted)))

    def _offers(self, old: Node | None, new: Node | None) -> Iterator[Hashable]:
        """Yield the resources that grew, for each size that the node can hold."""
        if new is None:
            return iter(())
        now = self._amounts(new)
        grown = (_CAME,) if old is None else tuple(_larger(now, self._amounts(old)))
        return ((name, size) for name in grown for size in _sizes(now))

    def _amounts(self, node: Node) -> Requests:
        """Return a node's allocatable amounts, parsed once per event for all shapes of waiting pods."""
        for seen, amounts in self._seen:
            if seen is node:
                return amounts
        amounts = allocatable(node.status.allocatable)
        self._seen = ((node, amounts), *self._seen[:1])
        return amounts


def _after_pod_gone(_pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
    had_node = old is not None and (old.node_name or old.pod.status.nominated_node_name)
    return Hint.QUEUE if had_node else Hint.SKIP


def _after_class(pod: PodInfo, old: DeviceClass | None, new: DeviceClass | None) -> Hint:
    """Return QUEUE if the class now serves a resource that the pod requests, and did not before."""
    if new is None:
        return Hint.SKIP
    now = _serves(new) - (_serves(old) if old is not None else set())
    return Hint.QUEUE if any(pod.requests.get(name, 0) > 0 for name in now) else Hint.SKIP


def _serves(device_class: DeviceClass) -> set[str]:
    own = device_class.spec.extended_resource_name
    implicit = IMPLICIT_EXTENDED_RESOURCE + device_class.metadata.name
    return {implicit, own} if own else {implicit}


def _after_neighbour_shrank(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
    if old is None or new is None or not new.node_name:
        return Hint.SKIP
    freed = any(
        amount > 0 and old.requests.get(name, 0) > new.requests.get(name, 0) for name, amount in pod.requests.items()
    )
    return Hint.QUEUE if freed else Hint.SKIP


def _wanted(pod: PodInfo) -> Iterator[Hashable]:
    """Return the resources that the pod requests some of."""
    return (name for name, amount in pod.requests.items() if amount > 0)


def _given_back(old: PodInfo | None, new: PodInfo | None) -> Iterator[Hashable]:
    return _larger(old.requests, new.requests) if old is not None and new is not None else iter(())


def _larger(one: Requests, other: Requests) -> Iterator[str]:
    return (name for name in dict.fromkeys((*one, *other)) if one.get(name, 0) > other.get(name, 0))


def _size(wanted: Iterable[tuple[str, int]]) -> Size:
    """Return the size of a rare resource if the pod requests one, else of cpu or memory, else one pod."""
    amounts = dict(wanted)
    rare = next((name for name in amounts if name not in NATIVE), "")
    by_memory = amounts.get(MEMORY, 0) > amounts.get(CPU, 0) * _BYTES_PER_MILLI_CPU
    for name in (rare, MEMORY if by_memory else CPU, *amounts):
        if name in amounts:
            return name, amounts[name].bit_length()
    return _PODS, 1


def _sizes(amounts: Requests) -> Iterator[Size]:
    return ((name, digits) for name, amount in amounts.items() for digits in range(1, amount.bit_length() + 1))


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
