"""Label selectors: parsed once, matched often, and indexed by their requirements.

A selector that cannot be parsed is a mistake of its object, reported with the field; matching never raises. An anchor
is the index key of a selector over pods. A selector that matches a pod has an anchor among the pod's probes; most
other selectors have none. A thousand selectors of a thousand applications then cost a pod a dozen look-ups
(docs/spec/core.md §10.3).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from scheduler.api.meta import Frozen, Values
from scheduler.core.caching import Interner

LABEL_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_FEW: Final = msgspec.Meta(max_length=1_000)
"""Requirements of a selector.

Longer lists are unreadable, because each requirement is compared with the labels of each pod.
"""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,63}")


class LabelSelectorRequirement(Frozen, frozen=True):
    """One entry of `matchExpressions`."""

    key: str
    operator: str
    values: Values = ()


class LabelSelector(Frozen, frozen=True):
    """`metav1.LabelSelector`: an empty one matches everything, a nil one (None) nothing.

    Upstream: staging/src/k8s.io/apimachinery/pkg/labels/selector.go Requirement
    """

    match_labels: Annotated[dict[str, str], _FEW] = {}
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], _FEW] = ()

    def __post_init__(self) -> None:
        for at, requirement in enumerate(self.match_expressions):
            problem = _problem(requirement)
            if problem:
                raise ValueError(f"matchExpressions[{at}]: {problem}")

    @property
    def is_empty(self) -> bool:
        """Return whether the selector has no requirement, so that it matches every object."""
        return not (self.match_labels or self.match_expressions)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels matches. O(requirements)."""
        if self.match_labels and not self.match_labels.items() <= labels.items():
            return False
        return not self.match_expressions or all(
            requirement_matches(r.key, r.operator, r.values, labels) for r in self.match_expressions
        )


def requirement_matches(key: str, operator: str, values: tuple[str, ...], labels: Mapping[str, str]) -> bool:
    """Return whether a requirement matches: the set operators and, for nodes, Gt and Lt (docs/spec/core.md §5.4).

    An unknown operator matches nothing. NotIn and DoesNotExist match an object without the key. Missing or
    superfluous values match nothing.
    """
    have = labels.get(key)
    match operator:
        case "In":
            return have is not None and have in values
        case "NotIn":
            return bool(values) and (have is None or have not in values)
        case "Exists":
            return have is not None and not values
        case "DoesNotExist":
            return have is None and not values
        case "Gt" | "Lt":
            return _compares(operator, have, values)
        case _:
            return False


def _compares(operator: str, have: str | None, values: tuple[str, ...]) -> bool:
    if have is None or len(values) != 1:
        return False
    left, right = integer(have), integer(values[0])
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def integer(text: str) -> int | None:
    """Parse like Go's ParseInt: a sign and digits within int64.

    Returns None for other texts (`1_000`, which a label may have).
    """
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _problem(requirement: LabelSelectorRequirement) -> str:
    if requirement.operator not in LABEL_OPERATORS:
        return f"{requirement.operator!r} is not a label selector operator"
    if requirement.operator in {"In", "NotIn"} and not requirement.values:
        return f"values must not be empty for operator {requirement.operator}"
    if requirement.operator in {"Exists", "DoesNotExist"} and requirement.values:
        return f"values must be empty for operator {requirement.operator}"
    return ""


Anchor: TypeAlias = tuple[str | None, tuple[str, str] | None]
"""A namespace, or None for all, and a label that a pod must have, or None for any pod."""


def anchors(namespaces: frozenset[str] | None, selector: LabelSelector | None) -> tuple[Anchor, ...]:
    """Return the index keys of a selector, without duplicates.

    `namespaces is None` means all; a nil selector has no anchor. One required label is enough: the first of
    `matchLabels`, otherwise the values of an `In` expression. A selector without a required value is indexed by its
    namespaces alone. A pod has at most one of them per namespace.
    """
    if selector is None:
        return ()
    places: tuple[str | None, ...] = (None,) if namespaces is None else tuple(namespaces)
    for pair in selector.match_labels.items():
        return tuple((place, pair) for place in places)
    for requirement in selector.match_expressions:
        if requirement.operator == "In":
            values = dict.fromkeys(requirement.values)  # the API server allows duplicate values
            return tuple((place, (requirement.key, value)) for place in places for value in values)
    return tuple((place, None) for place in places)


def probes(namespace: str, labels: Mapping[str, str]) -> tuple[Anchor, ...]:
    """Return the look-up keys of a pod: 2 x (labels + 1) anchors, without duplicates.

    Cached, because replicas are alike.
    """
    if len(labels) > _SHARED_LABELS_MAX:
        return _probes_of(namespace, labels)
    key = (namespace, *labels.items())
    cached = _probes.get(key)
    return _probes.share(key, _probes_of(namespace, labels)) if cached is None else cached


def _probes_of(namespace: str, labels: Mapping[str, str]) -> tuple[Anchor, ...]:
    wanted = (None, *labels.items())
    return tuple((place, pair) for place in (namespace, None) for pair in wanted)


_SHARED_LABELS_MAX: Final = 100
"""Probes of more labels are not kept: they take several times the memory of the labels."""
_probes: Final[Interner[Hashable, tuple[Anchor, ...]]] = Interner(10_000)
