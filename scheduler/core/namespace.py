"""Namespaces, as decoded: only their labels matter, to the namespaceSelectors of pod affinity terms."""

from __future__ import annotations

from scheduler.core.meta import Frozen, Metadata


class Namespace(Frozen, frozen=True):
    """A namespace as the API server has it."""

    metadata: Metadata

    @property
    def key(self) -> str:
        """Its name."""
        return self.metadata.name
