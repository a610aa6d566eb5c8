"""Devices that many claims use at once, each a part: docs/spec/dra.md §9.10. For the notation see `scenarios`."""

from __future__ import annotations

import pytest

from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.devices.allocation_state import AllocationState
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import Manifest
from simulator.builders.devices import DeviceBuilder, a_device, a_device_class, a_policy
from tests.unit.plugins.dra.scenarios import (
    Given,
    asks,
    counters,
    dev,
    given,
    is_as,
    on,
    outcome,
    outcome_under,
    says,
    want,
)
from tests.unit.plugins.dra.served import PARITY

RANGE = a_policy("2", minimum="2", maximum="4", step="2")
ZERO = a_policy("0", "0")


def sh(name: str, cap: str = "", policy: Manifest | None = None) -> DeviceBuilder:
    """A device that may be shared."""
    device = a_device(name).shared()
    return device.cap("cap", cap, policy) if cap else device


def some(amount: str, device_class: str = "A", **more):
    """A request for so much."""
    return want(device_class, capacity={"cap": amount}, **more)


def of(devices, *claims, f: str = "CC", **more) -> Given:
    """A pool, and claims of one request each."""
    listed = [devices] if isinstance(devices, DeviceBuilder) else devices
    return given([on("n1", "p1", *listed)], [asks(each) for each in claims], f=f, **more)


def d1_has(amount: str) -> list[tuple[str, dict[str, str]]]:
    """What others have of the first device."""
    return [("p1/d1", {"cap": amount})]


ONE_EACH = [sh("d1", "1"), sh("d2", "1")]
TWO_AND_ONE = [sh("d1", "2"), sh("d2", "1")]
BY_TEXT = [sh("d2", "2", RANGE).attr("s", "v1"), sh("d1", "4", RANGE).attr("s", "v2")]
OFF = "but the DRAConsumableCapacity feature is disabled"


def test_with_parity_all_that_counts_of_old_shares_is_what_they_leave() -> None:
    """202"""
    left = of(a_device("d1").cap("cap", "4", RANGE), some("1"), shares=d1_has("2"))
    assert outcome_under(left, PARITY) == "r0→p1/d1"


def partitioned(*devices: DeviceBuilder, amount: str = "8Gi"):
    return [on("n1", "p1", *devices), counters("p1", amount)]


MODES = [dev(name, mode=mode, takes="1").shared() for name, mode in (("d1", "a"), ("d2", "b"))]
MEM_OF_D1 = [("p1/d1", {"mem": "0"})]


