"""Which devices a node has, and all of them: docs/spec/dra.md §9.1, §9.2. For the notation see `scenarios`."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from scheduler.framework.status import Code
from simulator.builders.devices import a_device, a_device_class
from tests.unit.plugins.dra.scenarios import (
    Given,
    allocation,
    asks,
    counters,
    dev,
    given,
    is_as,
    on,
    outcome,
    want,
)

INVALID = "UU invalid resource pools were encountered"
SMALL_AND_LARGE = want(mem="1Gi"), want(mem="2Gi")
LARGE_FIRST = [on("n1", "p1", dev("d2", mem="2Gi"), dev("d1", mem="1Gi"))]
TWICE = [on("n1", "p1", "d1"), on("n1", "p1", "d1")]
BINDS = a_device("d1").binding("ready")


def new(node_name: str, devices: str, generation: int = 2):
    """One of two slices of the pool p1, in its second generation."""
    return on(node_name, "p1", devices, of=2).generation(generation)


def old(node_name: str, devices: str):
    return new(node_name, devices, 1)


def test_33_a_search_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt of the pod ends, and the same search finds its devices when there is time."""
    devices = [f"d{at}" for at in range(32)]
    slices = [on("n1", f"p{at}", *devices) for at in range(3)]
    case = given(slices, [asks("A*32") for _ in range(3)], f="TO")
    world = case.world()
    slow = SimpleNamespace(now=itertools.count(step=1000).__next__)
    monkeypatch.setattr(world.plugin._verdicts._searches, "_clock", slow)

    timed_out = {"n1": (Code.ERROR, "node n1: timed out trying to allocate devices")}
    assert timed_out == {"n1": world.refusals(case.pod(world))["n1"]}
    assert outcome(case).startswith("r0→p0/d0 ")


def test_34_one_node_after_another() -> None:
    """And back to the first: nothing of one search is left in the next."""
    case = given([on("n1", "p1", "d1 d2"), on("n2", "p2", "d1 d2")], [asks("A"), asks("A")])
    world = case.world()
    info, seen = case.pod(world), []
    for name in ("n1", "n2", "n1"):
        state, no = world.reserve(info, name)
        assert no is None
        known = world.known(state)
        seen.append(" | ".join(allocation(known.allocations[claim.uid], name) for claim in known.claims))
        world.plugin.unreserve(state, info, name)

    assert ["r0→p1/d1 | r0→p1/d2", "r0→p2/d1 | r0→p2/d2", "r0→p1/d1 | r0→p1/d2"] == seen


# -- all devices -------------------------------------------------------------------------------------------------------

ALL_ADMIN = want("A*all", admin=True)
A, B, BOTH_B = on("n1", "p1", "d1"), on("n1", "b/p1", "d1"), on("n1", "p1", "d1 d2")
ALL_OF = "claim default/c0, request r0"
V6, V5 = (want("A*all", cel=f'device.attributes["a"].gen == "{gen}"') for gen in ("v6", "v5"))
SELECTED = a_device_class("A", 'device.driver == "a" && device.attributes["a"].selected')


