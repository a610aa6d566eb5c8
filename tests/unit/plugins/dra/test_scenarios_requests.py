"""Configurations, limits and alternatives: docs/spec/dra.md §9.5, §9.6. For the notation see `scenarios`.

How many steps the search takes is upstream's own affair, and ours another: only what is found is compared.
"""

from __future__ import annotations

import pytest

from simulator.builders.claims import ClaimBuilder
from simulator.builders.devices import a_device, a_device_class
from tests.unit.plugins.dra.scenarios import Given, asks, at_least, dev, exactly, given, is_as, on, outcome, says, want

WITH_CONFIG = [
    a_device_class(name, f'device.driver == "{name.lower()}"').config(name.lower(), {"is": name}) for name in "AB"
]
BOTH = [on("n1", "p1", "d1 d2"), on("n1", "b/p1", "d1")]


def configured(claim: ClaimBuilder, *configs: tuple[str, str], f: str = "", also=()) -> Given:
    """Over both drivers; configurations are (value, the requests that it is for)."""
    for value, requests in configs:
        claim = claim.config("a", {"is": value}, *requests.split())
    return given(BOTH, claim, f=f, also=also)


ABOUT = "ERR claim default/c0"
ONE = [on("n1", "p1", "d1")]
EMPTY_SELECTOR, FUTURE = exactly(selectors=[{}]), exactly(allocationMode="Future")


def pool(count: int, name: str = "p1"):
    """d01, d02…"""
    return on("n1", name, *(a_device(f"d{at:02}") for at in range(1, count + 1)))


def first(request: str, count: int, after: int = 0, where: str = "p1") -> str:
    return " ".join(f"{request}→{where}/d{at:02}" for at in range(after + 1, after + count + 1))


def too_many(count: int) -> str:
    return f"{ABOUT}: number of requested devices {count} exceeds the claim limit of 32"


X, Y1, Y2 = dev("d1", type="X"), dev("d2", type="Y"), dev("d3", type="Y")
TWO_AND_AN_X = asks("A*2", want(cel=says("type", "X")))


BIG_OR_HALF, BIG = [want(mem="8Gi"), want(mem="4Gi")], want(mem="8Gi")
EIGHT_AND_FOUR = [on("n1", "p1", dev("d1", mem="8Gi"), dev("d2", mem="4Gi"))]
TWO_TWO_ONE = [on("n1", "p1", dev("d1", mem="2Gi"), dev("d2", mem="2Gi"), dev("d3", mem="1Gi"))]


