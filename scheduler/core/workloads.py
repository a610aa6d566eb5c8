"""Services and the controllers that own pods, as decoded: only what they select (docs/spec/core.md §5.8)."""

from __future__ import annotations

from scheduler.core.labels import LabelSelector
from scheduler.core.meta import Frozen, Labels, Metadata


class PlainSelector(Frozen, frozen=True):
    """A `spec` whose selector is a map of labels; None is a nil selector."""

    selector: Labels | None = None


class Service(Frozen, frozen=True):
    """A Service; with a nil selector it selects no pod."""

    metadata: Metadata
    spec: PlainSelector = PlainSelector()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key


class ReplicationController(Frozen, frozen=True):
    """A ReplicationController."""

    metadata: Metadata
    spec: PlainSelector = PlainSelector()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key


class SetSelector(Frozen, frozen=True):
    """A `spec` whose selector is a `LabelSelector`; None is a nil selector."""

    selector: LabelSelector | None = None


class ReplicaSet(Frozen, frozen=True):
    """A ReplicaSet."""

    metadata: Metadata
    spec: SetSelector = SetSelector()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key


class StatefulSet(Frozen, frozen=True):
    """A StatefulSet."""

    metadata: Metadata
    spec: SetSelector = SetSelector()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key
