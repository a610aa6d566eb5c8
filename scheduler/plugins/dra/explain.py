"""Explains why requests find no devices: counts per reason, and broken selectors (docs/spec/dra.md §10.3).

Messages of rejections stay upstream's. Counts are computed on request from the current state. A broken selector
becomes one event for the pod.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import logging
import operator
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import structlog

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import DeviceId, bare_name
from scheduler.cache.devices.node_kinds import NodeKind, usable
from scheduler.cache.devices.pools import PoolState
from scheduler.core.caching import LogOnce
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.plugins.dra.state import Variant
from scheduler.plugins.dra.structured.constraints import AllocationConstraint, Values
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures, NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimToAllocate, RequestData, SelectorFault

_log = structlog.get_logger(__name__)
_REMEMBERED: Final = 16_384
_FREE: Final = "free"
_TAINT: Final = "taint"
_POOLS_MAX: Final = 8


@dataclass(slots=True)
class _Tally:
    """The counts of one request. `most` is the largest number of free devices on one node."""

    excluded: Counter[str] = field(default_factory=Counter)
    most: int = 0
    shared: set[DeviceId] = field(default_factory=set)
    """Devices that several nodes see and that are already counted."""
    taints: set[str] = field(default_factory=set)
    """Taints that are not tolerated."""
    capacities: set[str] = field(default_factory=set)
    """Published names of capacities of the selected devices."""
    requested: set[str] = field(default_factory=set)
    """Requested names of capacities that a selected device has."""
    divisible: int = 0
    """The largest number of free devices on one node that several requests can share."""


class DeviceExplanations:
    def __init__(self, handle: Handle, rules: AllocatorFeatures) -> None:
        self._devices = handle.cluster.devices
        self._recorder = handle.recorder
        self._rules = rules
        self._scheduler_name = handle.scheduler_name
        self._warned = LogOnce(_REMEMBERED)

    # -- numbers -------------------------------------------------------------------------------------------------------

    def log(self, pod: PodInfo, variants: Sequence[Variant]) -> None:
        """Write the counts to the debug log, if it is enabled."""
        if any(variant.demand is not None for variant in variants) and _log.is_enabled_for(logging.DEBUG):
            _log.debug("no node has devices for all claims of a pod", pod=pod.key, **self.of(variants))

    def of(self, variants: Sequence[Variant]) -> dict[str, Any]:
        """Count for each request the devices, and how many are excluded for which reason.

        O(devices of one node per kind of nodes). A device counts under its first reason.
        """
        # This is a question from outside an attempt, so changes may not be applied yet.
        self._devices.on_nodes.catch_up()
        claims = [
            (claim, name, variant.nodes)
            for variant in variants
            if variant.demand is not None
            for claim, name in zip(variant.demand.claims, variant.names, strict=True)
        ]
        rows = [self._row(claim, name, each, nodes) for claim, name, nodes in claims for each in claim.request_data]
        report: dict[str, Any] = {"requests": rows}
        constraints = [row for each in claims for row in self._constraint_rows(*each)]
        if constraints:
            report["constraints"] = constraints
        broken = {key: found.why for (kind, key), found in self._devices.broken.items() if kind == "ResourceSlice"}
        if broken:
            report["unreadableSlices"] = broken
        nodes = functools.reduce(operator.or_, (variant.nodes for variant in variants), EMPTY)
        if pools := list(itertools.islice(self._unusable_pools(nodes), _POOLS_MAX)):
            report["unusablePools"] = pools
        if failure := next(filter(None, map(self._failure_of, variants)), ""):
            report["brokenSelector"] = failure
        if self._devices.on_nodes.shared.problem:
            report["problem"] = self._devices.on_nodes.shared.problem
        return report

    def _constraint_rows(self, claim: ClaimToAllocate, name: str, nodes: NodeSet) -> Iterator[dict[str, Any]]:
        """Yield for each constraint the most free devices that satisfy it on one node, and the nodes with enough."""
        counts = self._counted(claim, nodes) if claim.constraints else []
        for at, constraint in enumerate(claim.constraints):
            counts_here = [(alike, each[at]) for alike, each in counts]
            all_counts = (each for _, each in counts_here)
            # The node that misses the fewest devices is the most useful one to report.
            best = max(all_counts, key=lambda each: (each.most - each.wanted, each.most), default=None)
            yield {
                "claim": name,
                "constraint": f"{'match' if constraint.is_match else 'distinct'}Attribute {constraint.attribute}",
                "requests": [r.name for r in claim.requests if constraint.concerns(r.name, r.name)],
                "wanted": best.wanted if best is not None else 0,
                "mostOnOneNode": best.most if best is not None else 0,
                "nodesWithEnough": sum(alike for alike, each in counts_here if each.most >= each.wanted),
            }

    def _unusable_pools(self, nodes: NodeSet) -> Iterator[dict[str, Any]]:
        """Yield the pools of these nodes whose devices cannot be allocated, with the number of their slices."""
        found = {
            view.key: view
            for kind in self._devices.on_nodes.kinds()
            if kind.nodes & nodes
            for view in self._devices.on_nodes.pools((kind.nodes & nodes).bit_length() - 1)
            if view.state is not PoolState.GOOD
        }
        for key, view in sorted(found.items()):
            # The API has no index by pool, and this runs only when one pod is debugged. A scan is good enough.
            slices = [each for each in self._devices.slices() if (each.spec.driver, each.spec.pool.name) == key]
            newest = max((each.spec.pool.generation for each in slices), default=0)
            current = [each.spec.pool for each in slices if each.spec.pool.generation == newest]
            yield {
                "driver": key.driver,
                "pool": key.name,
                "state": view.state.value,
                "slices": len(current),
                "slicesWanted": current[0].resource_slice_count if current else 0,
                **({"problem": view.problem} if view.problem else {}),
            }

    def _failure_of(self, variant: Variant) -> str:
        """Return the failure of a selector on the first kind of nodes where one fails, or ""."""
        slots = (kind.nodes & variant.nodes for kind in self._devices.on_nodes.kinds())
        texts = (self._selector_failure(variant, alike.bit_length() - 1) for alike in slots if alike)
        return next(filter(None, texts), "")

    def _node_devices(self, slot: int) -> NodeDevices:
        return NodeDevices(self._devices.on_nodes, slot, self._devices.use, rules=self._rules)

    def _kinds(self, nodes: NodeSet) -> Iterator[tuple[NodeKind, NodeDevices, int]]:
        """Yield each kind of these nodes with the devices of one of them, and their number."""
        for kind in self._devices.on_nodes.kinds():
            if alike := kind.nodes & nodes:
                yield kind, self._node_devices(alike.bit_length() - 1), alike.bit_count()

    def _counted(self, claim: ClaimToAllocate, nodes: NodeSet) -> list[tuple[int, list[ConstraintCount]]]:
        """Return per kind of nodes the number of nodes, and the count of each constraint on one of them."""
        report = []
        for _, node_devices, alike in self._kinds(nodes):
            numbers = range(len(node_devices.devices))
            free = {
                request_data.full_name: [
                    n for n in numbers if self._why_not(claim, request_data, node_devices, n) == _FREE
                ]
                for request_data in claim.request_data
            }
            counts = [counted(constraint, claim, node_devices, free) for constraint in claim.constraints]
            report.append((alike, counts))
        return report

    def _row(self, claim: ClaimToAllocate, name: str, request_data: RequestData, nodes: NodeSet) -> dict[str, Any]:
        tally = _Tally()
        for kind, node_devices, alike in self._kinds(nodes):
            self._count(tally, claim, request_data, node_devices=node_devices, kind=kind, nodes=alike)
        seen = tally.excluded.total()
        free = tally.excluded.pop(_FREE, 0)
        return {
            "claim": name,
            "request": request_data.full_name,
            "class": request_data.spec.device_class_name,
            "selectors": [each.cel.expression for each in request_data.spec.selectors if each.cel is not None],
            "wanted": "all" if request_data.is_all else request_data.spec.count,
            "nodes": nodes.bit_count(),
            "devices": seen,
            "out": dict(sorted(tally.excluded.items())),
            "free": free,
            "mostOnOneNode": tally.most,
            **_particulars(request_data, tally),
        }

    def _count(
        self,
        tally: _Tally,
        claim: ClaimToAllocate,
        request_data: RequestData,
        *,
        node_devices: NodeDevices,
        kind: NodeKind,
        nodes: int,
    ) -> None:
        """Add one node's devices to the tally, for `nodes` equal nodes; devices of shared pools count once."""
        free, divisible, shared = 0, 0, {id(view) for view in kind.visible_pools.views}
        for number, each in enumerate(node_devices.devices):
            why = self._why_not(claim, request_data, node_devices, number)
            free += why == _FREE
            divisible += why == _FREE and each.device.allow_multiple_allocations
            if why == _TAINT:
                tally.taints |= {f"{taint.key}:{taint.effect}" for taint in each.device.taints}
            if "selector" not in why:
                tally.capacities.update(each.device.capacity)
                wanted = request_data.spec.capacity.requests if request_data.spec.capacity is not None else ()
                tally.requested.update(n for n in wanted if bare_name(each.id.driver, n) in each.kind.capacity)
            # Devices of the network are seen by many nodes and exist once. Devices of a node count once per node of
            # the kind.
            if id(node_devices.pools[node_devices.pool_of[number]]) not in shared:
                tally.excluded[why] += nodes
            elif each.id not in tally.shared:
                tally.shared.add(each.id)
                tally.excluded[why] += 1
        for view in node_devices.pools:
            if view.state is not PoolState.GOOD:
                what = "pools that are being updated" if view.state is PoolState.INCOMPLETE else "invalid pools"
                tally.excluded[what] += nodes if id(view) not in shared else 1
        tally.most, tally.divisible = max(tally.most, free), max(tally.divisible, divisible)

    def _why_not(
        self, claim: ClaimToAllocate, request_data: RequestData, node_devices: NodeDevices, number: int
    ) -> str:
        each = node_devices.devices[number]
        if not node_devices.rules.binding and each.device.binding_conditions:
            return "binding conditions"
        selected = request_data.selectors.of(each.kind) if request_data.selectors is not None else False
        # A device counts under its first reason. The order follows the search, so that the counts add up to the
        # number of devices.
        if isinstance(selected, SelectorFault):
            return "broken selector"
        if not selected:
            return self._selector(request_data, node_devices, number)
        if not usable(each, node_devices.slot):
            return "for other nodes"
        if node_devices.used >> number & 1 and not request_data.is_admin:
            return "in use"
        if not node_devices.is_tolerated(request_data, number):
            return _TAINT
        if not self._is_drawable(node_devices, number):
            return "counters"
        if node_devices.rules.consumable and not node_devices.fits(request_data, number, {}):
            return "capacity"
        constraints = [constraint for constraint in claim.constraints if request_data.is_under(constraint)]
        lacking = [con.attribute for con in constraints if con.values(each.kind) is None]
        return f"constraint on {lacking[0]}" if lacking else _FREE

    def _selector(self, request_data: RequestData, node_devices: NodeDevices, number: int) -> str:
        kind, device_class = node_devices.kind(number), request_data.device_class
        of_class = device_class.spec.selectors if device_class is not None else ()
        # A class that excludes a device is the administrator's matter, and a request the user's. The report names
        # which of both it was.
        for what, selectors in (("class selector", of_class), ("selector", request_data.spec.selectors)):
            for at, each in enumerate(selectors):
                if each.cel is not None and self._devices.holds(each.cel.expression, kind) is not True:
                    return f"{what} #{at}"
        return "selector"

    def _is_drawable(self, node_devices: NodeDevices, number: int) -> bool:
        if not node_devices.may_draw(number):
            return False
        draws = node_devices.kind(number).draws
        # A further share of a device in use draws nothing.
        if not draws or node_devices.has_shares(number):
            return True
        free_counters = node_devices.free_counters(node_devices.pool_of[number])
        return all(free_counters.get(counter, 0) >= amount for counter, amount in draws.items())

    # -- broken selectors ----------------------------------------------------------------------------------------------

    def warn(self, pod: PodInfo, variant: Variant, slot: int) -> None:
        """Record an event that names the device on which a selector fails, if that is the reason on this node."""
        note = self._selector_failure(variant, slot)
        # Each attempt would write the same event. Once per pod and text is enough, also for the API server.
        if not note or not self._warned.is_new((pod.uid, note)):
            return
        self._recorder.event(
            pod.pod,
            controller=self._scheduler_name,
            type_="Warning",
            reason="DeviceSelectorFailed",
            action="Scheduling",
            note=note,
        )

    def _selector_failure(self, variant: Variant, slot: int) -> str:
        if variant.demand is None:
            return ""
        node_devices = self._node_devices(slot)
        for c, _, request_data in variant.demand.request_data:
            if request_data.selectors is None:
                continue
            for number, fault in sorted(node_devices.selectable(request_data).faults.items()):
                if fault.is_of_device:
                    device_class = f"class {request_data.spec.device_class_name}"
                    whose = device_class if fault.of_class else f"request {request_data.full_name}"
                    about = f"claim {variant.names[c]}: selector #{fault.at} of {whose}"
                    hint = ", guard it with has() or an optional" if fault.is_missing else ""
                    return f"{about} breaks on device {node_devices.devices[number].id}: {fault.text}{hint}"
        return ""


