"""Claims parsed for the search: requests, alternatives, constraints.

What the claims of a pod ask for, worked out once and shared by all pods that ask alike (docs/spec/dra.md §4.4).

A demand is free of names: equal specs of claims, of equal classes, are one `ClaimsToAllocate`, whatever the claims are called.

Whether a claim's requests can be asked at all, before any node is looked at (docs/spec/dra.md §3.3).

Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/internal/stable/allocator_stable.go requestAccessor
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.api.quantity import Quantity
from scheduler.api.resource_v1 import (
    ALL,
    EXACT_COUNT,
    RESULTS_MAX,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    ExactDeviceRequest,
    ResourceClaim,
)
from scheduler.cache.devices.manager import DeviceClasses, SharedDRAManager
from scheduler.core.caching import BoundedCache
from scheduler.core.feature_gates import ADMIN_ACCESS, CONSUMABLE, LIST_TYPES, PRIORITIZED_LIST
from scheduler.framework.status import Code
from scheduler.plugins.dra.constraints import AllocationConstraint
from scheduler.plugins.dra.selectors import Selectors, SelectorSets

_DEMANDS_MAX: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class RequestData:
    """One request, or one alternative of it. `problem` is what is wrong with it, said behind `claim C, request R`."""

    request: str
    """The request's name."""
    full_name: str
    """`R`, or `R/S` for an alternative."""
    own_name: str
    """As texts call it: an alternative by its own name."""
    spec: ExactDeviceRequest
    device_class: DeviceClass | None
    selectors: Selectors | None
    problem: str = ""

    @property
    def is_all(self) -> bool:
        """Every device that can be selected is wanted."""
        return self.spec.allocation_mode == ALL

    @property
    def is_admin(self) -> bool:
        """Devices in use will do."""
        return bool(self.spec.admin_access)


@dataclass(frozen=True, slots=True, eq=False)
class RequestAlternatives:
    """One request with its alternatives, a single one if it has none."""

    name: str
    asks: tuple[RequestData, ...]
    is_list: bool
    problem: str = ""
    """What is wrong before any alternative is looked at, with `{claim}` for the claim's name."""


@dataclass(frozen=True, slots=True, eq=False)
class ClaimToAllocate:
    """One claim."""

    requests: tuple[RequestAlternatives, ...]
    constraints: tuple[AllocationConstraint, ...]
    spec: DeviceClaim
    constraint_problem: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ClaimsToAllocate:
    """All claims of a pod that are to be allocated. Compared by identity."""

    claims: tuple[ClaimToAllocate, ...]
    has_lists: bool
    """Whether any request has alternatives."""
    has_admin: bool
    """Whether any wants admin access."""
    form: bytes
    """Equal for demands that differ in nothing but their selectors and classes; b"" if something is wrong with it."""

    @property
    def asks(self) -> Sequence[tuple[int, int, RequestData]]:
        """(claim, request, ask) in order."""
        return [
            (c, r, ask)
            for c, claim in enumerate(self.claims)
            for r, request in enumerate(claim.requests)
            for ask in request.asks
        ]


def _amount(value: object) -> int:
    assert isinstance(value, Quantity)
    return value.nano


_encode = msgspec.json.Encoder(enc_hook=_amount, order="deterministic").encode


