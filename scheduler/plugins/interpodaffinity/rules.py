"""A pod's own rules about other pods, ready to be counted (docs/spec/core.md §5.9).

Namespace selectors are resolved to names, as upstream does for the pod that comes; see `selects_all` for those that mean all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.cache.namespaces import Namespaces
from scheduler.cache.podterms import PodTerm, TermKind, pod_terms
from scheduler.cache.population import Selection, Term, selection
from scheduler.core.bounded_cache import BoundedCache
from scheduler.core.labels import LabelSelector
from scheduler.core.podinfo import PodInfo

_KEPT_MAX: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """Pods to be near to, or away from, and over which topology."""

    topology_key: str
    pods: Selection


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The four lists, worked out."""

    required: Selection | None
    """Pods that match *all* required affinity terms; None when there is no such term."""
    required_keys: tuple[str, ...]
    required_anti: tuple[Near, ...]
    preferred: tuple[tuple[int, Near], ...]
    """With weights: negative for anti-affinity."""
    terms: tuple[PodTerm, ...]

    def matches_itself(self, pod: PodInfo) -> bool:
        """Whether the pod is one of those it must be near to."""
        metadata = pod.pod.metadata
        return self.required is not None and self.required.finds(metadata.namespace, metadata.labels)


NO_RULES: Final = Rules(None, (), (), (), ())
_Shape: TypeAlias = tuple[str, bytes]


class RuleBook:
    """Rules by shape, worked out once while no namespace changes."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._seen = -1
        self._known: BoundedCache[_Shape, Rules] = BoundedCache(_KEPT_MAX)

    def of(self, pod: PodInfo) -> Rules:
        """The pod's rules. A look-up for the second pod of a shape."""
        terms = pod_terms(pod)
        if not terms:
            return NO_RULES
        if self._namespaces.generation != self._seen:
            self._known.clear()
            self._seen = self._namespaces.generation
        shape = (pod.pod.metadata.namespace, pod.placement_shape)
        known = self._known.get(shape)
        if known is None:
            known = self._known.put(shape, self._worked_out(terms))
        return known

    def _worked_out(self, terms: tuple[PodTerm, ...]) -> Rules:
        required = [term for term in terms if term.kind is TermKind.REQUIRED]
        signs = {TermKind.PREFERRED: 1, TermKind.PREFERRED_ANTI: -1}
        return Rules(
            required=selection(map(self._resolved, required), counts_terminating=True) if required else None,
            required_keys=tuple(dict.fromkeys(term.topology_key for term in required)),
            required_anti=tuple(self._near(term) for term in terms if term.kind is TermKind.REQUIRED_ANTI),
            preferred=tuple((signs[term.kind] * term.weight, self._near(term)) for term in terms if term.kind in signs),
            terms=terms,
        )

    def _near(self, term: PodTerm) -> Near:
        return Near(term.topology_key, selection((self._resolved(term),), counts_terminating=True))

    def _resolved(self, term: PodTerm) -> Term:
        wanted = term.namespace_selector
        if wanted is None:
            return term.namespaces, term.selector
        if selects_all(wanted):
            return None, term.selector
        return term.namespaces | self._namespaces.matching(wanted), term.selector


def selects_all(selector: LabelSelector) -> bool:
    """Whether a namespaceSelector of the pod that comes means every namespace.

    The empty one does; and so, in v1.36.3, does one that holds for an object without labels (`NotIn`, `DoesNotExist`):
    it is matched once more against no labels at all, whatever the namespace has.
    """
    return selector.matches({})
