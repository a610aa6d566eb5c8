"""Pods that Permit holds: assumed and reserved, waiting for every plugin that said Wait (docs/spec/core.md §3.11)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.config.document import format_duration
from scheduler.core.clock import Clock
from scheduler.framework.status import Code, Rejection, Wait

MAX_WAIT_S: Final = 15 * 60.0


@dataclass(slots=True, eq=False)
class PermitWaitingPod:
    """One pod that Permit holds; implements `framework.handle.WaitingPod`.

    Upstream: pkg/scheduler/framework/runtime/waiting_pods_map.go waitingPod
    """

    pod: PodInfo
    waits: Mapping[str, Wait]
    verdict: asyncio.Future[Rejection | None]
    allowed: set[str] = field(default_factory=set)

    def pending_plugins(self) -> list[str]:
        """The plugins that have not allowed the pod yet."""
        return [plugin for plugin in self.waits if plugin not in self.allowed]

    def allow(self, plugin: str) -> None:
        """One plugin lets the pod go; the last one releases it."""
        self.allowed.add(plugin)
        if self.allowed.issuperset(self.waits) and not self.verdict.done():
            self.verdict.set_result(None)

    def reject(self, plugin: str, message: str) -> None:
        """The pod will not be bound; the first answer counts."""
        if not self.verdict.done():
            self.verdict.set_result(Rejection(plugin, Code.UNSCHEDULABLE, (message,)))


class WaitingPodsMap:
    """By uid. A pod counts as held from `hold` on, so an answer that comes before anybody waits for it is kept.

    Upstream: pkg/scheduler/framework/runtime/waiting_pods_map.go waitingPodsMap
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, PermitWaitingPod] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[PermitWaitingPod]:
        return iter(tuple(self._held.values()))

    def get(self, uid: str) -> PermitWaitingPod | None:
        """The waiting pod; None if it is not held."""
        return self._held.get(uid)

    def hold(self, pod: PodInfo, waits: Mapping[str, Wait]) -> None:
        """Begin; `release` must follow, `discard` if no caller will wait. `pod` is the assumed one, with its node."""
        self._held[pod.uid] = PermitWaitingPod(pod, waits, asyncio.get_running_loop().create_future())

    async def release(self, uid: str) -> Rejection | None:
        """Wait until all have allowed (None), one has refused, or a time is over. Cancelling ends the hold too."""
        held = self._held[uid]
        timers = [asyncio.ensure_future(self._expire(uid, plugin, wait)) for plugin, wait in held.waits.items()]
        try:
            return await held.verdict
        finally:
            self.discard(uid)
            for timer in timers:
                timer.cancel()

    def discard(self, uid: str) -> None:
        """Hold it no longer, without an answer."""
        self._held.pop(uid, None)

    def is_held(self, uid: str) -> bool:
        """Whether the pod waits here."""
        return uid in self._held

    def allow(self, uid: str, plugin: str) -> None:
        """As `PermitWaitingPod.allow`. Unknown pods are ignored."""
        if (held := self._held.get(uid)) is not None:
            held.allow(plugin)

    def reject(self, uid: str, plugin: str, message: str) -> None:
        """As `PermitWaitingPod.reject`. Unknown pods are ignored."""
        if (held := self._held.get(uid)) is not None:
            held.reject(plugin, message)

    def preempt(self, uid: str, plugin: str) -> bool:
        """A pod of higher priority needs the place: no fault of this pod. False if it was allowed to go already."""
        held = self._held[uid]
        if not held.verdict.done():
            held.verdict.set_result(Rejection(plugin, Code.ERROR, ("preempted",)))
        return held.verdict.result() is not None

    async def _expire(self, uid: str, plugin: str, wait: Wait) -> None:
        limit_s = min(wait.timeout_s, MAX_WAIT_S)
        await self._clock.sleep(limit_s)
        held = self._held.get(uid)
        if held is not None and plugin not in held.allowed:
            waited = format_duration(limit_s)
            self.reject(uid, plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")