def _particulars(request_data: RequestData, tally: _Tally) -> dict[str, Any]:
    """Return what is special about a request: taints, shared devices, and names of capacities that no device has."""
    spec, report = request_data.spec, dict[str, Any]()
    if tally.taints:
        report["taints"] = sorted(tally.taints)
    if tally.divisible and not request_data.is_all and spec.count > tally.most:
        report["sharedOnOneNode"] = tally.divisible
    wanted = spec.capacity.requests if spec.capacity is not None else {}
    if unknown := [name for name in wanted if name not in tally.requested] if tally.capacities else []:
        published = sorted(tally.capacities)
        report["unknownCapacities"] = {
            name: next(iter(difflib.get_close_matches(name, published, 1)), "") for name in unknown
        }
    return report


# -- constraints, each alone --------------------------------------------------------------------------------------------

Free = Mapping[str, Collection[int]]
"""Full name of a request or alternative → the numbers of the devices that are free for it."""


class ConstraintCount(NamedTuple):
    """One constraint on one node: how many devices are wanted together, and how many are possible."""

    wanted: int
    most: int


class _Option(NamedTuple):
    """One alternative of a request: the number of devices it wants, and the values of the free ones."""

    wanted: int
    values: Mapping[int, Values]


def counted(
    constraint: AllocationConstraint, claim: ClaimToAllocate, node_devices: NodeDevices, free: Free
) -> ConstraintCount:
    """Count the devices of all requests that the constraint concerns, for any choice of alternatives."""
    requests = list(_options(constraint, claim, node_devices, free))
    wanted = sum(min(option.wanted for option in options) for options in requests)
    if not constraint.is_match:
        return ConstraintCount(wanted, _distinct(requests))
    values = {value for options in requests for option in options for seen in option.values.values() for value in seen}
    return ConstraintCount(wanted, max((_alike(requests, value) for value in values), default=0))


