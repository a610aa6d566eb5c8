"""Parts that claims, classes, slices and taint rules have in common, and what a server finds wrong with them.

CEL expressions are taken as they are, but for their length: they are not compiled here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from scheduler.api.meta import c_identifier, dns_label, label_key, label_value, subdomain
from simulator.apiserver.status import (
    Problem,
    Problems,
    in_each,
    not_allowed,
    not_supported,
    required,
    said_twice,
    too_long,
    twice,
    wrong,
    wrong_each,
)

Object = dict[str, Any]
MOST_REQUESTS: Final = 32
MOST_CONFIGS: Final = 32
_MOST_SELECTORS: Final = 32
_MOST_BINDING_CONDITIONS: Final = 4
_LONGEST_EXPRESSION: Final = 10 * 1024
_LONGEST_DRIVER: Final = 63
_LONGEST_POOL: Final = 253
_LONGEST_IDENTIFIER: Final = 32
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_OPERATORS: Final = ("Equal", "Exists")
_STATUSES: Final = ("False", "True", "Unknown")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_LENGTHS: Final = frozenset({32, 36, 38, 45})
_NORMAL_UUID: Final = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"


# -- names -----------------------------------------------------------------------------------------------------------


def driver(field: str, name: str) -> Problems:
    if not name:
        return [required(field)]
    longer = [too_long(field, _LONGEST_DRIVER)] if len(name) > _LONGEST_DRIVER else []
    return longer + wrong_each(field, name, subdomain(name.lower()))


def pool(field: str, name: str) -> Problems:
    if not name:
        return [required(field)]
    longer = [too_long(field, _LONGEST_POOL)] if len(name) > _LONGEST_POOL else []
    return longer + [problem for part in name.split("/") for problem in wrong_each(field, part, subdomain(part))]


def device(field: str, name: str) -> Problems:
    """Check the name of a device, a request or a counter set: one label."""
    return wrong_each(field, name, dns_label(name))


def qualified(field: str, name: str) -> Problems:
    """Check the name of an attribute or a capacity: `model`, `example.com/model`."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        return _identifier(field, name)
    if "/" in identifier:
        return []  # as upstream, which does not look at such names
    found = driver(field, domain) if domain else [wrong(field, "", "the domain must not be empty")]
    return found + (_identifier(field, identifier) if identifier else [wrong(field, "", "the name must not be empty")])


def fully_qualified(field: str, name: str) -> Problems:
    found = qualified(field, name)
    if "/" not in name:
        found.append(wrong(field, name, "a fully qualified name must be a domain and a name separated by a slash"))
    return found


def _identifier(field: str, name: str) -> Problems:
    longer = [too_long(field, _LONGEST_IDENTIFIER)] if len(name) > _LONGEST_IDENTIFIER else []
    return longer + wrong_each(field, name, c_identifier(name))


def share_id(field: str, uid: str) -> Problems:
    if _UUID.fullmatch(uid):
        return []
    if len(uid) not in _UUID_LENGTHS:
        return [wrong(field, uid, f"error validating uid: invalid UUID length: {len(uid)}")]
    if len(uid) == 36 and not _UUID.fullmatch(uid.lower()):
        return [wrong(field, uid, "error validating uid: invalid UUID format")]
    return [wrong(field, uid, _NORMAL_UUID)]


# -- requests --------------------------------------------------------------------------------------------------------


def selectors(field: str, given: Sequence[Object] | None) -> Problems:
    return in_each(field, given, _selector, most=_MOST_SELECTORS)


def _selector(field: str, selector: Object) -> Problems:
    cel = selector.get("cel")
    if cel is None:
        return [required(f"{field}.cel")]
    if len(cel.get("expression", "").encode()) > _LONGEST_EXPRESSION:
        return [too_long(f"{field}.cel.expression", _LONGEST_EXPRESSION)]
    return []


