"""The score of `deviceScoring: leastFragmentation`: how much of a node's free devices the pod makes useless.

The measure is that of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023) with one difference; docs/adr/0021
has the reasons. The fragmentation of a node is the free amount of its devices that a typical pod cannot use, averaged over
the typical pods. A worked example, which a test runs. A node has two GPUs, one free and one half free, and 6 free CPUs.
Pods with one GPU and 4 CPUs and pods with half a GPU and 2 CPUs are equally frequent:

    now: the first cannot use the half, the second can use everything, and has the CPUs for it; (0.5 + 0) / 2 = 0.25
    a pod of the second kind takes the half: 1 GPU and 4 CPUs, which both can use; 0, a growth of -0.25
    a pod with 4 CPUs and no device: 1.5 GPUs and 2 CPUs. The first cannot run, the second can use 0.5 of 1.5;
        (1.5 + 1) / 2 = 1.25, a growth of 1

All of it is an estimate, and only orders nodes that passed Filter. Amounts are fractions of a device or of a set of
counters. Each request counts the devices that it could have alone; constraints, prioritized alternatives after the
first, and pools that several nodes see do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import CPU, PodInfo
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.node_kinds import DeviceNodes
from scheduler.cache.devices.pools import Content
from scheduler.cache.nodes.nodes import CPU_ROW, Nodes
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.cooperative import Work
from scheduler.core.nodeset import NodeSet, Slots
from scheduler.framework.interface import Scores
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures, NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate, RequestData

PODS_MAX: Final = 1024
"""The number of pods from which the typical ones are taken, and after which they are taken again."""
_SHAPES_MAX: Final = 64
_COLUMNS_MAX: Final = 128
_NODES_AT_ONCE: Final = 256
_NODES_PER_STEP: Final = 16
_EPSILON: Final = 1e-9
_PER_DEVICE: Final = 1000
"""Scores are in thousandths of a device before they are normalized."""

Amounts: TypeAlias = npt.NDArray[np.float64]


class Shape(NamedTuple):
    """What a pod requests, as far as fragmentation is concerned."""

    demand: ClaimsToAllocate | None
    milli_cpu: int


class TypicalPods:
    """The most frequent shapes among the last pods that requested devices. Each pod counts once, however often it is tried."""

    def __init__(self) -> None:
        self.shapes: Sequence[tuple[Shape, int]] = ()
        """Shapes and how many pods have them, the most frequent first."""
        self._pods: BoundedCache[str, Shape] = BoundedCache(PODS_MAX)
        self._noted = 0
        self._next = 1

    def note(self, uid: str, shape: Shape) -> bool:
        """Record a pod; return whether the shapes were counted again. Amortized O(1)."""
        if uid in self._pods:
            return False
        self._pods.put(uid, shape)
        self._noted += 1
        # Each new count makes all nodes be evaluated again. At first the sample doubles between two counts.
        if self._noted < self._next:
            return False
        self._next += min(self._noted, PODS_MAX)
        self.shapes = Counter(shape for _, shape in self._pods.items()).most_common(_SHAPES_MAX)
        return True


class _Typical:
    """The typical pods as arrays. Each request of a shape is a row; the rows of a shape follow each other."""

    def __init__(self, shapes: Sequence[tuple[Shape, int]]) -> None:
        requests = [list(_requests(shape.demand)) for shape, _ in shapes]
        self.rows = [request_data for rows in requests for request_data in rows]
        self.starts = list(accumulate((len(rows) for rows in requests[:-1]), initial=0))
        # A pod that requests all devices of a node can use some as long as there is one.
        self.counts = np.array([1 if each.is_all else each.spec.count for each in self.rows])
        self.milli_cpu = np.array([max(1, shape.milli_cpu) for shape, _ in shapes])
        # Large requests are rare, and cost more when they find no place. Weights by pods alone, as FGD's, neglect them
        # here; weights by devices neglect the small ones.
        devices = np.add.reduceat(self.counts, self.starts)
        weights = np.array([count for _, count in shapes]) * np.sqrt(devices)
        self.weights = weights / weights.sum()
        self.needs: WeakKeyDictionary[Content, Amounts] = WeakKeyDictionary()
        """What the rows need of the units of equal nodes: row × unit."""
        self.columns: BoundedCache[Shape, _Column] = BoundedCache(_COLUMNS_MAX)

    def fragmentation(self, free: Amounts, needs: Amounts, free_milli_cpu: npt.NDArray[np.int64]) -> Amounts:
        """Return the fragmentation of nodes. `free` is node × unit, `needs` node × row × unit."""
        suffices = free[:, None, :] >= needs - _EPSILON
        is_enough = suffices.sum(axis=2) >= self.counts
        can_run = np.logical_and.reduceat(is_enough, self.starts, axis=1)
        can_run &= free_milli_cpu[:, None] >= self.milli_cpu
        is_usable = np.logical_or.reduceat(suffices, self.starts, axis=1)
        usable = np.where(is_usable, free[:, None, :], 0.0).sum(axis=2)
        # The free CPUs limit the number of such pods, and with it the usable amount. FGD checks them for one pod only, and
        # sees too late that devices will be left without CPUs.
        needed = self.counts * np.where(suffices, needs, 0.0).max(axis=2)
        with_cpu = np.add.reduceat(needed, self.starts, axis=1) * (free_milli_cpu[:, None] / self.milli_cpu)
        unusable = free.sum(axis=1)[:, None] - np.where(can_run, np.minimum(usable, with_cpu), 0.0)
        found: Amounts = unusable @ self.weights
        return found


@dataclass(frozen=True, slots=True)
class _Units:
    """The devices of one node. A unit is a device, or all devices that draw on one set of counters."""

    content: Content
    devices: NodeDevices
    numbers: Sequence[Sequence[int]]
    """The numbers of each unit's devices."""
    free: Amounts
    """The free fraction of each unit."""


