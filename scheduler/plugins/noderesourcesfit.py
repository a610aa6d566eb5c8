"""NodeResourcesFit: whether a pod fits the free resources, and how well (docs/spec/core.md §5.5).

Filter computes a small number per node: bit 0 is "too many pods", bit i+1 "the i-th resource is insufficient", and the
highest bit "preemption cannot help". Operations on columns compute all numbers at once; nodes with equal numbers
share one `Rejection`. A resource that a device class serves (`served`) is not compared on nodes that have none of it
themselves: DynamicResources checks the devices (docs/spec/dra.md §3.12).

The scoring strategies are LeastAllocated, MostAllocated and RequestedToCapacityRatio. Upstream computes with integers.
Columns divide as float64, which gives the same integers while an amount times 100 is below 2**53. For larger
amounts (90 TB of memory in one node) they use Python's integers.

Upstream does not exclude ignored resources when a node is added or grows, and leaves pods waiting that would fit. Here
such events retry the pod. A larger amount of an ignored resource alone retries no pod.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import CPU, MEMORY, PodInfo, Requests, allocatable, containers_alone
from scheduler.api.quantity import NATIVE, domain, is_extended, is_scalar
from scheduler.api.resource_v1 import IMPLICIT_EXTENDED_RESOURCE, DeviceClass
from scheduler.cache.devices.manager import NONE_SERVED, ServedResources
from scheduler.cache.nodes.nodes import Matrix, Nodes
from scheduler.config.args import NodeResourcesFitArgs, ScoringStrategy
from scheduler.core import nodeset
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.core.feature_gates import POD_LEVEL_SCORES
from scheduler.core.nodeset import EMPTY, Mask, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import MAX_NODE_SCORE, CycleState, EventHint, Hint, Scores, Tally, Topics
from scheduler.framework.memo import FEW, BySlots, Index, ScoreColumn, all_alike, by_requests, queue_itself
from scheduler.framework.scoring import Demand, ScoredDevices, broken_line, demands
from scheduler.framework.status import Code, Groups, Rejection

PLUGIN: Final = "NodeResourcesFit"
TOO_MANY_PODS: Final = "Too many pods"


@dataclass(frozen=True, slots=True)
class Ignored:
    """Extended resources that another component checks: by name, or by the domain before the slash."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def covers(self, resource: str) -> bool:
        """Return whether this resource is not checked."""
        return is_extended(resource) and (resource in self.names or domain(resource) in self.groups)


def checked(requests: Requests, ignored: Ignored) -> tuple[tuple[str, int], ...]:
    """Return the amounts to compare, in the order of the reasons: cpu, memory, ephemeral-storage, scalars by name."""
    native = [(name, requests[name]) for name in NATIVE if requests.get(name, 0) > 0]
    scalars = [
        (name, amount)
        for name, amount in requests.items()
        if amount > 0 and name not in NATIVE and is_scalar(name) and not ignored.covers(name)
    ]
    return (*native, *sorted(scalars))


