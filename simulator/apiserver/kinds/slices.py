"""Validation of ResourceSlices and DeviceTaintRules.

Attributes that are lists, and what of a node a device takes up, are kept as where their feature gates are on.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from scheduler.api.meta import dns_label, subdomain
from scheduler.api.quantity import parse
from simulator.apiserver.kinds.claims import Checked
from simulator.apiserver.kinds.fields import (
    BINDING_CONDITIONS,
    CHECKS_CAPACITIES,
    DRIVER,
    NODE_SELECTOR,
    POOL,
    TAINT,
    qualified,
)
from simulator.apiserver.status import IS_FIXED
from simulator.apiserver.validation import (
    Problem,
    Problems,
    Table,
    at_most,
    duplicate,
    keys,
    longest,
    missing,
    must,
    name_of,
    names,
    not_allowed,
    positive,
    required,
    too_many,
    unique,
    when,
    wrong,
)

Object = dict[str, Any]
_MOST_VALUES: Final = 10
_NOT_DEFAULT: Final = "default value is not valid according to the requestPolicy"
_ONE_POLICY: Final = (
    'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
)


def _policy(capacity: Object, *, is_shared: bool) -> Problems:
    """Check the request policy of a capacity, which only a device that many may hold can have."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    if not is_shared:
        return [not_allowed("allowMultipleAllocations must be true")]
    values, valid_range, default = policy.get("validValues"), policy.get("validRange"), policy.get("default")
    if values and valid_range is not None:
        return [not_allowed(_ONE_POLICY)]
    total = str(capacity.get("value", "0"))
    if values:
        if default is None:
            return [missing("required when validValues is defined", at="default")]
        return [each.below("validValues") for each in _policy_values(values, default=default, total=total)]
    if valid_range is None:
        return []
    if default is None:
        return [missing("required when validRange is defined", at="default")]
    return [each.below("validRange") for each in _range(valid_range, default=default, total=total)]


def _policy_values(values: list[str], *, default: str, total: str) -> Problems:
    found = [
        wrong(values[at], "values must be sorted in ascending order", at=f"[{at}]")
        for at in range(1, len(values))
        if _nano(values[at - 1]) > _nano(values[at])
    ]
    if len(values) > _MOST_VALUES:
        return [*found, too_many(len(values), _MOST_VALUES), wrong(default, _NOT_DEFAULT)]
    for at, value in enumerate(values):
        if _nano(value) > _nano(total):
            found.append(wrong(value, f"option is larger than capacity value: {total}", at=f"[{at}]"))
    whole = [parse(value).value for value in values]
    found += [duplicate(str(each), at=f"[{at}]") for at, each in enumerate(whole) if each in whole[:at]]
    is_default = any(_nano(value) == _nano(default) for value in values)
    return found if is_default else [*found, wrong(default, _NOT_DEFAULT)]


def _range(given: Object, *, default: str, total: str) -> Problems:
    low, high, step = given.get("min"), given.get("max"), given.get("step")
    if low is None:
        return [missing("required when validRange is defined", at="min")]
    found = _above("min", low, total, f"min is larger than capacity value: {total}")
    if _nano(default) < _nano(low):
        found.append(wrong(default, f"default is less than min: {low}", at="min"))
    if high is not None:
        found += _above("max", low, high, f"min is larger than max: {high}")
        found += _above("max", high, total, f"max is larger than capacity value: {total}")
        found += _above("max", default, high, f"default is more than max: {high}")
    if step is not None:
        if _nano(low) + _nano(step) > _nano(total):
            why = f"one step {_sum(low, step)} is larger than capacity value: {total}"
            found.append(wrong(step, why, at="step"))
        steps = [value for value in (default, high) if value is not None and _is_off(value, low, step)]
        found += [_off_step(value, low, step) for value in steps]
    return found


def _above(at: str, value: str, limit: str, why: str) -> Problems:
    return [wrong(value, why, at=at)] if _nano(value) > _nano(limit) else []


def _is_off(value: str, low: str, step: str) -> bool:
    return (parse(value).value - parse(low).value) % (parse(step).value or 1) != 0


def _off_step(value: str, low: str, step: str) -> Problem:
    return wrong(value, f"value is not a multiple of a given step ({step}) from ({low})", at="step")


def _sum(low: str, step: str) -> str:
    """In whole units; a real server keeps the suffix of the first."""
    return str(parse(low).value + parse(step).value)


def _nano(amount: str) -> int:
    return parse(amount).nano


_LISTS: Final = ("bools", "ints", "strings", "versions")
_SINGLES: Final = ("bool", "int", "string", "version")


def _semver(number: str) -> re.Pattern[str]:
    """Return the pattern of versions whose numbers match a pattern."""
    identifier = rf"({number}|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    pattern = rf"{number}(\.{number}){{2}}(-{identifier}(\.{identifier})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
    return re.compile(pattern, re.ASCII)


_VERSION: Final = _semver(r"(0|[1-9]\d*)")
_SHORT_VERSION: Final = _semver(r"(0|[1-9]\d{0,17})")
_ON_NODES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_OF_SLICE: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_ONE_OF_DEVICE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
_NOT_PER_DEVICE: Final = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)


