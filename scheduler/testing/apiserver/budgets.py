"""What only disruption budgets have: a status that starts at zero, and limits that are checked."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.status import invalid

Object = dict[str, Any]
_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_LIMITS: Final = ("minAvailable", "maxUnavailable")
_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_RULE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_AT_LEAST_0: Final = "must be greater than or equal to 0"
_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


def with_budget_defaults(resource: Resource, budget: Object, _: str) -> None:
    """A new one, whose status nobody but its controller writes. Raises 422."""
    budget.setdefault("spec", {})
    budget["status"] = dict.fromkeys(_COUNTS, 0)
    check_budget(resource, budget)


def check_budget(resource: Resource, budget: Object) -> None:
    """Raises 422 for limits, operators and counts that cannot be. Label names and wrong types are not looked at."""
    name, spec, status = budget["metadata"]["name"], budget.get("spec") or {}, budget.get("status") or {}
    given = {limit: spec[limit] for limit in _LIMITS if spec.get(limit) is not None}
    if len(given) == len(_LIMITS):
        shown = {
            "MinAvailable": given["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": given["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        text = json.dumps(shown, separators=(",", ":"))
        why = f"Invalid value: {text}: minAvailable and maxUnavailable cannot be both set"
        raise invalid(resource, name, "spec", why)
    for limit, value in given.items():
        why = _wrong_limit(value)
        if why:
            raise invalid(resource, name, f"spec.{limit}", f"Invalid value: {json.dumps(value)}: {why}")
    selector = spec.get("selector")
    terms = selector.get("matchExpressions") if isinstance(selector, dict) else None
    for at, term in enumerate(terms or ()):
        _check_term(resource, name, f"spec.selector.matchExpressions[{at}]", term)
    for count in _COUNTS:
        if isinstance(status.get(count), int) and status[count] < 0:
            raise invalid(resource, name, f"status.{count}", f"Invalid value: {status[count]}: {_AT_LEAST_0}")


def _wrong_limit(value: object) -> str:
    if isinstance(value, int):
        return "" if value >= 0 else _AT_LEAST_0
    if not isinstance(value, str):
        return ""
    if not _PERCENT.fullmatch(value):
        return _PERCENT_RULE
    return "" if int(value[:-1]) <= 100 else "must not be greater than 100%"


def _check_term(resource: Resource, name: str, path: str, term: Object) -> None:
    operator, values = term.get("operator", ""), term.get("values")
    if operator not in (*_WITH_VALUES, *_WITHOUT_VALUES):
        why = f'Invalid value: "{operator}": not a valid selector operator'
        raise invalid(resource, name, f"{path}.operator", why)
    if operator in _WITH_VALUES and not values:
        why = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
        raise invalid(resource, name, f"{path}.values", why, cause="FieldValueRequired")


def with_selector_replaced(patch: Object) -> Object:
    """A strategic merge patch takes the selector of a budget as a whole."""
    spec = patch.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("selector"), dict):
        return patch
    return patch | {"spec": spec | {"selector": spec["selector"] | {"$patch": "replace"}}}
