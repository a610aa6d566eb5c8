"""What the scenario tests read off a brain, and the short ways they have to set one up."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.config.types import Configuration, KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.framework.handle import Handle
from scheduler.plugins import registry
from scheduler.profiles import build as building
from tests.unit.brain import Brain
from tests.unit.toys import Toy

HOST = "kubernetes.io/hostname"


def metric(brain: Brain, name: str, **labels: str) -> float:
    """What a scrape shows for this name and exactly these labels; 0.0 if it shows nothing."""
    families = text_string_to_metric_families(brain.parts.shared.metrics.render().decode())
    return next((s.value for family in families for s in family.samples if (s.name, s.labels) == (name, labels)), 0.0)


def attempts(brain: Brain, name: str) -> int:
    """How often the pod was tried so far (eight at most are remembered)."""
    return len(brain.parts.records.of(f"default/{name}"))


def candidates(brain: Brain, name: str) -> int:
    """How many nodes were compared in the last attempt."""
    record = brain.parts.records.latest(f"default/{name}")
    assert record is not None
    return record.feasible_count


def in_flight(brain: Brain) -> dict[str, int]:
    """Pods being tried and the events kept for them."""
    return brain.parts.queue.in_flight_events()


def with_plugins(monkeypatch: pytest.MonkeyPatch, *toys: Toy) -> Brain:
    """A brain whose configuration enables these toys beside the built-in plugins: they are known from the start."""
    made = {toy.name: partial(_given, toy) for toy in toys}
    monkeypatch.setattr(building, "registry", lambda: {**registry(), **made})
    enabled = PluginSet(enabled=tuple(PluginRef(toy.name) for toy in toys))
    brain = Brain(Configuration(profiles=(KubeSchedulerProfile("kubestow", plugins={"multiPoint": enabled}),)))
    for toy in toys:
        toy.world = brain
    return brain


def _given(toy: Toy, args: object, handle: Handle) -> Any:
    return toy


def beside(app: str, *, key: str = HOST, away: bool = False) -> dict[str, Any]:
    """A pod's spec: it must be beside (or away from) pods labelled app=<app>, by that node label."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    kind = "podAntiAffinity" if away else "podAffinity"
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def pinned(*names: str) -> dict[str, Any]:
    """A pod's spec: only these nodes, as a DaemonSet's pods say it of one."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names]
    required = {"nodeSelectorTerms": terms}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
