"""Each row of tests/integration/metrics_of_*.py holds, and the rows cover every metric, alert and panel."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.metrics.metrics import Metrics
from tests.integration import (
    metrics_of_attempts as attempts,
    metrics_of_devices as devices,
    metrics_of_groups as groups,
    metrics_of_preemption as preemption,
    metrics_of_the_api as api,
    metrics_of_volumes as volumes,
)
from tests.integration.daemon import rig
from tests.integration.metering import MeteredScenario, MetricRow

STORIES: Final = [story for module in (attempts, devices, groups, preemption, api, volumes) for story in module.STORIES]
CASES: Final = [(outcome, row) for story, rows in STORIES for outcome in [MeteredScenario(story)] for row in rows]
ROWS: Final = [row for _, row in CASES]
DESCRIBED: Final = {each.name: each for each in Metrics(process=False).described()}
NEVER: Final = {"scheduler_volume_binder_cache_requests_total"}
"""As upstream, the metric has a name and no samples."""
PROCESS: Final = {
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "python_gc_collections_total",
    "python_gc_objects_collected_total",
    "python_gc_objects_uncollectable_total",
    "python_info",
}
"""Metrics that the client library writes by itself about any Python process on Linux."""
FILES: Final = Path(__file__).parents[2] / "deploy" / "helm" / "files"
_NAME: Final = re.compile(r"\b(?:kubestow|scheduler|leader_election|rest_client|process|python)_\w+")
_PART: Final = re.compile(r"_(?:bucket|count|sum)$")


@pytest.mark.parametrize(("outcome", "row"), CASES, ids=map(str, ROWS))
def test_the_daemon_moves(outcome: MeteredScenario, row: MetricRow) -> None:
    assert outcome.problems(row) == []


def moves(row: MetricRow) -> bool:
    """Return whether the row demands a change, and not the absence of one or an initial zero."""
    return row.shows is not None if DESCRIBED[row.name].kind == "gauge" else bool(row.rises)


def test_each_metric_is_moved_by_a_row() -> None:
    assert {row.name for row in ROWS if moves(row)} == DESCRIBED.keys() - NEVER
    assert {row.name for row in ROWS} == DESCRIBED.keys()


@pytest.mark.parametrize("name", sorted(DESCRIBED))
def test_rows_have_all_labels(name: str) -> None:
    """A misspelt label would match nothing, and a missing gauge differs from each value."""
    labels = {frozenset(row.labels) for row in ROWS if row.name == name}
    assert labels == {frozenset(DESCRIBED[name].labels)}


def test_histograms_and_counters_rise_and_gauges_show() -> None:
    gauges = [row for row in ROWS if DESCRIBED[row.name].kind == "gauge"]
    others = [row for row in ROWS if DESCRIBED[row.name].kind != "gauge"]
    assert [str(row) for row in gauges if row.rises] == []
    assert [str(row) for row in others if row.shows] == []


@pytest.mark.parametrize("file", ["rules.yaml", "dashboard.json"])
def test_what_alerts_and_dashboard_read_is_moved_by_a_row(file: str) -> None:
    """No alert and no panel may depend on a metric that the daemon never writes."""
    named = set(_without_parts(_NAME.findall((FILES / file).read_text(encoding="utf-8"))))
    assert len(named) > 10
    assert named <= {row.name for row in ROWS if moves(row)} | PROCESS


def _without_parts(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        whole = _PART.sub("", name)
        yield whole if whole in DESCRIBED and DESCRIBED[whole].kind == "histogram" else name


async def test_a_daemon_serves_the_registry() -> None:
    async with rig() as cluster:
        cluster.node("n1")
        cluster.pod("p")
        await cluster.bound("p")
        _, text = await cluster.get("/metrics")

    families = {family.name: family.type for family in text_string_to_metric_families(text)}
    served = {f"{name}_total" if kind == "counter" else name for name, kind in families.items()}
    assert served == DESCRIBED.keys() | PROCESS
