"""Rules of affinity, label selectors and tolerations that a server applies and its schema does not have.

Upstream: pkg/apis/core/validation/validation.go validateAffinity, ValidateTolerations
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from scheduler.api.meta import label_key, label_value
from simulator.apiserver.kinds.device_fields import node_selector, node_selector_term
from simulator.apiserver.status import Problems
from simulator.simulate.input.schema import Mistake, Object, invalid, nested, objects

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


def affinity(given: Object, path: str) -> Iterator[Mistake]:
    """Yield mistakes of weights, terms and selectors."""
    for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity"):
        of_kind, place = nested(given, kind), f"{path}.{kind}"
        for at, each in enumerate(objects(of_kind, _PREFERRED)):
            weight = each.get("weight")
            if weight is not None and not 1 <= weight <= 100:
                yield invalid(f"{place}.{_PREFERRED}[{at}].weight", weight, "must be in the range 1-100")
            if kind == "nodeAffinity":
                preference = dict(nested(each, "preference"))
                yield from _said(node_selector_term(f"{place}.{_PREFERRED}[{at}].preference", preference))
            else:
                term = nested(each, "podAffinityTerm")
                yield from _term(term, f"{place}.{_PREFERRED}[{at}].podAffinityTerm")
        if kind != "nodeAffinity":
            for at, each in enumerate(objects(of_kind, _REQUIRED)):
                yield from _term(each, f"{place}.{_REQUIRED}[{at}]")
        elif of_kind.get(_REQUIRED) is not None:
            yield from _said(node_selector(f"{place}.{_REQUIRED}", dict(of_kind[_REQUIRED])))


def _term(term: Object, path: str) -> Iterator[Mistake]:
    for field in ("labelSelector", "namespaceSelector"):
        yield from label_selector(nested(term, field), f"{path}.{field}")
    key = term.get("topologyKey")
    if not key:
        yield Mistake(f"{path}.topologyKey", "Required value: can not be empty")
    else:
        yield from (invalid(f"{path}.topologyKey", key, why) for why in label_key(key))


def label_selector(selector: Object, path: str) -> Iterator[Mistake]:
    """Yield mistakes of keys, operators and values.

    Upstream: staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go ValidateLabelSelector
    """
    for key, value in nested(selector, "matchLabels").items():
        yield from (invalid(f"{path}.matchLabels", key, why) for why in label_key(key))
        yield from (invalid(f"{path}.matchLabels", value, why) for why in label_value(value))
    for at, term in enumerate(objects(selector, "matchExpressions")):
        place, operator, values = f"{path}.matchExpressions[{at}]", term.get("operator", ""), term.get("values") or ()
        if operator in _WITH_VALUES:
            if not values:
                why = "must be specified when `operator` is 'In' or 'NotIn'"
                yield Mistake(f"{place}.values", f"Required value: {why}")
        elif operator in _WITHOUT_VALUES:
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield Mistake(f"{place}.values", f"Forbidden: {why}")
        else:
            yield invalid(f"{place}.operator", operator, "not a valid selector operator")
        key = term.get("key", "")
        yield from (invalid(f"{place}.key", key, why) for why in label_key(key))
        for i, value in enumerate(values):
            yield from (invalid(f"{place}.values[{i}]", value, why) for why in label_value(value))


def tolerations(given: Iterable[Object], path: str) -> Iterator[Mistake]:
    """Yield mistakes of keys, operators, values and effects. Lt and Gt need an alpha feature gate."""
    for at, each in enumerate(given):
        place, key, value = f"{path}[{at}]", each.get("key", ""), each.get("value", "")
        operator, effect = each.get("operator", ""), each.get("effect", "")
        if key:
            yield from (invalid(f"{place}.key", key, why) for why in label_key(key))
        elif operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{place}.operator", operator, why)
        if each.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield invalid(f"{place}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator == "Exists" and value:
            yield invalid(f"{place}.operator", value, "value must be empty when `operator` is 'Exists'")
        elif operator in {"", "Equal"}:
            yield from (invalid(f"{place}.operator", value, why) for why in label_value(value))


def _said(problems: Problems) -> Iterator[Mistake]:
    return (Mistake(each.field, each.why) for each in problems)
