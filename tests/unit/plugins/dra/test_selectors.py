"""A selector accepts a device, rejects it, or fails: docs/spec/dra.md §9.11.

In expressions `D` stands for the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import pytest

from scheduler.api.resource_v1 import Device
from scheduler.cache.devices.selectors import DeviceSelectors
from simulator.builders.devices import Attribute, DeviceBuilder, a_device
from tests.unit.plugins.dra.scenarios import is_as

DRIVER = "dra.example.com"
PLAIN, LISTS = (DeviceSelectors(list_attributes=each) for each in (False, True))
NAME = "device.attributes[D].name"
DIGITS = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
BREAKS = "CEL runtime error: "


@dataclass
class Kind:
    device: Device
    driver: str = DRIVER


def named(value: Attribute) -> DeviceBuilder:
    """Return a device with the attribute `name`."""
    return a_device("d").attr("name", value)


def said(expression: str, device: DeviceBuilder, *, selectors: DeviceSelectors, driver: str = DRIVER) -> str:
    """Return `true`, `false`, or the error text."""
    quoted = f'"{DRIVER}"'
    holds = selectors.holds(
        expression.replace("[D]", f"[{quoted}]").replace(" D)", f" {quoted})"), Kind(device.typed(), driver)
    )
    return holds if isinstance(holds, str) else str(holds).lower()


NOTHING = a_device("d")
VERSION = a_device("d").version("name", "1.0.0")
MEM = a_device("d").cap("name", "1Mi")
EVERYTHING = a_device("d").attr("b", True).attr("i", 1).attr("s", "fish").version("v", "1.0.0").cap("q", "1Mi")
OF_ALL_TYPES = """device.capacity[D].q.isGreaterThan(quantity("1Ki")) && device.attributes[D].b &&
device.attributes[D].i > 0 && device.attributes[D].s == "fish" &&
device.attributes[D]["v"].isGreaterThan(semver("0.0.1"))"""
SEVEN_DEEP = "".join(f"{DIGITS}.all(x{at}, " for at in range(7)) + "true" + ")" * 7


@pytest.mark.parametrize("selectors", [PLAIN, LISTS], ids=["lists are off", "lists are on"])
@pytest.mark.parametrize(("expression", "device", "expected"), [
    pytest.param("true", NOTHING, "true", id="211 true"),
    pytest.param("false", NOTHING, "false", id="211 false"),
    pytest.param("?!", NOTHING, "CEL compile error: compilation failed: …Syntax error…", id="212 a broken one"),
    pytest.param("1", NOTHING, "CEL compile error: must evaluate to bool or the unknown type, not int",
        id="213 a number"),
    pytest.param('device.attributes["no-such-domain"].noSuchAttr.isGreaterThan(quantity("0"))', NOTHING,
        f"{BREAKS}no such key: noSuchAttr", id="214 an unknown name"),
    pytest.param('"no-such-domain" in device.attributes', NOTHING, "false", id="215 a domain that is not there"),
    pytest.param(f'"{DRIVER}" in device.attributes', named(True), "true", id="215 one that is there"),
    pytest.param(f'device.driver == "{DRIVER}"', NOTHING, "true", id="216 the driver"),
    pytest.param(NAME, named(True), "true", id="217 a bare name"),
    pytest.param('device.attributes["other.example.com"].name', a_device("d").attr("other.example.com/name", True),
        "true", id="218 another domain"),
    pytest.param("cel.bind(dra, device.attributes[D], dra.name)", named(True), "true", id="219 with a short name"),
    pytest.param(f"{NAME} > 0", named(1), "true", id="220 a number"),
    pytest.param(f'{NAME}.isGreaterThan(semver("0.0.1"))', VERSION, "true", id="221 a version"),
    pytest.param(f'{NAME}.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)', VERSION, "true",
        id="221 versions that begin with v"),
    pytest.param('device.capacity[D].name.isGreaterThan(quantity("1Ki"))', MEM, "true", id="222 a quantity"),
    pytest.param('"name" in device.capacity[D] && device.capacity[D].name.isGreaterThan(quantity("1Ki"))', MEM, "true",
        id="223 only if it is there"),
    pytest.param('!("name" in device.capacity[D]) || device.capacity[D].name.isGreaterThan(quantity("1Ki"))', NOTHING,
        "true", id="223 or if it is not"),
    pytest.param(OF_ALL_TYPES, EVERYTHING, "true", id="224 a long one"),
    pytest.param("device.attributes.exists_one(x, x == D)", named("x"), "true", id="225 domains of attributes"),
    pytest.param("device.capacity.exists_one(x, x == D)", MEM, "true", id="225 domains of capacities"),
    pytest.param(f'{NAME}.split("example").size() >= 2', named("some_example_value"), "true", id="226 parts"),
    pytest.param(SEVEN_DEEP, NOTHING, f"{BREAKS}…actual cost limit exceeded", id="227 one that would take ages"),
    pytest.param("device.allowMultipleAllocations == false", NOTHING, "true", id="235 not shared unless it says so"),
    pytest.param("device.allowMultipleAllocations", NOTHING.shared(), "true", id="235 shared"),
    pytest.param(NAME, named(1), f"{BREAKS}CEL result of type int could not be converted to bool: …",
        id="237 an attribute that is no truth"),
    pytest.param("true", a_device("d").version("broken", "1.2"),
        f"{BREAKS}attribute broken: parse semantic version: No Major.Minor.Patch elements found",
        id="238 a malformed version in an attribute that the selector does not use"),
])  # fmt: skip
def test_selectors(expression: str, device: DeviceBuilder, expected: str, *, selectors: DeviceSelectors) -> None:
    assert is_as(expected, said(expression, device, selectors=selectors))


def test_216_a_driver_without_name() -> None:
    assert "true" == said('device.driver == ""', NOTHING, selectors=PLAIN, driver="")


FISH = ["fish", "bird"]
VERSIONS = a_device("d").versions("name", "1.0.0", "2.0.0")


def values(count: int) -> list[str]:
    return [f"v{at}" for at in range(count)]


@pytest.mark.parametrize(("expression", "device", "expected"), [
    *(pytest.param(f"{NAME}.size() == 2", device, "true", id=f"229 how many {what}") for what,
        device in (("numbers", named([1, 2])), ("texts", named(FISH)), ("versions", VERSIONS))),
    pytest.param(f"{NAME}.exists(x, x > 0)", named([0, 1]), "true", id="229 one of the numbers"),
    *(pytest.param(f"{NAME}.exists(x, x == x)", device, f"{BREAKS}got '{what}', expected iterable type",
        id=f"230 over {what}") for what, device in (("types.Int", named(1)), ("cel.Semver", VERSION))),
    *(pytest.param(f"{NAME}.includes({value})", device, expected, id=f"231 {what}: {expected}") for what, device, value,
        other in (("a truth", named(True), "true", "false"), ("truths", named([True, True]), "true", "false"),
        ("a number", named(1), "1", "2"), ("numbers", named([1, 2]), "2", "3"), ("a text", named("fish"), '"fish"',
        '"bird"'), ("texts", named(FISH), '"bird"', '"cat"'), ("a version", VERSION, 'semver("1.0.0")',
        'semver("2.0.0")'), ("versions", VERSIONS, 'semver("2.0.0")', 'semver("3.0.0")')) for value,
        expected in ((value, "true"), (other, "false"))),
    pytest.param(f'{NAME}.includes("v47")', named(values(48)), "true", id="232 as long as a list may be"),
    pytest.param(f'{NAME}.includes("v47")', named(values(49)), "true", id="232 found before its end"),
    pytest.param(f'{NAME}.includes("v48")', named(values(49)),
        f"{BREAKS}'includes' function cannot be applied to lists longer than 48 values", id="232 one longer"),
    pytest.param(f"1 in {NAME}", named([1, 2, 3]), "true", id="233 in a list"),
])  # fmt: skip
def test_lists(expression: str, device: DeviceBuilder, expected: str) -> None:
    assert expected == said(expression, device, selectors=LISTS)


def test_228_a_list_while_the_gate_is_off() -> None:
    device = a_device("d").attr("names", FISH)

    assert f"{BREAKS}attribute names: unsupported attribute value" == said("true", device, selectors=PLAIN)


@pytest.mark.parametrize(("expression", "device"), [
    pytest.param(f'{NAME}.includes("fish")', named("fish"), id="234 includes"),
    pytest.param("!device.allowMultipleAllocations", NOTHING, id="234 sharing"),
])  # fmt: skip
def test_what_a_gate_hides_from_new_objects_is_there_in_stored_ones(expression: str, device: DeviceBuilder) -> None:
    """An API server rejects these selectors while their gate is off; a scheduler reads only stored objects (§5.2)."""
    assert "true" == said(expression, device, selectors=PLAIN)


@pytest.mark.parametrize("expression", [
    pytest.param("lists.range(3000).all(x, true)", id="236 in a loop"),
    pytest.param("lists.range(3000).all(x, 1 / 0 == 1) || true", id="236 where errors are absorbed"),
])  # fmt: skip
def test_an_evaluation_that_reaches_its_deadline(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation ends with the error of the cost limit."""
    monkeypatch.setattr("scheduler.cel.eval.running.processor_nanos", count(step=1_000_000).__next__)

    assert said(expression, NOTHING, selectors=PLAIN) == f"{BREAKS}operation cancelled: actual cost limit exceeded"
