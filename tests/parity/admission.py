"""What admission makes of a new pod: matchLabelKeys and mismatchLabelKeys become requirements, a class a priority.

From 1.37 on, pod-level requests also name what only containers request.

The real API server does this itself; recording checks that it does exactly this.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from scheduler.manifests.defaults import SYSTEM_PRIORITIES, with_pod_defaults, with_pod_level
from tests.parity.recordings import FIRST
from tests.parity.words import TOPOLOGY, Json

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_COPIED: Final = (TOPOLOGY["zone"], TOPOLOGY["region"])
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def admitted(manifest: Json, version: str = FIRST) -> Json:
    """The pod as an API server of this version stores it."""
    spec, labels = manifest["spec"], manifest["metadata"].get("labels") or {}
    priority, policy = of_class(spec.get("priorityClassName", ""))
    changed: Json = {"priority": priority, "preemptionPolicy": policy}
    if "affinity" in spec:
        changed["affinity"] = {kind: _rules(rules, labels) for kind, rules in spec["affinity"].items()}
    if "topologySpreadConstraints" in spec:
        changed["topologySpreadConstraints"] = [_merged(c, labels) for c in spec["topologySpreadConstraints"]]
    if spec.get("resources") and version != FIRST:
        changed["resources"] = with_pod_level(with_pod_defaults(spec), without_limits=True)
    return manifest | {"spec": spec | changed}


def labelled(bound: Json, nodes: Iterable[Json]) -> Json:
    """The bound pod with its node's zone and region among its labels.

    Admission copies them from the nodes that it has seen; so that is not left to chance, and a pod that had no labels has
    some on every server: a disruption budget may mean it.
    """
    of_node: Json = next(
        (n["metadata"]["labels"] for n in nodes if n["metadata"]["name"] == bound["spec"]["nodeName"]), {}
    )
    copied = {key: of_node[key] for key in _COPIED if key in of_node}
    if not copied:
        return bound
    metadata = bound["metadata"]
    return bound | {"metadata": metadata | {"labels": metadata.get("labels", {}) | copied}}


def _rules(rules: Json, labels: Mapping[str, str]) -> Json:
    out = dict(rules)
    if isinstance(rules.get(_REQUIRED), list):  # a node selector is a mapping
        out[_REQUIRED] = [_merged(term, labels) for term in rules[_REQUIRED]]
    if _PREFERRED in rules:
        out[_PREFERRED] = [
            liked | {"podAffinityTerm": _merged(liked["podAffinityTerm"], labels)}
            if "podAffinityTerm" in liked
            else liked
            for liked in rules[_PREFERRED]
        ]
    return out


def _merged(term: Json, labels: Mapping[str, str]) -> Json:
    added = [*_requirements(term.get("matchLabelKeys", ()), "In", labels)]
    added += _requirements(term.get("mismatchLabelKeys", ()), "NotIn", labels)
    if not added or "labelSelector" not in term:
        return term
    selector = term["labelSelector"]
    return term | {"labelSelector": selector | {"matchExpressions": [*selector.get("matchExpressions", ()), *added]}}


def _requirements(keys: Iterable[str], operator: str, labels: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "operator": operator, "values": [labels[key]]} for key in keys if key in labels]


# -- priority classes of every cluster: a pod gets its priority from one of them ---------------------------------------


PRIORITIES: Final = (-100, -10, 1, 2, 3, 4, 5, 6, 10, 50, 100, 500, 1000)
"""Of which there are classes, of pods that preempt and of pods that never do. 0 is a pod's without a class."""

_PREEMPTS: Final = "PreemptLowerPriority"


def class_name(priority: int, *, never: bool) -> str:
    """Of the PriorityClass with this value, whose pods preempt or never do. 0 has none whose pods preempt."""
    if priority not in (0, *PRIORITIES):
        raise ValueError(f"no class of priority {priority}: see PRIORITIES")
    return f"{'minus-' if priority < 0 else 'p'}{abs(priority)}{'-never' if never else ''}"


def priority_classes() -> list[dict[str, Any]]:
    """All that pods of the short form name, but those that every API server makes."""
    wanted = [(0, True), *((priority, never) for priority in PRIORITIES for never in (False, True))]
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": class_name(priority, never=never)},
            "value": priority,
            **({"preemptionPolicy": "Never"} if never else {}),
        }
        for priority, never in wanted
    ]


@functools.cache
def of_class(name: str) -> tuple[int, str]:
    """What admission makes of a pod's priorityClassName: its priority and preemptionPolicy."""
    if name in SYSTEM_PRIORITIES:
        return SYSTEM_PRIORITIES[name], _PREEMPTS
    found = {one["metadata"]["name"]: one for one in priority_classes()} | {"": {"value": 0}}
    return found[name]["value"], found[name].get("preemptionPolicy", _PREEMPTS)
