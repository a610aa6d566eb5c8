"""NodeAffinity: nodeSelector, the pod's node affinity, and the affinity that a profile adds (docs/spec/core.md §5.4).

Results are sets from the label index, cached per placement shape while no node object changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import (
    Affinity,
    Node,
    NodeAffinity as NodeAffinityRules,
    NodeSelector,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from scheduler.api.decode import from_manifest
from scheduler.api.node_affinity import (
    NODE_NAME_FIELD,
    is_empty,
    required_affinity_matches,
    required_node_affinity,
    selector_matches,
    term_problem,
)
from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes.node_groups import admitting, matching_selector, matching_term
from scheduler.config.args import NodeAffinityArgs
from scheduler.core import nodeset
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import (
    NODE_CAME,
    CycleState,
    EventHint,
    Hint,
    Scores,
    Topics,
    by_node_labels,
    label,
    named,
)
from scheduler.framework.memo import ByObjects, by_placement
from scheduler.framework.scoring import default_normalize
from scheduler.framework.status import SKIP, AttemptError, Code, Groups, Narrow, Rejection, Skip

_DEMANDS_LABEL: Final = frozenset({"In", "Exists", "Gt", "Lt"})
"""Operators that only nodes with the label satisfy."""


class NodeAffinityPlugin:
    """PreFilter, Filter, PreScore, Score.

    Upstream: pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go NodeAffinity
    """

    name: Final = "NodeAffinity"
    depends_on_pods: Final = False
    _rejection: Final = Rejection(name, Code.UNRESOLVABLE, ("node(s) didn't match Pod's node affinity/selector",))
    _not_added: Final = Rejection(name, Code.UNRESOLVABLE, ("node(s) didn't match scheduler-enforced node affinity",))
    _conflict: Final = Rejection(name, Code.UNRESOLVABLE, ("pod affinity terms conflict",))

    def __init__(self, args: NodeAffinityArgs | None, handle: Handle) -> None:
        added = args.added_affinity if args is not None else None
        rules = NodeAffinityRules() if added is None else from_manifest(NodeAffinityRules, dict(added))
        self._added_required = rules.required
        self._added_preferred = rules.preferred
        self._nodes = handle.cluster.nodes
        self._admitted: ByObjects[NodeSet] = ByObjects(self._nodes)
        self._preferred_scores: ByObjects[Scores] = ByObjects(self._nodes, size=64)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Narrow | Rejection | Skip | None:
        """Skip without required rules.

        Narrow to node names if every term pins `metadata.name`, as in DaemonSet pods.
        """
        spec = pod.pod.spec
        required = required_node_affinity(spec.affinity)
        if required is None:
            return None if self._added_required or spec.node_selector else SKIP
        names: frozenset[str] = frozenset()
        for term in required.node_selector_terms:
            pinned = _pinned(term)
            if pinned is None:
                return None
            names |= pinned
        if names:
            return Narrow(names)
        return self._conflict if required.node_selector_terms else None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes by the profile's added affinity first, then by the pod's own rules."""
        groups: Groups = {}
        added = self._added_required
        if added is not None:
            refused = nodes & ~self._admitted.get(None, lambda: matching_selector(self._nodes, added))
            if refused:
                groups[self._not_added] = refused
                nodes &= ~refused
        if pod.placement_shape:
            refused = nodes & ~self._admitted.get(pod.placement_shape, lambda: admitting(self._nodes, pod.pod.spec))
            if refused:
                groups[self._rejection] = refused
        return groups

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip without preferred terms; a term that cannot be parsed ends the attempt, as in upstream."""
        preferred = _preferred(pod.pod.spec.affinity)
        for at, term in enumerate(preferred):
            problem = "" if _counts_nothing(term) else term_problem(term.preference)
            if problem:
                raise AttemptError(
                    f'running PreScore plugin "{self.name}": '
                    f"preferredDuringSchedulingIgnoredDuringExecution[{at}].{problem}",
                    plugin=self.name,
                )
        return None if preferred or self._added_preferred else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """Return the sum of the weights of the preferred terms that match."""
        return self._preferred_scores.get(pod.placement_shape, lambda: self._weighed(pod))

    def normalize_score(self, state: CycleState, pod: PodInfo, scores: Scores, slots: npt.NDArray[np.intp]) -> Scores:
        """Scale the scores so that the best candidate gets 100."""
        return default_normalize(scores, slots)

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of a new node that matches, and of a node that matches after a change of its labels."""
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return (EventHint(node, self._after_node, by_placement, Topics(self._topics, by_node_labels)),)

    def _weighed(self, pod: PodInfo) -> Scores:
        capacity = self._nodes.capacity
        column: Scores = np.zeros(capacity, dtype=np.int64)
        for term in (*self._added_preferred, *_preferred(pod.pod.spec.affinity)):
            if not _counts_nothing(term):
                column[nodeset.to_mask(matching_term(self._nodes, term.preference), capacity)] += term.weight
        return column

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        # Upstream does not check the added affinity on the old node, and misses a change of labels that makes the
        # node match it. Checking it on both retries the pod in this case, too.
        is_in = new is not None and self._admits(pod, new)
        was_in = old is not None and self._admits(pod, old)
        return Hint.QUEUE if is_in and not was_in else Hint.SKIP

    def _topics(self, pod: PodInfo) -> Iterator[Hashable]:
        """Yield the label changes that can satisfy the required rules of pod or profile; in a term any may be the last.

        A new node must have a required label or name, unless the rules demand none.
        """
        spec = pod.pod.spec
        required = required_node_affinity(spec.affinity)
        for pair in spec.node_selector.items():
            yield label(*pair)
        yield from _wanted(self._added_required)
        yield from _wanted(required)
        if not spec.node_selector and (required is None or not all(map(_demands, required.node_selector_terms))):
            yield NODE_CAME

    def _admits(self, pod: PodInfo, node: Node) -> bool:
        name, labels = node.metadata.name, node.metadata.labels
        added = self._added_required
        return (added is None or selector_matches(added, name, labels)) and required_affinity_matches(
            pod.pod, name, labels
        )


def _pinned(term: NodeSelectorTerm) -> frozenset[str] | None:
    """Return the node names that a term allows; None if it does not restrict names."""
    names: frozenset[str] | None = None
    for requirement in term.match_fields:
        if requirement.key == NODE_NAME_FIELD and requirement.operator == "In":
            values = frozenset(requirement.values)
            names = values if names is None else names & values
    return names


def _wanted(selector: NodeSelector | None) -> Iterator[Hashable]:
    for term in selector.node_selector_terms if selector is not None else ():
        for requirement in term.match_expressions:
            values = requirement.values if requirement.operator == "In" else (None,)
            yield from (label(requirement.key, value) for value in values)
        for name in _pinned(term) or ():
            yield named(name)


def _demands(term: NodeSelectorTerm) -> bool:
    """Return whether only nodes with a certain label or name satisfy the term."""
    return bool(_pinned(term)) or any(r.operator in _DEMANDS_LABEL for r in term.match_expressions)


def _preferred(affinity: Affinity | None) -> tuple[PreferredSchedulingTerm, ...]:
    return affinity.node_affinity.preferred if affinity and affinity.node_affinity else ()


def _counts_nothing(term: PreferredSchedulingTerm) -> bool:
    return not term.weight or is_empty(term.preference)
