"""Parsed claims for the search, shared by all pods whose claims have equal specs (docs/spec/dra.md §3.3, §4.4).

A `ClaimsToAllocate` has no claim names: claims with equal specs and equal classes share one object.

Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/internal/stable/allocator_stable.go requestAccessor
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from scheduler.api.quantity import Quantity
from scheduler.api.resource_v1 import (
    ALL,
    EXACT_COUNT,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    ExactDeviceRequest,
    ResourceClaim,
)
from scheduler.cache.devices.manager import DeviceClasses, SharedDRAManager
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.devices.selector_errors import CompileProblem, MissingKey
from scheduler.core.caching import BoundedCache
from scheduler.core.cooperative import Work, finish
from scheduler.core.feature_gates import ADMIN_ACCESS, CONSUMABLE, PRIORITIZED_LIST
from scheduler.framework.status import Code
from scheduler.plugins.dra.structured.constraints import AllocationConstraint

Holding: TypeAlias = Callable[[str, DeviceKind], Work["bool | str"]]
"""(expression, kind) → whether it holds, or `CEL compile error: …` or `CEL runtime error: …`."""
_SETS_MAX: Final = 4096
_CHARACTERS_MAX: Final = 2**24
"""Limit of the characters in the expressions of all sets: a claim may have a thousand selectors of 10 KiB."""


class SelectorFault(msgspec.Struct, frozen=True):
    """A selector that cannot be evaluated. `of_class`: it is the class's; `at` is its index."""

    of_class: bool
    at: int
    text: str
    is_of_device: bool = True
    """The expression fails on this device; otherwise it does not compile."""
    is_missing: bool = False
    """The expression reads an attribute that the device does not have."""


class Selectors(msgspec.Struct, frozen=True, eq=False):
    """The selectors of one class and one request, in order. Equal ones are one object. Results are kept by the kind."""

    _expressions: tuple[tuple[bool, int, str], ...]
    _holding: Holding

    def of(self, kind: DeviceKind) -> bool | SelectorFault:
        """Return whether all selectors hold; the first one that does not hold, or fails, decides."""
        cached: bool | SelectorFault | None = kind.memo.get(self)
        if cached is None:
            cached = kind.memo[self] = finish(self._evaluating(kind))
        return cached

    def evaluating(self, kinds: Iterable[DeviceKind]) -> Work[None]:
        """Evaluate these kinds in steps, so that `of` is fast for them: compiling and evaluating can take long."""
        for kind in kinds:
            if kind.memo.get(self) is None:
                kind.memo[self] = yield from self._evaluating(kind)
                yield

    def _evaluating(self, kind: DeviceKind) -> Work[bool | SelectorFault]:
        # The class comes before the request, each in its own order. The first expression that does not hold ends the
        # loop, so a later one that would fail is never an error.
        for of_class, at, expression in self._expressions:
            holds = yield from self._holding(expression, kind)
            if isinstance(holds, str):
                return SelectorFault(
                    of_class,
                    at,
                    holds,
                    is_of_device=not isinstance(holds, CompileProblem),
                    is_missing=isinstance(holds, MissingKey),
                )
            if not holds:
                return False
        return True


