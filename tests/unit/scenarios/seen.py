"""Read the state of a scheduler, and build one with plugins."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.config.types import Configuration, KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.framework.handle import Handle
from scheduler.plugins import registry
from scheduler.profiles import build as building
from tests.unit.fake_plugins import FakePlugin
from tests.unit.harness import SchedulerHarness

HOST = "kubernetes.io/hostname"


def metric(sched: SchedulerHarness, name: str, **labels: str) -> float:
    """Return the sample with this name and exactly these labels, or 0."""
    families = text_string_to_metric_families(sched.parts.shared.metrics.render().decode())
    return next((s.value for family in families for s in family.samples if (s.name, s.labels) == (name, labels)), 0.0)


def attempts(sched: SchedulerHarness, name: str) -> int:
    """Return the number of attempts of the pod, at most eight."""
    return len(sched.parts.records.of(f"default/{name}"))


def candidates(sched: SchedulerHarness, name: str) -> int:
    """Return the number of feasible nodes of the last attempt."""
    record = sched.parts.records.latest(f"default/{name}")
    assert record is not None
    return record.feasible_count


def in_flight(sched: SchedulerHarness) -> dict[str, int]:
    """Return the numbers of pods in flight and of events kept for them."""
    return sched.parts.queue.in_flight_events()


def with_plugins(monkeypatch: pytest.MonkeyPatch, *plugins: FakePlugin) -> SchedulerHarness:
    """Return a scheduler whose configuration enables these plugins in addition to the default ones."""
    made = {plugin.name: partial(_given, plugin) for plugin in plugins}
    monkeypatch.setattr(building, "registry", lambda: {**registry(), **made})
    enabled = PluginSet(enabled=tuple(PluginRef(plugin.name) for plugin in plugins))
    sched = SchedulerHarness(
        Configuration(profiles=(KubeSchedulerProfile("kubestow", plugins={"multiPoint": enabled}),))
    )
    for plugin in plugins:
        plugin.harness = sched
    return sched


def _given(plugin: FakePlugin, args: object, handle: Handle) -> Any:
    return plugin


def near(app: str, *, key: str = HOST, away: bool = False) -> dict[str, Any]:
    """Return a spec with required affinity (or anti-affinity) to pods labelled app=<app>, by this node label."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    kind = "podAntiAffinity" if away else "podAffinity"
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def pinned(*names: str) -> dict[str, Any]:
    """Return a spec that allows only these nodes, as pods of a DaemonSet have."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names]
    required = {"nodeSelectorTerms": terms}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
