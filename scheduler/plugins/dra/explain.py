"""Explains why requests find no devices: counts per reason, and broken selectors (docs/spec/dra.md §10.3).

Messages of rejections stay upstream's. Counts are computed on request from the current state. A broken selector
becomes one event for the pod.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.devices.node_kinds import usable
from scheduler.cache.devices.pools import PoolState
from scheduler.core.caching import LogOnce
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Recorder
from scheduler.plugins.dra.state import Variant
from scheduler.plugins.dra.structured.bounds import ConstraintCount, counted
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures, NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimToAllocate, RequestData
from scheduler.plugins.dra.structured.selectors import SelectorFault

_log = structlog.get_logger(__name__)
_REMEMBERED: Final = 16_384
_FREE: Final = "free"


@dataclass(slots=True)
class _Tally:
    """The counts of one request. `most` is the largest number of free devices on one node."""

    out: Counter[str] = field(default_factory=Counter)
    most: int = 0
    shared: set[DeviceId] = field(default_factory=set)
    """Devices that several nodes see and that are already counted."""


class DeviceExplanations:
    """The explanations of one profile."""

    def __init__(
        self, devices: SharedDRAManager, recorder: Recorder, rules: AllocatorFeatures, *, scheduler_name: str
    ) -> None:
        self._devices = devices
        self._recorder = recorder
        self._rules = rules
        self._scheduler_name = scheduler_name
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
        self._devices.on_nodes.catch_up()
        out: dict[str, Any] = {"requests": [row for variant in variants for row in self._rows(variant)]}
        constraints = [row for variant in variants for row in self._constraint_rows(variant)]
        if constraints:
            out["constraints"] = constraints
        broken = {key: found.why for (kind, key), found in self._devices.broken.items() if kind == "ResourceSlice"}
        if broken:
            out["unreadableSlices"] = broken
        if self._devices.on_nodes.problem:
            out["problem"] = self._devices.on_nodes.problem
        return out

    def _rows(self, variant: Variant) -> Iterator[dict[str, Any]]:
        if variant.demand is None:
            return
        for claim, name in zip(variant.demand.claims, variant.names, strict=True):
            for request in claim.requests:
                for request_data in request.alternatives:
                    yield self._row(claim, name, request_data, variant.nodes)

    def _constraint_rows(self, variant: Variant) -> Iterator[dict[str, Any]]:
        """Yield for each constraint the most free devices that satisfy it on one node, and the nodes with enough."""
        if variant.demand is None:
            return
        for claim, name in zip(variant.demand.claims, variant.names, strict=True):
            counts = self._counted(claim, variant.nodes) if claim.constraints else []
            for at, constraint in enumerate(claim.constraints):
                here = [(nodes, each[at]) for nodes, each in counts]
                best = max(
                    (each for _, each in here), key=lambda each: (each.most - each.wanted, each.most), default=None
                )
                yield {
                    "claim": name,
                    "constraint": f"{'match' if constraint.is_match else 'distinct'}Attribute {constraint.attribute}",
                    "requests": [r.name for r in claim.requests if constraint.concerns(r.name, r.name)],
                    "wanted": best.wanted if best is not None else 0,
                    "mostOnOneNode": best.most if best is not None else 0,
                    "nodesWithEnough": sum(nodes for nodes, each in here if each.most >= each.wanted),
                }

    def _node_devices(self, slot: int) -> NodeDevices:
        return NodeDevices.of(self._devices.on_nodes, slot, self._devices.use, rules=self._rules)

    def _counted(self, claim: ClaimToAllocate, nodes: NodeSet) -> list[tuple[int, list[ConstraintCount]]]:
        """Return per kind of nodes the number of nodes, and the count of each constraint on one of them."""
        out = []
        for kind in self._devices.on_nodes.kinds():
            alike = kind.nodes & nodes
            if alike:
                slot = alike.bit_length() - 1
                node_devices = self._node_devices(slot)
                free = {
                    request_data.full_name: [
                        n
                        for n in range(len(node_devices.devices))
                        if self._why_not(claim, request_data, node_devices, n) == _FREE
                    ]
                    for request in claim.requests
                    for request_data in request.alternatives
                }
                counts = [counted(constraint, claim, node_devices, free) for constraint in claim.constraints]
                out.append((alike.bit_count(), counts))
        return out

    def _row(self, claim: ClaimToAllocate, name: str, request_data: RequestData, nodes: NodeSet) -> dict[str, Any]:
        tally = _Tally()
        for kind in self._devices.on_nodes.kinds():
            alike = kind.nodes & nodes
            if alike:
                slot = alike.bit_length() - 1
                node_devices = self._node_devices(slot)
                shared = {id(view) for view in kind.visible_pools.views}
                self._count(
                    tally, claim, request_data, node_devices=node_devices, shared=shared, nodes=alike.bit_count()
                )
        seen = tally.out.total()
        free = tally.out.pop(_FREE, 0)
        return {
            "claim": name,
            "request": request_data.full_name,
            "class": request_data.spec.device_class_name,
            "selectors": [each.cel.expression for each in request_data.spec.selectors if each.cel is not None],
            "wanted": "all" if request_data.is_all else request_data.spec.count,
            "nodes": nodes.bit_count(),
            "devices": seen,
            "out": dict(sorted(tally.out.items())),
            "free": free,
            "mostOnOneNode": tally.most,
        }

    def _count(
        self,
        tally: _Tally,
        claim: ClaimToAllocate,
        request_data: RequestData,
        *,
        node_devices: NodeDevices,
        shared: set[int],
        nodes: int,
    ) -> None:
        """Add one node's devices to the tally, for `nodes` equal nodes; devices of the pools `shared` count once."""
        free = 0
        for number, each in enumerate(node_devices.devices):
            why = self._why_not(claim, request_data, node_devices, number)
            free += why == _FREE
            if id(node_devices.pools[node_devices.pool_of[number]]) not in shared:
                tally.out[why] += nodes
            elif each.id not in tally.shared:
                tally.shared.add(each.id)
                tally.out[why] += 1
        for view in node_devices.pools:
            if view.state is not PoolState.GOOD:
                what = "pools that are being updated" if view.state is PoolState.INCOMPLETE else "invalid pools"
                tally.out[what] += nodes if id(view) not in shared else 1
        tally.most = max(tally.most, free)

    def _why_not(
        self, claim: ClaimToAllocate, request_data: RequestData, node_devices: NodeDevices, number: int
    ) -> str:
        each = node_devices.devices[number]
        if not node_devices.rules.binding and each.device.binding_conditions:
            return "binding conditions"
        selected = request_data.selectors.of(each.kind) if request_data.selectors is not None else False
        if isinstance(selected, SelectorFault):
            return "broken selector"
        if not selected:
            return self._selector(request_data, node_devices, number)
        if not usable(each, node_devices.slot):
            return "for other nodes"
        if node_devices.used >> number & 1 and not request_data.is_admin:
            return "in use"
        if not node_devices.is_tolerated(request_data, number):
            return "taint"
        if not self._is_drawable(node_devices, number):
            return "counters" if node_devices.can_skip_operations(number) else "node operations"
        if node_devices.rules.consumable and not node_devices.fits(request_data, number, {}):
            return "capacity"
        lacking = next(
            (
                con.attribute
                for con in claim.constraints
                if con.concerns(request_data.request, request_data.full_name)
                and con.values(each.kind, request_data.full_name) is None
            ),
            None,
        )
        return _FREE if lacking is None else f"constraint on {lacking}"

    def _selector(self, request_data: RequestData, node_devices: NodeDevices, number: int) -> str:
        kind = node_devices.kind(number)
        if request_data.device_class is not None:
            for at, each in enumerate(request_data.device_class.spec.selectors):
                if each.cel is not None and self._devices.holds(each.cel.expression, kind) is not True:
                    return f"class selector #{at}"
        for at, each in enumerate(request_data.spec.selectors):
            if each.cel is not None and self._devices.holds(each.cel.expression, kind) is not True:
                return f"selector #{at}"
        return "selector"

    def _is_drawable(self, node_devices: NodeDevices, number: int) -> bool:
        if not node_devices.may_draw(number):
            return False
        consumes = node_devices.devices[number].device.consumes_counters
        if not consumes or node_devices.has_shares(number):
            return True
        left = node_devices.left_in(node_devices.pool_of[number])
        return all(
            left.get((each.counter_set, counter), 0) >= amount.value.nano
            for each in consumes
            for counter, amount in each.counters.items()
        )

    # -- broken selectors ----------------------------------------------------------------------------------------------

    def warn(self, pod: PodInfo, variant: Variant, nodes: NodeSet) -> None:
        """Record an event that names the device on which a selector fails, if that is the reason on these nodes."""
        note = self._selector_failure(variant, nodes.bit_length() - 1)
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
        if variant.demand is None or slot < 0:
            return ""
        node_devices = self._node_devices(slot)
        for c, _, request_data in variant.demand.request_data:
            if request_data.selectors is None:
                continue
            for number, fault in sorted(node_devices.selectable(request_data).faults.items()):
                if fault.is_of_device:
                    whose = (
                        f"class {request_data.spec.device_class_name}"
                        if fault.of_class
                        else f"request {request_data.full_name}"
                    )
                    about = f"claim {variant.names[c]}: selector #{fault.at} of {whose}"
                    hint = ", guard it with has() or an optional" if fault.is_missing else ""
                    return f"{about} breaks on device {node_devices.devices[number].id}: {fault.text}{hint}"
        return ""