@pytest.mark.parametrize(("case", "expected"), [
    # configurations
    pytest.param(configured(asks("A"), also=WITH_CONFIG), "r0→p1/d1 +FromClass[r0]=A", id="107 of a class"),
    pytest.param(configured(asks("A", "A", "B"), also=WITH_CONFIG),
        "r0→p1/d1 r1→p1/d2 r2→b/p1/d1 +FromClass[r0 r1]=A +FromClass[r2]=B", id="108 of two classes"),
    pytest.param(configured(asks("A", "A", "B"), ("x", "r0 r1")),
        "r0→p1/d1 r1→p1/d2 r2→b/p1/d1 +FromClaim[r0 r1]=x +FromClaim[r0 r1]=x",
        id="109 of a claim for two of three requests: as v1.36 writes it, once for each"),
    pytest.param(configured(asks("A", "A"), ("x", "")), "r0→p1/d1 r1→p1/d2 +FromClaim[]=x", id="110 for all"),
    pytest.param(configured(asks("A"), ("x", ""), ("y", "r0"), also=WITH_CONFIG),
        "r0→p1/d1 +FromClass[r0]=A +FromClaim[]=x +FromClaim[r0]=y", id="§4.12 the class's come first"),
    pytest.param(configured(asks(["B*2", "A"]), ("x", "r0/s0"), ("y", "r0/s1"), f="PL"),
        "r0/s1→p1/d1 +FromClaim[r0/s1]=y", id="111 of the alternative that was taken"),
    pytest.param(configured(asks(["A*3", "B"]), also=WITH_CONFIG, f="PL"), "r0/s1→b/p1/d1 +FromClass[r0/s1]=B",
        id="112 of its class"),
    pytest.param(configured(asks(["B*2", "A"], "B"), ("x", "r0/s0 r0/s1"), f="PL"),
        "r0/s1→p1/d1 r1→b/p1/d1 +FromClaim[r0/s0 r0/s1]=x", id="113 of both alternatives: once"),
    pytest.param(configured(asks(["B*2", "A"], "B"), ("x", "r0/s1 r1"), f="PL"),
        "r0/s1→p1/d1 r1→b/p1/d1 +FromClaim[r0/s1 r1]=x +FromClaim[r0/s1 r1]=x",
        id="114 of all requests: as v1.36 writes it, their names stay"),
    # errors of a request
    pytest.param(given(ONE, EMPTY_SELECTOR),
        f"{ABOUT}, request r0, selector #0: CEL expression empty (unsupported selector type?)",
        id="115 a selector of an unknown kind"),
    pytest.param(given(ONE, FUTURE), f"{ABOUT}, request r0: unsupported count mode Future", id="116 another mode"),
    pytest.param(given(ONE, want(cel="noSuchVar")),
        f"{ABOUT}: selector #0: CEL compile error: compilation failed: …undeclared reference to 'noSuchVar'…",
        id="117 a selector that is wrong, of a request"),
    pytest.param(given(ONE, also=[a_device_class("A", "noSuchVar")]),
        "ERR class A: selector #0: CEL compile error: compilation failed: …undeclared reference to 'noSuchVar'…",
        id="117 of a class"),
    pytest.param(given(ONE, want(cel=("true", 'device.attributes["a"].gone'))),
        f"{ABOUT}: selector #1: CEL runtime error: no such key: gone", id="§5.5 a selector that breaks"),
    pytest.param(given(ONE, want(cel=("false", 'device.attributes["a"].gone'))), "nil",
        id="§5.5 an earlier one that is false"),
    pytest.param(given(ONE, asks(["A", "A"])),
        "UU resource claim default/c0, request r0: has subrequests, but the DRAPrioritizedList feature is disabled",
        id="128 alternatives while the gate is off"),
    pytest.param(given(ONE, asks(["A", "unknown"]), f="PL"), "UU request r0/s1: device class unknown does not exist",
        id="136 no such class of an alternative that is not needed"),
    # limits
    pytest.param(given(ONE, "A*500"), too_many(500), id="118 too many"),
    pytest.param(given([], "A*32"), "nil", id="119 as many as there may be, and there are none"),
    pytest.param(given([pool(32)], "A*32"), first("r0", 32), id="120 as many as there may be"),
    pytest.param(given([pool(32)], asks("A*32", "A")), too_many(33), id="121 one too many"),
    pytest.param(given(ONE, asks(["B*500", "A"]), f="PL"), "r0/s1→p1/d1", id="122 too many in one alternative"),
    pytest.param(given([pool(64)], asks(["A*32", "A*16"], ["A*32", "A*16"]), f="PL"),
        f"{first('r0/s1', 16)} {first('r1/s1', 16, after=16)}", id="123 two requests have to be modest"),
    pytest.param(given([pool(31), pool(2, "b/p2")], asks(["A*all", "A*2"], "B*2"), f="PL"),
        f"{first('r0/s1', 2)} {first('r1', 2, where='b/p2')}", id="124 all would be too many"),
    pytest.param(given([pool(33)], [asks(["A*3", "A"]), asks(["A*2", "A"], ["A*31"])], f="PL"),
        f"r0/s1→p1/d01 | r0/s1→p1/d02 {first('r1/s0', 31, after=2)}",
        id="129 too many in a later claim: the earlier one falls back"),
    # combinations
    pytest.param(given([on("n1", "p1", "d1 d2 d3 d4")], "A*5"), "nil", id="125 five of four in a slice"),
    pytest.param(given([on("n1", "p1", X, Y1, Y2)], TWO_AND_AN_X), "r0→p1/d2 r0→p1/d3 r1→p1/d1",
        id="126 two that leave one for the next request"),
    pytest.param(given([on("n1", "p1", X), on("n1", "p1", Y1), on("n1", "p2", Y2.binding("ready"))], TWO_AND_AN_X,
        f="BC"), "r0→p1/d2 r0→p2/d3 !ready r1→p1/d1", id="127 the same over slices and pools"),
    # alternatives
    pytest.param(given(ONE, asks(["B", "A"]), f="PL"), "r0/s1→p1/d1", id="130 the first is not there"),
    pytest.param(given([on("n1", "p1", "d1"), on("n1", "b/p1", "d1")], asks(["B*2", "A*2"]), f="PL"), "nil",
        id="131 none is"),
    pytest.param(given(TWO_TWO_ONE, asks(want(mem="1Gi"), [want(mem="4Gi"), want("A*2", cel=at_least("2Gi"))]), f="PL"),
        "r0→p1/d3 r1/s1→p1/d1 r1/s1→p1/d2", id="132 an earlier request makes room"),
    pytest.param(given(EIGHT_AND_FOUR, asks(BIG, BIG_OR_HALF), f="PL"), "r0→p1/d1 r1/s1→p1/d2",
        id="133 after another request"),
    pytest.param(given(EIGHT_AND_FOUR, asks(BIG_OR_HALF, BIG), f="PL"), "r0/s1→p1/d2 r1→p1/d1",
        id="134 before another request"),
    pytest.param(given(EIGHT_AND_FOUR, [asks(BIG_OR_HALF), asks(BIG)], f="PL"), "r0/s1→p1/d2 | r0→p1/d1",
        id="135 before another claim"),
])  # fmt: skip
def test_requests(case: Given, expected: str) -> None:
    assert is_as(expected, outcome(case)), outcome(case)
