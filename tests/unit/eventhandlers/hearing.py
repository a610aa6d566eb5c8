"""A recorder of the calls that event handlers make, with the state of the cache at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.api.decode import Delta
from scheduler.core.cluster_events import ClusterEvent


class Hearing:
    """Takes the place of the queue and of subscribers. `shown` returns the state of the cache."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.shown: Callable[[], Any] = lambda: None

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        raise NotImplementedError

    def move(self, event: ClusterEvent, old: object, new: object) -> None:
        self.heard.append((event.resource.value.rpartition("/")[2], event.action, old, new, self.shown()))

    def notified(self) -> None:
        self.heard.append(("notified", self.shown()))

    def feed(self, kind: str, old: Any, new: Any) -> list[tuple[Any, ...]]:
        """Return the calls that this delta causes."""
        self.heard.clear()
        self.handlers()[kind](Delta(old, new))
        return list(self.heard)
