"""Checks a v1.NodeAffinity in the arguments of NodeAffinity and hands it on as it is written.

The API server never sees this one: whatever kube-scheduler can parse is allowed (docs/spec/core.md §5.4, §6.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler.config.fields import INT32_MAX, Fields
from scheduler.core.labels import integer
from scheduler.core.names import label_key, label_value

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_FOR_LABELS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FOR_FIELDS: Final = ("In", "NotIn")
_NOTHING_IN: Final = "for 'in', 'notin' operators, values set can't be empty"
_VALUES_FOR_EXISTS: Final = "values set must be empty for exists and does not exist"
_NOT_ONE: Final = "for 'Gt', 'Lt' operators, exactly one value is required"
_NO_INTEGER: Final = "for 'Gt', 'Lt' operators, the value must be an integer"


def read_node_affinity(fields: Fields) -> Mapping[str, Any]:
    """The affinity as plain mapping, without nulls at the top."""
    with fields:
        given = {name: fields.raw(name) for name in (_REQUIRED, _PREFERRED) if fields.has(name)}
        with fields.child(_REQUIRED) as required:
            for term in required.children("nodeSelectorTerms"):
                _term(term)
        for wish in fields.children(_PREFERRED):
            with wish:
                # Upstream takes a negative weight, and then fails pods for their score.
                wish.within("weight", 0, (0, INT32_MAX), "not in valid range [0, inf)")
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
    key, values = fields.text("key"), fields.texts("values")
    operator = fields.choice("operator", "", _FOR_LABELS)
    if not operator:
        return
    if found := label_key(key):
        fields.invalid("key", key, "; ".join(found))
    written = list(values) if fields.has("values") else None
    if operator in {"In", "NotIn"} and not values:
        fields.invalid("values", written, _NOTHING_IN)
    if operator in {"Exists", "DoesNotExist"} and values:
        fields.invalid("values", written, _VALUES_FOR_EXISTS)
    if operator in {"Gt", "Lt"}:
        if len(values) != 1:
            fields.invalid("values", written, _NOT_ONE)
        for at, value in enumerate(values):
            if integer(value) is None:
                fields.invalid(f"values[{at}]", value, _NO_INTEGER)
    for at, value in enumerate(values):
        if found := label_value(value):
            fields.invalid(f"values[{at}][{key}]", value, "; ".join(found))


def _field_requirement(fields: Fields) -> None:
    fields.choice("key", "", ("metadata.name",))  # upstream takes any, and finds it on no node
    values = fields.texts("values")
    if fields.choice("operator", "", _FOR_FIELDS) and len(values) != 1:
        fields.invalid("values", list(values) if fields.has("values") else None, "must have one element")
