"""The attempts of pods that extenders are interested in: which may run, and which wait for an answer.

At most one attempt at a time involves an extender, as upstream, where the next attempt begins when the one before has
assumed its pod. The other pods of this extender are held in the order of the queue, and pods of no extender are tried
at once. So a slow extender delays only its own pods (docs/adr/0014).

Owned by the scheduling loop. A held pod is in flight for the queue.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_

from scheduler.api.podinfo import PodInfo
from scheduler.context import Shared
from scheduler.core.errors import shortened
from scheduler.framework.extender import Consultation, Extender, Unanswered
from scheduler.queue import QueuedPodInfo
from scheduler.queueing.types import SortKey


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A running attempt. `extenders` has a bit for each extender that it involves."""

    consultation: Consultation
    extenders: int


class Consultations:
    """Run the calls of extenders in the background, and say which pod may be tried next."""

    def __init__(self, extenders: Iterable[Extender], shared: Shared) -> None:
        self._extenders = sorted(
            extenders, key=lambda extender: extender.is_ignorable
        )  # ignorable ones are called last
        self.is_off = not self._extenders
        """Whether there are no extenders, so that nothing here needs to be called."""
        self._shared = shared
        self._busy = 0
        self._held: dict[int, list[tuple[SortKey, int, QueuedPodInfo]]] = {}
        """Set of extenders → heap of the pods that wait for them."""
        self._tickets = itertools.count()
        self._running: dict[str, _Attempt] = {}
        self._calling: dict[str, asyncio.Task[None]] = {}
        self._answered: deque[QueuedPodInfo] = deque()

    def holds_pods(self) -> bool:
        """Return whether a pod waits for an extender or for an answer. Then no back-off is shortened."""
        return bool(self._running or self._held)

    def held_count(self) -> int:
        """Return how many pods wait until their extenders are free."""
        return sum(map(len, self._held.values()))

    def next(self) -> QueuedPodInfo | None:
        """Return a pod whose attempt continues, or that need not be held any longer; None if there is none."""
        while (queued := self._answered.popleft() if self._answered else self._first_free()) is not None:
            newest = self._shared.pending.get(queued.info.key)
            if newest is not None and newest.uid == queued.uid and not newest.node_name:
                queued.info = newest
                self.begin(queued)
                return queued
            self.end(queued.uid)  # it is deleted or bound
            self._shared.queue.done(queued.uid)
        return None

    def is_consulted(self, pod: PodInfo) -> bool:
        """Return whether an extender takes part in the attempts of the pod."""
        return bool(self._interested(pod))

    def begin(self, queued: QueuedPodInfo) -> Consultation | None:
        """Return the consultation of the pod whose attempt begins or continues; None if no extender is interested.

        Call it unless `holds`.
        """
        attempt = self._running.get(queued.uid)
        if attempt is None:
            interested = self._interested(queued.info)
            if not interested:
                return None
            chosen = (extender for at, extender in enumerate(self._extenders) if interested >> at & 1)
            attempt = _Attempt(Consultation(queued.info, chosen, self._shared.clock.now()), interested)
            self._running[queued.uid] = attempt
            self._busy |= interested
        return attempt.consultation

    def holds(self, queued: QueuedPodInfo) -> bool:
        """Return whether the attempt must wait for one of its extenders. Then `next` returns the pod later."""
        interested = 0 if queued.uid in self._running else self._interested(queued.info)
        if not interested & reduce(or_, self._held, self._busy):
            return False
        heap = self._held.setdefault(interested, [])
        heapq.heappush(heap, (queued.order, next(self._tickets), queued))
        return True

    def call(self, queued: QueuedPodInfo, needed: Unanswered) -> None:
        """Call the extenders in the background; then `next` returns the pod."""
        self._calling[queued.uid] = task = asyncio.create_task(self._call(self._running[queued.uid], needed))
        task.add_done_callback(lambda _: self._resume(queued))

    def end(self, uid: str) -> None:
        """Record that the attempt of a pod has ended: its extenders are free."""
        attempt = self._running.pop(uid, None)
        if attempt is not None:
            self._busy &= ~attempt.extenders

    async def stop(self) -> None:
        """Cancel all calls. Their pods stay in flight."""
        for task in (calling := list(self._calling.values())):
            task.cancel()
        await asyncio.gather(*calling, return_exceptions=True)

    def binder_for(self, pod: PodInfo) -> Extender | None:
        """Return the extender that binds the pod; None if Bind plugins do."""
        return next((each for each in self._extenders if each.is_binder and each.is_interested(pod)), None)

    async def _call(self, attempt: _Attempt, needed: Unanswered) -> None:
        try:
            await needed.call()
        except Exception as error:  # noqa: BLE001 (an unforeseen failure costs this pod one attempt)
            self._shared.errors.record("attempt", error, "extender failed", pod=attempt.consultation.pod.key)
            attempt.consultation.error = shortened(repr(error))

    def _resume(self, queued: QueuedPodInfo) -> None:
        del self._calling[queued.uid]
        self._shared.inbox.put(partial(self._answered.append, queued))

    def _interested(self, pod: PodInfo) -> int:
        return sum(1 << at for at, extender in enumerate(self._extenders) if extender.is_interested(pod))

    def _first_free(self) -> QueuedPodInfo | None:
        """Remove and return the first held pod whose extenders are free.

        A pod waits also for the extenders of pods before it, so that a pod of several extenders gets its turn.
        """
        taken = self._busy
        for extenders in sorted(self._held, key=lambda extenders: self._held[extenders][0][:2]):
            if not extenders & taken:
                heap = self._held[extenders]
                queued = heapq.heappop(heap)[-1]
                if not heap:
                    del self._held[extenders]
                return queued
            taken |= extenders
        return None