def configuration(field: str, config: Object) -> Problems:
    """One entry of `config`, but for the requests it is for."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{field}.opaque")]
    found = driver(f"{field}.opaque.driver", opaque.get("driver", ""))
    parameters = opaque.get("parameters")
    if parameters is None:
        found.append(required(f"{field}.opaque.parameters"))
    elif not isinstance(parameters, msgspec.Raw):
        found.append(wrong(f"{field}.opaque.parameters", "<value omitted>", "must be a valid JSON object"))
    return found


# -- taints ----------------------------------------------------------------------------------------------------------


def taint(field: str, given: Object) -> Problems:
    key, value, effect = (given.get(name, "") for name in ("key", "value", "effect"))
    found = wrong_each(f"{field}.key", key, label_key(key)) + wrong_each(f"{field}.value", value, label_value(value))
    if not effect:
        return [*found, required(f"{field}.effect")]
    return found + _effect(field, effect)


def toleration(field: str, given: Object) -> Problems:
    key, value, operator = (given.get(name, "") for name in ("key", "value", "operator"))
    found = wrong_each(f"{field}.key", key, label_key(key)) if key else []
    if operator not in _OPERATORS:
        found.append(not_supported(f"{field}.operator", operator, _OPERATORS))
    elif operator == "Equal":
        found += wrong_each(f"{field}.value", value, label_value(value))
    elif value:
        found.append(wrong(f"{field}.value", value, "must be empty for operator `Exists`"))
    return found + (_effect(field, given["effect"]) if given.get("effect") else [])


def _effect(field: str, effect: str) -> Problems:
    return [] if effect in _EFFECTS else [not_supported(f"{field}.effect", effect, _EFFECTS)]


# -- conditions ------------------------------------------------------------------------------------------------------


def binding_conditions(field: str, given: Object) -> Problems:
    """Of a device, or of the result it became: both lists or none, and nothing in both."""
    good, bad = given.get("bindingConditions") or [], given.get("bindingFailureConditions") or []
    good_field, bad_field = f"{field}.bindingConditions", f"{field}.bindingFailureConditions"
    found = in_each(good_field, good, _condition_type, most=_MOST_BINDING_CONDITIONS)
    found += in_each(bad_field, bad, _condition_type, most=_MOST_BINDING_CONDITIONS)
    found += twice(good_field, good)
    for at, condition in enumerate(bad):
        if condition in bad[:at]:
            found.append(said_twice(f"{bad_field}[{at}]", condition))
        if condition in good:
            why = "bindingFailureConditions must not overlap with bindingConditions"
            found.append(wrong(f"{bad_field}[{at}]", condition, why))
    if bad and not good:
        found.append(wrong(good_field, None, "bindingConditions are required to use bindingFailureConditions"))
    if good and not bad:
        found.append(wrong(bad_field, None, "bindingFailureConditions are required to use bindingConditions"))
    return found


def _condition_type(field: str, condition: str) -> Problems:
    return wrong_each(field, condition, label_key(condition))


def conditions(field: str, given: Sequence[Object] | None) -> Problems:
    """Of a status."""
    found = in_each(field, given, _condition)
    return found + [problem._replace(field=f"{problem.field}.type") for problem in twice(field, _types(given))]


def _types(given: Sequence[Object] | None) -> list[str]:
    return [condition.get("type", "") for condition in given or ()]


def _condition(field: str, condition: Object) -> Problems:
    found = _condition_type(f"{field}.type", condition.get("type", ""))
    if condition.get("status", "") not in _STATUSES:
        found.append(not_supported(f"{field}.status", condition.get("status", ""), _STATUSES))
    found += [required(f"{field}.{name}") for name in ("lastTransitionTime", "reason") if not condition.get(name)]
    return found


# -- nodes -----------------------------------------------------------------------------------------------------------


def node_selector(field: str, selector: Object) -> Problems:
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        return [required(f"{field}.nodeSelectorTerms", "must have at least one node selector term")]
    return in_each(f"{field}.nodeSelectorTerms", terms, node_selector_term)


def node_selector_term(field: str, term: Object) -> Problems:
    found = in_each(f"{field}.matchExpressions", term.get("matchExpressions"), _expression)
    return found + in_each(f"{field}.matchFields", term.get("matchFields"), _match_field)


def _expression(field: str, expression: Object) -> Problems:
    key, operator, values = expression.get("key", ""), expression.get("operator", ""), expression.get("values") or []
    found: Problems = []
    if operator in {"In", "NotIn"}:
        if not values:
            found.append(required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            found.append(not_allowed(f"{field}.values", why))
    elif operator not in {"Gt", "Lt"}:
        found.append(_no_operator(field, operator))
    elif len(values) != 1:
        found.append(required(f"{field}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    found += wrong_each(f"{field}.key", key, label_key(key))
    return found + in_each(f"{field}.values", values, lambda at, value: wrong_each(at, value, label_value(value)))


def _match_field(field: str, match: Object) -> Problems:
    key, operator, values = match.get("key", ""), match.get("operator", ""), match.get("values") or []
    found: Problems = []
    if operator not in {"In", "NotIn"}:
        found.append(_no_operator(field, operator))
    elif len(values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(f"{field}.values", why))
    if key != "metadata.name":
        return [*found, wrong(f"{field}.key", key, "not a valid field selector key")]
    return found + in_each(f"{field}.values", values, lambda at, value: wrong_each(at, value, subdomain(value)))


def _no_operator(field: str, operator: str) -> Problem:
    return wrong(f"{field}.operator", operator, "not a valid selector operator")
