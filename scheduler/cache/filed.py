"""Things that select pods, filed so that a pod finds those which may mean it (`core.anchors`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from scheduler.core.anchors import Anchor, probes

T = TypeVar("T")


class Filed(dict[Anchor, dict[T, None]], Generic[T]):
    """Anchor → what is filed there, in the order of arrival. No anchor is kept for nothing."""

    def file(self, thing: T, anchors: Iterable[Anchor]) -> None:
        """It may select pods that look there."""
        for anchor in anchors:
            self.setdefault(anchor, {})[thing] = None

    def unfile(self, thing: T, anchors: Iterable[Anchor]) -> None:
        """The inverse, with the same anchors; KeyError if it is not there."""
        for anchor in anchors:
            here = self[anchor]
            del here[thing]
            if not here:
                del self[anchor]

    def under(self, namespace: str, labels: Mapping[str, str]) -> list[T]:
        """What may select such a pod, each once. O(labels + what is found); a look if nothing is filed at all."""
        return [thing for anchor in probes(namespace, labels) for thing in self.get(anchor, ())] if self else []
