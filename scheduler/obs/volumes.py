"""What VolumeBinding counts, with upstream's names and ours (docs/spec/volumes.md §10.2)."""

from __future__ import annotations

from typing import Final

from scheduler.obs.instruments import Maker

_WAIT_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class VolumeInstruments:
    """Implements the `VolumeMetrics` port."""

    def __init__(self, make: Maker) -> None:
        self._stage_errors = make.counter(
            "scheduler_volume_scheduling_stage_error",
            "Stages of volume scheduling that failed, as opposed to having said no.",
            "operation",
        )
        make.counter(
            "scheduler_volume_binder_cache_requests",
            "As upstream: there for dashboards, and never counted.",
            "operation",
        )
        self._conflicts = make.counter(
            "kubestow_volume_write_conflicts",
            "Writes to volumes and claims that somebody else came before, or whose answer was lost.",
            "resource",
        )
        self._wait_s = make.histograms(
            "kubestow_volume_bind_wait_seconds",
            "From the first write to the last bound claim of a pod, or to the failure.",
            ["kind"],
            buckets=_WAIT_S,
        )
        self._long_waits = make.counter(
            "kubestow_volume_bind_long_waits",
            "Pods whose volumes were not bound after so many seconds.",
            "after",
        )
        for seconds in ("30", "60", "300"):
            self._long_waits.show(seconds)
        for operation in ("predicate", "assume", "bind"):
            self._stage_errors.show(operation)
        for resource in ("PersistentVolume", "PersistentVolumeClaim"):
            self._conflicts.show(resource)

    def stage_error(self, operation: str) -> None:
        """As the port."""
        self._stage_errors[operation,].inc()

    def write_conflict(self, resource: str) -> None:
        """As the port."""
        self._conflicts[resource,].inc()

    def bind_wait(self, kind: str, seconds: float) -> None:
        """As the port."""
        self._wait_s[kind,].observe(seconds)

    def long_wait(self, after_s: int) -> None:
        """As the port."""
        self._long_waits[str(after_s),].inc()