class Shortage:
    """The rejections of all slots for one request; updated per changed slot.

    Upstream: pkg/scheduler/framework/plugins/noderesources/fit.go fitsRequest
    """

    __slots__ = ("_final", "_nodes", "_rejections", "_served", "_wanted", "groups", "rejected")

    def __init__(self, nodes: Nodes, wanted: tuple[tuple[str, int], ...], served: frozenset[str] = NONE_SERVED) -> None:
        self._nodes = nodes
        self._wanted = wanted
        self._served = served
        self._final = 1 << (len(wanted) + 1)
        self._rejections: dict[int, Rejection] = {}
        self.groups: Groups = {}
        self.rejected: NodeSet = EMPTY
        """Every rejected slot. Slots without a node may be in it or not."""
        self.refresh(range(nodes.present.bit_length()))

    def among(self, candidates: NodeSet) -> Groups:
        """Return the rejections of these nodes."""
        if not self.rejected & candidates:
            return {}
        return {rejection: found for rejection, slots in self.groups.items() if (found := slots & candidates)}

    def refresh(self, slots: Sequence[int]) -> None:
        """Update the slots whose columns changed."""
        if isinstance(slots, range):
            self.groups, self.rejected = {}, EMPTY
            self._refuse(slice(slots.stop), (1 << slots.stop) - 1)
        elif len(slots) <= FEW:
            self._forget(nodeset.of(slots))
            for slot in slots:
                self._add(number(self._nodes, self._wanted, slot, self._served), 1 << slot)
        else:
            index = np.array(slots, dtype=np.intp)
            changed = self._set(index, chosen=True)
            self._forget(changed)
            self._refuse(index, changed)

    def _forget(self, slots: NodeSet) -> None:
        if self.rejected & slots:
            self.rejected &= ~slots
            self.groups = {
                rejection: remaining for rejection, held in self.groups.items() if (remaining := held & ~slots)
            }

    def _refuse(self, index: Index, slots: NodeSet) -> None:
        for value, refused in self._numbers(index, slots).items():
            self._add(value, refused)

    def _set(self, index: Index, chosen: Mask | bool) -> NodeSet:
        mask = np.zeros(self._nodes.capacity, dtype=np.bool_)
        mask[index] = chosen
        return nodeset.from_mask(mask)

    def _add(self, value: int, slots: NodeSet) -> None:
        if value:
            rejection = self._rejection(value)
            self.groups[rejection] = self.groups.get(rejection, EMPTY) | slots
            self.rejected |= slots

    def _short(self, index: Index) -> Iterator[tuple[int, tuple[Mask, Mask] | None]]:
        """Yield the bit of each resource that some slot lacks; None for a resource that no node has.

        With it come the slots that have too little free, and those of them that never have enough.
        """
        nodes = self._nodes
        for at, (resource, amount) in enumerate(self._wanted):
            row = nodes.resources().get(resource)
            may_be_devices = resource in self._served
            if row is None:
                if not may_be_devices:
                    yield 1 << (at + 1), None
                continue
            whole = nodes.allocatable[row][index]
            short = whole - nodes.requested[row][index] < amount
            if may_be_devices:
                short &= whole > 0
            if short.any():
                yield 1 << (at + 1), (short, short & (whole < amount))

    def _numbers(self, index: Index, slots: NodeSet) -> dict[int, NodeSet]:
        """Return number → slots.

        A resource that no node has costs a look-up; each resource that some node lacks splits the groups.
        """
        nodes, always = self._nodes, 0
        groups = {0: slots}
        full = nodes.pod_count[index] >= nodes.allowed_pods[index]
        if full.any():
            groups = _split(groups, self._set(index, full), 1)
        unresolvable = EMPTY
        for bit, found in self._short(index):
            if found is None:
                always |= self._final | bit
            else:
                groups = _split(groups, self._set(index, found[0]), bit)
                unresolvable |= self._set(index, found[1])
        if not always & self._final:
            groups = _split(groups, unresolvable, self._final)
        return {value | always: some for value, some in groups.items()}

    def _rejection(self, value: int) -> Rejection:
        cached = self._rejections.get(value)
        if cached is None:
            cached = self._rejections[value] = rejection_of(value, self._wanted)
        return cached


def _split(groups: dict[int, NodeSet], chosen: NodeSet, bit: int) -> dict[int, NodeSet]:
    """Set the bit in the numbers of the chosen slots."""
    parts = [
        each for value, slots in groups.items() for each in ((value | bit, slots & chosen), (value, slots & ~chosen))
    ]
    return {value: slots for value, slots in parts if slots}


