"""What the devices of a claim have in common, or do not: docs/spec/dra.md §9.4. For the notation see `scenarios`.

kube-scheduler 1.36 does not hand its gate for lists on to its allocator; here the gate means what it says (row LT).
"""

from __future__ import annotations

from typing import Any

import pytest

from simulator.builders.devices import DeviceBuilder, a_device
from tests.unit.plugins.dra.scenarios import Given, asks, dev, given, is_as, on, outcome, want

ALIKE = [dev(name, i=1, s="one", b=True).version("v", "1.0.0") for name in ("d1", "d2")]
UNKNOWN = "ERR class A: selector #0: CEL runtime error: attribute x: unsupported attribute value"
EMPTY = a_device("d1").set({"attributes": {"x": {"strings": []}}})
BROKEN = a_device("broken").set({"attributes": {"x": {}}})
NONE_TYPE = a_device("d1").set({"attributes": {"x": {}}})


def with_x(*values: Any) -> list[DeviceBuilder]:
    """d1, d2… with an attribute each."""
    return [dev(f"d{at}", x=value) for at, value in enumerate(values, 1)]


def versions(*values: str | list[str]) -> list[DeviceBuilder]:
    out = []
    for at, value in enumerate(values, 1):
        device = a_device(f"d{at}")
        out.append(device.version("x", value) if isinstance(value, str) else device.versions("x", *value))
    return out


def matching(count: int, devices: list[DeviceBuilder], f: str = "") -> Given:
    """So many with the same x."""
    return given([on("n1", "p1", *devices)], asks(f"A*{count}").match("a/x"), f=f)


def distinct(count: int, devices: list[DeviceBuilder], f: str = "") -> Given:
    """So many, no two of which have the same x."""
    return given([on("n1", "p1", *devices)], asks(f"A*{count}").distinct("a/x"), f=f)


MEM = {"d1": "8Gi", "d2": "2Gi", "d3": "1Gi"}
BY_VERSION = [
    dev(name, mem=MEM[name]).version("v", version)
    for name, version in (("d1", "1.0.0"), ("d2", "2.0.0"), ("d3", "1.0.0"))
]
EITHER = [want(mem="2Gi"), want(mem="1Gi")]
FIRST_HAS_NO_Y = [dev("d1", x=1), dev("d2", x=2, y=1), dev("d3", x=2, y=1)]


SCOPES = [
    dev(f"d{at}", i=at - 1, b=b).version("v", version).shared()
    for at, (version, b) in enumerate([("1.0.0", True), ("1.0.1", False), ("1.0.2", True), ("1.0.0", True)], 1)
]
PREFERS_B = [want(cel='device.attributes["a"].b'), "A"]
TRUE_AND_FALSE = [dev("d1", b=True).shared(), dev("d2", b=False).shared()]


def take(*numbers: int) -> str:
    return " ".join(f"r0→p1/d{number}" for number in numbers)


IN_COMMON_BY_TURNS = [[1, 2], [2, 3], [3, 4]]
STRING_LISTS = with_x(["v1", "v2"], ["v2", "v3"])


