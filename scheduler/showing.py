"""What a daemon lets be seen of itself: gauges of its parts, its health, its configuration, its insides.

Only wires things together: paths and formats are those of `insight.http`, names of metrics those of `obs.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from scheduler.config.dump import to_document
from scheduler.core.clock import Clock
from scheduler.decisions import Decisions
from scheduler.insight.cachedump import cache_dump
from scheduler.insight.http import Check, Remark, Sources
from scheduler.kube.access import KINDS_SERVED, PERMISSIONS, SelfCheck
from scheduler.kube.mirrors import Mirrors
from scheduler.kube.recorder import EventRecorder
from scheduler.leadership import Leadership
from scheduler.obs.metrics import Metrics
from scheduler.options import RunOptions

HEARTBEAT_S: Final = 60.0
"""/livez fails when the loop has not come around for this long."""


@dataclass(frozen=True, slots=True)
class Showing:
    """The parts of one daemon that are looked at."""

    options: RunOptions
    decisions: Decisions
    mirrors: Mirrors
    leadership: Leadership
    self_check: SelfCheck
    recorder: EventRecorder
    metrics: Metrics
    clock: Clock
    is_synced: Callable[[], bool]
    """Whether the first picture is complete."""
    is_stopping: Callable[[], bool]

    def bind_metrics(self) -> None:
        """Let a scrape read the parts. Once."""
        decisions = self.decisions
        self.metrics.bind_gauges(
            pending=decisions.queue.counts,
            inflight_events=decisions.queue.in_flight_events,
            cache=decisions.cluster.sizes,
            bindings_in_flight=decisions.binder.__len__,
        )
        self.metrics.bind_volumes(
            bytes_in_flight=decisions.cluster.volumes.ledger.bytes_in_flight,
            capacity_version=self.mirrors.capacity_version,
        )
        self.metrics.bind_devices(kinds=self.mirrors.device_kinds)
        self.metrics.bind_reflectors(lambda: {kind: r.stats for kind, r in self.mirrors.reflectors.items()})
        stats = self.recorder.stats
        self.metrics.bind_recorder(lambda: {"sent": stats.sent, "failed": stats.failed, "dropped": stats.dropped})
        if self.leadership.is_elected:
            self.metrics.bind_election(self.leadership.lease, self.leadership.may_write)

    def sources(self) -> Sources:
        """For the endpoints."""
        decisions = self.decisions
        readyz = {f"informer-sync-{spec.plural}": partial(self._kind_lag, spec.name) for spec in self.mirrors.kinds}
        return Sources(
            livez={"scheduling-loop": self._heartbeat, **self.leadership.livez()},
            readyz={
                **readyz,
                **self.leadership.readyz(),
                PERMISSIONS: self._with_minor(self.self_check.permissions, PERMISSIONS),
                KINDS_SERVED: self._with_minor(self.self_check.kinds_served, KINDS_SERVED),
                "sched-handler-sync": lambda: None if self.is_synced() else "the first picture is not complete",
                "shutdown": lambda: "shutting down" if self.is_stopping() else None,
            },
            metrics=self.metrics.render,
            sample=self.metrics.sample,
            configz=partial(
                to_document,
                self.options.config,
                resolved={name: profile.resolved for name, profile in decisions.profiles.items()},
            ),
            debug_queue=lambda: {"counts": decisions.queue.counts(), "entries": list(decisions.queue.entries())},
            debug_cache=partial(cache_dump, decisions.cluster),
            debug_pod=decisions.shown,
        )

    def _heartbeat(self) -> str | None:
        silent_s = self.clock.now() - self.decisions.loop.beat
        if self.is_synced() and silent_s > HEARTBEAT_S:
            return f"the scheduling loop has not come around for {silent_s:.0f} s"
        return None

    def _with_minor(self, check: Check, name: str) -> Check:
        """What is missing and does not matter for readiness is told as well."""
        return lambda: check() or Remark(self.self_check.minor(name)) or None

    def _kind_lag(self, kind: str) -> str | None:
        lag = self.mirrors.lag(kind)
        return lag and (lag.why if lag.matters else Remark(lag.why))
