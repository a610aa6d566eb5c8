"""Attributes that expressions compute: types that may be results, and the values of attributes (docs/spec/changes-1.37-devices.md §4.2).

The texts are those of kube-scheduler 1.37.2: `tests.parity.fuzz devices` compares them with its allocator.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from scheduler.api.resource_v1 import Device, DeviceAttribute
from scheduler.cache.devices.derived_attributes import DerivedAttributes
from scheduler.cache.devices.selectors import CompileProblem
from scheduler.core.cooperative import finish

EXPRESSIONS = DerivedAttributes()
OWN = 'device.attributes["a"]'


@dataclass(frozen=True)
class Gpu:
    device: Device
    driver: str = "a"


GPU = Gpu(Device("gpu", {"lane": DeviceAttribute(string="l1"), "lanes": DeviceAttribute(ints=(1, 2))}))
FOUND = [
    ("true", DeviceAttribute(bool_=True)),
    ("1 + 1", DeviceAttribute(int_=2)),
    (f"{OWN}.lane", DeviceAttribute(string="l1")),
    ('semver("1.2.3-rc.1")', DeviceAttribute(version="1.2.3-rc.1")),
    ("dyn(optional.of(3))", DeviceAttribute(int_=3)),
    ("dyn(type(1))", DeviceAttribute(string="int")),
    ("[true, false]", DeviceAttribute(bools=(True, False))),
    (f"{OWN}.lanes", DeviceAttribute(ints=(1, 2))),
    ('["a"]', DeviceAttribute(strings=("a",))),
    ("lists.range(1000)", DeviceAttribute(ints=tuple(range(1000)))),
    ('[semver("1.0.0")]', DeviceAttribute(versions=("1.0.0",))),
    ("dyn([])", DeviceAttribute(strings=())),
]
REFUSED = [
    ("dyn(1u)", "unsupported CEL return type: uint64"),
    ("dyn(1.5)", "unsupported CEL return type: float64"),
    ("dyn(b'a')", "unsupported CEL return type: []uint8"),
    ("dyn(null)", "unsupported CEL return type: structpb.NullValue"),
    ("dyn({1: 2})", "unsupported CEL return type: map[ref.Val]ref.Val"),
    ("dyn(duration('1s'))", "unsupported CEL return type: time.Duration"),
    ("dyn(timestamp('2026-01-01T00:00:00Z'))", "unsupported CEL return type: time.Time"),
    ("dyn(quantity('1'))", "unsupported CEL return type: *resource.Quantity"),
    ("dyn([1.5])", "unsupported list element type: float64"),
    (f"dyn([{OWN}.lanes])", "unsupported list element type: []int64"),
    ("dyn([dyn(1), dyn('a')])", "expected list element at index 1 to be int, got string"),
    (f"{OWN}.none", "no such key: none"),
    ("lists.range(1001)", "a list of 1001 values; at most 1000 can be compared"),
]


@pytest.mark.parametrize(("expression", "attribute"), FOUND)
def test_a_value_becomes_an_attribute(expression: str, attribute: DeviceAttribute) -> None:
    assert finish(EXPRESSIONS.evaluating(expression, GPU)) == attribute


@pytest.mark.parametrize(("expression", "text"), REFUSED)
def test_a_value_that_no_attribute_can_have_is_an_error_of_the_device(expression: str, text: str) -> None:
    found = finish(EXPRESSIONS.evaluating(expression, GPU))

    assert found == text
    assert not isinstance(found, CompileProblem)


@pytest.mark.parametrize("expression", ["1.5", "{1: 2}", "[1.5]", "1u", "quantity('1')", "[[1]]"])
def test_a_type_that_no_attribute_has_is_refused_before_any_device(expression: str) -> None:
    found = finish(EXPRESSIONS.evaluating(expression, GPU))

    assert isinstance(found, CompileProblem)
    assert found.startswith("must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these")