@pytest.mark.parametrize(("case", "expected"), [
    # capacities
    pytest.param(of(sh("d1", "1"), some("1"), f=""), f"ERR claim default/c0, request r0: has capacity requests, {OFF}",
        id="174 with the gate off"),
    pytest.param(of(sh("d1").cap("other", "1"), some("1")), "nil", id="175 a device without such a capacity"),
    pytest.param(of(sh("d1"), "A", "A"), "r0→p1/d1{} | r0→p1/d1{}", id="176 shared without capacities"),
    pytest.param(of(ONE_EACH, "A", "A"), "r0→p1/d1{cap=1} | r0→p1/d2{cap=1}",
        id="177 who asks for nothing gets all of it"),
    pytest.param(of(sh("d1", "2"), "A", "A"), "nil", id="178 and there is nothing left"),
    pytest.param(of(sh("d1", "2"), some("1"), some("1")), "r0→p1/d1{cap=1} | r0→p1/d1{cap=1}",
        id="179 what was asked for"),
    pytest.param(of(sh("d1", "4", RANGE), "A", "A"), "r0→p1/d1{cap=2} | r0→p1/d1{cap=2}",
        id="180 what one gets unasked"),
    pytest.param(of(sh("d1", "1", ZERO), "A", "A"), "r0→p1/d1{cap=0} | r0→p1/d1{cap=0}", id="181 which may be nothing"),
    pytest.param(of(sh("d1", "1", ZERO), some("1")), "nil", id="182 and nothing else"),
    pytest.param(of(sh("d1", "4", RANGE), some("1"), some("1")), "r0→p1/d1{cap=2} | r0→p1/d1{cap=2}",
        id="183 not less than the least"),
    pytest.param(of(sh("d1", "4", RANGE), some("3")), "r0→p1/d1{cap=4}", id="184 up to the next step"),
    pytest.param(of(sh("d1", "4", a_policy("1", "1", "2")), some("2")), "r0→p1/d1{cap=2}", id="185 a valid value"),
    pytest.param(of(sh("d1", "4", a_policy("1", "1", "3")), some("2")), "r0→p1/d1{cap=3}",
        id="186 up to the next valid value"),
    pytest.param(of(sh("d1", "2", RANGE), some("1"), some("2")), "nil", id="187 too much together"),
    pytest.param(of(sh("d1", "10", RANGE), some("6")), "nil", id="188 more than one may ask for"),
    pytest.param(of(sh("d1", "4", RANGE), some("2"), shares=d1_has("2")), "r0→p1/d1{cap=2}",
        id="189 what others leave"),
    pytest.param(of([sh("d1", "2", RANGE), sh("d2", "2", RANGE)], some("2"), shares=d1_has("2")), "r0→p1/d2{cap=2}",
        id="190 they leave nothing: the next device"),
    pytest.param(of(sh("d1", "2", RANGE), some("2"), shares=d1_has("2")), "nil", id="191 there is none"),
    pytest.param(given([on("n1", "p1", *BY_TEXT)], [asks(some("2"), some("2")).match("a/s"), asks(some("2"))], f="CC"),
        "r0→p1/d1{cap=2} r1→p1/d1{cap=2} | r0→p1/d2{cap=2}", id="192 two of one kind together"),
    pytest.param(of(sh("d1", "2", RANGE), [some("4"), some("2"), "A"], f="CC PL"), "r0/s1→p1/d1{cap=2}",
        id="193 alternatives"),
    pytest.param(of([sh("d1", "2"), sh("d2")], some("2", "A*all")), "r0→p1/d1{cap=2}", id="194 all that have it"),
    pytest.param(given([on("n1", "p1", *TWO_AND_ONE)], asks(some("1"), some("1", "A*all")), f="CC"),
        "r0→p1/d1{cap=1} r1→p1/d1{cap=1} r1→p1/d2{cap=1}", id="195 all, after a part of one"),
    pytest.param(given([on("n1", "p1", *ONE_EACH)], asks(some("1"), some("1", "A*all")), f="CC"), "nil",
        id="196 after all of one"),
    pytest.param(of(TWO_AND_ONE, some("1", "A*all"), shares=d1_has("1")), "r0→p1/d1{cap=1} r0→p1/d2{cap=1}",
        id="197 others leave enough"),
    pytest.param(of(a_device("d1").cap("cap", "2"), some("1")), "r0→p1/d1", id="198 a device that is not shared"),
    pytest.param(of(a_device("d1").cap("cap", "2"), some("1"), some("1")), "nil", id="199 one claim has all of it"),
    pytest.param(of(sh("d1", "2"), some("1"),
        also=[a_device_class("A", 'device.driver == "a" && device.allowMultipleAllocations == false')]), "nil",
        id="200 a class without shared devices"),
    pytest.param(of(sh("d1", "2"), "A", used="p1/d1"), "nil", id="201 somebody has it for itself"),
    pytest.param(of(a_device("d1").cap("cap", "2", RANGE), some("1"), shares=d1_has("1")), "nil",
        id="202 it is shared no more, but somebody still has a part"),
    pytest.param(of(a_device("d1").cap("cap", "4", RANGE), some("1"), shares=d1_has("2")), "nil",
        id="202 of which it might have enough left"),
    pytest.param(of(sh("d1").cap("cap", "2"), want(capacity={"a/cap": "1"})), "nil",
        id="206 a name with and without domain"),
    pytest.param(of(sh("d1", "2", a_policy("1", "1", "2")), "A*2"), "nil", id="210 twice for one request"),
    pytest.param(given([on("n1", "p1", sh("d1", "2").attr("s", "cap"), dev("d2", s="other"))],
        [asks(some("2", cel=says("s", "cap"))),
        asks([some("2", "A*all", cel=says("s", "cap")), want(cel=says("s", "other"))]).match("a/s")], f="CC PL"),
        "r0→p1/d1{cap=2} | r0/s1→p1/d2", id="§4.7 what has no room has not met a constraint"),
    # capacities and counters
    pytest.param(given(partitioned(*(dev(f"d{at}", takes=f"{amount}Gi").shared() for at,
        amount in enumerate("464", 1))), asks("A", [want(mem="6Gi"), want(mem="4Gi")]), f="PD PL CC"),
        "r0→p1/d1{mem=4Gi} r1/s1→p1/d3{mem=4Gi}", id="203 shares of parts"),
    pytest.param(given(partitioned(*MODES, amount="1"), want(cel=says("mode", "b")), f="PD CC", shares=MEM_OF_D1),
        "nil", id="204 somebody's share has taken the counter"),
    pytest.param(given(partitioned(*MODES, amount="1"), want(cel=says("mode", "a"), capacity={"mem": "1"}), f="PD CC",
        shares=MEM_OF_D1), "r0→p1/d1{mem=1}", id="205 for every share of that device"),
])  # fmt: skip
def test_capacities(case: Given, expected: str) -> None:
    assert is_as(expected, outcome(case)), outcome(case)


