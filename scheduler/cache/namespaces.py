"""The labels of namespaces: whom a namespaceSelector means (docs/spec/core.md §5.9)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.core.labels import LabelSelector
from scheduler.core.namespace import Namespace

_NONE: Mapping[str, str] = {}


class Namespaces:
    """Namespace → labels. An unknown namespace has none, as upstream takes it."""

    def __init__(self) -> None:
        self.generation = 0
        """Changes when a namespace comes, goes, or has other labels."""
        self._labels: dict[str, Mapping[str, str]] = {}

    def labels(self, name: str) -> Mapping[str, str]:
        """Empty for a namespace that is not known."""
        return self._labels.get(name, _NONE)

    def matching(self, selector: LabelSelector) -> frozenset[str]:
        """The names of those that are selected. O(namespaces): keep the answer per generation."""
        return frozenset(name for name, labels in self._labels.items() if selector.matches(labels))

    def set(self, namespace: Namespace) -> None:
        """Add or replace."""
        name, labels = namespace.metadata.name, namespace.metadata.labels
        if self._labels.get(name) != labels:
            self._labels[name] = labels
            self.generation += 1

    def remove(self, name: str) -> None:
        """It is gone, or unreadable."""
        if self._labels.pop(name, None) is not None:
            self.generation += 1
