"""The API form of picked devices: results, configuration and node selector per claim (docs/spec/dra.md §4.12)."""

from __future__ import annotations

import itertools
import math
import random
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from scheduler.api.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from scheduler.api.node_affinity import NODE_NAME_FIELD, is_empty
from scheduler.api.quantity import Quantity
from scheduler.api.resource_v1 import (
    AllocatedConfiguration,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from scheduler.cache.devices.pools import PublishedDevice
from scheduler.plugins.dra.structured.allocator import AllocationError, Picked
from scheduler.plugins.dra.structured.node_devices import NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate, ClaimToAllocate, RequestData

_TERMS_MAX: Final = 64
"""The largest number of terms in a merged node selector."""


def results(
    demand: ClaimsToAllocate,
    picked: Sequence[Picked],
    node_devices: NodeDevices,
    *,
    node_name: str,
    names: Sequence[str],
    rng: random.Random,
) -> tuple[AllocationResult, ...]:
    """Return one allocation per claim, in order. Raises AllocationError for a node selector that cannot be merged."""
    allocations = []
    for c, claim in enumerate(demand.claims):
        picked_for_claim = [each for each in picked if each.claim == c]
        # A request that got no device has chosen no alternative. Its configuration is then that of the first one, as
        # upstream writes it.
        alternatives = {each.request: each.alternative for each in picked_for_claim}
        chosen = [request.alternatives[alternatives.get(r, 0)] for r, request in enumerate(claim.requests)]
        devices = tuple(_result(each, chosen[each.request], node_devices, rng) for each in picked_for_claim)
        config = configuration(claim, chosen, merges=node_devices.rules.config_for_all)
        try:
            selector = node_selector(
                [node_devices.devices[each.number] for each in picked_for_claim],
                node_name,
                merges_terms=node_devices.rules.merges_terms,
            )
        except ValueError as error:
            name = names[c].rpartition("/")[2]
            raise AllocationError(f"create NodeSelector for claim {name}: {error}") from error
        allocations.append(AllocationResult(DeviceAllocationResult(devices, config), selector))
    return tuple(allocations)


def _result(
    picked: Picked, request_data: RequestData, node_devices: NodeDevices, rng: random.Random
) -> DeviceRequestAllocationResult:
    published, spec = node_devices.devices[picked.number], request_data.spec
    device, binding = published.device, node_devices.rules.binding
    amounts = picked.amounts
    # A share needs an id that is unique for its device. Upstream draws a random UUID.
    share = None if amounts is None else str(uuid.UUID(int=rng.getrandbits(128), version=4))
    return DeviceRequestAllocationResult(
        request=request_data.full_name,
        driver=published.id.driver,
        pool=published.id.pool,
        device=published.id.device,
        admin_access=True if spec.admin_access else None,
        tolerations=spec.tolerations,
        binding_conditions=device.binding_conditions if binding else (),
        binding_failure_conditions=device.binding_failure_conditions if binding else (),
        share_id=share,
        consumed_capacity={published.kind.published_name(name): Quantity(amount) for name, amount in amounts.items()}
        if amounts
        else None,
    )


def configuration(
    claim: ClaimToAllocate, chosen: Sequence[RequestData], *, merges: bool
) -> tuple[AllocatedConfiguration, ...]:
    """Return each class's configuration once, then the claim's own for the chosen requests (§4.12).

    A configuration that names several requests comes once for each of them. With `merges` it comes once, and names no
    request if it is for all of them.
    """
    # The driver reads the class's configuration once per class, before the claim's own, so that the claim's one takes
    # precedence.
    of_class: dict[str, list[RequestData]] = {}
    for request_data in chosen:
        of_class.setdefault(request_data.spec.device_class_name, []).append(request_data)
    from_classes = (
        AllocatedConfiguration("FromClass", tuple(request_data.full_name for request_data in requests), config.opaque)
        for requests in of_class.values()
        for config in (requests[0].device_class.spec.config if requests[0].device_class is not None else ())
    )
    from_claim = (
        AllocatedConfiguration("FromClaim", config.requests, config.opaque)
        for config in claim.spec.config
        for _ in range(_times(config.requests, chosen, merges=merges))
    )
    found = (*from_classes, *from_claim)
    if not merges:
        return found
    return tuple(
        msgspec.structs.replace(each, requests=())
        if all(_concerns(each.requests, request_data) for request_data in chosen)
        else each
        for each in found
    )


def _times(requests: Sequence[str], chosen: Iterable[RequestData], *, merges: bool) -> int:
    """Return how often a configuration for these requests comes; one without requests is for all of them."""
    count = sum(_concerns(requests, request_data) for request_data in chosen) if requests else 1
    return min(count, 1) if merges else count


def _concerns(requests: Iterable[str], request_data: RequestData) -> bool:
    return not {request_data.request, request_data.full_name}.isdisjoint(requests)


def node_selector(
    devices: Sequence[PublishedDevice], node_name: str, *, merges_terms: bool = False
) -> NodeSelector | None:
    """Return where the allocation can be used; None is anywhere. Raises ValueError for selectors that cannot be merged.

    Upstream merges selectors of one term. `merges_terms`: also selectors of several terms, which API servers admit for
    devices. The result has a term for each combination of their terms, at most `_TERMS_MAX`.
    """
    selectors: dict[NodeSelector, None] = {}
    for each in devices:
        spec = each.slice.spec
        own = spec.per_device_node_selection
        # A device that is bound to one node makes the claim usable there only. Other users of the claim are scheduled
        # to this node.
        name = each.device.node_name if own else spec.node_name
        # One such device decides: the other selectors match this node anyway, because the search has checked that.
        if name or each.device.binds_to_node:
            on_node = NodeSelectorRequirement(NODE_NAME_FIELD, "In", (node_name,))
            return NodeSelector((NodeSelectorTerm(match_fields=(on_node,)),))
        selector = each.device.node_selector if own else spec.node_selector
        if selector is None or not selector.node_selector_terms:
            continue
        if len(selector.node_selector_terms) > 1 and not merges_terms:
            raise _unsupported(selector)
        selectors[selector] = None
    return _merged(list(selectors))


def _merged(selectors: Sequence[NodeSelector]) -> NodeSelector | None:
    """Return a selector that matches where all of them match; each requirement comes once in a term."""
    wanted = [_nonempty_terms(selector) for selector in selectors]
    # Merged terms are all combinations. Without a limit, six devices with ten terms each would make an object that
    # the API server refuses.
    if math.prod(map(len, wanted)) > _TERMS_MAX:
        raise _unsupported(next(selector for selector in selectors if len(selector.node_selector_terms) > 1))
    terms: dict[NodeSelectorTerm, None] = {}
    for combination in itertools.product(*wanted):
        fields = dict.fromkeys(one for term in combination for one in term.match_fields)
        expressions = dict.fromkeys(one for term in combination for one in term.match_expressions)
        if fields or expressions:
            terms[NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))] = None
    return NodeSelector(tuple(terms)) if terms else None


def _nonempty_terms(selector: NodeSelector) -> Sequence[NodeSelectorTerm]:
    """Return the terms without empty ones, which match no node; a single term stays."""
    terms = selector.node_selector_terms
    return terms if len(terms) == 1 else [term for term in terms if not is_empty(term)]


def _unsupported(selector: NodeSelector) -> ValueError:
    return ValueError(f"unsupported ResourceSlice.NodeSelector with {len(selector.node_selector_terms)} terms")
