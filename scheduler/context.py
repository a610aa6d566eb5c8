"""State that the parts of the scheduler share: one cache, one queue, one inbox, and the ports.

Cache and queue change only through the inbox (docs/architecture.md, "Design principles"). Watch batches, outcomes of
bindings and wake-ups are put there from anywhere on the event loop. They are applied between attempts: by the
scheduling loop, or by a binding before it sends. An attempt that lets the event loop run therefore still sees one
unchanged state.
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
from scheduler.core.cooperative import TURN_S
from scheduler.core.errors import UnforeseenErrors
from scheduler.framework.handle import Recorder, Writer
from scheduler.metrics.metrics import Metrics
from scheduler.queue import SchedulingQueue


class Inbox:
    """Queue of changes, first in, first out. `put` never blocks and never runs the change."""

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
        """End a `wait` without a change, because a pod may be ready."""
        self._news.set()

    def apply(self) -> int:
        """Run the queued changes in order; return how many. A failing change is logged and affects only itself."""
        applied = 0
        while self._changes:
            self._apply_first()
            applied += 1
        self._applied.set()
        return applied

    async def apply_paced(self, clock: Clock) -> None:
        """Run the changes that are queued now, as `apply`, but let the event loop run every 5 ms.

        No other caller applies changes in these pauses, so all of them stay in order.
        """
        began = clock.now()
        for _ in range(len(self._changes)):
            if clock.now() - began > TURN_S:
                with self.closed():
                    await asyncio.sleep(0)
                began = clock.now()
            self._apply_first()
        self._applied.set()

    def _apply_first(self) -> None:
        change = self._changes.popleft()
        try:
            change()
        except Exception as error:  # noqa: BLE001 (one broken change must not stop the loop that all pods depend on)
            name = getattr(change, "__qualname__", repr(change))
            self._errors.record("event-handler", error, "a change could not be applied", change=name)

    def catch_up(self) -> None:
        """Apply queued changes, from anywhere but a change. Does nothing while an attempt is running."""
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
        """Keep changes in the queue while an unfinished attempt lets the event loop run."""
        self._is_closed = True
        try:
            yield
        finally:
            self._is_closed = False

    async def wait(self) -> None:
        """Return when something was put or woken, also before this call."""
        await self._news.wait()
        self._news.clear()


class UnboundPods:
    """Our unbound pods in the watch, by `namespace/name`, for failed attempts."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}
        self._changed: dict[str, None] = {}

    def __iter__(self) -> Iterator[PodInfo]:
        return iter(self._pods.values())

    def get(self, key: str) -> PodInfo | None:
        """Return the newest object; None if the pod is deleted or bound."""
        return self._pods.get(key)

    def set(self, info: PodInfo) -> None:
        """Add or replace a pod."""
        self._pods[info.key] = info
        self._changed[info.key] = None

    def pop(self, key: str) -> PodInfo | None:
        """Remove and return a pod; None if it is unknown."""
        self._changed[key] = None
        return self._pods.pop(key, None)

    def take_changed(self) -> Iterable[str]:
        """Return the keys added, replaced or removed since the last call."""
        changed, self._changed = self._changed, {}
        return changed


@dataclass(frozen=True, slots=True)
class Shared:
    """Shared objects, created once by `app`. Only the loop changes cluster, queue and pending, through the inbox."""

    cluster: Cluster
    queue: SchedulingQueue
    inbox: Inbox
    writer: Writer
    recorder: Recorder
    clock: Clock
    metrics: Metrics
    pending: UnboundPods = field(default_factory=UnboundPods)
    errors: UnforeseenErrors = field(default_factory=UnforeseenErrors)
