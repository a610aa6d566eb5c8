"""Rules of parts that several kinds have: labels, selectors, taints, conditions, names of drivers, pools and devices.

CEL expressions are taken as they are, but for their length: they are not compiled here.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

import msgspec

from scheduler.api.meta import c_identifier, dns_label, label_key, label_value, subdomain
from scheduler.api.quantity import parse, text
from simulator.apiserver.validation import (
    AT_LEAST_0,
    Problems,
    Rule,
    Table,
    accepting,
    at_most,
    duplicate,
    forbidden,
    longest,
    missing,
    must,
    names,
    one_of,
    optional,
    present,
    required,
    too_many,
    unique,
    when,
    wrong,
)

Object = dict[str, Any]
CHECKS_CAPACITIES: Final = 38
"""From this minor version on amounts and names of capacities and the digits of versions are limited."""
_MOST_CAPACITIES: Final = 32
LONGEST_EXPRESSION: Final = 10 * 1024
_LONGEST_IDENTIFIER: Final = 32
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_LENGTHS: Final = frozenset({32, 36, 38, 45})
_NORMAL_UUID: Final = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"


class Context(Protocol):
    """What rules of device kinds know of the write."""

    @property
    def minor(self) -> int:
        """The minor version of the server."""


# -- labels and nodes ------------------------------------------------------------------------------------------------


def _operator(expression: Object) -> bool:
    return expression.get("operator") in {"In", "NotIn"}


def _is_without_values(expression: Object) -> bool:
    return expression.get("operator") in {"Exists", "DoesNotExist"}


def _has_operator(*known: str) -> Rule:
    def check(expression: Any, _: Any) -> Problems:
        operator = expression.get("operator", "")
        return [] if operator in known else [wrong(operator, "not a valid selector operator", at="operator")]

    return check


_SET_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_VALUES: Final = Table(
    (
        "",
        when(_operator, ("values", required("must be specified when `operator` is 'In' or 'NotIn'"))),
        when(
            _is_without_values,
            ("values", forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")),
        ),
    ),
)
_LABELS: Final = Table(("key", names(label_key)), ("values[*]", names(label_value)))


@accepting
def label_names(labels: Any, _: Any) -> Problems:
    """Check the labels of a selector.

    Upstream: staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go ValidateLabelSelector
    """
    return [
        wrong(text, why)
        for label in (labels or {}).items()
        for text, check in zip(label, (label_key, label_value))
        for why in check(text)
    ]


LABEL_SELECTOR: Final = Table(
    ("matchLabels", label_names),
    ("matchExpressions[*]", _VALUES, _has_operator(*_SET_OPERATORS), _LABELS),
)


def _compared(expression: Any, _: Any) -> Problems:
    is_comparison = expression.get("operator") in {"Gt", "Lt"}
    one = len(expression.get("values") or ()) == 1
    why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
    return [missing(why, at="values")] if is_comparison and not one else []


def _one_value(match: Any, _: Any) -> Problems:
    why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
    return [missing(why, at="values")] if _operator(match) and len(match.get("values") or ()) != 1 else []


def _field_key(key: Any, _: Any) -> Problems:
    return [] if key == "metadata.name" else [wrong(key or "", "not a valid field selector key")]


NODE_SELECTOR_TERM: Final = Table(
    ("matchExpressions[*]", _VALUES, _has_operator(*_SET_OPERATORS, "Gt", "Lt"), _compared, _LABELS),
    ("matchFields[*]", _has_operator("In", "NotIn"), _one_value),
    ("matchFields[*].key", _field_key),
    ("matchFields[*]", when(lambda match: match.get("key") == "metadata.name", ("values[*]", names(subdomain)))),
)
NODE_SELECTOR: Final = Table(
    ("nodeSelectorTerms", required("must have at least one node selector term")),
    ("nodeSelectorTerms[*]", NODE_SELECTOR_TERM),
)


# -- names -----------------------------------------------------------------------------------------------------------


def _pool_parts(name: Any, _: Any) -> Problems:
    return [wrong(part, why) for part in name.split("/") for why in subdomain(part)]


DRIVER: Final = Table(("", required(), longest(63), names(lambda name: subdomain(name.lower()))))
POOL: Final = Table(("", required(), longest(253), _pool_parts))
IDENTIFIER: Final = Table(("", longest(_LONGEST_IDENTIFIER), names(c_identifier)))
DEVICE_ID: Final = Table(("driver", DRIVER), ("pool", POOL), ("device", names(dns_label)))


def qualified(name: str, context: Context) -> Problems:
    """Check the name of an attribute or a capacity: `model`, `example.com/model`."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        return IDENTIFIER(name)
    if "/" in identifier:  # servers before 1.38 do not look at such names
        is_refused = context.minor >= CHECKS_CAPACITIES
        return [wrong(name, "must not contain more than one slash")] if is_refused else []
    found = DRIVER(domain) if domain else [wrong("", "the domain must not be empty")]
    return found + (IDENTIFIER(identifier) if identifier else [wrong("", "the name must not be empty")])