def check_amounts(spec: Object) -> None:
    """Raise ValueError for an amount that is none."""
    devices = spec.get("devices") or ()
    consumed = (consumption for device in devices for consumption in device.get("consumesCounters") or ())
    for holders, field in (
        (spec.get("sharedCounters") or (), "counters"),
        (devices, "capacity"),
        (consumed, "counters"),
    ):
        for holder in holders:
            for amount in (holder.get(field) or {}).values():
                parse(amount.get("value", "0"))


class _Context(NamedTuple):
    """The server's minor version, the spec that the slice replaces, None for a new one, and whether each device names its nodes."""

    minor: int
    old: Object | None
    devices: dict[str, Object]
    """Devices of the old spec whose taints stay valid, by name."""
    per_device: bool


def _moved(spec: Any, context: _Context) -> Problems:
    old = context.old
    if old is None:
        return []
    changes = (
        ("pool.name", (spec.get("pool") or {}).get("name", ""), old["pool"]["name"]),
        ("driver", spec.get("driver", ""), old["driver"]),
        ("nodeName", spec.get("nodeName"), old.get("nodeName")),
    )
    return [wrong(now, IS_FIXED, at=name) for name, now, before in changes if now != before]


def _nodes(holder: Object, fields: tuple[str, ...], *, none: str, many: str, has_one_term: bool = True) -> Problems:
    """Check on which nodes a slice, or one device of it, is; `has_one_term`: a selector has exactly one term."""
    found: Problems = []
    is_slice = "perDeviceNodeSelection" in fields
    for name in fields:
        value = holder.get(name)
        if value == "":
            why = "must be either unset or set to a non-empty string" if is_slice else "must not be empty"
            found.append(wrong(value, why, at=name))
        elif value is False:
            found.append(wrong(value, "must be either unset or set to true", at=name))
    found += _PLACE(holder)
    selector = holder.get("nodeSelector")
    terms = (selector or {}).get("nodeSelectorTerms") or []
    if has_one_term and selector is not None and len(terms) != 1:
        found.append(
            wrong(
                [_in_go(term) for term in terms],
                "must have exactly one node selector term",
                at="nodeSelector.nodeSelectorTerms",
            )
        )
    given = [name for name in fields if holder.get(name) or (name == "nodeSelector" and selector is not None)]
    if not given:
        found.append(missing(none))
    elif len(given) > 1:
        found.append(wrong(f"{{{', '.join(f'`{name}`' for name in given)}}}", many))
    return found


def _in_go(term: Object) -> Object:
    """Return a term of a node selector as a server shows it: with the names of its fields in Go."""
    return {f"{field[0].upper()}{field[1:]}": _requirements_in_go(term.get(field)) for field in _TERM}


def _requirements_in_go(requirements: list[Object] | None) -> list[Object] | None:
    fields = ("key", "operator", "values")
    return requirements and [{field.title(): each.get(field) for field in fields} for each in requirements]


_TERM: Final = ("matchExpressions", "matchFields")
_PLACE: Final = Table(
    ("", when(lambda holder: holder.get("nodeName"), ("nodeName", names(subdomain)))),
    ("nodeSelector?", NODE_SELECTOR),
)


# -- devices ---------------------------------------------------------------------------------------------------------


def _is_advanced(device: Object) -> bool:
    attributes = (device.get("attributes") or {}).values()
    lists = any(attribute.get(name) is not None for attribute in attributes for name in _LISTS)
    return bool(device.get("taints") or device.get("consumesCounters")) or lists


def _totals(device: Any, _: Any) -> Problems:
    attributes = device.get("attributes") or {}
    values = sum(sum(len(each.get(name) or ()) for name in _LISTS) or 1 for each in attributes.values())
    counts = (
        (len(attributes) + len(device.get("capacity") or {}), 32, "attributes and capacities"),
        (values, 48, "attribute values"),
    )
    return [
        wrong(count, f"the total number of {what} must not exceed {most}")
        for count, most, what in counts
        if count > most
    ]


def _policies(device: Any, _: Any) -> Problems:
    is_shared = bool(device.get("allowMultipleAllocations"))
    return [
        problem.below(f"capacity[{name}].requestPolicy")
        for name, capacity in (device.get("capacity") or {}).items()
        for problem in _policy(capacity, is_shared=is_shared)
    ]


def _one_value(attribute: Any, _: Any) -> Problems:
    given = [name for name in (*_SINGLES, *_LISTS) if attribute.get(name) is not None]
    return [] if len(given) == 1 else [wrong(attribute if given else "", "exactly one value must be specified")]


def _changed_taints(device: Any, context: _Context) -> Problems:
    old = context.devices.get(name_of(device))
    return [] if old is not None and old.get("taints") == device.get("taints") else _TAINTS(device)


