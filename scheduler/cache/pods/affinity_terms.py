"""The (anti-)affinity terms of the pods on nodes, by kind (docs/spec/core.md §5.9, §A.3).

Equal terms of any number of pods are one group, so a Deployment of a thousand replicas costs as much as one pod.
Groups are indexed by their selectors, so a pod finds the groups that may concern it. `Nodes` updates them, also for
assumed pods and in trials.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.api.core_v1 import Affinity, PodAffinityTerm
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import Anchor, LabelSelector, anchors
from scheduler.cache.nodes.topology import SlotCounts
from scheduler.cache.pods.selector_counts import SelectorIndex
from scheduler.core.caching import Interner

_encode = msgspec.json.Encoder(order="sorted").encode


class TermKind(enum.Enum):
    """The four lists of a pod's affinity terms."""

    REQUIRED = "required affinity"
    REQUIRED_ANTI = "required anti-affinity"
    PREFERRED = "preferred affinity"
    PREFERRED_ANTI = "preferred anti-affinity"


@dataclass(frozen=True, slots=True, eq=False)
class PodTerm:
    """One term with its namespaces: the named ones, else the pod's own if there is no namespaceSelector.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go AffinityTerm
    """

    kind: TermKind
    weight: int
    """1–100 for preferred terms, 0 for required ones."""
    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    key: bytes
    """Equal for equal terms."""

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Return whether the term selects a pod; `namespace_labels` are those of the pod's namespace, as in upstream."""
        if self.selector is None:
            return False
        if namespace not in self.namespaces and (
            self.namespace_selector is None or not self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector.matches(labels)

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """The keys in the index: those of all namespaces if the term has a namespaceSelector."""
        return anchors(self.namespaces if self.namespace_selector is None else None, self.selector)


def has_pod_affinity(affinity: Affinity | None) -> bool:
    """Return whether there may be a term. For nearly every pod, the cost is one attribute."""
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


def pod_terms(pod: PodInfo) -> tuple[PodTerm, ...]:
    """Return all terms of a pod in its order: required before preferred, affinity before anti-affinity.

    For the second pod of a Deployment, the cost is a look-up.
    """
    affinity = pod.pod.spec.affinity
    if affinity is None or not has_pod_affinity(affinity):
        return ()
    shape = (pod.pod.metadata.namespace, pod.placement_shape)
    known = _read.get(shape)
    if known is None:
        known = _read.share(shape, tuple(_terms(pod.pod.metadata.namespace, affinity)))
    return known


_read: Final[Interner[tuple[str, bytes], tuple[PodTerm, ...]]] = Interner(4096)


class TermGroup(SlotCounts):
    """The counts of the pods with one term."""

    __slots__ = ("term",)

    def __init__(self, term: PodTerm) -> None:
        super().__init__()
        self.term = term


class PodTerms:
    """The groups of all pods on nodes."""

    def __init__(self) -> None:
        self.generation = 0
        """A number that changes when a group is added or removed, not when its counts change."""
        self._groups: dict[bytes, TermGroup] = {}
        self._index: dict[TermKind, SelectorIndex[TermGroup]] = {kind: SelectorIndex() for kind in TermKind}

    def any(self, kind: TermKind) -> bool:
        """Return whether a pod on a node has a term of this kind."""
        return bool(self._index[kind])

    def concerning(
        self, kind: TermKind, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> list[TermGroup]:
        """Return the groups whose term selects such a pod, each once. O(labels + groups indexed under them)."""
        candidates = self._index[kind].under(namespace, labels)
        return [group for group in candidates if group.term.matches(namespace, labels, namespace_labels)]

    def add(self, slot: int, pod: PodInfo) -> None:
        """Add a pod on the slot; a pod without terms changes nothing."""
        for term in pod_terms(pod):
            group = self._groups.get(term.key)
            if group is None:
                group = self._groups[term.key] = TermGroup(term)
                self._index[term.kind].add(group, term.anchors)
                self.generation += 1
            group.add(slot)

    def remove(self, slot: int, pod: PodInfo) -> None:
        """Undo `add`; KeyError for a pod that was not added."""
        for term in pod_terms(pod):
            group = self._groups[term.key]
            group.remove(slot)
            if not group.counts:
                self._drop(group)

    def _drop(self, group: TermGroup) -> None:
        term = group.term
        del self._groups[term.key]
        self._index[term.kind].remove(group, term.anchors)
        self.generation += 1


def _terms(namespace: str, affinity: Affinity) -> Iterator[PodTerm]:
    rules = (
        (affinity.pod_affinity, TermKind.REQUIRED, TermKind.PREFERRED),
        (affinity.pod_anti_affinity, TermKind.REQUIRED_ANTI, TermKind.PREFERRED_ANTI),
    )
    for side, required, _ in rules:
        for written in side.required if side is not None else ():
            yield _term(namespace, written, required, 0)
    for side, _, preferred in rules:
        for wish in side.preferred if side is not None else ():
            yield _term(namespace, wish.pod_affinity_term, preferred, wish.weight)


def _term(namespace: str, written: PodAffinityTerm, kind: TermKind, weight: int) -> PodTerm:
    named = written.namespaces
    if not named and written.namespace_selector is None:
        named = (namespace,)
    key = _encode(
        (kind.value, weight, written.topology_key, written.label_selector, sorted(named), written.namespace_selector)
    )
    return PodTerm(
        kind, weight, written.topology_key, written.label_selector, frozenset(named), written.namespace_selector, key
    )
