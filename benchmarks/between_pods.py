"""What the pods of a workload require of each other: spread, anti-affinity, affinity.

spread          hard, at most one pod more in a zone than in the emptiest
anti-affinity   no two pods of an app on one node
affinity        even shapes: all pods of an app in one zone, where the first may choose it;
                odd shapes: on a node that holds an anchor, a pod bound before
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SPREAD, ANTI_AFFINITY, AFFINITY = "spread", "anti-affinity", "affinity"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ANCHOR = "anchor"
"""The label of pods that are bound from the start."""


def anchor_of_shape(workload: str, shape: int) -> str | None:
    """The value of `ANCHOR` that pods of this shape want to be next to."""
    return f"shape-{shape}" if workload == AFFINITY and shape % 2 == 1 else None


def constraints(workload: str, app: str, anchor: str | None) -> dict[str, object]:
    """The parts of a pod's spec; none for workloads whose pods do not care for each other."""
    if workload == SPREAD:
        rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        return {"topologySpreadConstraints": [rule | _selected("app", app)]}
    if workload == ANTI_AFFINITY:
        return {"affinity": {"podAntiAffinity": _required(HOSTNAME, "app", app)}}
    if workload == AFFINITY:
        term = _required(ZONE, "app", app) if anchor is None else _required(HOSTNAME, ANCHOR, anchor)
        return {"affinity": {"podAffinity": term}}
    return {}


def _required(topology_key: str, key: str, value: str) -> dict[str, object]:
    term = {"topologyKey": topology_key} | _selected(key, value)
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _selected(key: str, value: str) -> dict[str, object]:
    return {"labelSelector": {"matchLabels": {key: value}}}


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """Where a pod of a workload went."""

    app: str
    node: str
    zone: str
    wanted_zone: str | None
    anchor: str | None


def broken_rules(workload: str, pods: Iterable[PlacedPod], zones: int, anchors: Mapping[str, set[str]]) -> int:
    """How many apps are not where their rules want them; `anchors` are the nodes of each. Plain pods break none."""
    apps: dict[str, list[PlacedPod]] = defaultdict(list)
    for pod in pods:
        apps[pod.app].append(pod)
    return sum(not _keeps_rules(workload, app, zones, anchors) for app in apps.values())


def _keeps_rules(workload: str, app: list[PlacedPod], zones: int, anchors: Mapping[str, set[str]]) -> bool:
    wanted = app[0].wanted_zone
    if wanted is not None and any(pod.zone != wanted for pod in app):
        return False
    match workload:
        case "spread":
            in_zone = Counter(pod.zone for pod in app).values()
            return wanted is not None or max(in_zone) - (min(in_zone) if len(in_zone) == zones else 0) <= 1
        case "anti-affinity":
            return len({pod.node for pod in app}) == len(app)
        case "affinity" if app[0].anchor is not None:
            return all(pod.node in anchors[pod.anchor or ""] for pod in app)
        case "affinity":
            return len({pod.zone for pod in app}) == 1
        case _:
            return True