def fully_qualified(name: str, context: Context) -> Problems:
    """Check the name of an attribute with its domain."""
    whole = must(lambda each: "/" in each, "a fully qualified name must be a domain and a name separated by a slash")
    return qualified(name, context) + whole(name, None)


@accepting
def amounts(given: Any, context: Context) -> Problems:
    """Check the requested or consumed capacities of a device. Servers before 1.38 accept all."""
    if not given or context.minor < CHECKS_CAPACITIES:
        return []
    found = [problem for name in given for problem in qualified(name, context)]
    if len(given) > _MOST_CAPACITIES:
        return [*found, too_many(len(given), _MOST_CAPACITIES)]
    negative = ((name, amount) for name, each in given.items() if (amount := parse(each)).nano < 0)
    return found + [wrong(text(amount), AT_LEAST_0, at=f"[{name}]") for name, amount in negative]


def share_id(uid: str, _: Any = None) -> Problems:
    """Check a uid in the form that Kubernetes writes."""
    if _UUID.fullmatch(uid):
        return []
    if len(uid) not in _UUID_LENGTHS:
        return [wrong(uid, f"error validating uid: invalid UUID length: {len(uid)}")]
    if len(uid) == 36 and not _UUID.fullmatch(uid.lower()):
        return [wrong(uid, "error validating uid: invalid UUID format")]
    return [wrong(uid, _NORMAL_UUID)]


# -- requests --------------------------------------------------------------------------------------------------------


def _json_object(value: Any, _: Any) -> Problems:
    is_object = isinstance(value, msgspec.Raw)
    return [] if is_object else [wrong("<value omitted>", "must be a valid JSON object")]


SELECTORS: Final = Table(
    ("", at_most(32)),
    ("[*].cel", present()),
    ("[*].cel.expression", longest(LONGEST_EXPRESSION)),
)
CONFIGURATION: Final = Table(
    ("opaque", present()),
    ("opaque.driver", DRIVER),
    ("opaque.parameters", present(), _json_object),
)
"""One entry of `config`, but for the requests it is for."""


# -- taints and conditions -------------------------------------------------------------------------------------------

_EFFECT: Final = one_of("NoExecute", "NoSchedule", "None")
_EMPTY: Final = must(lambda value: not value, "must be empty for operator `Exists`", zero="")
TAINT: Final = Table(
    ("key", names(label_key)),
    ("value", names(label_value)),
    ("effect", required(), _EFFECT),
)
TOLERATION: Final = Table(
    ("key", optional, names(label_key)),
    ("operator", one_of("Equal", "Exists")),
    ("", when(lambda toleration: toleration.get("operator") == "Equal", ("value", names(label_value)))),
    ("", when(lambda toleration: toleration.get("operator") == "Exists", ("value", _EMPTY))),
    ("effect", optional, _EFFECT),
)
CONDITIONS: Final = Table(
    ("[*].type", names(label_key)),
    ("[*].status", one_of("False", "True", "Unknown")),
    ("[*].lastTransitionTime", required()),
    ("[*].reason", required()),
    ("", unique(lambda condition: condition.get("type", ""), at="type")),
)
"""Conditions of a status."""


def _both_or_none(holder: Any, _: Any) -> Problems:
    good, bad = holder.get("bindingConditions") or [], holder.get("bindingFailureConditions") or []
    found: Problems = []
    for at, condition in enumerate(bad):
        place = f"bindingFailureConditions[{at}]"
        if condition in bad[:at]:
            found.append(duplicate(condition, at=place))
        if condition in good:
            found.append(wrong(condition, "bindingFailureConditions must not overlap with bindingConditions", at=place))
    for needed, other, given, absent in (
        ("bindingConditions", "bindingFailureConditions", bad, good),
        ("bindingFailureConditions", "bindingConditions", good, bad),
    ):
        if given and not absent:
            found.append(wrong(None, f"{needed} are required to use {other}", at=needed))
    return found


BINDING_CONDITIONS: Final = Table(
    ("bindingConditions", at_most(4)),
    ("bindingConditions[*]", names(label_key)),
    ("bindingFailureConditions", at_most(4)),
    ("bindingFailureConditions[*]", names(label_key)),
    ("bindingConditions", unique()),
    ("", _both_or_none),
)
"""Of a device, or of the result it became: both lists or none, and nothing in both."""