FROM_ONE, FROM_TWO = a_policy("1", minimum="1"), a_policy("1", minimum="2")


@pytest.mark.parametrize(("asked", "value", "policy", "taken"), [
    pytest.param("", "1", {}, "1", id="207 nothing asked, nothing said: all"),
    pytest.param("", "2", FROM_ONE, "1", id="207 nothing asked: the default"),
    pytest.param("2", "2", FROM_ONE, "2", id="207 more than the least"),
    pytest.param("1", "2", FROM_TWO, "2", id="207 less than the least"),
    pytest.param("2", "3", a_policy("1", minimum="1", step="2"), "3", id="207 up to a step"),
    pytest.param("1500m", "3", a_policy("1", minimum="1", step="1"), "2", id="207 steps are whole"),
    pytest.param("2", "3", a_policy("1", "1", "2", "3"), "2", id="207 in the list"),
    pytest.param("2", "3", a_policy("1", "1", "3"), "3", id="207 up to the next of the list"),
    pytest.param("3", "3", a_policy("1", "1", "2"), None, id="207 beyond the list"),
    pytest.param("2", "2", a_policy("1", minimum="1", maximum="1"), None, id="208 more than the most"),
    pytest.param("2", "2", a_policy("1", "1"), None, id="208 not in the list"),
    pytest.param("5", "5", a_policy("5", "1", "2"), "5", id="208 the default is always right"),
])  # fmt: skip
def test_how_much_is_taken(asked: str, value: str, policy: Manifest | None, taken: str | None) -> None:
    case = of(sh("d1", value, policy), some(asked) if asked else "A")

    assert ("nil" if taken is None else f"r0→p1/d1{{cap={taken}}}") == outcome(case)


def test_209_the_last_share_is_given_back() -> None:
    """Nothing is left of a device's use, so that somebody can have it for itself."""
    use, device = AllocationState(shares_count=True), DeviceId("a", "p1", "d1")
    for name in ("one", "two"):
        held = a_claim(name).allocated(a_result("r", "a/p1/d1", share=name, consumed={"cap": "1"})).typed()
        use.hold(name, held.status.allocation)
    assert 2 * 10**9 == use.consumed(device)["cap"]

    use.hold("one", None)
    assert 10**9 == use.consumed(device)["cap"]
    use.hold("two", None)

    assert ({}, 0, False, []) == (
        dict(use.consumed(device)),
        len(use.shares(device)),
        use.is_used(device),
        list(use.devices()),
    )