@dataclass(slots=True)
class _Column:
    """The fragmentation of each node after a pod of one shape. `at` is when a slot was evaluated."""

    values: Amounts
    at: npt.NDArray[np.int64]


class NodeFragmentation:
    """The fragmentation of all nodes, updated per changed node. Single owner: the scheduling loop."""

    def __init__(self, nodes: Nodes, on_nodes: DeviceNodes, use: AllocationState, rules: AllocatorFeatures) -> None:
        self._nodes = nodes
        self._on_nodes = on_nodes
        self._use = use
        self._rules = rules
        self._pods = TypicalPods()
        self._typical: _Typical | None = None
        self._units: dict[int, _Units] = {}
        self._positions = (-1, -1)
        self._now = 0
        self._changed_at = np.zeros(0, dtype=np.int64)

    @property
    def is_known(self) -> bool:
        """Whether any pod has requested devices yet; without one, there is nothing to score."""
        return self._typical is not None

    def note(self, pod: PodInfo, demand: ClaimsToAllocate) -> None:
        """Count a pod among those from which the typical pods are taken."""
        if next(_requests(demand), None) is not None and self._pods.note(pod.uid, _shape(pod, demand)):
            self._typical = _Typical(self._pods.shapes)

    def score(self, pod: PodInfo, demand: ClaimsToAllocate | None, nodes: NodeSet) -> Work[Scores]:
        """Return raw scores: minus the growth of each node's fragmentation, in thousandths of a device.

        O(typical pods) for each node that changed since the last pod of this shape, in steps.
        """
        scores = np.zeros(self._nodes.capacity, dtype=np.int64)
        # A binding that ends while this yields may replace the typical pods. Both columns are those of the same pods.
        typical = self._typical
        if typical is not None:
            self._catch_up()
            slots = nodeset.slots(nodes, self._nodes.capacity)
            before = yield from self._evaluated(typical, Shape(None, 0), slots)
            after = yield from self._evaluated(typical, _shape(pod, demand), slots)
            scores[slots] = np.rint(_PER_DEVICE * (before[slots] - after[slots]))
        return scores

    def _catch_up(self) -> None:
        """Mark the nodes whose pods or devices changed."""
        self._on_nodes.catch_up()
        if len(self._changed_at) != self._nodes.capacity:
            self._changed_at = np.zeros(self._nodes.capacity, dtype=np.int64)
            if self._typical is not None:
                self._typical.columns.clear()
        self._now += 1
        logs = self._nodes, self._on_nodes
        changed, moved = (log.changed_since(position) for log, position in zip(logs, self._positions))
        self._positions = self._nodes.position, self._on_nodes.position
        if changed is None or moved is None:
            self._units.clear()
            self._changed_at[:] = self._now
            return
        self._changed_at[[*changed, *moved]] = self._now
        for slot in moved:
            self._units.pop(slot, None)

    def _evaluated(self, typical: _Typical, shape: Shape, slots: Slots) -> Work[Amounts]:
        """Return the fragmentation of each node after a pod of this shape, up to date for these slots."""
        size = self._nodes.capacity
        column = typical.columns.get_or_make(shape, lambda: _Column(np.zeros(size), np.full(size, -1, dtype=np.int64)))
        stale = slots[column.at[slots] < self._changed_at[slots]]
        alike: dict[int, list[int]] = {}
        for at, slot in enumerate(stale.tolist()):
            units = self._units_of(slot)
            alike.setdefault(len(units.free), []).append(slot)
            yield from _select(_requests(shape.demand), units.devices)
            if units.content not in typical.needs:
                yield from _select(typical.rows, units.devices)
                typical.needs[units.content] = self._needs_of(typical.rows, units)
            if at % _NODES_PER_STEP == 0:
                yield
        for count, group in alike.items():
            for first in range(0, len(group), _NODES_AT_ONCE):
                some = group[first : first + _NODES_AT_ONCE]
                column.values[some] = self._after(typical, shape, some) if count else 0.0
                yield
        column.at[stale] = self._now
        return column.values

    def _after(self, typical: _Typical, shape: Shape, slots: Sequence[int]) -> Amounts:
        """Return the fragmentation of nodes with equally many units after a pod of this shape."""
        units = [self._units_of(slot) for slot in slots]
        free = np.stack([each.free for each in units])
        for request_data in _requests(shape.demand):
            needs = {each.content: self._needs_of((request_data,), each)[0] for each in units}
            _take(free, np.stack([needs[each.content] for each in units]), request_data)
        free_milli_cpu = self._nodes.allocatable[CPU_ROW, slots] - self._nodes.requested[CPU_ROW, slots]
        needs_of_rows = np.stack([typical.needs[each.content] for each in units])
        return typical.fragmentation(free, needs_of_rows, free_milli_cpu - shape.milli_cpu)

    def _needs_of(self, rows: Sequence[RequestData], units: _Units) -> Amounts:
        """Return the fraction of each unit that one device for each of the requests takes, infinite if it has none."""
        return np.array(
            [[min(_share(units.devices, each, n) for n in numbers) for numbers in units.numbers] for each in rows]
        )

    def _units_of(self, slot: int) -> _Units:
        found = self._units.get(slot)
        if found is None:
            found = self._units[slot] = self._new_units(slot)
        return found

    def _new_units(self, slot: int) -> _Units:
        devices = NodeDevices(self._on_nodes, slot, self._use, rules=self._rules)
        own = {view.key for view in self._on_nodes.own_pools(slot)}
        numbers: dict[tuple[int, int | str], list[int]] = {}
        for n, pool in enumerate(devices.pool_of):
            # A device that other nodes see too would count once for each of them.
            if devices.pools[pool].key in own:
                counter_set = None if devices.shared >> n & 1 else next(iter(devices.kind(n).draws), None)
                numbers.setdefault((pool, n if counter_set is None else counter_set[0]), []).append(n)
        free_counters = {pool: devices.free_counters(pool) for pool, key in numbers if isinstance(key, str)}
        free = [
            _free_of_set(devices, pool, key, free_counters[pool]) if isinstance(key, str) else _free(devices, key)
            for pool, key in numbers
        ]
        kind = self._on_nodes.kind(slot)
        content = kind.key[0] if kind is not None else Content()
        return _Units(content, devices, tuple(numbers.values()), np.array(free, dtype=np.float64))


