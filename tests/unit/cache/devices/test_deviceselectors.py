"""What a selector sees of a device, and the words for what goes wrong (docs/spec/dra.md §5). More in tests/unit/cel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import pytest

from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import Device, DeviceAttribute, DeviceCapacity
from scheduler.cache.devices import selectors as deviceselectors
from scheduler.cache.devices.selectors import Compiled, DeviceSelectors

DRIVER = "gpu.example.com"
OWN = f'device.attributes["{DRIVER}"]'


@dataclass
class Kind:
    """A device and its driver."""

    device: Device
    driver: str = DRIVER


def gpu(**attributes: DeviceAttribute) -> Kind:
    """One with 40Gi of memory."""
    return Kind(Device(attributes=attributes, capacity={"memory": DeviceCapacity(parse("40Gi"))}))


MODEL = DeviceAttribute(string="a")
PLAIN = DeviceSelectors(list_attributes=False)
WITH_LISTS = DeviceSelectors(list_attributes=True)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        pytest.param(f'device.driver == "{DRIVER}"', True, id="the driver is known"),
        pytest.param(f'{OWN}.model == "a"', True, id="an unqualified name is in the driver's domain"),
        pytest.param('device.attributes["other.example.com"].model == "a"', True, id="a qualified one in its own"),
        pytest.param('has(device.attributes["none.example.com"].model)', False, id="an unknown domain is empty"),
        pytest.param('"none.example.com" in device.attributes', False, id="it is no member"),
        pytest.param("device.attributes.?none.hasValue()", True, id="yet an optional look-up finds it"),
        pytest.param("device.attributes.all(d, d != 'none')", True, id="loops see real domains only"),
        pytest.param(
            f"{OWN}.gone == 1", "CEL runtime error: no such key: gone", id="an unknown identifier is an error"
        ),
        pytest.param(f'device.capacity["{DRIVER}"].memory == quantity("40Gi")', True, id="capacity is a quantity"),
        pytest.param(f"{OWN}.firmware.isGreaterThan(semver('1.9.0'))", True, id="a version is a version"),
        pytest.param("device.allowMultipleAllocations", False, id="not shared unless it says so"),
        pytest.param(
            "device.drivr",
            "CEL compile error: compilation failed: ERROR: <input>:1:7: undefined field 'drivr'\n"
            " | device.drivr\n | ......^",
            id="a field that no device has",
        ),
        pytest.param(
            "1",
            "CEL compile error: must evaluate to bool or the unknown type, not int",
            id="something else than a verdict",
        ),
        pytest.param(
            "int('one') == 1",
            "CEL compile error: program instantiation failed: type conversion error from 'string' to 'int'",
            id="a constant that cannot be computed",
        ),
        pytest.param(
            f"{OWN}.model",
            "CEL runtime error: CEL result of type string could not be converted to bool: "
            "unsupported native conversion from string to 'bool'",
            id="a verdict that turns out to be none",
        ),
        pytest.param(
            "lists.range(1000).all(x, lists.range(1000).all(y, true))",
            "CEL runtime error: operation cancelled: actual cost limit exceeded",
            id="too expensive",
        ),
    ],
)
def test_verdicts(expression, wanted):
    """As upstream, word for word."""
    attributes = {
        "model": MODEL,
        "other.example.com/model": DeviceAttribute(string="a"),
        "firmware": DeviceAttribute(version="2.0.0"),
    }

    assert wanted == PLAIN.holds(expression, gpu(**attributes))


@pytest.mark.parametrize(
    ("selectors", "attribute", "wanted"),
    [
        (PLAIN, DeviceAttribute(), "unsupported attribute value"),
        (PLAIN, DeviceAttribute(ints=(1,)), "unsupported attribute value"),
        (PLAIN, DeviceAttribute(version="1.2"), "parse semantic version: No Major.Minor.Patch elements found"),
        (
            WITH_LISTS,
            DeviceAttribute(versions=("1.2.3", "v1.2.3")),
            'parse semantic version: Invalid character(s) found in major number "v1"',
        ),
    ],
    ids=["no value", "a list while the gate is off", "a bad version", "a bad version in a list"],
)
def test_a_device_that_cannot_be_looked_at(selectors, attribute, wanted):
    """Every evaluation fails, also of what does not look at the attribute."""
    assert f"CEL runtime error: attribute broken: {wanted}" == selectors.holds("true", gpu(broken=attribute))


def test_lists():
    """Behind the gate they are values, and attributes are dyn, so that macros go over them."""
    kind = gpu(models=DeviceAttribute(strings=("a", "b")), model=MODEL)

    assert WITH_LISTS.holds(f"{OWN}.models.exists(m, m == 'b')", kind) is True
    assert WITH_LISTS.holds(f"{OWN}.models.includes('b') && {OWN}.model.includes('a')", kind) is True
    assert "type 'any' cannot be range" in str(PLAIN.compile(f"{OWN}.models.exists(m, m == 'b')"))


def test_types_of_attributes_follow_the_gate():
    """A result of type dyn is accepted only where attributes are dyn."""
    assert PLAIN.compile("dyn(true)") == "must evaluate to bool or the unknown type, not dyn"
    assert isinstance(WITH_LISTS.compile("dyn(true)"), Compiled)
    assert isinstance(PLAIN.compile(f"{OWN}.healthy"), Compiled)


def test_an_expression_is_compiled_once():
    """A thousand claims with one selector are one program."""
    assert PLAIN.compile("device.driver == 'x'") is PLAIN.compile("device.driver == 'x'")


def test_the_same_device_under_another_driver():
    """Its unqualified names are then in that driver's domain."""
    device = gpu(model=MODEL).device

    assert PLAIN.holds(f"has({OWN}.model)", Kind(device)) is True
    assert PLAIN.holds(f"has({OWN}.model)", Kind(device, "other.example.com")) is False
    assert PLAIN.holds(f"has({OWN}.model)", Kind(device)) is True


def test_devices_come_and_go(monkeypatch):
    """What is remembered of them is bounded, and never taken for another one's."""
    monkeypatch.setattr(deviceselectors, "_DEVICES", 2)
    selectors = DeviceSelectors(list_attributes=False)

    for number in range(10):
        kind = gpu(number=DeviceAttribute(int_=number))
        assert selectors.holds(f"{OWN}.number == {number}", kind) is True

    assert len(selectors._bindings) <= 2


def test_an_evaluation_that_takes_too_long_has_upstreams_error(monkeypatch):
    """50 ms of processor time end it, whatever its cost."""
    monkeypatch.setattr("scheduler.cel.eval.running.processor_nanos", count(step=1_000_000).__next__)

    assert PLAIN.holds("lists.range(3000).all(x, true) || true", gpu()) == (
        "CEL runtime error: operation cancelled: actual cost limit exceeded"
    )


def test_measuring():
    """Costs are upstream's; a device that cannot be looked at has none."""
    compiled = PLAIN.compile(f"{OWN}.model == 'a'")
    assert isinstance(compiled, Compiled)

    assert PLAIN.measure(compiled, gpu(model=MODEL)).cost == 5
    with pytest.raises(ValueError, match=r"^attribute broken: unsupported attribute value$"):
        PLAIN.measure(compiled, gpu(broken=DeviceAttribute()))
