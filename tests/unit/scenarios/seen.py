"""Read the state, metrics, victims, messages and writes of a scheduler, and build one with plugins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.api.core_v1 import Pod
from scheduler.config.args import KubestowArgs, default_args
from scheduler.config.types import Configuration, KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.framework.handle import Handle
from scheduler.plugins import registry
from scheduler.profiles import build as building
from tests.unit.fake_plugins import FakePlugin
from tests.unit.harness import POST_FILTER, SchedulerHarness

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
    return sched.parts.records.of(f"default/{name}")[-1].feasible_count


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


NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."
NO_VICTIMS = f"{NO_ROOM}{POST_FILTER}0/1 nodes are available: 1 No preemption victims found for incoming pod."
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
"""The condition of a pod that some scheduler preempted."""
OTHERS: dict[str, Any] = {"scheduler": "default-scheduler"}


def found(node: str, victims: int, refusal: str = NO_ROOM) -> str:
    """Return the message of a successful preemption."""
    return f"{refusal} preemption: found a potential placement for pod on node {node}, preempting {victims} victims."


def ours(**args: Any) -> Configuration:
    """Return the default configuration with these arguments of Kubestow."""
    return Configuration(
        profiles=(KubeSchedulerProfile("kubestow", args={**default_args(), KubestowArgs.plugin: KubestowArgs(**args)}),)
    )


def full_nodes(sched: SchedulerHarness, *names: str, **low: Any) -> None:
    """Add nodes that are full of one pod each (`low-<node>`, of another scheduler)."""
    for name in names:
        sched.node(name, cpu="2")
        sched.pod(f"low-{name}", on=name, **{"cpu": "2", **OTHERS, **low})


def at_once(sched: SchedulerHarness) -> Callable[[Pod], None]:
    """Return a `writer.on_delete` after which the watch shows at once that the pod is gone."""

    def gone(pod: Pod) -> None:
        sched.parts.inbox.put(partial(sched.gone, pod.metadata.name))

    return gone


def evicted(sched: SchedulerHarness) -> list[str]:
    """Return the names of the deleted pods, in order."""
    return [key.partition("/")[2] for key in sched.writer.deletions]


def nominations(sched: SchedulerHarness, name: str = "p") -> list[str]:
    """Return the values written to the pod's nominatedNodeName, in order."""
    return [node for key, node in sched.writer.nominations if key == f"default/{name}"]


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
