"""Which nodes declare which feature in `status.declaredFeatures` (docs/spec/core.md §5.11)."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.nodeset import EMPTY, NodeSet


class FeatureIndex:
    """Feature → NodeSet, kept as nodes come, change and go. Unknown names are kept like others: nobody asks for them."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeSet] = {}

    def declaring(self, feature: str) -> NodeSet:
        """Nodes that declare it."""
        return self._nodes.get(feature, EMPTY)

    def add(self, slot: int, features: Iterable[str]) -> None:
        """The node at `slot` declares these."""
        for feature in features:
            self._nodes[feature] = self.declaring(feature) | 1 << slot

    def remove(self, slot: int, features: Iterable[str]) -> None:
        """The inverse of `add`, with the same features."""
        for feature in features:
            left = self.declaring(feature) & ~(1 << slot)
            if left:
                self._nodes[feature] = left
            else:
                self._nodes.pop(feature, None)