@pytest.mark.parametrize(("case", "expected"), [
    # pools
    pytest.param(given([], []), "skip", id="1 nothing at all"),
    pytest.param(given([on("n1", "p1", "d1")], []), "skip", id="2 no claims to allocate"),
    pytest.param(given([on("n1", "p1", "d1")]), "r0→p1/d1", id="3 one device"),
    pytest.param(given([on("n1", "b/p1", "d1"), on("n2", "p2", "d1")], at="n2"), "r0→p2/d1", id="4 another node"),
    pytest.param(given([on("n1", "p1", dev("d1", mem="1Gi"), dev("d2", mem="2Gi"))], asks(*SMALL_AND_LARGE)),
        "r0→p1/d1 r1→p1/d2", id="5 small and large"),
    pytest.param(given(LARGE_FIRST, asks(*SMALL_AND_LARGE)), "r0→p1/d1 r1→p1/d2", id="6 back to an earlier request"),
    pytest.param(given(LARGE_FIRST, [asks(each) for each in SMALL_AND_LARGE]), "r0→p1/d1 | r0→p1/d2",
        id="7 back to an earlier claim"),
    pytest.param(given([on("n1", "p1", "d1"), on("n1", "p2", "d1")], "A*2"), "r0→p1/d1 r0→p2/d1",
        id="8 over two pools"),
    pytest.param(given([old("n1", "d1"), new("n1", "d2")]), "nil", id="9 half of a new generation"),
    pytest.param(given(TWICE), INVALID, id="10 a device twice"),
    pytest.param(given([]), "nil", id="11 no slices"),
    pytest.param(given([on("n1", "p1", "d1")], [asks("A"), asks("A")]), "nil", id="12 not enough devices"),
    pytest.param(given([on("n1", "p1", "d1")], "unknown"), "UU request r0: device class unknown does not exist",
        id="13 no such class"),
    pytest.param(given([on("n1", "p1", "d1")], ""), "ERR request r0: unsupported request type",
        id="14 a class without name"),
    pytest.param(given([on("n1", "p1", "d1 d2"), on("n1", "b/p1", "d1")], [asks("A"), asks("B")]),
        "r0→p1/d1 | r0→b/p1/d1", id="15 several drivers"),
    pytest.param(given([on("n1", "p1", "d1")], used="p1/d1 p1/d2"), "nil", id="16 all in use, one is gone"),
    pytest.param(given([on("n1", "p1", "d1", of=2)]), "nil", id="17 half of a pool"),
    pytest.param(given([*TWICE, on("n1", "p2", "d2")]), "r0→p2/d2", id="18 an invalid pool does no harm"),
    pytest.param(given([*TWICE, on("n1", "p2", "d2")], used="p2/d2"), INVALID, id="19 but is named when nothing fits"),
    pytest.param(given([on("n1", "p1", "d1", of=1), on("n1", "p1", "d2", of=1)]), "nil",
        id="17 two slices of a pool of one"),
    pytest.param(given([on("n2", "p1", "d1"), on("n1", "p1", "d2")]), "r0→p1/d2", id="20 a pool over two nodes"),
    pytest.param(given([old("n1", "d1"), new("n2", "d2")]), "nil", id="21 what is left here is obsolete"),
    pytest.param(given([old("n1", "d1"), old("n1", "d2"), new("n2", "d3"), new("n2", "d4")]), "r0→p1/d1",
        id="22 a pool has moved away: here it still looks complete"),
    pytest.param(given([old("n2", "d1"), old("n2", "d2"), new("n1", "d3"), new("n1", "d4")]), "r0→p1/d3",
        id="23 a pool has moved here"),
    pytest.param(given([old("n1", "d1"), old("n1", "d2"), new("n2", "d3")]), "r0→p1/d1", id="24 a pool is moving away"),
    pytest.param(given([old("n2", "d1"), old("n2", "d2"), new("n1", "d3")]), "nil", id="25 a pool is moving here"),
    pytest.param(given([on("n1", "p1", "d1"), on("n2", "p1", "d2")], "A*all"), "r0→p1/d1",
        id="26 all are all of this node"),
    pytest.param(given([on("n1", "p3", "d1"), on("n1", "p2", "d1"), on("n1", "p1", "d1")], "A*2"), "r0→p1/d1 r0→p2/d1",
        id="27 pools by name"),
    pytest.param(given([on("n1", "p3", "d3"), on("n1", "p2", "d2"), on("n1", "p1", BINDS)], "A*2", f="BC"),
        "r0→p2/d2 r0→p3/d3", id="28 those with binding conditions last"),
    pytest.param(given([on("n1", "p1", "d3").named("slice-3"), on("n1", "p1", "d2").named("slice-2"),
        on("n1", "p1", "d1").named("slice-1")], "A*2"), "r0→p1/d1 r0→p1/d2", id="29 slices of a pool by name"),
    pytest.param(given([on("n1", "p1", "d3").named("slice-3"), on("n1", "p1", "d2").named("slice-2"),
        on("n1", "p1", BINDS).named("slice-1")], "A*2", f="BC"), "r0→p1/d1 !ready r0→p1/d2",
        id="30 also those with binding conditions"),
    pytest.param(given([on("", "p1", "d1")]), "nil", id="31 a slice that says nothing of nodes"),
    pytest.param(given([on("", "p1", "d1").selecting(("region", "Likes", "r1")), on("n1", "p2", "d1")]),
        "ERR gather pool information: …Likes…", id="32 a node selector that cannot be read"),
    # all devices
    pytest.param(given([A], "A*all"), "r0→p1/d1", id="35 of one pool"),
    pytest.param(given([on("n1", "p1", dev("d1", takes="4Gi")), counters("p1")], "A*all", f="PD"), "r0→p1/d1",
        id="36 with counters"),
    pytest.param(given([on("n1", "p1", "d1", of=2)], "A*all"),
        f"ERR {ALL_OF}: asks for all devices, but resource pool a/p1 is currently being updated",
        id="37 half of a pool"),
    pytest.param(given([old("n1", "d1"), new("n2", "d2"), on("n1", "p2", "d3")], "A*all"), "r0→p2/d3",
        id="37 what is left of an obsolete pool is not waited for"),
    pytest.param(given(TWICE, "A*all"),
        f"ERR {ALL_OF}: asks for all devices, but resource pool a/p1 is currently invalid", id="38 an invalid pool"),
    pytest.param(given([A, B], [asks("A*all"), asks("B")]), "r0→p1/d1 | r0→b/p1/d1", id="39 all, and another"),
    pytest.param(given([BOTH_B, B], [asks("A*all"), asks("B")]), "r0→p1/d1 r0→p1/d2 | r0→b/p1/d1", id="40 all of two"),
    pytest.param(given([A], [asks("A*all"), asks("A")]), "nil", id="41 all, and one more of them"),
    pytest.param(given([on("n1", "p1")], "A*all"), "nil", id="42 a slice without devices"),
    pytest.param(given([BOTH_B], "A*all", used="p1/d1"), "nil", id="43 one of them is in use"),
    pytest.param(given([BOTH_B], ALL_ADMIN, f="AA", used="p1/d1"), "r0→p1/d1(admin) r0→p1/d2(admin)",
        id="44 which does not keep an administrator out"),
    pytest.param(given([BOTH_B], asks(want(admin=True), ALL_ADMIN), f="AA"), "nil",
        id="45 nobody gets one twice in a claim"),
    pytest.param(given([BOTH_B], want("A*2", admin=True), f="AA", used="p1/d1"), "r0→p1/d1(admin) r0→p1/d2(admin)",
        id="46 two for an administrator, one in use"),
    pytest.param(given([on("n1", "p1", dev("d1", x=1), dev("d2", x=2))], asks("A*all").match("a/x")),
        f"ERR {ALL_OF}: cannot add device a/p1/d2 because a claim constraint would not be satisfied",
        id="47 a constraint that forbids one of them"),
    pytest.param(given([A], want("A*all", cel="noSuchVar")),
        "ERR claim default/c0: selector #0: CEL compile error: …undeclared reference to 'noSuchVar'…",
        id="48 a selector that is wrong"),
    # all devices as an alternative
    pytest.param(given([on("n1", "p1"), B], asks(["A*all", "B"]), f="PL"), "r0/s1→b/p1/d1",
        id="49 a slice without devices"),
    pytest.param(given([B], asks(["A*all", "B"]), f="PL"), "r0/s1→b/p1/d1", id="50 no slices"),
    pytest.param(given([BOTH_B, B], asks(["A*all", "B"]), f="PL", used="p1/d1"), "r0/s1→b/p1/d1",
        id="51 one is in use"),
    pytest.param(given([BOTH_B], asks(["A*all", "A"]), f="PL", used="p1/d1"), "r0/s1→p1/d2",
        id="52 then the other one"),
    pytest.param(given([BOTH_B], asks("A", ["A*all", "A"]), f="PL"), "r0→p1/d1 r1/s1→p1/d2",
        id="53 one has been taken by an earlier request"),
    pytest.param(given([on("n1", "p1", dev("d1", gen="v5"))], asks([V6, V5]), f="PL"), "r0/s1→p1/d1",
        id="54 all that are selected"),
    pytest.param(given([on("n1", "p1", dev("d1", gen="v6", selected=False), dev("d2", gen="v5", selected=False),
        dev("d3", gen="v5", selected=True))], asks([V6, V5]), f="PL", also=[SELECTED]), "r0/s1→p1/d3",
        id="55 all of the class"),
])  # fmt: skip
def test_pools(case: Given, expected: str) -> None:
    assert is_as(expected, outcome(case)), outcome(case)