def _device_nodes(device: Any, context: _Context) -> Problems:
    if context.per_device:
        one = context.minor >= CHECKS_CAPACITIES
        return _nodes(device, _ON_NODES[:3], none=_ONE_OF_DEVICE, many=_ONE_OF_DEVICE, has_one_term=one)
    return [wrong(None, _NOT_PER_DEVICE)] if any(device.get(name) is not None for name in _ON_NODES[:3]) else []


def _most_devices(devices: Any, context: _Context) -> Problems:
    return at_most(64 if any(map(_is_advanced, devices or ())) else 128)(devices, context)


def _one_list(spec: Any, _: Any) -> Problems:
    is_both = spec.get("devices") is not None and spec.get("sharedCounters") is not None
    return [wrong("", "only one of `sharedCounters` or `devices` is allowed")] if is_both else []


_NOT_EMPTY: Final = must(bool, "must not be empty if specified")
_SEMVER: Final = "must be a string compatible with semver.org spec 2.0.0"


def _version(text: str, context: _Context) -> Problems:
    if context.minor < CHECKS_CAPACITIES:
        return [] if _VERSION.fullmatch(text) else [wrong(text, _SEMVER)]
    is_short = _SHORT_VERSION.fullmatch(text)
    return [] if is_short else [wrong(text, f"{_SEMVER}, with at most 18 digits in numbers")]


_LONGEST: Final = longest(64)
_TAINTS: Final = Table(("taints", at_most(16)), ("taints[*]", TAINT))
_COUNTERS: Final = Table(
    ("counters", required(), at_most(32), keys(names(dns_label))),
)
_NAME: Final = Table(("", required(), names(dns_label)))
_ATTRIBUTE: Final = Table(
    ("string?", _LONGEST),
    ("version?", _version, _LONGEST),
    ("bools?", _NOT_EMPTY),
    ("ints?", _NOT_EMPTY),
    ("strings?", _NOT_EMPTY),
    ("strings?[*]", _LONGEST),
    ("versions?", _NOT_EMPTY),
    ("versions?[*]", _version, _LONGEST),
    ("", _one_value),
)
_DEVICE: Final = Table(
    ("name", names(dns_label)),
    ("", _totals),
    ("attributes", keys(qualified)),
    ("attributes{*}", _ATTRIBUTE),
    ("capacity", keys(qualified)),
    ("", _policies, _changed_taints),
    ("consumesCounters", at_most(2)),
    ("consumesCounters[*].counterSet", _NAME),
    ("consumesCounters[*]", _COUNTERS),
    ("consumesCounters", unique(lambda consumption: consumption.get("counterSet", ""))),
    ("", _device_nodes, BINDING_CONDITIONS),
)
_DEVICES: Final = Table(("", _most_devices), ("[*]", _DEVICE), ("", unique(name_of)))
_PLACES: Final = Table(("[*]", _device_nodes))


def _device_list(devices: Any, context: _Context) -> Problems:
    """Check the devices. From 1.38 on an unchanged list stays valid.

    Upstream: pkg/apis/resource/validation/validation.go validateResourceSliceSpec
    """
    old = context.old
    if old is None or context.minor < CHECKS_CAPACITIES or (devices or []) != (old.get("devices") or []):
        return _DEVICES(devices, context)
    is_moved = bool(old.get("perDeviceNodeSelection")) != context.per_device
    return _PLACES(devices, context) if is_moved else []


_SLICE: Final = Table(
    ("driver", DRIVER),
    ("pool.name", POOL),
    ("pool.resourceSliceCount", positive),
    ("pool.generation", must(lambda generation: generation >= 0, "must be greater than or equal to zero")),
    ("", _moved),
    (
        "",
        lambda spec, _: _nodes(
            spec, _ON_NODES, none=_ONE_OF_SLICE, many=f"{_ONE_OF_SLICE}, but multiple fields are set"
        ),
    ),
    ("", _one_list),
    ("devices", _device_list),
    ("sharedCounters", at_most(8)),
    ("sharedCounters[*].name", _NAME),
    ("sharedCounters[*]", _COUNTERS),
    ("sharedCounters", unique(name_of)),
)


def slice_problems(spec: Any, context: Checked) -> Problems:
    old = context.old
    is_kept = context.minor < CHECKS_CAPACITIES  # a newer server keeps the list as a whole
    devices = {device["name"]: device for device in (old or {}).get("devices") or () if is_kept}
    per_device = bool(spec.get("perDeviceNodeSelection"))
    return _SLICE(spec, _Context(context.minor, old, devices, per_device=per_device))


_TAINT_RULE: Final = Table(
    ("deviceSelector.driver?", DRIVER),
    ("deviceSelector.pool?", POOL),
    ("deviceSelector.device?", names(dns_label)),
    ("taint", TAINT),
)


def taint_rule_problems(spec: Any, context: Checked) -> Problems:
    """Return the problems of the spec of a DeviceTaintRule. The effect of the spec that it replaces stays valid."""
    old = context.old
    keeps_effect = old is not None and old["taint"].get("effect") == spec["taint"].get("effect")
    return [each for each in _TAINT_RULE(spec) if not (keeps_effect and each.field == "taint.effect")]
