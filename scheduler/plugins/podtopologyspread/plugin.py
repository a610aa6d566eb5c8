"""PodTopologySpread at its extension points (docs/spec/core.md §5.8).

Filter reads the current counts, so pods that a dry run adds or removes count like all other pods. Upstream counts
added pods even if they are terminating, because it adds them to counts made before.

Scores are better with fewer matching pods in the node's domains. They are floating point in upstream's order, so that
equal clusters get equal scores. Only ln(size + 2), which Go computes itself, may differ in its last bit. No count of
pods is known for which a rounded score differs.

Upstream registers all pod events at once. Here events of other pods and of the waiting pod itself are separate, because
the former are decided once for all pods of a shape. In four more cases a pod is retried that waits for the flush in
upstream (§10.2): a counted pod begins to terminate; a node begins or ceases to be eligible by a label that the pod's
own selector or affinity reads; the waiting pod's own labels change what its constraints count, by matchLabelKeys or by
the Services that select it; and such a Service, or the pod's owner, changes while default constraints are hard.

Upstream: pkg/scheduler/framework/plugins/podtopologyspread/filtering.go Filter
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.apps_and_policy import Service
from scheduler.api.core_v1 import Node
from scheduler.api.node_affinity import required_affinity_matches, required_node_affinity
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import Anchor, LabelSelector, anchors, probes
from scheduler.cache.nodes import topology as domains
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.nodes.topology import Topology
from scheduler.cache.pods import FEW_SELECTIONS, Selection
from scheduler.cache.workloads import Controller, selecting_owner
from scheduler.config.args import PodTopologySpreadArgs
from scheduler.core import nodeset
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.cooperative import Work
from scheduler.core.feature_gates import EMPTY_SPREAD
from scheduler.core.nodeset import EMPTY, NodeSet, Slots
from scheduler.framework.handle import Handle
from scheduler.framework.interface import (
    MAX_NODE_SCORE,
    CycleState,
    EventHint,
    Hint,
    Scores,
    StateKey,
    Topics,
    by_node_labels,
    by_pod_labels,
    label,
)
from scheduler.framework.memo import FEW, ByObjects, BySlots
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip
from scheduler.plugins.podtopologyspread.constraints import (
    HOSTNAME,
    Constraint,
    Constraints,
    EligibleNodes,
    EligibleNodesCache,
    SpreadRulesCache,
)

T = TypeVar("T")

PLUGIN: Final = "PodTopologySpread"
_TEXT: Final = "node(s) didn't match pod topology spread constraints"
SKEWED: Final = Rejection(PLUGIN, Code.UNSCHEDULABLE, (_TEXT,))
KEYLESS: Final = Rejection(
    PLUGIN, Code.UNRESOLVABLE, (f"{_TEXT} (missing required label)",), cause="SpreadLabelMissing"
)


_Floats: TypeAlias = npt.NDArray[np.float64]
_TABLE_MAX: Final = 64
"""Up to this many domains are computed one by one; for more the counts are a column."""


class CandidateDomains(msgspec.Struct, frozen=True):
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
        column: Scores = np.zeros(capacity, dtype=np.int64)
        if not judged.size:
            return column
        top = int(judged[-1]) + 1
        among = scores[:top] if len(judged) == top else scores.take(judged)  # all slots from 0 on: no copy
        lowest, highest = int(among.min()), int(among.max())
        if highest:
            # Exact: float64 division gives the exact quotient below 2**53, and truncating it is integer division.
            part = np.subtract(float(highest + lowest), scores[:top])
            part *= float(MAX_NODE_SCORE)
            part /= float(highest)
            column[:top] = part
        else:
            column[:top] = MAX_NODE_SCORE
        if ignored is not None:
            column[ignored] = 0
        return column

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
        nameless = topology.numbers.get("") if eligible.keyless else None
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

    def refresh(self, slots: Sequence[int]) -> None:
        """Update the slots whose pods changed."""
        counts = self._nodes.population.tally(self._counted).counts
        if len(slots) > FEW and len(slots) >= len(counts):
            self.column.fill(0.0)
            self._fill()
            return
        for slot in slots:
            self.column[slot] = counts.get(slot, 0)

    def _fill(self) -> None:
        counts = self._nodes.population.tally(self._counted).counts
        index = np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))
        self.column[index] = np.fromiter(counts.values(), dtype=np.float64, count=len(counts))


Selecting: TypeAlias = Service | Controller


class PodTopologySpreadHints:
    """The hints of one profile.

    Upstream: pkg/scheduler/framework/plugins/podtopologyspread/plugin.go EventsToRegister
    """

    def __init__(self, rules: SpreadRulesCache) -> None:
        self._rules = rules

    def events(self) -> Sequence[EventHint]:
        """Return the events of counted pods, of nodes with all keys, and of the pod itself.

        With hard default constraints also the events of Services and owners.
        """
        shape = self._rules.shape
        neighbour = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE)
        itself = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION)
        changed = Action.ADD | Action.DELETE
        node = ClusterEvent(Resource.NODE, changed | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT)
        events = (
            EventHint(neighbour, self._after_neighbour, shape, Topics(self._selecting, by_pod_labels)),
            EventHint(itself, self._after_itself),
            EventHint(node, self._after_node, self._by_keys, Topics(self._keyed, by_keys_and_taints)),
        )
        if not self._rules.has_hard_defaults:
            return events
        selecting = Topics(_selecting_objects, _by_selecting)
        kinds = (Resource.SERVICE, Resource.CONTROLLER)
        selected = (ClusterEvent(kind, changed | Action.UPDATE_OTHER) for kind in kinds)
        return (*events, *(EventHint(event, _after_selecting, shape, selecting) for event in selected))

    def _after_neighbour(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        namespace = pod.pod.metadata.namespace
        if not all(_has_node(other, namespace) for other in (old, new) if other is not None):
            return Hint.SKIP
        hard = self._rules.of(pod).hard.each
        if old is not None and new is not None:
            return Hint.QUEUE if _counted(hard, old) != _counted(hard, new) else Hint.SKIP
        was, will = _matching(hard, old), _matching(hard, new)
        return Hint.QUEUE if any(was) or any(will) else Hint.SKIP

    def _after_itself(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        if old is None or new is None or new.uid != pod.uid:
            return Hint.SKIP
        hard = self._rules.of(pod).hard
        if hard.honors_taints and old.pod.spec.tolerations != new.pod.spec.tolerations:
            return Hint.QUEUE
        before = self._rules.of(old).hard
        if [constraint.selector for constraint in before.each] != [constraint.selector for constraint in hard.each]:
            return Hint.QUEUE
        return Hint.QUEUE if _matching(hard.each, old) != _matching(hard.each, new) else Hint.SKIP

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        hard = self._rules.of(pod).hard
        keys = _keys(hard)
        was_in, is_in = _has_all(old, keys), _has_all(new, keys)
        if old is None or new is None or was_in != is_in:
            return Hint.QUEUE if was_in or is_in else Hint.SKIP
        before, after = old.metadata.labels, new.metadata.labels
        differs = any(before.get(key) != after.get(key) for key in keys) or old.spec.taints != new.spec.taints
        if not differs and hard.honors_affinity and pod.placement_shape:
            name = new.metadata.name
            differs = required_affinity_matches(pod.pod, name, before) != required_affinity_matches(
                pod.pod, name, after
            )
        return Hint.QUEUE if is_in and differs else Hint.SKIP

    def _by_keys(self, pod: PodInfo) -> Hashable:
        hard = self._rules.of(pod).hard
        return frozenset(_keys(hard)), pod.placement_shape if hard.honors_affinity else b""

    def _selecting(self, pod: PodInfo) -> Iterator[Anchor]:
        """Return the index keys of the selectors. A change of default constraints is an event itself."""
        namespaces = frozenset({pod.pod.metadata.namespace})
        hard = self._rules.of(pod).hard.each
        return (anchor for constraint in hard for anchor in anchors(namespaces, constraint.selector))

    def _keyed(self, pod: PodInfo) -> Iterator[Hashable] | None:
        hard = self._rules.of(pod).hard
        if not hard.each:
            return None
        return map(label, (*_keys(hard), *(_placement_keys(pod) if hard.honors_affinity else ())))


def by_keys_and_taints(old: Node | None, new: Node | None) -> Iterator[Hashable]:
    """Yield the labels that differ, or every label of the node if its taints differ."""
    yield from by_node_labels(old, new)
    if old is not None and new is not None and old.spec.taints != new.spec.taints:
        yield from map(label, new.metadata.labels)


def _keys(hard: Constraints) -> list[str]:
    return [constraint.topology_key for constraint in hard.each]


def _placement_keys(pod: PodInfo) -> Iterator[str]:
    """Yield the node labels that nodeSelector and required node affinity read."""
    spec = pod.pod.spec
    yield from spec.node_selector
    required = required_node_affinity(spec.affinity)
    for term in required.node_selector_terms if required is not None else ():
        for requirement in term.match_expressions:
            yield requirement.key


def _has_node(other: PodInfo, namespace: str) -> bool:
    pod = other.pod
    return pod.metadata.namespace == namespace and bool(pod.spec.node_name or pod.status.nominated_node_name)


def _matching(constraints: tuple[Constraint, ...], other: PodInfo | None) -> list[bool]:
    """Return per constraint whether the selector matches. An empty one matches all pods here in every version."""
    if other is None:
        return []
    labels = other.pod.metadata.labels
    return [c.selector is not None and c.selector.matches(labels) for c in constraints]


def _counted(constraints: tuple[Constraint, ...], other: PodInfo) -> list[bool]:
    """Return per constraint whether the pod counts; a terminating pod does not."""
    if other.pod.metadata.deletion_timestamp is not None:
        return [False] * len(constraints)
    return _matching(constraints, other)


def _has_all(node: Node | None, keys: list[str]) -> bool:
    return node is not None and all(key in node.metadata.labels for key in keys)


# -- Services and owners of default constraints --------------------------------------------------------------------------


def _after_selecting(pod: PodInfo, old: Selecting | None, new: Selecting | None) -> Hint:
    if pod.spread_shape:
        return Hint.SKIP
    return Hint.QUEUE if any(_counts(seen, pod) for seen in (old, new) if seen is not None) else Hint.SKIP


def _counts(seen: Selecting, pod: PodInfo) -> bool:
    """Return whether the pod's default constraints use the selector of this Service or owner."""
    if not isinstance(seen, Service):
        return selecting_owner(pod.pod) == (type(seen), seen.key)
    metadata, selector = pod.pod.metadata, seen.spec.selector
    if not selector or seen.metadata.namespace != metadata.namespace:
        return False
    return all(metadata.labels.get(name) == value for name, value in selector.items())


