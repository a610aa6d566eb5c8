"""Scores of nodes by soft constraints: fewer matching pods in the node's domains are better (docs/spec/core.md §5.8).

Floating point in upstream's order, so that equal clusters get equal scores. Only ln(size + 2), which Go computes
itself, may differ in its last bit. No count of pods is known for which a rounded score differs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes import topology as domains
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.pods.selector_counts import Selection
from scheduler.core import nodeset
from scheduler.core.nodeset import NodeSet, Slots
from scheduler.framework.interface import MAX_NODE_SCORE, Scores
from scheduler.framework.memo import FEW, ByObjects, BySlots
from scheduler.plugins.podtopologyspread.constraints import (
    HOSTNAME,
    Constraint,
    Constraints,
    EligibleNodes,
    EligibleNodesCache,
)

_Floats: TypeAlias = npt.NDArray[np.float64]
_TABLE_MAX: Final = 64
"""Up to this many domains are computed one by one; for more the counts are a column."""


@dataclass(frozen=True, slots=True)
class CandidateDomains:
    """The candidates' domains for some constraints."""

    constraints: Constraints
    ignored: NodeSet
    """Candidates that lack a key: they score 0 and do not count."""
    weights: tuple[float, ...]
    """One per constraint: a pod weighs more if there are more domains."""


