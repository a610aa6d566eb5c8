"""State that the parts of the scheduler share, and the update queue through which cache and queue change.

The one door through which cache and queue change (docs/architecture.md, "Design principles").

Watch batches, outcomes of bindings and wake-ups are put here from anywhere on the event loop and applied between
attempts: by the scheduling loop, or by a binding that is about to leave and must know all there is to know. So an attempt
that gives the event loop a turn still sees one unchanged state.

What the parts of the scheduling loop share: one cache, one queue, one inbox, and the ports to the world.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.core.clock import Clock
from scheduler.core.errors import UnforeseenErrors
from scheduler.framework.handle import Recorder, Writer
from scheduler.metrics.metrics import Metrics
from scheduler.queue import SchedulingQueue


class Inbox:
    """First in, first out. `put` never blocks and never runs the change itself."""

    def __init__(self, errors: UnforeseenErrors | None = None) -> None:
        self._errors = errors or UnforeseenErrors()
        self._changes: deque[Callable[[], None]] = deque()
        self._news = asyncio.Event()
        self._is_closed = False
        self._applied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._changes)

    def put(self, change: Callable[[], None]) -> None:
        """Apply `change` before the next attempt."""
        self._changes.append(change)
        self._news.set()

    def wake(self) -> None:
        """Something may be ready: end a `wait` without a change."""
        self._news.set()

    def apply(self) -> int:
        """Run what has arrived, in order; returns how many. One failing change is logged and costs only itself."""
        applied = 0
        while self._changes:
            change = self._changes.popleft()
            applied += 1
            try:
                change()
            except Exception as error:  # noqa: BLE001 (one broken change must not stop the loop that all pods depend on)
                name = getattr(change, "__qualname__", repr(change))
                self._errors.record("event-handler", error, "a change could not be applied", change=name)
        self._applied.set()
        return applied

    def catch_up(self) -> None:
        """Apply what has arrived, from anywhere but a change; nothing happens while an attempt is under way."""
        if not self._is_closed:
            self.apply()

    async def caught_up(self) -> None:
        """Block until all queued changes are applied, after the running attempt ends."""
        while self._is_closed:
            self._applied.clear()
            await self._applied.wait()
        self.apply()

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """While an attempt that is not at its end gives the event loop a turn."""
        self._is_closed = True
        try:
            yield
        finally:
            self._is_closed = False

    async def wait(self) -> None:
        """Return when something was put or woken, also if that was before this call."""
        await self._news.wait()
        self._news.clear()


class UnboundPods:
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
    pending: UnboundPods = field(default_factory=UnboundPods)
    errors: UnforeseenErrors = field(default_factory=UnforeseenErrors)