def _options(
    constraint: AllocationConstraint, claim: ClaimToAllocate, node_devices: NodeDevices, free: Free
) -> Iterator[Sequence[_Option]]:
    """Yield the alternatives of each request that cannot avoid the constraint by its choice of alternative."""
    for request in claim.requests:
        if not all(request_data.is_under(constraint) for request_data in request.alternatives):
            continue
        options = []
        for request_data in request.alternatives:
            numbers = free[request_data.full_name]
            values = {n: constraint.values(node_devices.kind(n)) or frozenset() for n in numbers}
            options.append(_Option(max(1, len(numbers)) if request_data.is_all else request_data.spec.count, values))
        yield options


def _alike(requests: Sequence[Sequence[_Option]], value: tuple[str, object]) -> int:
    """Return how many devices with this value the requests can take."""
    taken, having_value = 0, set[int]()
    for options in requests:
        with_value = [{number for number, seen in option.values.items() if value in seen} for option in options]
        taken += max(min(option.wanted, len(numbers)) for option, numbers in zip(options, with_value, strict=True))
        having_value.update(*with_value)
    return min(taken, len(having_value))


def _distinct(requests: Sequence[Sequence[_Option]]) -> int:
    """Return how many devices with different values the requests can take."""
    taken, all_values = 0, set[tuple[str, object]]()
    for options in requests:
        values = [{value for seen in option.values.values() for value in seen} for option in options]
        devices = [sum(map(bool, option.values.values())) for option in options]
        taken += max(
            min(option.wanted, count, len(own)) for option, count, own in zip(options, devices, values, strict=True)
        )
        all_values.update(*values)
    return min(taken, len(all_values))
