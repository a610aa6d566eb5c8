"""Label selectors: parsed once, matched often.

A selector that cannot be parsed is an error of the object that carries it, named with its field; matching never raises.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.core.meta import Frozen

LABEL_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class LabelSelectorRequirement(Frozen):
    """One entry of `matchExpressions`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Frozen):
    """`metav1.LabelSelector`: empty matches everything; a nil one (None where it stands) matches nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def __post_init__(self) -> None:
        for at, requirement in enumerate(self.match_expressions):
            problem = _problem(requirement)
            if problem:
                raise ValueError(f"matchExpressions[{at}]: {problem}")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected. O(requirements)."""
        if any(labels.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(requirement_matches(r.key, r.operator, r.values, labels) for r in self.match_expressions)


def requirement_matches(key: str, operator: str, values: tuple[str, ...], labels: Mapping[str, str]) -> bool:
    """The four set operators and, for nodes, Gt and Lt (docs/spec/core.md §5.4). An unknown operator matches nothing.

    NotIn and DoesNotExist match an object without the key.
    """
    have = labels.get(key)
    match operator:
        case "In":
            return have is not None and have in values
        case "NotIn":
            return have is None or have not in values
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
        case "Gt" | "Lt":
            return _compares(operator, have, values)
        case _:
            return False


def _compares(operator: str, have: str | None, values: tuple[str, ...]) -> bool:
    if have is None or len(values) != 1:
        return False
    try:
        left, right = int(have), int(values[0])
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right


def _problem(requirement: LabelSelectorRequirement) -> str:
    if requirement.operator not in LABEL_OPERATORS:
        return f"{requirement.operator!r} is not a label selector operator"
    if requirement.operator in {"In", "NotIn"} and not requirement.values:
        return f"values must not be empty for operator {requirement.operator}"
    if requirement.operator in {"Exists", "DoesNotExist"} and requirement.values:
        return f"values must be empty for operator {requirement.operator}"
    return ""
