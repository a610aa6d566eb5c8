"""What the parts of the scheduling loop share: one cache, one queue, one inbox, and the ports to the world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from scheduler.cache.cluster import Cluster
from scheduler.core.clock import Clock
from scheduler.core.podinfo import PodInfo
from scheduler.core.unforeseen import UnforeseenErrors
from scheduler.framework.ports import Recorder, Writer
from scheduler.inbox import Inbox
from scheduler.obs.metrics import Metrics
from scheduler.queue import SchedulingQueue


class Pending:
    """Our unbound pods as the watch has them, by `namespace/name`: what a failed attempt re-reads."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[PodInfo]:
        return iter(self._pods.values())

    def get(self, key: str) -> PodInfo | None:
        """The newest object; None when the pod is gone or bound."""
        return self._pods.get(key)

    def set(self, info: PodInfo) -> None:
        """Add or replace."""
        self._pods[info.key] = info
        self._changed[info.key] = None

    def pop(self, key: str) -> PodInfo | None:
        """Remove; None if it was not there."""
        self._changed[key] = None
        return self._pods.pop(key, None)

    def take_changed(self) -> Iterable[str]:
        """The keys added, replaced or removed since the last call."""
        changed, self._changed = self._changed, {}
        return changed


@dataclass(frozen=True, slots=True)
class Shared:
    """Made once by `app`. Cluster, queue and pending are changed by the scheduling loop only, through the inbox."""

    cluster: Cluster
    queue: SchedulingQueue
    inbox: Inbox
    writer: Writer
    recorder: Recorder
    clock: Clock
    metrics: Metrics
    pending: Pending = field(default_factory=Pending)
    errors: UnforeseenErrors = field(default_factory=UnforeseenErrors)
