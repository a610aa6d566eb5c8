"""A pod's own terms about other pods, and the terms of other pods that match it (docs/spec/core.md §5.9).

Namespace selectors of the pod to schedule are resolved to names, as in upstream; `AffinityRulesCache.selects_all` finds those for all
namespaces. Terms of pods on nodes are cached per namespace and labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import LabelSelector
from scheduler.cache.cluster import Cluster
from scheduler.cache.pods.affinity_terms import PodTerm, TermGroup, TermKind, pod_terms
from scheduler.cache.pods.selector_counts import Selection, Term, selection
from scheduler.cache.workloads import Namespaces
from scheduler.core.caching import BoundedCache

_KEPT_MAX: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class AffinityRule:
    """The pods to be near to, or away from, and the topology key."""

    topology_key: str
    pods: Selection


@dataclass(frozen=True, slots=True, eq=False)
class AffinityRules:
    """The pod's terms, resolved."""

    required: Selection | None
    """Pods that match *all* required affinity terms; None if there is no such term."""
    required_keys: tuple[str, ...]
    required_anti: tuple[AffinityRule, ...]
    preferred: tuple[tuple[int, AffinityRule], ...]
    """With weights, which are negative for anti-affinity."""
    terms: tuple[PodTerm, ...]

    def matches_itself(self, pod: PodInfo) -> bool:
        """Return whether the pod matches its own required affinity terms."""
        metadata = pod.pod.metadata
        return self.required is not None and self.required.finds(metadata.namespace, metadata.labels)


NO_RULES: Final = AffinityRules(None, (), (), (), ())
_Shape: TypeAlias = tuple[str, bytes]


class AffinityRulesCache:
    """Rules by shape, computed once while no namespace changes."""

    def __init__(self, namespaces: Namespaces, *, by_labels_only: bool = False) -> None:
        """Create the cache. `by_labels_only`: only the empty namespaceSelector selects all namespaces (`selects_all`)."""
        self._namespaces = namespaces
        self._by_labels_only = by_labels_only
        self._seen = -1
        self._known: BoundedCache[_Shape, AffinityRules] = BoundedCache(_KEPT_MAX)

    def of(self, pod: PodInfo) -> AffinityRules:
        """Return the pod's rules: a look-up for the second pod of a shape."""
        terms = pod_terms(pod)
        if not terms:
            return NO_RULES
        if self._namespaces.generation != self._seen:
            self._known.clear()
            self._seen = self._namespaces.generation
        shape = (pod.pod.metadata.namespace, pod.placement_shape)
        known = self._known.get(shape)
        if known is None:
            known = self._known.put(shape, self._resolve_all(terms))
        return known

    def _resolve_all(self, terms: tuple[PodTerm, ...]) -> AffinityRules:
        required = [term for term in terms if term.kind is TermKind.REQUIRED]
        signs = {TermKind.PREFERRED: 1, TermKind.PREFERRED_ANTI: -1}
        return AffinityRules(
            required=selection(map(self._resolved, required), counts_terminating=True) if required else None,
            required_keys=tuple(dict.fromkeys(term.topology_key for term in required)),
            required_anti=tuple(self._near(term) for term in terms if term.kind is TermKind.REQUIRED_ANTI),
            preferred=tuple((signs[term.kind] * term.weight, self._near(term)) for term in terms if term.kind in signs),
            terms=terms,
        )

    def selects_all(self, selector: LabelSelector) -> bool:
        """Return whether a namespaceSelector of the pod to schedule selects every namespace.

        The empty selector does. In v1.36.3 so does a selector that matches an object without labels (`NotIn`,
        `DoesNotExist`), because it is also matched against no labels, whatever labels the namespace has.
        """
        if self._by_labels_only:
            return not selector.match_labels and not selector.match_expressions
        return selector.matches({})

    def _near(self, term: PodTerm) -> AffinityRule:
        return AffinityRule(term.topology_key, selection((self._resolved(term),), counts_terminating=True))

    def _resolved(self, term: PodTerm) -> Term:
        wanted = term.namespace_selector
        if wanted is None:
            return term.namespaces, term.selector
        if self.selects_all(wanted):
            return None, term.selector
        return term.namespaces | self._namespaces.matching(wanted), term.selector


MatchingKey: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""Namespace and labels: everything that other pods' terms read."""


def matching_key(pod: PodInfo) -> MatchingKey:
    """Return a value that is equal for pods that all terms treat the same."""
    metadata = pod.pod.metadata
    return metadata.namespace, frozenset(metadata.labels.items())


class MatchingTerms:
    """Groups of terms by kind, cached until a term is added or removed, or a namespace changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._terms = cluster.nodes.pod_terms
        self._namespaces = cluster.namespaces
        self._seen = (-1, -1)
        self._known: BoundedCache[tuple[TermKind, MatchingKey], list[TermGroup]] = BoundedCache(_KEPT_MAX)

    def groups(self, kind: TermKind, pod: PodInfo) -> list[TermGroup]:
        """Return the groups of terms that match this pod."""
        if not self._terms.any(kind):
            return []
        now = (self._terms.generation, self._namespaces.generation)
        if now != self._seen:
            self._known.clear()
            self._seen = now
        key = (kind, matching_key(pod))
        known = self._known.get(key)
        if known is None:
            metadata = pod.pod.metadata
            namespace_labels = self._namespaces.labels(metadata.namespace)
            known = self._known.put(
                key, self._terms.concerning(kind, metadata.namespace, metadata.labels, namespace_labels)
            )
        return known

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the namespace's labels; none for an unknown namespace, as in upstream."""
        return self._namespaces.labels(name)
