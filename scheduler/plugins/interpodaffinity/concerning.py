"""Which terms of the pods on nodes concern a pod, remembered per namespace and labels (docs/spec/core.md §5.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from scheduler.cache.cluster import Cluster
from scheduler.cache.podterms import TermGroup, TermKind
from scheduler.core.bounded_cache import BoundedCache
from scheduler.core.podinfo import PodInfo

_KEPT_MAX: Final = 4096

Who: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""All that other pods' terms look at."""


def who(pod: PodInfo) -> Who:
    """Equal for pods that every term takes for the same."""
    metadata = pod.pod.metadata
    return metadata.namespace, frozenset(metadata.labels.items())


class Concerning:
    """Groups of terms by kind. Forgets everything when a term appears or vanishes, or a namespace changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._terms = cluster.nodes.pod_terms
        self._namespaces = cluster.namespaces
        self._seen = (-1, -1)
        self._known: BoundedCache[tuple[TermKind, Who], list[TermGroup]] = BoundedCache(_KEPT_MAX)

    def groups(self, kind: TermKind, pod: PodInfo) -> list[TermGroup]:
        """The groups whose term means this pod."""
        if not self._terms.any(kind):
            return []
        now = (self._terms.generation, self._namespaces.generation)
        if now != self._seen:
            self._known.clear()
            self._seen = now
        key = (kind, who(pod))
        known = self._known.get(key)
        if known is None:
            metadata = pod.pod.metadata
            namespace_labels = self._namespaces.labels(metadata.namespace)
            known = self._known.put(
                key, self._terms.concerning(kind, metadata.namespace, metadata.labels, namespace_labels)
            )
        return known

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """As upstream takes them: none for a namespace that is not known."""
        return self._namespaces.labels(name)
