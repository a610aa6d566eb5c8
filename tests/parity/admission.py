"""What admission makes of a new pod's selectors: matchLabelKeys and mismatchLabelKeys become requirements.

The real API server does this itself; recording checks that it does exactly this.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tests.parity.scenario import Json

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def admitted(manifest: Json) -> Json:
    """The pod as it is stored."""
    spec, labels = manifest["spec"], manifest["metadata"].get("labels") or {}
    changed: Json = {}
    if "affinity" in spec:
        changed["affinity"] = {kind: _rules(rules, labels) for kind, rules in spec["affinity"].items()}
    if "topologySpreadConstraints" in spec:
        changed["topologySpreadConstraints"] = [_merged(c, labels) for c in spec["topologySpreadConstraints"]]
    return manifest | {"spec": spec | changed}


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