@pytest.mark.parametrize(("case", "expected"), [
    # what devices have in common
    pytest.param(given([on("n1", "p1", *ALIKE)], asks("A", "A").match("a/i").match("a/s").match("a/b").match("a/v")),
        "r0→p1/d1 r1→p1/d2", id="73 four types"),
    pytest.param(matching(2, [dev("d1", x=1), a_device("d2")]), "nil", id="74 one does not say"),
    pytest.param(matching(2, with_x(1, 2)), "nil", id="75 two numbers"),
    pytest.param(matching(2, versions("1.0.0", "1.0.1")), "nil", id="75 two versions"),
    pytest.param(given([on("n1", "p1", *versions("1.0.0", "1.0.1"))], asks("A", "A").match("a/x", "r0")),
        "r0→p1/d1 r1→p1/d2", id="76 of one request alone"),
    pytest.param(given([on("n1", "p1",
        *(dev(f"d{at}", s=s).version("v", f"{at}.0.0") for at, s in enumerate("abb", 1)))], asks("A", "A").match("a/v",
        "r0").match("a/s")), "r0→p1/d2 r1→p1/d3", id="77 of one request, and of all: back to the first"),
    pytest.param(given([on("n1", "p1", dev("d1", numa=1), dev("d2", numa=1))], asks("A*2").match("a/numa")),
        "r0→p1/d1 r0→p1/d2", id="78 a bare name is the driver's own"),
    pytest.param(given([on("n1", "p1", dev("d1", numa=1), dev("d2", numa=1))], asks("A*2").match("x.com/numa")), "nil",
        id="79 and nobody else's"),
    pytest.param(matching(2, with_x(1, "1")), "nil", id="80 a number and a text"),
    pytest.param(given([on("n1", "p1", "d1")], asks("A").set({"spec": {"devices": {"constraints": [{}]}}})),
        "ERR claim default/c0, constraint #0: empty constraint (unsupported constraint type?)",
        id="81 of an unknown kind"),
    pytest.param(given([on("n1", "p1", *BY_VERSION)], asks(want(mem="8Gi"), EITHER).match("a/v", "r0", "r1"), f="PL"),
        "r0→p1/d1 r1/s1→p1/d3", id="82 of a request with all its alternatives"),
    pytest.param(given([on("n1", "p1", *BY_VERSION[:2])], asks(want(mem="8Gi"), EITHER).match("a/v", "r0", "r1/s0"),
        f="PL"), "r0→p1/d1 r1/s1→p1/d2", id="83 of one alternative"),
    pytest.param(given([on("n1", "p1", *FIRST_HAS_NO_Y)], asks("A*2").match("a/x").match("a/y")), "r0→p1/d2 r0→p1/d3",
        id="91 what the first knows is forgotten when the second refuses"),
    # what differs
    pytest.param(given([on("n1", "p1", *SCOPES)], asks("A", "A", "A", "A").distinct("a/b", "r0", "r1").distinct("a/v",
        "r0", "r1", "r2").distinct("a/i", "r0", "r1", "r2", "r3"), f="CC"),
        "r0→p1/d1{} r1→p1/d2{} r2→p1/d3{} r3→p1/d4{}", id="84 of two, three and four requests"),
    pytest.param(distinct(1, [a_device("d1").shared()], f="CC"), "nil", id="85 one does not say"),
    pytest.param(distinct(1, [NONE_TYPE.shared()], f="CC"), UNKNOWN, id="86 of an unknown type"),
    pytest.param(given([on("n1", "p1", *TRUE_AND_FALSE)], asks(PREFERS_B, PREFERS_B, PREFERS_B).distinct("a/b", "r0",
        "r1"), f="CC PL"), "r0/s0→p1/d1{} r1/s1→p1/d2{} r2/s0→p1/d1{}", id="87 of two requests with alternatives"),
    pytest.param(given([on("n1", "p1", dev("d1", x=1).shared())], asks("A", "A").distinct("a/x"), f="CC"), "nil",
        id="88 one device has one value"),
    pytest.param(given([on("n1", "p1", *(each.shared() for each in with_x(1, 2)))], asks("A", "A").distinct("a/x"),
        f="CC"), "r0→p1/d1{} r1→p1/d2{}", id="89 two devices"),
    pytest.param(distinct(3, with_x("x", "y", "x"), f="CC"), "nil", id="90 also within one request"),
    pytest.param(distinct(3, [*with_x("x", "y", "x", "z"), BROKEN], f="CC"), "r0→p1/d1 r0→p1/d2 r0→p1/d4",
        id="90 also where a later device is in error"),
    pytest.param(given([on("n1", "p1", dev("d1", x=1), dev("d2", x=2), dev("d3", x=2, y=1), dev("d4", x=1, y=2))],
        asks("A", "A").distinct("a/x").distinct("a/y"), f="CC"), "r0→p1/d3 r1→p1/d4",
        id="91 the same for values that differ"),
    # lists of values
    pytest.param(matching(2, with_x(["v1", "v2", "v3"], ["v2", "v3", "v4"]), "LT"), take(1, 2),
        id="92 lists with two in common"),
    pytest.param(matching(3, with_x([1, 2], [2, 3], [3, 1]), "LT"), "nil",
        id="93 by twos, but nothing is common to all"),
    pytest.param(matching(2, with_x(["v1", "v2"], ["v3", "v4"]), "LT"), "nil", id="94 nothing in common"),
    pytest.param(matching(2, with_x("v1", ["v1", "v2"]), "LT"), take(1, 2), id="95 one value, and a list with it"),
    pytest.param(matching(3, with_x("v1", ["v1", "v2"], ["v2", "v3"]), "LT"), "nil",
        id="96 a list with it, and one without"),
    pytest.param(matching(2, with_x("v1", ["v2", "v3"]), "LT"), "nil", id="97 one value, and a list without it"),
    pytest.param(matching(2, with_x([1, 2], [2, 3]), "LT"), take(1, 2), id="98 numbers"),
    pytest.param(matching(1, [NONE_TYPE], "LT"), UNKNOWN, id="99 of an unknown type, match"),
    pytest.param(distinct(1, [NONE_TYPE], "LT CC"), UNKNOWN, id="99 of an unknown type, distinct"),
    pytest.param(matching(1, [EMPTY], "LT"), "nil", id="99 an empty list matches nothing"),
    pytest.param(distinct(1, [EMPTY], "LT CC"), take(1), id="99 one that comes first is different"),
    pytest.param(distinct(2, [dev("d0", x="v"), EMPTY], "LT CC"), "nil", id="99 a later one is not"),
    pytest.param(matching(2, STRING_LISTS), UNKNOWN, id="100 lists while the gate is off, match"),
    pytest.param(distinct(2, STRING_LISTS, "CC"), UNKNOWN, id="100 lists while the gate is off, distinct"),
    pytest.param(distinct(2, with_x("v1", "v1"), "LT CC"), "nil", id="101 equal values"),
    pytest.param(distinct(2, with_x(*IN_COMMON_BY_TURNS), "LT CC"), take(1, 3), id="102 lists without a common value"),
    pytest.param(distinct(2, STRING_LISTS, "LT CC"), "nil", id="103 lists with a common value"),
    pytest.param(distinct(2, with_x("v1", ["v1", "v2"], ["v2", "v3"]), "LT CC"), take(1, 3),
        id="104 one value, and lists"),
    pytest.param(distinct(2, with_x(["1", "2"], ["2"], ["3"]), "LT CC"), take(1, 3), id="105 texts"),
    pytest.param(given([on("n1", "p1", *with_x([1, 2], [1], [2, 3], [2]), dev("last", x=2, only="this"))],
        asks("A", "A", want(cel='"only" in device.attributes["a"]')).match("a/x"), f="LT"),
        "r0→p1/d1 r1→p1/d3 r2→p1/last", id="106 what is in common is again what it was"),
])  # fmt: skip
def test_constraints(case: Given, expected: str) -> None:
    assert is_as(expected, outcome(case)), outcome(case)