class SelectorSets:
    """All `Selectors` in use. `evaluated` is called per result with whether it was cached."""

    def __init__(self, holding: Holding, *, evaluated: Callable[[bool], None] | None = None) -> None:
        self._holding = holding
        self._evaluated = evaluated
        self._sets: dict[Hashable, Selectors] = {}
        self._characters = 0

    def of(self, expressions: tuple[tuple[bool, int, str], ...]) -> Selectors:
        """Return the one object for these expressions (is of the class, index, expression)."""
        # Equal expressions give one object, so a result is cached once for all claims that a template has made.
        found = self._sets.get(expressions)
        if found is None:
            self._characters += sum(len(text) for _, _, text in expressions)
            # Clearing costs new evaluations, never a wrong answer: demands keep the objects that they use.
            if len(self._sets) >= _SETS_MAX or self._characters > _CHARACTERS_MAX:
                self._sets.clear()
                self._characters = 0
            found = self._sets[expressions] = Selectors(expressions, self._answering)
        return found

    def _answering(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        """Evaluate an expression for a kind, or return the cached result.

        Sets share expressions, mostly those of classes.
        """
        cached: bool | str | None = kind.memo.get((self._holding, expression))
        if self._evaluated is not None:
            self._evaluated(cached is not None)
        if cached is None:
            cached = kind.memo[self._holding, expression] = yield from self._holding(expression, kind)
        return cached


_DEMANDS_MAX: Final = 4096


class RequestData(msgspec.Struct, frozen=True, eq=False):
    """One request, or one alternative of a request. `problem` is an error text that follows `claim C, request R`."""

    request: str
    """The request's name."""
    full_name: str
    """`R`, or `R/S` for an alternative."""
    own_name: str
    """The name in messages: an alternative's is `S`."""
    spec: ExactDeviceRequest
    device_class: DeviceClass | None
    selectors: Selectors | None
    amounts_key: bytes
    """Equal for requests for the same amounts of capacities."""
    problem: str = ""

    @property
    def is_all(self) -> bool:
        """Whether the request is for every device that can be selected."""
        return self.spec.allocation_mode == ALL

    @property
    def is_admin(self) -> bool:
        """Whether the request may have devices that are in use."""
        return bool(self.spec.admin_access)

    def is_under(self, constraint: AllocationConstraint) -> bool:
        """Return whether the constraint is for devices of this request."""
        return constraint.concerns(self.request, self.full_name)


class RequestAlternatives(msgspec.Struct, frozen=True, eq=False):
    """One request with its alternatives; a request without a list has one alternative."""

    name: str
    alternatives: tuple[RequestData, ...]
    is_list: bool
    problem: str = ""
    """An error text that does not depend on an alternative, with `{claim}` for the claim's name."""


class ClaimToAllocate(msgspec.Struct, frozen=True, eq=False):
    """One claim's requests and constraints."""

    requests: tuple[RequestAlternatives, ...]
    constraints: tuple[AllocationConstraint, ...]
    spec: DeviceClaim
    constraint_problem: str = ""

    @property
    def request_data(self) -> Iterator[RequestData]:
        return (request_data for request in self.requests for request_data in request.alternatives)


class ClaimsToAllocate(msgspec.Struct, frozen=True, eq=False):
    """All claims of a pod that are to be allocated. Compared by identity."""

    claims: tuple[ClaimToAllocate, ...]
    has_lists: bool
    """Whether any request has alternatives."""
    has_admin: bool
    """Whether any request has admin access."""
    form: bytes
    """Equal for claims that differ only in selectors and classes; b"" if a claim is invalid."""

    @property
    def request_data(self) -> Sequence[tuple[int, int, RequestData]]:
        """(claim, request, alternative) in order."""
        return [
            (c, r, request_data)
            for c, claim in enumerate(self.claims)
            for r, request in enumerate(claim.requests)
            for request_data in request.alternatives
        ]


def _amount(value: object) -> int:
    assert isinstance(value, Quantity)
    return value.nano


_encode = msgspec.json.Encoder(enc_hook=_amount, order="deterministic").encode


class ClaimParser:
    """Parses claims, and caches each result while the specs of its device classes do not change."""

    def __init__(self, classes: DeviceClasses, selector_sets: SelectorSets, gates: frozenset[str]) -> None:
        self._classes = classes
        self._sets = selector_sets
        self._gates = gates
        self._cache: BoundedCache[Hashable, tuple[int, ClaimsToAllocate]] = BoundedCache(_DEMANDS_MAX)
        """Encoded specs → (generation of the device classes for which the result is known to be valid, result)."""

    def of(self, claims: Sequence[ResourceClaim]) -> ClaimsToAllocate:
        """Parse these claims together, in this order."""
        # Claims of a thousand pods of one Deployment have equal specs. They share one demand, and with it all
        # verdicts on nodes.
        key = tuple(_encode(claim.spec.devices) for claim in claims)
        generation = self._classes.generation
        seen, demand = self._cache.get(key) or (-1, None)
        # A class may change between two attempts. The generation answers in one comparison that none has; otherwise
        # only the classes of this demand are compared.
        if demand is not None and (seen == generation or self._holds(demand)):
            self._cache.put(key, (generation, demand))
            return demand
        made = tuple(self._claim(claim.spec.devices) for claim in claims)
        has_lists = any(request.is_list for claim in made for request in claim.requests)
        has_admin = any(request_data.is_admin for claim in made for request_data in claim.request_data)
        demand = ClaimsToAllocate(made, has_lists, has_admin, _form(made))
        self._cache.put(key, (generation, demand))
        return demand

    def _holds(self, demand: ClaimsToAllocate) -> bool:
        """Return whether each class that the claims name is unchanged; other classes and metadata do not matter."""
        return all(
            _spec(self._classes.get(request_data.spec.device_class_name)) == _spec(request_data.device_class)
            for *_, request_data in demand.request_data
        )

    def _claim(self, spec: DeviceClaim) -> ClaimToAllocate:
        requests = []
        for request in spec.requests:
            # One path for both forms: an ordinary request is a list with one alternative.
            specs = request.first_available or (request.exactly or ExactDeviceRequest(),)
            is_list = bool(request.first_available)
            alternatives = tuple(self._request_data(request.name, each, is_list=is_list) for each in specs)
            problem = self._gated(request.name, alternatives, is_list)
            requests.append(RequestAlternatives(request.name, alternatives, is_list, problem))
        constraints, problem = [], ""
        for at, constraint in enumerate(spec.constraints):
            # A newer API server may know more kinds of constraints. To ignore one would give the pod devices that it
            # cannot use.
            if constraint.match_attribute is None and constraint.distinct_attribute is None:
                problem = f"constraint #{at}: empty constraint (unsupported constraint type?)"
                break
            constraints.append(AllocationConstraint(constraint))
        return ClaimToAllocate(tuple(requests), tuple(constraints), spec, problem)

    def _gated(self, name: str, alternatives: Sequence[RequestData], is_list: bool) -> str:
        if is_list and PRIORITIZED_LIST not in self._gates:
            return f"claim {{claim}}, request {name}: has subrequests, but the DRAPrioritizedList feature is disabled"
        if CONSUMABLE not in self._gates:
            for request_data in alternatives:
                if request_data.spec.capacity is not None:
                    kind = "subrequest" if is_list else "request"
                    return (
                        f"claim {{claim}}, {kind} {request_data.own_name}: has capacity requests, "
                        "but the DRAConsumableCapacity feature is disabled"
                    )
        return ""

    def _request_data(self, request: str, spec: ExactDeviceRequest, *, is_list: bool) -> RequestData:
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
        return RequestData(request, full_name, own_name, spec, device_class, selectors, _encode(spec.capacity), problem)

    def _problem(self, spec: ExactDeviceRequest, device_class: DeviceClass | None) -> str:
        # The order of these checks is upstream's, so that a request with two problems gets the same text.
        empty = next((at for at, each in enumerate(spec.selectors) if each.cel is None), None)
        name = spec.device_class_name
        if spec.derived_attributes:
            return ": cannot handle request with derived attributes, the feature is disabled"
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
    """Encode all that a search reads of the claims, except which devices may be selected."""
    form = []
    for claim in claims:
        # An invalid claim is an error on each node, with a text that names the claim. Its result is not shared with
        # other claims.
        problems = (claim.constraint_problem, *(each.problem for each in claim.requests))
        if any(problems) or any(each.problem for each in claim.request_data):
            return b""
        requests = [(r.name, r.is_list, [_bare(each) for each in r.alternatives]) for r in claim.requests]
        form.append((requests, claim.spec.constraints))
    return _encode(form)


def _bare(request_data: RequestData) -> ExactDeviceRequest:
    return msgspec.structs.replace(request_data.spec, name=request_data.own_name, device_class_name="", selectors=())


Problem = tuple[Code, tuple[str, ...]]


def request_problem(claim: ResourceClaim, devices: SharedDRAManager, gates: frozenset[str]) -> Problem | None:
    """Return the first invalid request, with upstream's code and text."""
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
    """Return the text that follows "not found" if the object exists and cannot be read; else ""."""
    found = devices.broken.get((kind, key))
    return f" ({kind} {key} cannot be read: {found.why})" if found is not None else ""


def _class_problem(name: str, label: str, devices: SharedDRAManager) -> Problem | None:
    if not name:
        return Code.ERROR, (f"request {label}: unsupported request type",)
    if devices.classes.get(name) is None:
        hint = unreadable(devices, "DeviceClass", name)
        return Code.UNRESOLVABLE, (f"request {label}: device class {name} does not exist{hint}",)
    return None
