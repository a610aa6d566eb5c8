"""Victims, messages and writes of preemptions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from scheduler.api.core_v1 import Pod
from scheduler.config.args import KubestowArgs, default_args
from scheduler.config.types import Configuration, KubeSchedulerProfile
from tests.unit.harness import POST_FILTER, SchedulerHarness

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
