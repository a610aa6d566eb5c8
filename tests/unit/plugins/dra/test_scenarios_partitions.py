"""Devices that share counters: docs/spec/dra.md §9.7. For the notation see `scenarios`."""

from __future__ import annotations

import pytest

from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import a_device
from tests.unit.plugins.dra.scenarios import Given, asks, counters, dev, given, is_as, on, outcome, says, want

INVALID = "UU invalid resource pools were encountered"
SIX_OR_FOUR, SIX_OR_TWO = ([want(mem=mem) for mem in pair] for pair in (("6Gi", "4Gi"), ("6Gi", "2Gi")))


def parts(*amounts: str, first: int = 1):
    """d1, d2… that each take so much."""
    return [dev(f"d{at}", takes=amount) for at, amount in enumerate(amounts, first)]


def of_pool(devices, amount: str = "8Gi", pool: str = "p1"):
    """A pool with its counters."""
    return [on("n1", pool, *devices), counters(pool, amount)]


def one(*amounts: str, f: str = "PD", used: str = "", of: str = "8Gi", claim="A") -> Given:
    return given(of_pool(parts(*amounts), of), claim, f=f, used=used)


def taking(name: str, counter_set: str, **amounts: str):
    return a_device(name).consumes(counter_set, amounts)


def with_sets(*devices, **sets: dict[str, str]):
    """A pool with these counter sets."""
    shared = on("n1", "p1")
    for name, amounts in sets.items():
        shared = shared.counters(name, amounts)
    return [on("n1", "p1", *devices), shared]


OVER_NODES = [counters("p1"), on("n1", "p1", *parts("6Gi", "2Gi")), on("n2", "p1", *parts("6Gi", "2Gi", first=3))]
ADMIN_HAS_D1 = a_claim("admin").allocated(a_result("r", "a/p1/d1", admin=True))
OWN_CPU = [dev(f"d{at}", special=at == 1).consumes("set", {f"cpu{at}": "1", "mem": "10"}) for at in (1, 2, 3)]
CPUS = {f"cpu{at}": "1" for at in (1, 2, 3)} | {"mem": "30"}
KINDS = [
    dev("d1", kind="shared", s="red").consumes("set", {"mem": "1"}).shared(),
    dev("d2", kind="fallback", s="blue"),
    dev("d3", kind="gate", s="blue"),
]
SHARED, GATE = want(cel=says("kind", "shared")), want(cel=says("kind", "gate"))


