"""The score of prioritized lists: the earlier the alternative, the better the node (docs/spec/dra.md §3.6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from scheduler.api.resource_v1 import ResourceClaim
from scheduler.cache.devices.node_kinds import DeviceNodes
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.cooperative import Work
from scheduler.core.nodeset import NodeSet
from scheduler.framework.interface import Scores
from scheduler.plugins.dra.state import DeviceState
from scheduler.plugins.dra.structured.allocator import Picked
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from scheduler.plugins.dra.structured.node_verdicts import NodeVerdicts
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate

_MOST: Final = 8
"""The largest number of alternatives of a request."""


def has_alternatives(claims: Iterable[ResourceClaim]) -> bool:
    """Return whether any request has alternatives; otherwise there is nothing to score."""
    return any(request.first_available for claim in claims for request in claim.spec.devices.requests)


class AlternativesScore:
    """Scores the devices that a search of each node would pick, so it searches each kind of nodes.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go computeScore
    """

    def __init__(self, nodes: Nodes, on_nodes: DeviceNodes, verdicts: NodeVerdicts) -> None:
        self._nodes = nodes
        self._on_nodes = on_nodes
        self._verdicts = verdicts

    def score(self, device_state: DeviceState, nodes: NodeSet) -> Work[Scores]:
        """Return raw scores: 8 for a first alternative, 1 for an eighth, summed over all lists of all claims."""
        scores = np.zeros(self._nodes.capacity, dtype=np.int64)
        scores += sum(_of_allocated(claim) for claim in device_state.claims)
        for variant in device_state.variants:
            demand, candidates = variant.demand, nodes & variant.nodes
            if demand is None or not demand.has_lists or not candidates:
                continue
            # The score needs the alternative that each node would give, so here every kind of nodes is searched.
            # PreFilter skips Score for pods without lists.
            yield from self._verdicts.search_all(demand, candidates)
            for kind in tuple(self._on_nodes.kinds()):
                # A kind may have nodes that Filter has refused, or that belong to another group of nodes.
                alike = kind.nodes & candidates
                if alike:
                    score = yield from self._of_search(demand, alike)
                    is_one = alike & (alike - 1) == 0
                    scores[alike.bit_length() - 1 if is_one else nodeset.slots(alike, self._nodes.capacity)] += score
                    yield
        return scores

    def _of_search(self, demand: ClaimsToAllocate, alike: NodeSet) -> Work[int]:
        try:
            verdict = yield from self._verdicts.verdict(demand, alike.bit_length() - 1)
        # Nothing is known about such nodes, so they rank last.
        except TimedOut:
            return 0
        return _of_picked(demand, verdict.picked)


def _of_picked(demand: ClaimsToAllocate, picked: Sequence[Picked]) -> int:
    chosen = {(each.claim, each.request): each.alternative for each in picked}
    return sum(_MOST - at for (c, r), at in chosen.items() if demand.claims[c].requests[r].is_list)


def _of_allocated(claim: ResourceClaim) -> int:
    if claim.status.allocation is None:
        return 0
    got = {result.request for result in claim.status.allocation.devices.results}
    return sum(
        next((_MOST - at for at, each in enumerate(request.first_available) if f"{request.name}/{each.name}" in got), 0)
        for request in claim.spec.devices.requests
    )