def _selecting_objects(pod: PodInfo) -> Iterator[Hashable]:
    """Yield topics of the Services that may select the pod, and of its owner."""
    if not pod.spread_shape:
        metadata = pod.pod.metadata
        yield from probes(metadata.namespace, metadata.labels)
        yield selecting_owner(pod.pod)


def _by_selecting(old: Selecting | None, new: Selecting | None) -> Iterator[Hashable]:
    for seen in (old, new):
        if isinstance(seen, Service):
            yield from anchors(frozenset({seen.metadata.namespace}), LabelSelector(seen.spec.selector or {}))
        elif seen is not None:
            yield type(seen), seen.key


_FRAME: Final[StateKey[CandidateDomains]] = StateKey("podtopologyspread.frame")
_SELECTING_KINDS: Final = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")


class PodTopologySpread:
    """PreFilter, Filter, PreScore, Score. Needs no AddPod and RemovePod: Filter reads the current counts.

    Upstream: pkg/scheduler/framework/plugins/podtopologyspread/plugin.go PodTopologySpread
    """

    name: Final = PLUGIN

    def __init__(self, args: PodTopologySpreadArgs | None, handle: Handle) -> None:
        nodes = handle.cluster.nodes
        eligibility = EligibleNodesCache(nodes)
        self._rules = SpreadRulesCache(
            args if args is not None else PodTopologySpreadArgs(),
            handle.cluster.workloads,
            counts_for_empty=EMPTY_SPREAD in handle.feature_gates,
        )
        self._nodes = nodes
        self._eligibility = eligibility
        self._soft = SoftConstraints(nodes, eligibility)
        self.reads: tuple[str, ...] = _SELECTING_KINDS if self._rules.has_defaults else ()
        """Default constraints count the pods that these kinds select."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip without hard constraints."""
        return None if self._rules.has_hard(pod) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups | Work[Groups]:
        """Reject nodes without a topology key, and nodes where the pod would exceed the allowed skew.

        The first constraint that rejects a node gives the reason. The cost grows with constraints and different counts,
        not with nodes. The pods of many constraints are counted first, with pauses.
        """
        constraints = self._rules.of(pod).hard
        if len(constraints.each) <= FEW_SELECTIONS:
            return self._refused(pod, constraints, nodes)
        return self._counted_first(constraints, lambda: self._refused(pod, constraints, nodes))

    def _counted_first(self, constraints: Constraints, then: Callable[[], T]) -> Work[T]:
        yield from self._nodes.population.counting(each.counted for each in constraints.each)
        return then()

    def _refused(self, pod: PodInfo, constraints: Constraints, nodes: NodeSet) -> Groups:
        groups: Groups = {}
        for constraint, eligible in zip(constraints.each, self._eligibility.of(pod, constraints)):
            if not nodes:
                break
            topology = self._nodes.topologies.of(constraint.topology_key)
            crowded = self._crowded(constraint, topology, eligible.nodes)
            for rejection, refused in ((KEYLESS, nodes & ~topology.having), (SKEWED, nodes & crowded)):
                if refused:
                    groups[rejection] = groups.get(rejection, EMPTY) | refused
                    nodes &= ~refused
        return groups

    def _crowded(self, constraint: Constraint, topology: Topology, eligible: NodeSet | None) -> NodeSet:
        """Return the nodes of domains that would exceed the smallest count by more than the skew.

        A domain without eligible nodes is never full.
        """
        counts = domains.of(self._nodes.population.tally(constraint.counted), topology, eligible)
        levels = counts.levels()
        least = min(levels, default=0) if counts.existing >= constraint.min_domains else 0
        most = constraint.max_skew + least - constraint.counts_itself
        crowded = EMPTY
        for count, level in levels.items():
            if count > most:
                crowded |= level.nodes
        return crowded

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip without soft constraints."""
        soft = self._rules.of(pod).soft
        if not soft.each:
            return SKIP
        state.set(_FRAME, self._soft.frame(soft, nodes))
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores | Work[Scores]:
        """Return the weighted number of matching pods in the node's domains, for the candidates of PreScore."""
        frame = state.get(_FRAME)
        if len(frame.constraints.each) <= FEW_SELECTIONS:
            return self._soft.raw(pod, frame)
        return self._counted_first(frame.constraints, lambda: self._soft.raw(pod, frame))

    def normalize_score(self, state: CycleState, pod: PodInfo, scores: Scores, slots: Slots) -> Scores:
        """Give the best score to the smallest number, and 0 to nodes that lack a required key."""
        return self._soft.normalized(state.get(_FRAME), scores, slots)

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events that change the counts or domains of the hard constraints."""
        return PodTopologySpreadHints(self._rules).events()
