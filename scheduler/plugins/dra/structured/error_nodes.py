"""Errors of an allocation: the checks before the search, and the nodes on which it may end in an error.

An error on any candidate node ends the attempt, also where other nodes fit (docs/spec/dra.md §3.4, §4.4, §5.5). The
nodes on which an allocation may end in an error are tracked, and only these are searched before a node is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from scheduler.api.resource_v1 import RESULTS_MAX
from scheduler.cache.devices.node_kinds import DeviceNodes
from scheduler.cache.devices.pools import PoolState, PoolView
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.cooperative import Work
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.plugins.dra.structured.constraints import is_unsupported
from scheduler.plugins.dra.structured.feasibility import bits
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures, CapacityFault, NodeDevices, amounts_of
from scheduler.plugins.dra.structured.requests import (
    ClaimsToAllocate,
    RequestAlternatives,
    RequestData,
    SelectorFault,
    Selectors,
)

NO_RISK: Final = (-1, -1)
Lists = dict[int, list[int]]
"""Id of a request for all devices → these devices."""


class AllocationError(Exception):
    """The claims, their classes or a selector are invalid: the attempt ends, although other nodes may fit."""


class FailedOnNode(Exception):
    """Only this node is rejected."""


class TimedOut(Exception):
    """The search of one node took too long."""


def check(demand: ClaimsToAllocate, node_devices: NodeDevices, names: Sequence[str]) -> Lists:
    """Return the devices of each request for all devices.

    Raises AllocationError and FailedOnNode; `names` are the claims' for their texts.
    """
    lists: Lists = {}
    for claim, name in zip(demand.claims, names, strict=True):
        # Upstream adds the smallest count of each request and compares with the limit before it searches. A claim
        # that can never have so few results is an error on every node.
        least = 0
        for request in claim.requests:
            # The texts have the claim's name, which equal claims do not share. So they are formatted here and not in
            # the parser.
            if request.problem:
                raise AllocationError(request.problem.format(claim=name))
            more = min([_needed(request_data, node_devices, name, lists) for request_data in request.alternatives])
            if node_devices.rules.names_request and least + more > RESULTS_MAX:
                adding = f"adding {more} devices exceeds the claim limit of {RESULTS_MAX}"
                about = f"claim {name}, request {request.name}"
                raise AllocationError(f"{about}: {adding}, with {least} already accounted for")
            least += more
        if least > RESULTS_MAX:
            most = f"exceeds the claim limit of {RESULTS_MAX}"
            raise AllocationError(f"claim {name}: number of requested devices {least} {most}")
        if claim.constraint_problem:
            raise AllocationError(f"claim {name}, {claim.constraint_problem}")
    return lists


def _needed(request_data: RequestData, node_devices: NodeDevices, claim: str, lists: Lists) -> int:
    about = f"claim {claim}, request {request_data.own_name}"
    if request_data.problem:
        raise AllocationError(about + request_data.problem)
    if not request_data.is_all:
        return request_data.spec.count
    # "All devices" of a pool that is being updated would be a guess. Kubernetes up to 1.37 ends the attempt. In each
    # version the event of the missing slice retries the pod.
    bad = node_devices.first_incomplete
    faults = node_devices.faults(request_data)
    # Upstream goes through the pools in order. A selector that fails on a device before the bad pool is found first,
    # and its text wins.
    limit = len(node_devices.devices)
    if bad is not None:
        limit = sum(len(view.devices) for view in node_devices.pools[: node_devices.pools.index(bad)])
    fault = next((n for n in sorted(faults) if n < limit), None)
    if fault is not None:
        raise fault_error(node_devices, fault, claim, request_data)
    if bad is not None:
        what = "being updated" if bad.state is PoolState.INCOMPLETE else "invalid"
        pool = f"{bad.key.driver}/{bad.key.name}"
        text = f"{about}: asks for all devices, but resource pool {pool} is currently {what}"
        raise FailedOnNode(text) if node_devices.rules.bad_pool_rejects_node else AllocationError(text)
    found = list(bits(node_devices.selectable(request_data).mask))
    # A device that lacks a requested capacity is not part of "all", but one whose capacity is used up is: then the
    # claim must wait.
    if node_devices.rules.consumable:
        found = [n for n in found if node_devices.offers(request_data, n)]
    lists[id(request_data)] = found
    return len(found)


def fault_error(node_devices: NodeDevices, number: int, claim: str, request_data: RequestData) -> AllocationError:
    """Return the error to raise when the search reaches a device that is a fault of the request."""
    fault, device = node_devices.faults(request_data)[number], node_devices.name(number)
    if isinstance(fault, CapacityFault):
        if request_data.is_all:
            device = node_devices.own_name(number)
        about = f"claim {claim}, request {request_data.own_name}"
        return AllocationError(f"{about}: checking capacity for device {device}: {fault.text}")
    owner = f"class {request_data.spec.device_class_name}" if fault.of_class else f"claim {claim}"
    if not node_devices.rules.names_device or not fault.is_of_device:
        return AllocationError(f"{owner}: selector #{fault.at}: {fault.text}")
    hint = _GUARD if "no such key:" in fault.text else ""
    return AllocationError(f"{owner}: selector #{fault.at} on device {device}: {fault.text}{hint}")


_GUARD: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) "
    "or guarding the check with has() for optional fields"
)


def risk_of(demand: ClaimsToAllocate, node_devices: NodeDevices, lists: Mapping[int, Sequence[int]]) -> tuple[int, int]:
    """Return the last (claim, request) at which an error is possible: up to there no state may be skipped."""
    risk, most = NO_RISK, [0] * len(demand.claims)
    for c, claim in enumerate(demand.claims):
        for r, request in enumerate(claim.requests):
            if any(_may_raise(demand, c, request_data, node_devices) for request_data in request.alternatives):
                risk = (c, r)
            most[c] += max(
                len(lists[id(request_data)]) if request_data.is_all else request_data.spec.count
                for request_data in request.alternatives
            )
    # Whether a claim needs too many devices depends on the alternatives that are tried. Skipping a state could turn
    # this outcome into an ordinary failure.
    if risk != NO_RISK and max(most, default=0) > RESULTS_MAX:
        return len(most), 0  # "too many" must not become an ordinary failure either
    return risk


def _may_raise(demand: ClaimsToAllocate, c: int, request_data: RequestData, node_devices: NodeDevices) -> bool:
    constraints = [each for each in demand.claims[c].constraints if request_data.is_under(each)]
    # Every device of mode All is tried, and each that violates a constraint is an error.
    if request_data.is_all:
        return bool(constraints)
    faults = node_devices.faults(request_data)
    # A device with old shares is found to be in use only after its selectors and capacities were evaluated.
    free = -1 if request_data.is_admin else ~node_devices.used | node_devices.old_shares
    if any(free >> number & 1 for number in faults):
        return True
    selected = node_devices.selectable(request_data).mask & free
    return any(node_devices.unsupported[each.attribute] & selected for each in constraints)


_TRACKED_MAX: Final = 4096
_DEMANDS_MAX: Final = 1024
_KNOWN_AT_ONCE: Final = 64
"""Cached results that are read between two yields."""

_Count: TypeAlias = Callable[[Iterable[PoolView]], Work[int]]


@dataclass(slots=True, eq=False)
class _Tracked:
    """The nodes whose pools count for more than `above`, at `position` in the log of visible pools."""

    count: _Count
    above: int
    nodes: NodeSet = EMPTY
    position: int = -1


class ErrorNodes:
    """The nodes with possible errors of one profile. Single owner: the scheduling loop."""

    def __init__(self, on_nodes: DeviceNodes, rules: AllocatorFeatures) -> None:
        self._on_nodes = on_nodes
        self._rules = rules
        self._tracked: BoundedCache[Hashable, _Tracked] = BoundedCache(_TRACKED_MAX)
        self._of_demand: BoundedCache[ClaimsToAllocate, tuple[_Tracked, ...]] = BoundedCache(_DEMANDS_MAX)

    def of(self, demand: ClaimsToAllocate) -> Work[NodeSet]:
        """Return the nodes that must be searched before one is chosen."""
        self._on_nodes.catch_up()
        if not demand.form:  # a claim is invalid, so each node has an error
            return self._on_nodes.placed
        tracked = self._of_demand.get_or_make(demand, lambda: tuple(dict.fromkeys(self._conditions(demand))))
        erring_nodes = EMPTY
        for each in tracked:
            if each.position != self._on_nodes.visibility.position:
                yield from self._following(each)
            erring_nodes |= each.nodes
        return erring_nodes

    def _following(self, tracked: _Tracked) -> Work[None]:
        """Update the tracked nodes. O(nodes whose visible pools changed); all kinds of nodes the first time."""
        on_nodes = self._on_nodes
        position = on_nodes.visibility.position
        # Only changes of visible slices matter: whether a selector fails does not depend on the use of devices. So a
        # busy cluster causes no work here.
        changed = on_nodes.visibility.changed_since(tracked.position)
        counts: dict[object, int] = {}
        if changed is None:
            nodes = EMPTY
            for kind in list(on_nodes.kinds()):
                if (yield from self._counts(tracked, kind.nodes.bit_length() - 1, counts)):
                    nodes |= kind.nodes
        else:
            slots = set(changed)
            nodes = tracked.nodes & ~nodeset.of(slots)
            for slot in slots:
                if (yield from self._counts(tracked, slot, counts)):
                    nodes |= 1 << slot
        tracked.nodes, tracked.position = nodes, position

    def _counts(self, tracked: _Tracked, slot: int, counts: dict[object, int]) -> Work[bool]:
        """Return whether the node's count exceeds `above`. `counts` caches the counts of equal pools."""
        kind = self._on_nodes.kind(slot)
        if kind is None:
            return False
        # Nodes with equal pools share one count, and so do all nodes that see the same shared pools.
        content, visible_pools = kind.key[0], kind.visible_pools
        if content not in counts:
            counts[content] = yield from tracked.count(self._on_nodes.own_pools(slot))
        if visible_pools not in counts:
            counts[visible_pools] = yield from tracked.count(visible_pools.views)
        return counts[content] + counts[visible_pools] > tracked.above

    def _conditions(self, demand: ClaimsToAllocate) -> Iterator[_Tracked]:
        for _, _, request_data in demand.request_data:
            if request_data.selectors is not None:
                # Conditions are shared by all claims with the same selectors; a new claim mostly finds them computed.
                key = "faults", request_data.selectors
                yield self._where(key, partial(_with_a_fault, request_data.selectors), above=0)
            if self._rules.consumable and request_data.spec.capacity is not None:
                requests = request_data.spec.capacity.requests
                amounts = tuple(sorted((name, amount.nano) for name, amount in requests.items()))
                count = partial(_with_a_capacity_fault, request_data, self._rules)
                yield self._where(("capacities", amounts), count, above=0)
        for claim in demand.claims:
            least, lists = _least(claim.requests)
            if lists or least > RESULTS_MAX:
                above = (RESULTS_MAX - least) // max(lists, 1) if least <= RESULTS_MAX else -1
                yield self._where(("devices", above), _devices, above=above)
            all_of_class = [request_data for request_data in claim.request_data if request_data.is_all]
            if all_of_class and not self._rules.bad_pool_rejects_node:
                yield self._where("bad pools", _bad_pools, above=0)
            for attribute in {each.attribute for each in claim.constraints} if self._rules.strict_values else ():
                yield self._where(("unsupported", attribute), partial(_with_unsupported, attribute), above=0)
            # a device of a request for all devices that breaks a constraint is an error (§4.7)
            if any(request_data.is_under(each) for request_data in all_of_class for each in claim.constraints):
                yield self._where(("devices", 0), _devices, above=0)

    def _where(self, key: Hashable, count: _Count, *, above: int) -> _Tracked:
        return self._tracked.get_or_make(key, lambda: _Tracked(count, above))