class SoftConstraints:
    """Implements PreScore, Score and NormalizeScore as a dozen vector operations.

    Upstream: pkg/scheduler/framework/plugins/podtopologyspread/scoring.go PreScore, Score, NormalizeScore
    """

    def __init__(self, nodes: Nodes, eligibility: EligibleNodesCache) -> None:
        self._nodes = nodes
        self._eligibility = eligibility
        self._frames: ByObjects[CandidateDomains] = ByObjects(nodes, size=256)
        self._by_node: BySlots[_NodeCounts] = BySlots(nodes)

    def frame(self, constraints: Constraints, candidates: NodeSet) -> CandidateDomains:
        """Return the domains; cached for equal constraints and candidates, as a series of equal pods mostly has."""
        return self._frames.get((constraints, candidates), lambda: self._framed(constraints, candidates))

    def raw(self, pod: PodInfo, frame: CandidateDomains) -> Scores:
        """Return the matching pods in the node's domains, weighted and rounded; fewest are best."""
        nodes, constraints = self._nodes, frame.constraints
        top = nodes.present.bit_length()
        total: _Floats | None = None
        for constraint, weight, eligible in zip(
            constraints.each, frame.weights, self._eligibility.of(pod, constraints)
        ):
            if constraint.topology_key == HOSTNAME:
                part = self._on_each_node(constraint, weight, top)
            else:
                part = self._in_each_domain(constraint, weight, eligible, top=top)
            total = part if total is None else np.add(total, part, out=total)
        scores: Scores = np.zeros(nodes.capacity, dtype=np.int64)
        if total is not None:
            total += 0.5  # rounds half up; sums are 0 or at least ln 2, so adding 0.5 is exact enough
            scores[:top] = total
        if frame.ignored:
            scores[nodeset.slots(frame.ignored, nodes.capacity)] = 0
        return scores

    def normalized(self, frame: CandidateDomains, scores: Scores, slots: Slots) -> Scores:
        """Return 0..100, fewest pods best; 100 for all if no pod counts anywhere."""
        capacity = self._nodes.capacity
        ignored = nodeset.to_mask(frame.ignored, capacity) if frame.ignored else None
        judged = slots if ignored is None else slots[~ignored[slots]]
        out: Scores = np.zeros(capacity, dtype=np.int64)
        if not judged.size:
            return out
        top = int(judged[-1]) + 1
        among = scores[:top] if len(judged) == top else scores.take(judged)  # all slots from 0 on: no copy
        lowest, highest = int(among.min()), int(among.max())
        if highest:
            # Exact: float64 division gives the exact quotient below 2**53, and truncating it is integer division.
            part = np.subtract(float(highest + lowest), scores[:top])
            part *= float(MAX_NODE_SCORE)
            part /= float(highest)
            out[:top] = part
        else:
            out[:top] = MAX_NODE_SCORE
        if ignored is not None:
            out[ignored] = 0
        return out

    def _framed(self, constraints: Constraints, candidates: NodeSet) -> CandidateDomains:
        scored = candidates
        if constraints.requires_all:
            for constraint in constraints.each:
                scored &= self._nodes.labels.having(constraint.topology_key)
        weights = tuple(math.log(self._size(c.topology_key, scored) + 2) for c in constraints.each)
        return CandidateDomains(constraints, candidates & ~scored, weights)

    def _size(self, key: str, scored: NodeSet) -> int:
        """Return the number of domains of these nodes. Nodes without the key form one domain, that of the value ""."""
        if key == HOSTNAME:
            return scored.bit_count()
        topology = self._nodes.topologies.of(key)
        is_mixed = bool(scored & ~topology.having) and not scored & self._nodes.labels.equal(key, "")
        return topology.distinct(scored) + is_mixed

    def _on_each_node(self, constraint: Constraint, weight: float, top: int) -> _Floats:
        """Return the column for the hostname key: only pods on the node itself count, without inclusion policies."""
        nodes, counted = self._nodes, constraint.counted
        column = self._by_node.get(counted.key, lambda: _NodeCounts(nodes, counted)).column
        part: _Floats = np.multiply(column[:top], weight)
        if constraint.max_skew != 1:
            part += float(constraint.max_skew - 1)
        return self._without_keyless(part, nodes.labels.having(HOSTNAME))

    def _in_each_domain(self, constraint: Constraint, weight: float, eligible: EligibleNodes, *, top: int) -> _Floats:
        topology = self._nodes.topologies.of(constraint.topology_key)
        tally = self._nodes.population.tally(constraint.counted)
        counts = domains.of(tally, topology, eligible.nodes)
        slack = float(constraint.max_skew - 1)
        if len(topology.members) > _TABLE_MAX and not eligible.keyless:
            part = counts.column()[:top].astype(np.float64)
            part *= weight
            part += slack
            return self._without_keyless(part, topology.having)
        table = [slack] * len(topology.members)
        for number, count in counts.per_domain.items():
            table[number] = count * weight + slack
        nameless = topology.number("") if eligible.keyless else None
        if nameless is not None:
            more = sum(count for slot, count in tally.counts.items() if eligible.keyless >> slot & 1)
            table[nameless] = (counts.per_domain.get(nameless, 0) + more) * weight + slack
        table.append(0.0)  # the entry of nodes without the key, whose number is -1
        return np.array(table).take(topology.domain[:top])

    def _without_keyless(self, part: _Floats, having: NodeSet) -> _Floats:
        lacking = self._nodes.present & ~having
        if lacking:
            part[nodeset.slots(lacking, len(part))] = 0.0
        return part


class _NodeCounts:
    """The matching pods of each slot."""

    __slots__ = ("_counted", "_nodes", "column")

    def __init__(self, nodes: Nodes, counted: Selection) -> None:
        self._nodes = nodes
        self._counted = counted
        self.column: _Floats = np.zeros(nodes.capacity)
        self._fill()

    def refresh(self, slots: set[int]) -> None:
        """Update the slots whose pods changed."""
        counts = self._nodes.population.tally(self._counted).counts
        if len(slots) > FEW and len(slots) > len(counts):
            self.column.fill(0.0)
            self._fill()
            return
        for slot in slots:
            self.column[slot] = counts.get(slot, 0)

    def _fill(self) -> None:
        counts = self._nodes.population.tally(self._counted).counts
        index = np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))
        self.column[index] = np.fromiter(counts.values(), dtype=np.float64, count=len(counts))