class ClaimParser:
    """Makes demands, and keeps each as long as the specs of its own classes do not change."""

    def __init__(self, classes: DeviceClasses, selector_sets: SelectorSets, gates: frozenset[str]) -> None:
        self._classes = classes
        self._sets = selector_sets
        self._gates = gates
        self._known: BoundedCache[Hashable, tuple[int, ClaimsToAllocate]] = BoundedCache(_DEMANDS_MAX)
        """With the generation of the classes for which the demand is known to hold."""

    def of(self, claims: Sequence[ResourceClaim]) -> ClaimsToAllocate:
        """The demand of these claims together, in this order."""
        key = tuple(_encode(claim.spec.devices) for claim in claims)
        generation = self._classes.generation
        seen, demand = self._known.get(key) or (-1, None)
        if demand is not None and (seen == generation or self._holds(demand)):
            self._known.put(key, (generation, demand))
            return demand
        made = tuple(self._claim(claim.spec.devices) for claim in claims)
        has_lists = any(request.is_list for claim in made for request in claim.requests)
        has_admin = any(ask.is_admin for claim in made for request in claim.requests for ask in request.asks)
        demand = ClaimsToAllocate(made, has_lists, has_admin, _form(made))
        self._known.put(key, (generation, demand))
        return demand

    def _holds(self, demand: ClaimsToAllocate) -> bool:
        """Whether every class that the demand uses is as it was; other classes and their metadata do not matter."""
        return all(
            _spec(self._classes.get(ask.spec.device_class_name)) == _spec(ask.device_class) for *_, ask in demand.asks
        )

    def _claim(self, spec: DeviceClaim) -> ClaimToAllocate:
        requests = []
        for request in spec.requests:
            alternatives = request.first_available or (request.exactly or ExactDeviceRequest(),)
            is_list = bool(request.first_available)
            asks = tuple(self._ask(request.name, each, is_list=is_list) for each in alternatives)
            requests.append(RequestAlternatives(request.name, asks, is_list, self._gated(request.name, asks, is_list)))
        lists = LIST_TYPES in self._gates
        constraints, problem = [], ""
        for at, constraint in enumerate(spec.constraints):
            if constraint.match_attribute is None and constraint.distinct_attribute is None:
                problem = f"constraint #{at}: empty constraint (unsupported constraint type?)"
                break
            constraints.append(AllocationConstraint(constraint, lists=lists))
        return ClaimToAllocate(tuple(requests), tuple(constraints), spec, problem)

    def _gated(self, name: str, asks: Sequence[RequestData], is_list: bool) -> str:
        if is_list and PRIORITIZED_LIST not in self._gates:
            return f"claim {{claim}}, request {name}: has subrequests, but the DRAPrioritizedList feature is disabled"
        if CONSUMABLE not in self._gates:
            for ask in asks:
                if ask.spec.capacity is not None:
                    what = "subrequest" if is_list else "request"
                    return (
                        f"claim {{claim}}, {what} {ask.own_name}: has capacity requests, "
                        "but the DRAConsumableCapacity feature is disabled"
                    )
        return ""

    def _ask(self, request: str, spec: ExactDeviceRequest, *, is_list: bool) -> RequestData:
        full_name = f"{request}/{spec.name}" if is_list else request
        own_name = spec.name if is_list else request
        device_class = self._classes.get(spec.device_class_name)
        problem = self._problem(spec, device_class)
        selectors = None
        if device_class is not None and not problem:
            of_class = [each.cel.expression if each.cel is not None else "" for each in device_class.spec.selectors]
            own = [each.cel.expression for each in spec.selectors if each.cel is not None]
            selectors = self._sets.of(
                (*((True, at, text) for at, text in enumerate(of_class)), *((False, at, t) for at, t in enumerate(own)))
            )
        return RequestData(request, full_name, own_name, spec, device_class, selectors, problem)

    def _problem(self, spec: ExactDeviceRequest, device_class: DeviceClass | None) -> str:
        empty = next((at for at, each in enumerate(spec.selectors) if each.cel is None), None)
        name = spec.device_class_name
        if empty is not None:
            return f", selector #{empty}: CEL expression empty (unsupported selector type?)"
        if spec.admin_access is not None and ADMIN_ACCESS not in self._gates:
            return ": admin access is requested, but the feature is disabled"
        if not name:
            return ": missing device class name (unsupported request type?)"
        if device_class is None:
            missing = f'deviceclass.resource.k8s.io "{name}" not found'
            return f": could not retrieve device class {name}: {missing}"
        if spec.allocation_mode not in {EXACT_COUNT, ALL}:
            return f": unsupported count mode {spec.allocation_mode}"
        return ""


def _spec(device_class: DeviceClass | None) -> DeviceClassSpec | None:
    return device_class.spec if device_class is not None else None


def _form(claims: Sequence[ClaimToAllocate]) -> bytes:
    """What a search reads of a demand beside which devices may be selected."""
    if any(claim.constraint_problem or any(r.problem for r in claim.requests) for claim in claims):
        return b""
    if any(ask.problem for claim in claims for request in claim.requests for ask in request.asks):
        return b""
    return _encode(
        [
            (
                [(r.name, r.is_list, [_bare(ask.own_name, ask.spec) for ask in r.asks]) for r in claim.requests],
                claim.spec.constraints,
            )
            for claim in claims
        ]
    )


def _bare(name: str, spec: ExactDeviceRequest) -> ExactDeviceRequest:
    return msgspec.structs.replace(spec, name=name, device_class_name="", selectors=())


def too_many(claim: str, least: int) -> str:
    """The text for a claim that wants more devices than one can have; "" if it does not."""
    if least <= RESULTS_MAX:
        return ""
    return f"claim {claim}: number of requested devices {least} exceeds the claim limit of {RESULTS_MAX}"


Problem = tuple[Code, tuple[str, ...]]


def request_problem(claim: ResourceClaim, devices: SharedDRAManager, gates: frozenset[str]) -> Problem | None:
    """The first request that cannot be, with upstream's code and text."""
    for request in claim.spec.devices.requests:
        about = f"resource claim {claim.key}, request {request.name}"
        if request.exactly is not None:
            problem = _class_problem(request.exactly.device_class_name, request.name, devices)
        elif not request.first_available:
            problem = (Code.UNRESOLVABLE, (f"{about}: unknown request type",))
        elif PRIORITIZED_LIST not in gates:
            text = f"{about}: has subrequests, but the DRAPrioritizedList feature is disabled"
            problem = (Code.UNRESOLVABLE, (text,))
        else:
            found = (
                _class_problem(each.device_class_name, f"{request.name}/{each.name}", devices)
                for each in request.first_available
            )
            problem = next((each for each in found if each is not None), None)
        if problem is not None:
            return problem
    return None


def unreadable(devices: SharedDRAManager, kind: str, key: str) -> str:
    """What to say behind "there is no such object" if there is one that cannot be read; else ""."""
    found = devices.broken.get((kind, key))
    return f" ({kind} {key} cannot be read: {found.why})" if found is not None else ""


def _class_problem(name: str, label: str, devices: SharedDRAManager) -> Problem | None:
    if not name:
        return Code.ERROR, (f"request {label}: unsupported request type",)
    if devices.classes.get(name) is None:
        told = unreadable(devices, "DeviceClass", name)
        return Code.UNRESOLVABLE, (f"request {label}: device class {name} does not exist{told}",)
    return None