def _shape(pod: PodInfo, demand: ClaimsToAllocate | None) -> Shape:
    return Shape(demand, pod.requests.get(CPU, 0))


def _requests(demand: ClaimsToAllocate | None) -> Iterator[RequestData]:
    """Return the first alternative of each request that takes devices."""
    for claim in demand.claims if demand is not None else ():
        for request in claim.requests:
            first = request.alternatives[0]
            if first.selectors is not None and not first.is_admin:
                yield first


def _select(rows: Iterable[RequestData], devices: NodeDevices) -> Work[None]:
    """Evaluate the selectors in steps, because an expression can take long."""
    for request_data in rows:
        if request_data.selectors is not None:
            yield from request_data.selectors.evaluating(each.kind for each in devices.devices)


def _take(free: Amounts, needs: Amounts, request_data: RequestData) -> None:
    """Take the fullest units that suffice, as the order of `pack` does. `free` and `needs` are node × unit."""
    suffices = free >= needs - _EPSILON
    count = free.shape[1] if request_data.is_all else request_data.spec.count
    fullest = np.argsort(np.where(suffices, free, np.inf), axis=1, kind="stable")[:, :count]
    taken = np.where(suffices, needs, 0.0)
    remaining = np.take_along_axis(free - taken, fullest, axis=1)
    np.put_along_axis(free, fullest, np.maximum(remaining, 0.0), axis=1)


