"""Checks a v1.NodeAffinity in the arguments of NodeAffinity and hands it on as it is written.

The API server never sees this one, so its rules for pods are applied here (docs/spec/core.md §5.4, §6.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler.config.fields import Fields
from scheduler.config.names import label_value_problem, qualified_name_problem

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_FOR_LABELS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FOR_FIELDS: Final = ("In", "NotIn")


def read_node_affinity(fields: Fields) -> Mapping[str, Any]:
    """The affinity as plain mapping, without nulls at the top."""
    with fields:
        if not fields.has(_REQUIRED) and not fields.has(_PREFERRED):
            fields.findings.error(fields.path, f"must contain {_REQUIRED} or {_PREFERRED}")
        given = {name: fields.raw(name) for name in (_REQUIRED, _PREFERRED) if fields.has(name)}
        with fields.child(_REQUIRED) as required:
            terms = required.children("nodeSelectorTerms")
            if fields.has(_REQUIRED) and not terms:
                required.error("nodeSelectorTerms", "at least one term is needed")
            for term in terms:
                _term(term)
        for wish in fields.children(_PREFERRED):
            with wish:
                if not wish.has("weight"):
                    wish.error("weight", "is required")
                wish.integer("weight", 1, low=1, high=100)
                _term(wish.child("preference"))
        return given


def _term(term: Fields) -> None:
    with term:
        for expression in term.children("matchExpressions"):
            with expression:
                _label_requirement(expression)
        for expression in term.children("matchFields"):
            with expression:
                _field_requirement(expression)


def _label_requirement(fields: Fields) -> None:
    fields.required("key", qualified_name_problem)
    values = fields.texts("values", label_value_problem)
    match fields.choice("operator", "", _FOR_LABELS):
        case "In" | "NotIn" if not values:
            fields.error("values", "must not be empty for the operators In and NotIn")
        case "Exists" | "DoesNotExist" if values:
            fields.error("values", "must be empty for the operators Exists and DoesNotExist")
        case "Gt" | "Lt" if len(values) != 1 or not _whole(values[0]):
            fields.error("values", "must be one integer, as text, for the operators Gt and Lt")


def _field_requirement(fields: Fields) -> None:
    fields.required("key", lambda key: "" if key == "metadata.name" else "must be metadata.name")
    fields.choice("operator", "", _FOR_FIELDS)
    if len(fields.texts("values")) != 1:
        fields.error("values", "must have one element")


def _whole(text: str) -> bool:
    return text.removeprefix("-").removeprefix("+").isdecimal() and text.isascii()
