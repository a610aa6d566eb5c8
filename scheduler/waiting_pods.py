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
        """Return the plugins that have not allowed the pod yet."""
        return [plugin for plugin in self.waits if plugin not in self.allowed]

    def allow(self, plugin: str) -> None:
        """Allow the pod for one plugin; the last one releases it."""
        self.allowed.add(plugin)
        if self.allowed.issuperset(self.waits) and not self.verdict.done():
            self.verdict.set_result(None)

    def reject(self, plugin: str, message: str) -> None:
        """Reject the pod; the first answer counts."""
        if not self.verdict.done():
            self.verdict.set_result(Rejection(plugin, Code.UNSCHEDULABLE, (message,)))


class WaitingPodsMap:
    """Waiting pods by uid. A pod is held from `hold` on, so an answer before `release` is kept.

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
        """Return the waiting pod; None if it is not held."""
        return self._held.get(uid)

    def hold(self, pod: PodInfo, waits: Mapping[str, Wait]) -> None:
        """Begin to hold the assumed `pod`. Call `release` next, or `discard` if no caller will wait."""
        self._held[pod.uid] = PermitWaitingPod(pod, waits, asyncio.get_running_loop().create_future())

    async def release(self, uid: str) -> Rejection | None:
        """Wait until all plugins have allowed it (None), one has rejected it, or a time-out expires.

        Cancelling ends the hold.
        """
        held = self._held[uid]
        timers = [asyncio.ensure_future(self._expire(uid, plugin, wait)) for plugin, wait in held.waits.items()]
        try:
            return await held.verdict
        finally:
            self.discard(uid)
            for timer in timers:
                timer.cancel()

    def discard(self, uid: str) -> None:
        """Stop holding the pod, without an answer."""
        self._held.pop(uid, None)

    def is_held(self, uid: str) -> bool:
        """Return whether the pod is held."""
        return uid in self._held

    def allow(self, uid: str, plugin: str) -> None:
        """Allow the pod, as `PermitWaitingPod.allow`. Unknown pods are ignored."""
        if (held := self._held.get(uid)) is not None:
            held.allow(plugin)

    def reject(self, uid: str, plugin: str, message: str) -> None:
        """Reject the pod, as `PermitWaitingPod.reject`. Unknown pods are ignored."""
        if (held := self._held.get(uid)) is not None:
            held.reject(plugin, message)

    def preempt(self, uid: str, plugin: str) -> bool:
        """Reject the pod for a preemptor, which is no fault of the pod. Returns False if it was already allowed."""
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
