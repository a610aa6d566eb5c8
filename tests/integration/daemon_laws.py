"""Laws about a settled cluster: what the daemon still holds, nominates or counts, and what its log says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer

Object = dict[str, Any]
OURS: Final = "kubestow"
_NO_STATE: Final = {"event": "PostFilter failed", "plugin": "DynamicResources", "error": "not found"}


def leftovers(server: ApiServer, daemon: Daemon) -> list[str]:
    """Return what an idle daemon must not hold, and differences between its queue and the pods that wait."""
    scheduler = daemon.scheduler
    waiting = {
        f"default/{obj['metadata']['name']}": bool(obj["spec"].get("schedulingGates"))
        for obj in server.objects("pods")
        if obj["spec"]["schedulerName"] == OURS and not obj["spec"].get("nodeName")
    }
    gated = sum(waiting.values())
    expected = {
        "queued": sorted(waiting),
        "counts": {"active": 0, "backoff": 0, "unschedulable": len(waiting) - gated, "gated": gated},
        "kept events": 0,
        "known pending": len(waiting),
        "assumed": 0,
        "busy": (0, 0, 0),
        "evictions": (0, []),
    }
    found = {
        "queued": sorted(entry.key for entry in scheduler.queue.entries()),
        "counts": scheduler.queue.counts(),
        "kept events": sum(scheduler.queue.in_flight_events().values()),
        "known pending": len(tuple(scheduler.shared.pending)),
        "assumed": scheduler.cluster.sizes()["assumed_pods"],
        "busy": (len(scheduler.inbox), len(scheduler.binder), len(scheduler.patches)),
        "evictions": (len(scheduler.evictions), sorted(scheduler.evictions._preempting._last_victim)),
    }
    return [f"{what}: {found[what]}, not {expected[what]}" for what in expected if found[what] != expected[what]]


def nominations(server: ApiServer, daemon: Daemon) -> list[str]:
    """Return nominations of a settled cluster, where no pod waits for victims any more."""
    promised = {
        f"default/{obj['metadata']['name']}": obj["status"]["nominatedNodeName"]
        for obj in server.objects("pods")
        if obj["spec"]["schedulerName"] == OURS
        and not obj["spec"].get("nodeName")
        and obj["status"].get("nominatedNodeName")
    }
    nominator = daemon.scheduler.queue.nominator
    known = {
        info.key: name
        for name in nominator.nodes()
        for info in nominator.for_node(name)
        if info.pod.spec.scheduler_name == OURS
    }
    return [
        *(f"pod {key} is still nominated to {name}" for key, name in promised.items()),
        *(f"pod {key} is still taken for nominated to {name}" for key, name in known.items()),
    ]


def unforeseen(log: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the errors of a log that no fault explains.

    The self-check reports permissions that were taken away. Where another plugin's PreFilter has refused a pod, DynamicResources
    finds no cycle state in PostFilter and reports an error, as upstream does.
    """
    errors = [line for line in log if line["log_level"] == "error" and line["event"] != "self-check"]
    return [line for line in errors if any(line.get(key) != value for key, value in _NO_STATE.items())]


def miscounted(daemon: Daemon) -> list[str]:
    """Compare gauges that are kept by adding and subtracting with what they count. Costs some 10 ms."""
    shown = sum(_values(daemon, "scheduler_unschedulable_pods"))
    counted = sum(len(entry.plugins) for entry in daemon.scheduler.queue.entries())
    return [] if shown == counted else [f"scheduler_unschedulable_pods shows {shown}, the queue holds {counted}"]


def audited(daemon: Daemon) -> list[str]:
    """Return the differences that the self-audit has found, in the past or in a whole pass now."""
    audit = daemon.scheduler.audit
    daemon.scheduler.inbox.apply()
    for _ in range(2):  # the first pass may have begun before the last change
        while audit.step():
            pass
    assert audit.passes >= 2
    return [f"self-audit of {i}: {r.last_difference}" for i, r in audit.records.items() if r.last_difference]


def _values(daemon: Daemon, family: str) -> Iterator[float]:
    daemon.metrics.sample()
    for line in daemon.metrics.render().decode().splitlines():
        if line.startswith(f"{family}{{"):
            yield float(line.rpartition(" ")[2])