@pytest.mark.parametrize(("case", "expected"), [
    # counters
    pytest.param(one("4Gi"), "r0→p1/d1", id="137 one"),
    pytest.param(one("4Gi", "6Gi", "4Gi", claim=asks("A", SIX_OR_FOUR), f="PD PL"), "r0→p1/d1 r1/s1→p1/d3",
        id="138 with alternatives"),
    pytest.param(one("4Gi", "6Gi", "4Gi", claim="A*2"), "r0→p1/d1 r0→p1/d3", id="139 two of three"),
    pytest.param(given(with_sets(taking("d1", "x", mem="5"), taking("d2", "x", mem="5"), taking("d3", "y", mem="5"),
        x={"mem": "8"}, y={"mem": "8"}), "A*2", f="PD"), "r0→p1/d1 r0→p1/d3", id="140 two sets"),
    pytest.param(given(with_sets(taking("d1", "x", mem="5"), taking("d2", "x", mem="4"), taking("d3", "x", mem="4"),
        x={"mem": "8", "idle": "1"}), "A*2", f="PD"), "r0→p1/d2 r0→p1/d3", id="141 a counter that nobody takes from"),
    pytest.param(one("4Gi", "16Gi", of="18Gi", used="p1/d2"), "nil", id="142 what is in use has taken it"),
    pytest.param(one("4Gi", "20Gi", of="18Gi", used="p1/d2"), "nil", id="143 more than there is"),
    pytest.param(one("4Gi", f=""), "nil", id="144 while the gate is off"),
    pytest.param(given(of_pool([*parts("4Gi"), a_device("d2")]), f=""), "r0→p1/d2",
        id="145 others can be had all the same"),
    pytest.param(given(with_sets(*OWN_CPU, set=CPUS), asks("A*2", want(cel='device.attributes["a"].special')), f="PD"),
        "r0→p1/d2 r0→p1/d3 r1→p1/d1", id="146 one is kept for a later request"),
    pytest.param(given([*of_pool(parts("4Gi")), counters("p1")], f="PD"), INVALID, id="147 two sets of one name"),
    pytest.param(given([*of_pool([taking("d1", "y", mem="1")])], f="PD"), INVALID, id="148 no such set"),
    pytest.param(given([*of_pool([taking("d1", "set", cpu="1")])], f="PD"), INVALID, id="148 no such counter"),
    pytest.param(given([on("n1", "p1", *parts("4Gi")), counters("p2")], f="PD"), INVALID,
        id="148 a set of another pool"),
    pytest.param(given(OVER_NODES, asks(SIX_OR_TWO), f="PD PL", used="p1/d3"), "r0/s1→p1/d2",
        id="149 another node has taken from it"),
    pytest.param(given(OVER_NODES, asks(SIX_OR_TWO), f="PD PL", used="p1/d1", at="n2"), "r0/s1→p1/d4",
        id="150 the same seen from there"),
    pytest.param(given([*of_pool(parts("4Gi")), on("n2", "p1", taking("d3", "y", mem="1"))], f="PD"), INVALID,
        id="151 a device of another node takes what is not there"),
    pytest.param(given([*of_pool(parts("6Gi"), pool="a/n1"), *of_pool(parts("6Gi"), pool="b/n1")], "B", f="PD",
        used="n1/d1"), "r0→b/n1/d1", id="152 two drivers name their pools after the node"),
    pytest.param(given(of_pool([dev("d1", takes="5Gi").taint("bad"), *parts("5Gi", first=2)]), f="PD DT"), "r0→p1/d2",
        id="153 what was refused for its taint has taken nothing"),
    pytest.param(given(of_pool([dev("d1", takes="5Gi", x=2), dev("d2", takes="1Gi", x=1), dev("d3", takes="5Gi", x=1)]),
        asks(want(cel='device.attributes["a"].x == 1'), "A").match("a/x"), f="PD"), "r0→p1/d2 r1→p1/d3",
        id="154 nor what was refused for a constraint"),
    pytest.param(given(of_pool(parts("6Gi", "6Gi")), "A", f="PD AA", also=[ADMIN_HAS_D1]), "r0→p1/d1",
        id="155 administrators take nothing"),
    pytest.param(given(of_pool(parts("6Gi", "6Gi")), want("A*2", admin=True), f="PD AA"), "nil",
        id="§4.8 but what one is about to get must fit"),
    pytest.param(given(of_pool(parts("4Gi")), [asks("A"), asks(want(admin=True))], f="PD AA"),
        "r0→p1/d1 | r0→p1/d1(admin)", id="§4.14 it may be what an earlier claim gets, if its counters are there twice"),
    pytest.param(given(of_pool(parts("6Gi")), [asks("A"), asks(want(admin=True))], f="PD AA"), "nil",
        id="§4.14 but not if they are there once"),
    # counters of shares
    pytest.param(given(of_pool([dev("d1", kind="shared", takes="1").shared(), dev("d2", kind="shared"),
        dev("d3", kind="gate", takes="1")], "1"), asks(SHARED, GATE), f="PD CC"), "r0→p1/d2 r1→p1/d3",
        id="§4.7 what a share took is given back"),
    pytest.param(given(of_pool(KINDS, "1"), [asks(SHARED),
        asks(want(cel=f"{says('kind', 'shared')} || {says('kind', 'fallback')}"), GATE, SHARED).match("a/s", "r0",
        "r1")], f="PD CC"), "r0→p1/d1{} | r0→p1/d2 r1→p1/d3 r2→p1/d1{}",
        id="§4.7 as long as somebody shares the device its counter is taken"),
])  # fmt: skip
def test_partitions(case: Given, expected: str) -> None:
    assert is_as(expected, outcome(case)), outcome(case)
