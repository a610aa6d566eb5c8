"""What admission makes of a new pod: matchLabelKeys and mismatchLabelKeys become requirements, a class a priority.

From 1.37 on, pod-level requests also name what only containers request.

The real API server does this itself; recording checks that it does exactly this.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from simulator.apiserver.kinds.defaults import with_pod_defaults
from simulator.apiserver.kinds.pods import with_pod_level
from tests.parity.priorities import of_class
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