def _share(devices: NodeDevices, request_data: RequestData, number: int) -> float:
    """Return the fraction of the device, or of its set of counters, that the request takes; infinite if it cannot."""
    is_selected = devices.selectable(request_data).mask >> number & 1
    if not is_selected or not devices.is_tolerated(request_data, number):
        return np.inf
    kind = devices.kind(number)
    if devices.shared >> number & 1:
        amounts = devices.amounts(request_data, number)
        if amounts is None:
            return np.inf
        parts = (amount / whole for name, amount in amounts.items() if (whole := kind.capacity[name].value.nano))
        return max(parts, default=0.0)
    if not kind.draws:
        return 1.0
    name = next(iter(kind.draws))[0]
    counters = devices.pools[devices.pool_of[number]].counters.get(name, {})
    return _mean([kind.draws.get((name, each), 0) / whole for each, whole in counters.items() if whole])


def _free(devices: NodeDevices, number: int) -> float:
    """Return the free fraction of a device without counters."""
    if devices.used >> number & 1:
        return 0.0
    consumed = devices.consumed(number)  # it can name capacities that the driver no longer publishes
    capacity = devices.kind(number).capacity
    parts = (consumed.get(name, 0) / each.value.nano for name, each in capacity.items() if each.value.nano)
    return max(0.0, 1.0 - max(parts, default=0.0))


def _free_of_set(devices: NodeDevices, pool: int, name: str, free_counters: dict[tuple[str, str], int]) -> float:
    """Return the free fraction of a set of counters."""
    # The mean, because the largest fraction says nothing where each slice of memory has a separate counter.
    counters = devices.pools[pool].counters.get(name, {})
    return _mean([max(0, free_counters[name, each]) / whole for each, whole in counters.items() if whole])


def _mean(fractions: Sequence[float]) -> float:
    return sum(fractions) / len(fractions) if fractions else 0.0
