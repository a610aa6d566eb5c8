"""Read the metrics of bindings."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.unit.harness import SchedulerHarness

_DURATION = "scheduler_framework_extension_point_duration_seconds_count"


def samples(sched: SchedulerHarness, name: str) -> list[Any]:
    families = text_string_to_metric_families(sched.parts.shared.metrics.render().decode())
    return [sample for family in families for sample in family.samples if sample.name == name]


def conflicts(sched: SchedulerHarness) -> dict[str, float]:
    """Return the number of conflicts by kind."""
    return {each.labels["kind"]: each.value for each in samples(sched, "kubestow_binding_conflicts_total")}


def point_statuses(sched: SchedulerHarness, point: str) -> list[str]:
    """Return the statuses with which an extension point ended."""
    rows = [each for each in samples(sched, _DURATION) if each.labels["extension_point"] == point]
    return [each.labels["status"] for each in rows for _ in range(int(each.value))]


def bind_statuses(sched: SchedulerHarness) -> list[str]:
    return point_statuses(sched, "Bind")
