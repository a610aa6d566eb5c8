"""In which portions a device's capacity may be asked for, as a server checks it."""

from __future__ import annotations

from typing import Any, Final

from scheduler.core.quantity import parse
from scheduler.testing.apiserver.problems import Problem, Problems, not_allowed, required, said_twice, too_many, wrong

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
        return _values(f"{field}.validValues", values, default=default, total=total)
    if valid_range is None:
        return []
    if default is None:
        return [required(f"{field}.default", "required when validRange is defined")]
    return _range(f"{field}.validRange", valid_range, default=default, total=total)


def _values(field: str, values: list[str], *, default: str, total: str) -> Problems:
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
