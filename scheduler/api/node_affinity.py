"""Rules between one pod and one node: tolerations and node affinity.

Sources: docs/spec/core.md §A.6 (tolerations), §5.4 (node affinity).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.api.core_v1 import (
    Affinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    Taint,
    Toleration,
)
from scheduler.api.meta import label_key, label_value
from scheduler.api.selectors import integer, requirement_matches

HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
NODE_NAME_FIELD: Final = "metadata.name"
"""The only field that a term can use."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the toleration accepts the taint (§A.6). The alpha operators Lt and Gt never match."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and bool(toleration.key) and toleration.value == taint.value


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether any toleration accepts the taint.

    Upstream: staging/src/k8s.io/component-helpers/scheduling/corev1/helpers.go TolerationsTolerateTaint
    """
    return any(tolerates(t, taint) for t in tolerations)


def untolerated(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """Return the first NoSchedule or NoExecute taint that is not tolerated."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerated(tolerations, taint):
            return taint
    return None


def term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether all expressions match.

    An empty or broken term matches nothing; the only field is `metadata.name`.
    """
    if is_empty(term) or term_problem(term):
        return False
    fields = {NODE_NAME_FIELD: name}
    return all(requirement_matches(r.key, r.operator, r.values, labels) for r in term.match_expressions) and all(
        requirement_matches(r.key, r.operator, r.values, fields) for r in term.match_fields
    )


def is_empty(term: NodeSelectorTerm) -> bool:
    """Return whether the term has no expression: it matches nothing."""
    return not term.match_expressions and not term.match_fields


@functools.lru_cache(maxsize=4096)
def term_problem(term: NodeSelectorTerm) -> str:
    """Return why the term cannot be parsed; "" if it can.

    A required term with a problem matches nothing, as upstream.
    """
    for at, requirement in enumerate(term.match_expressions):
        problem = _expression_problem(requirement)
        if problem:
            return f"matchExpressions[{at}].{problem}"
    for at, requirement in enumerate(term.match_fields):
        if requirement.operator not in {"In", "NotIn"}:
            return f"matchFields[{at}].operator: {requirement.operator!r} is not supported"
        if len(requirement.values) != 1:
            return f"matchFields[{at}].values: must have one element"
    return ""


def selector_problem(selector: NodeSelector) -> str:
    """Return the first term's problem; "" if all can be parsed."""
    return next((problem for term in selector.node_selector_terms if (problem := term_problem(term))), "")


def _expression_problem(requirement: NodeSelectorRequirement) -> str:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In" | "NotIn" if not values:
            return "values: must not be empty for In and NotIn"
        case "Exists" | "DoesNotExist" if values:
            return "values: must be empty for Exists and DoesNotExist"
        case "Gt" | "Lt" if len(values) != 1 or integer(values[0]) is None:
            return "values: exactly one integer is required for Gt and Lt"
        case "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt":
            pass
        case unknown:
            return f"operator: {unknown!r} is not supported"
    if label_key(key):
        return f"key: {key!r} is not a label key"
    wrong = next((value for value in values if label_value(value)), None)
    return "" if wrong is None else f"values: {wrong!r} is not a label value"


def selector_matches(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether any term matches; without terms nothing does.

    Upstream: staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go NodeSelector
    """
    return any(term_matches(term, name, labels) for term in selector.node_selector_terms)


def required_affinity_matches(pod: Pod, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether nodeSelector and required node affinity match.

    Upstream: staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go RequiredNodeAffinity
    """
    if any(labels.get(k) != v for k, v in pod.spec.node_selector.items()):
        return False
    required = required_node_affinity(pod.spec.affinity)
    return required is None or selector_matches(required, name, labels)


def required_node_affinity(affinity: Affinity | None) -> NodeSelector | None:
    """Return required node affinity; None if there is none."""
    return affinity.node_affinity.required if affinity and affinity.node_affinity else None
