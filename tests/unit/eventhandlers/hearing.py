"""Who hears of a delta, of what, and what the cache shows at that moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.api.decode import Delta
from scheduler.core.cluster_events import ClusterEvent


class Hearing:
    """Stands where the queue and the waits are. `shown` answers what the cache shows."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.shown: Callable[[], Any] = lambda: None

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        raise NotImplementedError

    def move(self, event: ClusterEvent, old: object, new: object) -> None:
        self.heard.append((event.resource.value.rpartition("/")[2], event.action, old, new, self.shown()))

    def told(self) -> None:
        self.heard.append(("told", self.shown()))

    def feed(self, kind: str, old: Any, new: Any) -> list[tuple[Any, ...]]:
        """What was heard of it."""
        self.heard.clear()
        self.handlers()[kind](Delta(old, new))
        return list(self.heard)
