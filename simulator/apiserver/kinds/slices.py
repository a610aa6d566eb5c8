"""Validation of ResourceSlices and DeviceTaintRules.

What a server finds wrong with a slice of devices, and with a rule that taints devices.

Attributes that are lists, and what of a node a device takes up, are kept as where their feature gates are on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from scheduler.api.meta import subdomain
from scheduler.api.quantity import parse
from simulator.apiserver.kinds import device_fields as fields
from simulator.apiserver.kinds.volumes import quantity
from simulator.apiserver.resources import ApiResource
from simulator.apiserver.status import (
    IS_FIXED,
    Problem,
    Problems,
    in_each,
    in_set,
    not_allowed,
    required,
    said_twice,
    too_long,
    too_many,
    wrong,
    wrong_each,
)

Object = dict[str, Any]
_MOST_VALUES: Final = 10
_NOT_DEFAULT: Final = "default value is not valid according to the requestPolicy"
_ONE_POLICY: Final = (
    'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
)


def capacity_policy(field: str, capacity: Object, *, is_shared: bool) -> Problems:
    """Only of a device that many may hold."""
    policy, field = capacity.get("requestPolicy"), f"{field}.requestPolicy"
    if policy is None:
        return []
    if not is_shared:
        return [not_allowed(field, "allowMultipleAllocations must be true")]
    values, valid_range, default = policy.get("validValues"), policy.get("validRange"), policy.get("default")
    if values and valid_range is not None:
        return [not_allowed(field, _ONE_POLICY)]
    total = str(capacity.get("value", "0"))
    if values:
        if default is None:
            return [required(f"{field}.default", "required when validValues is defined")]
        return _policy_values(f"{field}.validValues", values, default=default, total=total)
    if valid_range is None:
        return []
    if default is None:
        return [required(f"{field}.default", "required when validRange is defined")]
    return _range(f"{field}.validRange", valid_range, default=default, total=total)


def _policy_values(field: str, values: list[str], *, default: str, total: str) -> Problems:
    found = [
        wrong(f"{field}[{at}]", values[at], "values must be sorted in ascending order")
        for at in range(1, len(values))
        if _nano(values[at - 1]) > _nano(values[at])
    ]
    if len(values) > _MOST_VALUES:
        return [*found, too_many(field, len(values), _MOST_VALUES), wrong(field, default, _NOT_DEFAULT)]
    for at, value in enumerate(values):
        if _nano(value) > _nano(total):
            found.append(wrong(f"{field}[{at}]", value, f"option is larger than capacity value: {total}"))
    whole = [parse(value).value for value in values]
    found += [said_twice(f"{field}[{at}]", str(each)) for at, each in enumerate(whole) if each in whole[:at]]
    is_default = any(_nano(value) == _nano(default) for value in values)
    return found if is_default else [*found, wrong(field, default, _NOT_DEFAULT)]


def _range(field: str, given: Object, *, default: str, total: str) -> Problems:
    low, high, step = given.get("min"), given.get("max"), given.get("step")
    if low is None:
        return [required(f"{field}.min", "required when validRange is defined")]
    found = _above(f"{field}.min", low, total, f"min is larger than capacity value: {total}")
    if _nano(default) < _nano(low):
        found.append(wrong(f"{field}.min", default, f"default is less than min: {low}"))
    if high is not None:
        found += _above(f"{field}.max", low, high, f"min is larger than max: {high}")
        found += _above(f"{field}.max", high, total, f"max is larger than capacity value: {total}")
        found += _above(f"{field}.max", default, high, f"default is more than max: {high}")
    if step is not None:
        if _nano(low) + _nano(step) > _nano(total):
            why = f"one step {_sum(low, step)} is larger than capacity value: {total}"
            found.append(wrong(f"{field}.step", step, why))
        steps = [value for value in (default, high) if value is not None and _is_off(value, low, step)]
        found += [_off_step(field, value, low, step) for value in steps]
    return found


def _above(field: str, value: str, limit: str, why: str) -> Problems:
    return [wrong(field, value, why)] if _nano(value) > _nano(limit) else []


def _is_off(value: str, low: str, step: str) -> bool:
    return (parse(value).value - parse(low).value) % (parse(step).value or 1) != 0


def _off_step(field: str, value: str, low: str, step: str) -> Problem:
    return wrong(f"{field}.step", value, f"value is not a multiple of a given step ({step}) from ({low})")


def _sum(low: str, step: str) -> str:
    """In whole units; a real server keeps the suffix of the first."""
    return str(parse(low).value + parse(step).value)


def _nano(amount: str) -> int:
    return parse(amount).nano


_MOST_DEVICES: Final = 128
_MOST_ADVANCED_DEVICES: Final = 64
_MOST_COUNTER_SETS: Final = 8
_MOST_COUNTERS: Final = 32
_MOST_CONSUMPTIONS: Final = 2
_MOST_ATTRIBUTES: Final = 32
_MOST_ATTRIBUTE_VALUES: Final = 48
_MOST_TAINTS: Final = 16
_LONGEST_VALUE: Final = 64
_LISTS: Final = ("bools", "ints", "strings", "versions")
_SINGLES: Final = ("bool", "int", "string", "version")
_IDENTIFIER: Final = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION: Final = re.compile(
    rf"(0|[1-9]\d*)(\.(0|[1-9]\d*)){{2}}(-{_IDENTIFIER}(\.{_IDENTIFIER})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
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


def check_amounts(resource: ApiResource, spec: Object) -> None:
    """Raise 400 for an amount that is none."""
    holders = [
        *(counter for counters in spec.get("sharedCounters") or () for counter in _values(counters, "counters")),
        *(capacity for device in spec.get("devices") or () for capacity in _values(device, "capacity")),
        *(
            counter
            for device in spec.get("devices") or ()
            for consumption in device.get("consumesCounters") or ()
            for counter in _values(consumption, "counters")
        ),
    ]
    for holder in holders:
        quantity(resource, holder.get("value", "0"))


def _values(holder: Object, field: str) -> list[Object]:
    return list((holder.get(field) or {}).values())


def slice_spec(field: str, spec: Object, old: Object | None) -> Problems:
    """`old` is the spec it replaces."""
    found = fields.driver(f"{field}.driver", spec.get("driver", "")) + _pool(f"{field}.pool", spec.get("pool") or {})
    found += _moved(field, spec, old) if old is not None else []
    found += _where(field, spec, _ON_NODES, none=_ONE_OF_SLICE, many=f"{_ONE_OF_SLICE}, but multiple fields are set")
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counters is not None:
        found.append(wrong(field, "", "only one of `sharedCounters` or `devices` is allowed"))
    before = {device["name"]: device for device in (old or {}).get("devices") or ()}
    per_device = bool(spec.get("perDeviceNodeSelection"))
    found += in_set(
        f"{field}.devices",
        devices,
        lambda at, device: _device(at, device, before.get(device.get("name")), per_device=per_device),
        key=_name,
        most=_MOST_ADVANCED_DEVICES if any(map(_is_advanced, devices or ())) else _MOST_DEVICES,
    )
    return found + in_set(f"{field}.sharedCounters", counters, _counter_set, key=_name, most=_MOST_COUNTER_SETS)


def taint_rule_spec(field: str, spec: Object, old: Object | None) -> Problems:
    """`old` is the spec it replaces."""
    selector, at = spec.get("deviceSelector") or {}, f"{field}.deviceSelector"
    checks: dict[str, Callable[[str, str], Problems]] = {
        "driver": fields.driver,
        "pool": fields.pool,
        "device": fields.device,
    }
    found = [
        problem
        for name, check in checks.items()
        if selector.get(name) is not None
        for problem in check(f"{at}.{name}", selector[name])
    ]
    problems = fields.taint(f"{field}.taint", spec["taint"])
    if old is not None and old["taint"].get("effect") == spec["taint"].get("effect"):
        problems = [problem for problem in problems if not problem.field.endswith(".effect")]
    return found + problems


def _name(entry: Object) -> str:
    return str(entry.get("name", ""))


def _pool(field: str, pool: Object) -> Problems:
    found = fields.pool(f"{field}.name", pool.get("name", ""))
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        found.append(wrong(f"{field}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        found.append(wrong(f"{field}.generation", generation, "must be greater than or equal to zero"))
    return found


def _moved(field: str, spec: Object, old: Object) -> Problems:
    changes = (
        ("pool.name", (spec.get("pool") or {}).get("name", ""), old["pool"]["name"]),
        ("driver", spec.get("driver", ""), old["driver"]),
        ("nodeName", spec.get("nodeName"), old.get("nodeName")),
    )
    return [wrong(f"{field}.{name}", now, IS_FIXED) for name, now, before in changes if now != before]


def _where(field: str, holder: Object, names: tuple[str, ...], *, none: str, many: str) -> Problems:
    """Of a slice, or of one device of it: on which nodes it is."""
    found: Problems = []
    given = [name for name in names if holder.get(name)]
    for name in names:
        value = holder.get(name)
        if value == "":
            is_slice = "perDeviceNodeSelection" in names
            why = "must be either unset or set to a non-empty string" if is_slice else "must not be empty"
            found.append(wrong(f"{field}.{name}", value, why))
        elif value is False:
            found.append(wrong(f"{field}.{name}", value, "must be either unset or set to true"))
    if holder.get("nodeName"):
        found += wrong_each(f"{field}.nodeName", holder["nodeName"], subdomain(holder["nodeName"]))
    if holder.get("nodeSelector") is not None:
        selector = holder["nodeSelector"]
        given = [name for name in names if name in {*given, "nodeSelector"}]
        found += fields.node_selector(f"{field}.nodeSelector", selector)
        terms = selector.get("nodeSelectorTerms") or []
        if "perDeviceNodeSelection" in names and len(terms) != 1:
            found.append(
                wrong(f"{field}.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term")
            )
    if not given:
        found.append(required(field, none))
    elif len(given) > 1:
        shown = ", ".join(f"`{name}`" for name in given)
        found.append(wrong(field, f"{{{shown}}}", many))
    return found


# -- devices ---------------------------------------------------------------------------------------------------------


def _is_advanced(device: Object) -> bool:
    lists = any(attribute.get(name) is not None for attribute in _values(device, "attributes") for name in _LISTS)
    return bool(device.get("taints") or device.get("consumesCounters")) or lists


def _device(field: str, device: Object, old: Object | None, *, per_device: bool) -> Problems:
    attributes, capacities = device.get("attributes") or {}, device.get("capacity") or {}
    found = fields.device(f"{field}.name", _name(device))
    if (count := len(attributes) + len(capacities)) > _MOST_ATTRIBUTES:
        why = f"the total number of attributes and capacities must not exceed {_MOST_ATTRIBUTES}"
        found.append(wrong(field, count, why))
    if (count := sum(map(_count, attributes.values()))) > _MOST_ATTRIBUTE_VALUES:
        found.append(
            wrong(field, count, f"the total number of attribute values must not exceed {_MOST_ATTRIBUTE_VALUES}")
        )
    for name, attribute in attributes.items():
        at = f"{field}.attributes"
        found += fields.qualified(at, name) + _attribute(f"{at}[{name}]", attribute)
    for name, capacity in capacities.items():
        at, is_shared = f"{field}.capacity", bool(device.get("allowMultipleAllocations"))
        found += fields.qualified(at, name) + capacity_policy(f"{at}[{name}]", capacity, is_shared=is_shared)
    if old is None or old.get("taints") != device.get("taints"):
        found += in_each(f"{field}.taints", device.get("taints"), fields.taint, most=_MOST_TAINTS)
    found += in_set(
        f"{field}.consumesCounters",
        device.get("consumesCounters"),
        _consumption,
        key=lambda consumption: consumption.get("counterSet", ""),
        most=_MOST_CONSUMPTIONS,
    )
    if per_device:
        found += _where(field, device, _ON_NODES[:3], none=_ONE_OF_DEVICE, many=_ONE_OF_DEVICE)
    elif any(device.get(name) is not None for name in _ON_NODES[:3]):
        found.append(wrong(field, None, _NOT_PER_DEVICE))
    return found + fields.binding_conditions(field, device)


def _count(attribute: Object) -> int:
    return sum(len(attribute.get(name) or ()) for name in _LISTS) or 1


def _attribute(field: str, attribute: Object) -> Problems:
    given = [name for name in (*_SINGLES, *_LISTS) if attribute.get(name) is not None]
    found: Problems = []
    for name in given:
        value = attribute[name]
        if name in _LISTS and not value:
            found.append(wrong(f"{field}.{name}", value, "must not be empty if specified"))
        if name in {"string", "version"}:
            found += _text(f"{field}.{name}", value, is_version=name == "version")
        for at, item in enumerate(value if name in {"strings", "versions"} else ()):
            found += _text(f"{field}.{name}[{at}]", item, is_version=name == "versions")
    if len(given) != 1:
        found.append(wrong(field, attribute if given else "", "exactly one value must be specified"))
    return found


def _text(field: str, value: str, *, is_version: bool) -> Problems:
    found: Problems = []
    if is_version and not _VERSION.fullmatch(value):
        found.append(wrong(field, value, "must be a string compatible with semver.org spec 2.0.0"))
    return [*found, too_long(field, _LONGEST_VALUE)] if len(value.encode()) > _LONGEST_VALUE else found


# -- counters --------------------------------------------------------------------------------------------------------


def _counter_set(field: str, counter_set: Object) -> Problems:
    return _counters(field, counter_set, "name")


def _consumption(field: str, consumption: Object) -> Problems:
    return _counters(field, consumption, "counterSet")


def _counters(field: str, holder: Object, name_field: str) -> Problems:
    name, counters = holder.get(name_field, ""), holder.get("counters") or {}
    found = fields.device(f"{field}.{name_field}", name) if name else [required(f"{field}.{name_field}")]
    if not counters:
        return [*found, required(f"{field}.counters")]
    if len(counters) > _MOST_COUNTERS:
        return [*found, too_many(f"{field}.counters", len(counters), _MOST_COUNTERS)]
    return found + [problem for key in counters for problem in fields.device(f"{field}.counters", key)]
