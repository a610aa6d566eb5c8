"""Judging a world that has come to rest: who would still fit, and where the daemon's picture differs from the server's.

The rule for who fits where is written here once more, on manifests, so that it shares no mistake with the scheduler's.
Every pod asks for CPU in whole milli-CPUs (`250m`), every node offers it so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from scheduler.app import Daemon
from scheduler.testing.apiserver import ApiServer

Object = dict[str, Any]
OURS: Final = "kubestow"
_NO_STATE: Final = {"event": "PostFilter failed", "plugin": "DynamicResources", "error": "not found"}


def has_place(server: ApiServer, waiting: Object) -> bool:
    """Whether some node would take the pod, with or without evictions, by what the server holds and nothing else."""
    may_preempt = waiting["spec"].get("preemptionPolicy") != "Never"
    return fits(server, waiting) or (may_preempt and fits(server, waiting, evicting=True))


def fits(server: ApiServer, waiting: Object, *, evicting: bool = False) -> bool:
    """Whether some node would take the pod as it is, or without all that is less important."""
    return any(True for _ in fitting_nodes(server, waiting, evicting=evicting))


def fitting_nodes(server: ApiServer, waiting: Object, *, evicting: bool = False) -> Iterator[Object]:
    """The nodes that would take the pod, volumes aside.

    Pods of others that are as important as it is, and nominated to a node, are as good as there.
    """
    if waiting["spec"].get("schedulingGates"):
        return
    priority = waiting["spec"]["priority"]
    holders = [p for p in server.objects("pods") if p["status"].get("phase") not in {"Succeeded", "Failed"}]
    expected = [
        p
        for p in holders
        if not p["spec"].get("nodeName")
        and p["status"].get("nominatedNodeName")
        and p["spec"]["schedulerName"] != OURS
        and p["spec"]["priority"] >= priority
    ]
    for candidate in server.objects("nodes"):
        name, labels = candidate["metadata"]["name"], candidate["metadata"]["labels"]
        there = [p for p in holders if p["spec"].get("nodeName") == name]
        there = [p for p in there if not evicting or p["spec"]["priority"] >= priority]
        there += [p for p in expected if p["status"]["nominatedNodeName"] == name]
        room = candidate["status"]["allocatable"]
        if (
            not candidate["spec"].get("unschedulable")
            and all(labels.get(key) == value for key, value in waiting["spec"].get("nodeSelector", {}).items())
            and len(there) < int(room["pods"])
            and sum(map(milli_cpu_of, [*there, waiting])) <= int(room["cpu"].removesuffix("m"))
            and not ports_of(waiting) & {port for p in there for port in ports_of(p)}
        ):
            yield candidate


def milli_cpu_of(obj: Object) -> int:
    """All pods here ask for `<n>m`."""
    return int(obj["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))


def ports_of(obj: Object) -> set[int]:
    return {port["hostPort"] for port in obj["spec"]["containers"][0].get("ports", [])}


def differences(server: ApiServer, daemon: Daemon) -> list[str]:
    """What the cache holds otherwise than the server: nodes, their room and labels, who is on them, what that takes."""
    nodes = daemon.decisions.cluster.nodes
    cpu = nodes.resources()["cpu"]
    cached: Object = {}
    for name in nodes.known_names():
        slot = nodes.slot(name)
        assert slot is not None
        shown = nodes.node(slot)
        cached[name] = {
            "labels": shown and dict(shown.metadata.labels),
            "is cordoned": shown and bool(nodes.unschedulable >> slot & 1),
            "room": shown and (int(nodes.allocatable[cpu, slot]), int(nodes.allowed_pods[slot])),
            "pods": sorted(nodes.pods(slot)),
            "requested": (int(nodes.requested[cpu, slot]), int(nodes.pod_count[slot])),
        }
    stored: Object = {}
    holders = [p for p in server.objects("pods") if p["status"].get("phase") not in {"Succeeded", "Failed"}]
    objects = {obj["metadata"]["name"]: obj for obj in server.objects("nodes")}
    for name in objects.keys() | {p["spec"]["nodeName"] for p in holders if p["spec"].get("nodeName")}:
        there, known = [p for p in holders if p["spec"].get("nodeName") == name], objects.get(name)
        room = known["status"]["allocatable"] if known else {}
        stored[name] = {
            "labels": known and known["metadata"]["labels"],
            "is cordoned": known and bool(known["spec"].get("unschedulable")),
            "room": known and (int(room["cpu"].removesuffix("m")), int(room["pods"])),
            "pods": sorted(p["metadata"]["uid"] for p in there),
            "requested": (sum(map(milli_cpu_of, there)), len(there)),
        }
    return [
        f"node {name}: the cache has {cached.get(name)}, the server {stored.get(name)}"
        for name in sorted(cached.keys() | stored.keys())
        if cached.get(name) != stored.get(name)
    ]


def leftovers(server: ApiServer, daemon: Daemon) -> list[str]:
    """What a daemon with nothing to do must not hold, and queue or gauges that do not show what is waiting."""
    decisions = daemon.decisions
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
        "queued": sorted(entry.key for entry in decisions.queue.entries()),
        "counts": decisions.queue.counts(),
        "kept events": sum(decisions.queue.in_flight_events().values()),
        "known pending": len(decisions.shared.pending),
        "assumed": decisions.cluster.sizes()["assumed_pods"],
        "busy": (len(decisions.inbox), len(decisions.binder), len(decisions.patches)),
        "evictions": (len(decisions.evictions), sorted(decisions.evictions._preempting._last_victim)),
    }
    return [f"{what}: {found[what]}, not {expected[what]}" for what in expected if found[what] != expected[what]]


def nominations(server: ApiServer, daemon: Daemon) -> list[str]:
    """Promises that nobody keeps any more: when all is quiet nobody waits for a place that was made for him."""
    promised = {
        f"default/{obj['metadata']['name']}": obj["status"]["nominatedNodeName"]
        for obj in server.objects("pods")
        if obj["spec"]["schedulerName"] == OURS
        and not obj["spec"].get("nodeName")
        and obj["status"].get("nominatedNodeName")
    }
    nominator = daemon.decisions.queue.nominator
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
    """The errors of a log that no fault explains.

    The self-check says which permission was taken away. Where another plugin's PreFilter has refused a pod, DynamicResources
    finds no state of its own in PostFilter, and calls that an error as upstream does.
    """
    errors = [line for line in log if line["log_level"] == "error" and line["event"] != "self-check"]
    return [line for line in errors if any(line.get(key) != value for key, value in _NO_STATE.items())]


def miscounted(daemon: Daemon) -> list[str]:
    """Gauges that are kept by adding and subtracting, against what they count. Costs some 10 ms."""
    shown = sum(_values(daemon, "scheduler_unschedulable_pods"))
    counted = sum(len(entry.plugins) for entry in daemon.decisions.queue.entries())
    return [] if shown == counted else [f"scheduler_unschedulable_pods shows {shown}, the queue holds {counted}"]


def _values(daemon: Daemon, family: str) -> Iterator[float]:
    daemon.metrics.sample()
    for line in daemon.metrics.render().decode().splitlines():
        if line.startswith(f"{family}{{"):
            yield float(line.rpartition(" ")[2])
