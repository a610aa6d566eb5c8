"""What is looked at before the search: whether the claims can be asked at all, and where an error may be waiting.

Source: docs/spec/dra.md §4.4, in upstream's order, with its texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.api.resource_v1 import RESULTS_MAX
from scheduler.cache.devices.pools import PoolState
from scheduler.plugins.dra.node_devices import NodeDevices
from scheduler.plugins.dra.requests import ClaimsToAllocate, RequestData, too_many
from scheduler.plugins.dra.selectors import SelectorFault

NO_RISK: Final = (-1, -1)
Lists = dict[int, list[int]]
"""Id of an ask for all devices there are → these."""


class AllocationError(Exception):
    """The claims, their classes or a selector are wrong: the attempt ends, whatever other nodes there are."""


class FailedOnNode(Exception):
    """Only this node is out."""


class TimedOut(Exception):
    """The search of one node took too long."""


def check(demand: ClaimsToAllocate, node_devices: NodeDevices, names: Sequence[str]) -> Lists:
    """What asks for everything get. Raises AllocationError; `names` are the claims' for its text."""
    lists: Lists = {}
    for claim, name in zip(demand.claims, names, strict=True):
        least = 0
        for request in claim.requests:
            if request.problem:
                raise AllocationError(request.problem.format(claim=name))
            least += min([_needed(ask, node_devices, name, lists) for ask in request.asks])
        text = too_many(name, least)
        if text or claim.constraint_problem:
            raise AllocationError(text or f"claim {name}, {claim.constraint_problem}")
    return lists


def _needed(ask: RequestData, node_devices: NodeDevices, claim: str, lists: Lists) -> int:
    about = f"claim {claim}, request {ask.own_name}"
    if ask.problem:
        raise AllocationError(about + ask.problem)
    if not ask.is_all:
        return ask.spec.count
    bad = node_devices.first_incomplete
    candidates = node_devices.selectable(ask)
    limit = len(node_devices.devices)
    if bad is not None:
        limit = sum(len(view.devices) for view in node_devices.pools[: node_devices.pools.index(bad)])
    fault = next((n for n in sorted(candidates.faults) if n < limit), None)
    if fault is not None:
        raise fault_error(candidates.faults[fault], claim, ask)
    if bad is not None:
        what = "being updated" if bad.state is PoolState.INCOMPLETE else "invalid"
        pool = f"{bad.key.driver}/{bad.key.name}"
        raise AllocationError(f"{about}: asks for all devices, but resource pool {pool} is currently {what}")
    found = [n for n in range(len(node_devices.devices)) if candidates.mask >> n & 1]
    if node_devices.rules.consumable:
        found = [n for n in found if node_devices.fits(ask, n, {})]
    lists[id(ask)] = found
    return len(found)


def fault_error(fault: SelectorFault, claim: str, ask: RequestData) -> AllocationError:
    """What to raise when the search comes to a device whose selector fails."""
    owner = f"class {ask.spec.device_class_name}" if fault.of_class else f"claim {claim}"
    return AllocationError(f"{owner}: selector #{fault.at}: {fault.text}")


def risk_of(demand: ClaimsToAllocate, node_devices: NodeDevices, lists: Mapping[int, Sequence[int]]) -> tuple[int, int]:
    """The last request (claim, request) at which an error may be waiting: up to there nothing must be cut off."""
    risk, most = NO_RISK, [0] * len(demand.claims)
    for c, claim in enumerate(demand.claims):
        for r, request in enumerate(claim.requests):
            if any(_may_raise(demand, c, ask, node_devices) for ask in request.asks):
                risk = (c, r)
            most[c] += max(len(lists[id(ask)]) if ask.is_all else ask.spec.count for ask in request.asks)
    if risk != NO_RISK and max(most, default=0) > RESULTS_MAX:
        return len(most), 0  # "too many" must not be taken for an ordinary failure either
    return risk


def _may_raise(demand: ClaimsToAllocate, c: int, ask: RequestData, node_devices: NodeDevices) -> bool:
    if ask.is_all:
        return any(each.concerns(ask.request, ask.full_name) for each in demand.claims[c].constraints)
    return any(ask.is_admin or not node_devices.used >> number & 1 for number in node_devices.selectable(ask).faults)