def _least(requests: Iterable[RequestAlternatives]) -> tuple[int, int]:
    """Return the smallest number of devices of a claim, and the number of its requests for all devices (§4.4)."""
    least = lists = 0
    for request in requests:
        counts = [request_data.spec.count for request_data in request.alternatives if not request_data.is_all]
        least += min(counts, default=0)
        # A request for all devices counts with the devices of the node, which `_devices` counts. Other requests count
        # with their smallest alternative.
        lists += not counts
    return least, lists


def _with_a_fault(selectors: Selectors, views: Iterable[PoolView]) -> Work[int]:
    for at, kind in enumerate(dict.fromkeys(each.kind for view in views for each in view.devices)):
        yield from selectors.evaluating((kind,))
        if isinstance(selectors.of(kind), SelectorFault):
            return 1
        # Cached results cost a dict lookup each, and a yield costs more than that.
        if at % _KNOWN_AT_ONCE == 0:
            yield
    return 0


def _with_a_capacity_fault(request_data: RequestData, rules: AllocatorFeatures, views: Iterable[PoolView]) -> Work[int]:
    kinds = dict.fromkeys(each.kind for view in views for each in view.devices if each.device.capacity)
    yield
    return int(any(isinstance(amounts_of(request_data, kind, rules), CapacityFault) for kind in kinds))


def _with_unsupported(attribute: str, views: Iterable[PoolView]) -> Work[int]:
    yield
    kinds = dict.fromkeys(each.kind for view in views for each in view.devices)
    return int(any(is_unsupported(kind, attribute) for kind in kinds))


def _bad_pools(views: Iterable[PoolView]) -> Work[int]:
    yield
    return sum(view.state is not PoolState.GOOD for view in views)


def _devices(views: Iterable[PoolView]) -> Work[int]:
    yield
    return sum(len(view.devices) for view in views)