class RemainingResources:
    """The requested resources that are free on one node, as pods leave it and come back."""

    __slots__ = ("_free", "_places", "_rejection", "_value", "_wanted", "_whole")

    def __init__(
        self, nodes: Nodes, wanted: tuple[tuple[str, int], ...], slot: int, served: frozenset[str] = NONE_SERVED
    ) -> None:
        if served:
            wanted = tuple(each for each in wanted if each[0] not in served or _whole(nodes, each[0], slot))
        self._wanted = wanted
        self._places = nodes.allowed_pods.item(slot) - nodes.pod_count.item(slot)
        self._whole = [_whole(nodes, name, slot) for name, _ in wanted]
        taken = [nodes.requested_at(slot, name) for name, _ in wanted]  # also of resources that no node offers
        self._free = [whole - held for whole, held in zip(self._whole, taken, strict=True)]
        self._value = 0
        self._rejection: Rejection | None = None

    def add(self, other: PodInfo) -> None:
        self._places -= 1
        requests = other.requests
        for at, (name, _) in enumerate(self._wanted):
            self._free[at] -= requests.get(name, 0)

    def remove(self, other: PodInfo) -> None:
        self._places += 1
        requests = other.requests
        for at, (name, _) in enumerate(self._wanted):
            self._free[at] += requests.get(name, 0)

    def verdict(self) -> Rejection | None:
        """Return the filter's verdict on this node."""
        value = int(self._places <= 0)
        for at, (_, amount) in enumerate(self._wanted):
            if amount > self._free[at]:
                value |= 1 << (at + 1)
                if amount > self._whole[at]:
                    value |= 1 << (len(self._wanted) + 1)
        if value != self._value:  # mostly unchanged, so the object is reused
            self._value, self._rejection = value, rejection_of(value, self._wanted) if value else None
        return self._rejection


def _whole(nodes: Nodes, resource: str, slot: int) -> int:
    row = nodes.resources().get(resource)
    return 0 if row is None else nodes.allocatable.item(row, slot)


def number(nodes: Nodes, wanted: tuple[tuple[str, int], ...], slot: int, served: frozenset[str] = NONE_SERVED) -> int:
    """Return one node's verdict as a number; 0 means that the pod fits."""
    value = int(nodes.pod_count.item(slot) >= nodes.allowed_pods.item(slot))
    rows = nodes.resources()
    for at, (resource, amount) in enumerate(wanted):
        row = rows.get(resource)
        whole = nodes.allocatable.item(row, slot) if row is not None else 0
        if not whole and resource in served:
            continue
        if row is None or amount > whole - nodes.requested.item(row, slot):
            value |= 1 << (at + 1)
            if amount > whole:
                value |= 1 << (len(wanted) + 1)
    return value


def rejection_of(value: int, wanted: tuple[tuple[str, int], ...]) -> Rejection:
    """Return the rejection of a number other than 0."""
    reasons = [TOO_MANY_PODS] if value & 1 else []
    reasons += [f"Insufficient {resource}" for at, (resource, _) in enumerate(wanted) if value >> (at + 1) & 1]
    final = value >> (len(wanted) + 1) & 1
    return Rejection(PLUGIN, Code.UNRESOLVABLE if final else Code.UNSCHEDULABLE, tuple(reasons))


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

        A device class may also begin to serve a resource that no node has. A pod whose nominated node became too
        small can preempt elsewhere; kube-scheduler wakes it from version 1.38 on.
        """
        shrank = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
        events = (
            EventHint(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), _after_pod_gone, all_alike),
            EventHint(shrank, _after_neighbour_shrank, by_requests, Topics(_wanted, _given_back)),
            EventHint(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN), queue_itself),
            EventHint(node, self._after_node, by_requests, Topics(self._waits_for, self._offers)),
            EventHint(
                ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE),
                self._after_nominated_node_shrank,
                _by_requests_and_nomination,
                Topics(_nominated, self._shrank),
            ),
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

    def _after_nominated_node_shrank(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        if old is None or new is None or pod.pod.status.nominated_node_name != new.metadata.name:
            return Hint.SKIP
        now, before = self._amounts(new), self._amounts(old)
        served = self._served.among(pod.requests)
        is_too_small = any(
            now.get(name, 0) < amount <= before.get(name, 0)
            for name, amount in (*checked(pod.requests, self._ignored), (_PODS, 1))
            if name not in served or now.get(name, 0)
        )
        return Hint.QUEUE if is_too_small else Hint.SKIP

    def _shrank(self, old: Node | None, new: Node | None) -> Iterator[Hashable]:
        """Yield the node's name if it has less of a resource."""
        if old is not None and new is not None and any(_larger(self._amounts(old), self._amounts(new))):
            yield new.metadata.name

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


def _by_requests_and_nomination(pod: PodInfo) -> Hashable:
    return by_requests(pod), pod.pod.status.nominated_node_name


def _nominated(pod: PodInfo) -> tuple[Hashable, ...]:
    node_name = pod.pod.status.nominated_node_name
    return (node_name,) if node_name else ()


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
        return NodeResourcesFitHints(self._ignored, self._served).events()

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
