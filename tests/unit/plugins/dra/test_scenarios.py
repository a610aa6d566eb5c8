"""Rows of docs/spec/dra.md §9 that no recorded scenario has (tests/parity/scenarios/devices). `scenarios` has the notation.

A gate that a row does not name is off. The recordings have the same rows with the default gates of kube-scheduler.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.core.feature_gates import TAINT_RULES
from scheduler.framework.status import Code
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Manifest
from simulator.builders.devices import (
    DeviceBuilder,
    TaintRuleBuilder,
    a_device,
    a_device_class,
    a_node_selector,
    a_policy,
    a_taint_rule,
    on_node,
)
from tests.unit.plugins.dra.scenarios import (
    Given,
    allocation,
    claim_of,
    counters,
    dev,
    exactly,
    given,
    is_as,
    on,
    outcome,
    outcome_under,
    says,
    want,
)
from tests.unit.plugins.dra.served import PARITY
from tests.unit.plugins.dra.world import World

ABOUT = "ERR claim default/c0"
UNDECLARED = "undeclared reference to 'noSuchVar'"
ONE, TWO, B = on("n1", "p1", "d1"), on("n1", "p1", "d1 d2"), on("n1", "b/p1", "d1")
ADMIN = want(admin=True)

# -- pools, all devices ------------------------------------------------------------------------------------------------

V6, V5 = (want("A*all", cel=f'device.attributes["a"].gen == "{gen}"') for gen in ("v6", "v5"))
SELECTED = a_device_class("A", 'device.driver == "a" && device.attributes["a"].selected')

POOLS = [
    pytest.param(given([], []), "skip", id="1 a pod without claims in a cluster without devices is skipped"),
    pytest.param(given([ONE], []), "skip", id="2 a pod without claims is skipped"),
    pytest.param(given([]), "nil", id="11 a claim does not fit without slices"),
    pytest.param(given([ONE], "unknown"), "UU request r0: device class unknown does not exist",
        id="13 an unknown class is named"),
    pytest.param(given([ONE], ""), "ERR request r0: unsupported request type", id="14 a class without name is an error"),
    pytest.param(given([on("n1", "p1", "d1", of=1), on("n1", "p1", "d2", of=1)]), "nil",
        id="17 two slices of a pool of one"),
    pytest.param(given([on("", "p1", "d1")]), "nil", id="31 a slice without any node field is on no node"),
    pytest.param(given([on("", "p1", "d1").selecting(("region", "Likes", "r1")), on("n1", "p2", "d1")]),
        "ERR gather pool information: …Likes…", id="32 a node selector with an unknown operator is an error"),
    pytest.param(given([ONE, B], [claim_of("A*all"), claim_of("B")]), "r0→p1/d1 | r0→b/p1/d1",
        id="39 all devices of one driver and one of another"),
    pytest.param(given([TWO], claim_of(ADMIN, want("A*all", admin=True)), f="AA"), "nil",
        id="45 a claim gets each device once, also with admin access"),
    pytest.param(given([ONE], want("A*all", cel="noSuchVar")), f"{ABOUT}: selector #0: CEL compile error: …{UNDECLARED}…",
        id="48 a selector for all devices does not compile"),
    pytest.param(given([B], claim_of(["A*all", "B"]), f="PL"), "r0/s1→b/p1/d1",
        id="50 all devices of a class without slices are no alternative"),
    pytest.param(given([on("n1", "p1", dev("d1", gen="v6", selected=False), dev("d2", gen="v5", selected=False),
        dev("d3", gen="v5", selected=True))], claim_of([V6, V5]), f="PL", also=[SELECTED]), "r0/s1→p1/d3",
        id="55 all devices are those that the class selects"),
]  # fmt: skip

# -- node selectors, admin access --------------------------------------------------------------------------------------

REGION = on("", "p1", "d1").where("region", "r1")
EARTH = on("", "p3", "d1").where("planet", "earth")
EVERYWHERE = on("", "p2", "d1").everywhere()
NO_ADMIN = exactly(count=1, allocationMode="ExactCount", adminAccess=False)
FORBIDDEN = f"{ABOUT}, request r0: admin access is requested, but the feature is disabled"
TOO_MANY_TERMS = "ERR create NodeSelector for claim c0: unsupported ResourceSlice.NodeSelector with 2 terms"


def terms(*expressions: Any) -> Manifest:
    """Return a node selector with a term for each expression; an empty expression makes an empty term."""
    return {"nodeSelectorTerms": [a_node_selector(*[one] * bool(one))["nodeSelectorTerms"][0] for one in expressions]}


def by(pool: str, selector: Manifest) -> Any:
    """Return a slice with d1 and this node selector."""
    return on("", pool, "d1").set({"spec": {"nodeSelector": selector}})


HERE_OR_THERE = terms(("planet", "In", "earth"), ("region", "In", "r9"))

PLACES = [
    pytest.param(given([REGION, EVERYWHERE, EARTH, by("p4", on_node("n1"))], "A*4"),
        "r0→p1/d1 r0→p2/d1 r0→p3/d1 r0→p4/d1 @region In r1, planet In earth, metadata.name In n1",
        id="58 the requirements of several slices are joined"),
    pytest.param(given([by("p1", HERE_OR_THERE)]), "r0→p1/d1 @planet In earth or region In r9",
        id="62 a selector of two terms stays as it is"),
    pytest.param(given([by("p1", HERE_OR_THERE), by("p2", HERE_OR_THERE)], "A*2"),
        "r0→p1/d1 r0→p2/d1 @planet In earth or region In r9", id="62 equal selectors of two terms are one"),
    pytest.param(
        given([by("p1", HERE_OR_THERE), by("p2", terms(("region", "In", "r1"), ("planet", "Exists")))], "A*2"),
        "r0→p1/d1 r0→p2/d1 @planet In earth, region In r1 or planet In earth, planet Exists"
        " or region In r9, region In r1 or region In r9, planet Exists",
        id="62 two selectors of two terms make four combinations",
    ),
    pytest.param(given([by("p1", terms((), ("planet", "In", "earth"), ("region", "In", "r9"))), REGION.pool("p2")],
        "A*2"), "r0→p1/d1 r0→p2/d1 @planet In earth, region In r1 or region In r9, region In r1",
        id="62 an empty term matches no node"),
    pytest.param(given([by(f"p{at}", terms(("planet", "Exists"), (f"k{at}", "Exists"))) for at in range(7)], "A*7"),
        TOO_MANY_TERMS, id="62 more than 64 combinations are an error"),
    pytest.param(given([on("", "p1", a_device("d1").on("n1")).per_device()]), "nil",
        id="72 a slice with a node for each device is ignored while the gate is off"),
    pytest.param(given([ONE], ADMIN), FORBIDDEN, id="64 admin access is an error while the gate is off"),
    pytest.param(given([ONE], NO_ADMIN), FORBIDDEN, id="64 adminAccess false is an error while the gate is off"),
    pytest.param(given([ONE], NO_ADMIN, f="AA", used="p1/d1"), "nil", id="64 adminAccess false is no access"),
]  # fmt: skip

# -- constraints -------------------------------------------------------------------------------------------------------

UNKNOWN = "ERR class A: selector #0: CEL runtime error: attribute x: unsupported attribute value"
EMPTY = a_device("d1").set({"attributes": {"x": {"strings": []}}})
NONE_TYPE = a_device("d1").set({"attributes": {"x": {}}})
PREFERS_B = [want(cel='device.attributes["a"].b'), "A"]
TRUE_AND_FALSE = [dev("d1", b=True).shared(), dev("d2", b=False).shared()]
LISTS = [dev(f"d{at}", x=values) for at, values in enumerate((["1", "2"], ["2"], ["3"]), 1)]


def matching(devices: list[DeviceBuilder], f: str) -> Given:
    return given([on("n1", "p1", *devices)], claim_of("A").match("a/x"), f=f)


def distinct(count: int, devices: list[DeviceBuilder], f: str) -> Given:
    return given([on("n1", "p1", *devices)], claim_of(f"A*{count}").distinct("a/x"), f=f)


CONSTRAINTS = [
    pytest.param(given([ONE], claim_of("A").set({"spec": {"devices": {"constraints": [{}]}}})),
        f"{ABOUT}, constraint #0: empty constraint (unsupported constraint type?)", id="81 an empty constraint"),
    pytest.param(distinct(1, [NONE_TYPE.shared()], "CC"), UNKNOWN, id="86 an attribute of an unknown type"),
    pytest.param(given([on("n1", "p1", *TRUE_AND_FALSE)], claim_of(PREFERS_B, PREFERS_B, PREFERS_B).distinct("a/b", "r0",
        "r1"), f="CC PL"), "r0/s0→p1/d1{} r1/s1→p1/d2{} r2/s0→p1/d1{}",
        id="87 distinct values of two of three requests with alternatives"),
    pytest.param(matching([NONE_TYPE], "LT"), UNKNOWN, id="99 match of an attribute of an unknown type"),
    pytest.param(distinct(1, [NONE_TYPE], "LT CC"), UNKNOWN, id="99 distinct of an attribute of an unknown type"),
    pytest.param(matching([EMPTY], "LT"), "nil", id="99 an empty list matches nothing"),
    pytest.param(distinct(1, [EMPTY], "LT CC"), "nil", id="99 an empty list is not distinct"),
    pytest.param(distinct(2, [dev("d0", x="v"), EMPTY], "LT CC"), "nil", id="99 a later empty list is not distinct"),
    pytest.param(distinct(2, LISTS, "LT CC"), "r0→p1/d1 r0→p1/d3", id="105 lists of strings are compared as sets"),
]  # fmt: skip

# -- requests, configuration -------------------------------------------------------------------------------------------

WITH_CONFIG = [
    a_device_class(name, f'device.driver == "{name.lower()}"').config(name.lower(), {"is": name}) for name in "AB"
]


def configured(claim: ClaimBuilder, *configs: tuple[str, str], f: str = "", also: Any = ()) -> Given:
    """A configuration is (value, requests)."""
    for value, requests in configs:
        claim = claim.config("a", {"is": value}, *requests.split())
    return given([TWO, B], claim, f=f, also=also)


REQUESTS = [
    pytest.param(configured(claim_of("A"), ("x", ""), ("y", "r0"), also=WITH_CONFIG),
        "r0→p1/d1 +FromClass[r0]=A +FromClaim[]=x +FromClaim[r0]=y", id="§4.12 the class has the first configuration"),
    pytest.param(configured(claim_of(["B*2", "A"], "B"), ("x", "r0/s1 r1"), f="PL"),
        "r0/s1→p1/d1 r1→b/p1/d1 +FromClaim[r0/s1 r1]=x +FromClaim[r0/s1 r1]=x",
        id="114 a configuration of two requests is written for each of them"),
    pytest.param(given([ONE], exactly(selectors=[{}])),
        f"{ABOUT}, request r0, selector #0: CEL expression empty (unsupported selector type?)",
        id="115 a selector of an unknown type"),
    pytest.param(given([ONE], exactly(allocationMode="Future")), f"{ABOUT}, request r0: unsupported count mode Future",
        id="116 an unknown allocation mode"),
    pytest.param(given([ONE], want(cel="noSuchVar")),
        f"{ABOUT}: selector #0: CEL compile error: compilation failed: …{UNDECLARED}…",
        id="117 a selector of a request that does not compile"),
    pytest.param(given([ONE], also=[a_device_class("A", "noSuchVar")]),
        f"ERR class A: selector #0: CEL compile error: compilation failed: …{UNDECLARED}…",
        id="117 a selector of a class that does not compile"),
    pytest.param(given([ONE], want(cel=("true", 'device.attributes["a"].gone'))),
        f"{ABOUT}: selector #1: CEL runtime error: no such key: gone", id="§5.5 the second selector fails"),
    pytest.param(given([ONE], want(cel=("false", 'device.attributes["a"].gone'))), "nil",
        id="§5.5 a selector after a false one is not evaluated"),
    pytest.param(given([ONE], claim_of(["A", "A"])),
        "UU resource claim default/c0, request r0: has subrequests, but the DRAPrioritizedList feature is disabled",
        id="128 alternatives while the gate is off"),
    pytest.param(given([ONE], claim_of(["A", "unknown"]), f="PL"), "UU request r0/s1: device class unknown does not exist",
        id="136 an unknown class of a later alternative"),
    pytest.param(given([ONE], claim_of(["B*500", "A"]), f="PL"), "r0/s1→p1/d1",
        id="122 an alternative for too many devices is passed over"),
    pytest.param(given([on("n1", "p1", "d1 d2 d3 d4")], "A*5"), "nil", id="125 five of four devices"),
]  # fmt: skip

# -- counters, taints, binding conditions ------------------------------------------------------------------------------


def partitions(*devices: DeviceBuilder, amount: str = "8Gi") -> list[Any]:
    """Return a pool with its counter."""
    return [on("n1", "p1", *devices), counters("p1", amount)]


KINDS = [
    dev("d1", kind="shared", s="red").consumes("set", {"mem": "1"}).shared(),
    dev("d2", kind="fallback", s="blue"),
    dev("d3", kind="gate", s="blue"),
]
SHARED, GATE = want(cel=says("kind", "shared")), want(cel=says("kind", "gate"))
SHARED_OR_FALLBACK = want(cel=f"{says('kind', 'shared')} || {says('kind', 'fallback')}")
SIX = dev("d1", takes="6Gi")
TAINTED = a_device("d1").taint("k", "v").taint("k", "w", "NoExecute")
FOUR_SLICES = [
    on("n1", "p1", dev("d1").consumes("x", {"mem": "4"}).binding("ready")).named("slice-4"),
    on("n1", "p1").counters("x", {"mem": "8"}).named("slice-3"),
    on("n1", "p1", dev("d2").consumes("y", {"mem": "4"})).named("slice-2"),
    on("n1", "p1").counters("y", {"mem": "8"}).named("slice-1"),
]


def binding(name: str, takes: str = "", number: str = "") -> DeviceBuilder:
    return dev(name, takes=takes).binding(f"ready{number}").binding_failure(f"broken{number}")


PARTITIONS = [
    pytest.param(given(partitions(dev("d1", takes="4Gi"))), "nil",
        id="144 a device with counters is not allocated while the gate is off"),
    pytest.param(given(partitions(dev("d1", takes="4Gi"), a_device("d2"))), "r0→p1/d2",
        id="145 a device without counters is allocated while the gate is off"),
    pytest.param(given(partitions(SIX, dev("d2", takes="6Gi")), want("A*2", admin=True), f="PD AA"), "nil",
        id="§4.8 the counters of devices with admin access must suffice"),
    pytest.param(given(partitions(dev("d1", takes="4Gi")), [claim_of("A"), claim_of(ADMIN)], f="PD AA"),
        "r0→p1/d1 | r0→p1/d1(admin)", id="§4.14 admin access to a device of an earlier claim takes its counters again"),
    pytest.param(given(partitions(SIX), [claim_of("A"), claim_of(ADMIN)], f="PD AA"), "nil",
        id="§4.14 admin access is refused if its counters do not suffice twice"),
    pytest.param(given(partitions(dev("d1", kind="shared", takes="1").shared(), dev("d2", kind="shared"),
        dev("d3", kind="gate", takes="1"), amount="1"), claim_of(SHARED, GATE), f="PD CC"), "r0→p1/d2 r1→p1/d3",
        id="§4.7 what a share took is given back"),
    pytest.param(given(partitions(*KINDS, amount="1"),
        [claim_of(SHARED), claim_of(SHARED_OR_FALLBACK, GATE, SHARED).match("a/s", "r0", "r1")], f="PD CC"),
        "r0→p1/d1{} | r0→p1/d2 r1→p1/d3 r2→p1/d1{}", id="§4.7 a counter stays taken while a share of its device is left"),
    pytest.param(given([on("n1", "p1", TAINTED)]), "r0→p1/d1", id="163 a taint has no effect while the gate is off"),
    pytest.param(given([on("n1", "p1", binding("d1"))]), "nil",
        id="171 a device with binding conditions is not allocated while the gate is off"),
    pytest.param(given(partitions(binding("d1", "2Gi"), dev("d2", takes="2Gi"), binding("d3", "4Gi", "3")), "A*3",
        f="BC PD"), "r0→p1/d1 !ready ?broken r0→p1/d2 r0→p1/d3 !ready3 ?broken3",
        id="172 each partition has its own binding conditions"),
    pytest.param(given(FOUR_SLICES, "A*2", f="BC PD"), "r0→p1/d2 r0→p1/d1 !ready",
        id="172 partitions of several slices, in the order of the slices' names"),
]  # fmt: skip

# -- consumable capacity -----------------------------------------------------------------------------------------------

RANGE = a_policy("2", minimum="2", maximum="4", step="2")
OFF = "but the DRAConsumableCapacity feature is disabled"


def sh(name: str, cap: str, policy: Manifest | None = None) -> DeviceBuilder:
    """Return a device that allows multiple allocations."""
    return a_device(name).shared().cap("cap", cap, policy)


def some(amount: str, device_class: str = "A", **more: Any) -> Any:
    """Return a request for this capacity."""
    return want(device_class, capacity={"cap": amount}, **more)


CAPACITIES = [
    pytest.param(given([on("n1", "p1", sh("d1", "1"))], some("1")), f"{ABOUT}, request r0: has capacity requests, {OFF}",
        id="174 a request for capacity is an error while the gate is off"),
    pytest.param(given([on("n1", "p1", sh("d1", "2", a_policy("1", "1", "2")))], "A*2", f="CC"), "nil",
        id="210 one request does not get two shares of a device"),
    pytest.param(given([on("n1", "p1", sh("d1", "2").attr("s", "cap"), dev("d2", s="other"))],
        [claim_of(some("2", cel=says("s", "cap"))),
        claim_of([some("2", "A*all", cel=says("s", "cap")), want(cel=says("s", "other"))]).match("a/s")], f="CC PL"),
        "r0→p1/d1{cap=2} | r0/s1→p1/d2", id="§4.7 a device without capacity left does not fix a constraint"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "expected"), [
    *POOLS, *PLACES, *CONSTRAINTS, *REQUESTS, *PARTITIONS, *CAPACITIES,
])  # fmt: skip
def test_scenario(case: Given, expected: str) -> None:
    assert is_as(expected, outcome(case)), outcome(case)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(
            given([on("n1", "p1", a_device("d1").cap("cap", "4", RANGE))], some("1"), f="CC",
                shares=[("p1/d1", {"cap": "2"})]),
            "r0→p1/d1",
            id="202 a device that is not shared any more is allocated next to an old share",
        ),
        pytest.param(given([by("p1", HERE_OR_THERE)]), TOO_MANY_TERMS, id="62 a selector of two terms is an error"),
    ],
)  # fmt: skip
def test_with_parity(case: Given, expected: str) -> None:
    """`parity: true` has two rules of upstream that the defaults do not have."""
    assert outcome_under(case, PARITY) == expected


FROM_ONE, FROM_TWO = a_policy("1", minimum="1"), a_policy("1", minimum="2")


@pytest.mark.parametrize(("amount", "value", "policy", "taken"), [
    pytest.param("", "1", {}, "1", id="207 without a request and a policy, the whole capacity"),
    pytest.param("", "2", FROM_ONE, "1", id="207 without a request, the default"),
    pytest.param("2", "2", FROM_ONE, "2", id="207 more than the minimum"),
    pytest.param("1", "2", FROM_TWO, "2", id="207 less than the minimum"),
    pytest.param("2", "3", a_policy("1", minimum="1", step="2"), "3", id="207 rounded up to a step"),
    pytest.param("1500m", "3", a_policy("1", minimum="1", step="1"), "2", id="207 steps are whole numbers"),
    pytest.param("2", "3", a_policy("1", "1", "2", "3"), "2", id="207 a value of the list"),
    pytest.param("2", "3", a_policy("1", "1", "3"), "3", id="207 rounded up to a value of the list"),
    pytest.param("3", "3", a_policy("1", "1", "2"), None, id="207 more than the values of the list"),
    pytest.param("2", "2", a_policy("1", minimum="1", maximum="1"), None, id="208 more than the maximum"),
    pytest.param("2", "2", a_policy("1", "1"), None, id="208 not in the list"),
    pytest.param("5", "5", a_policy("5", "1", "2"), "5", id="208 the default is always valid"),
])  # fmt: skip
def test_consumed_capacity(amount: str, value: str, policy: Manifest | None, taken: str | None) -> None:
    case = given([on("n1", "p1", sh("d1", value, policy))], some(amount) if amount else "A", f="CC")

    assert ("nil" if taken is None else f"r0→p1/d1{{cap={taken}}}") == outcome(case)


def test_209_a_device_is_free_when_its_last_share_is_released() -> None:
    use, device = AllocationState(shares_count=True), DeviceId("a", "p1", "d1")
    for name in ("one", "two"):
        held = a_claim(name).allocated(a_result("r", "a/p1/d1", share=name, consumed={"cap": "1"})).typed()
        use.hold(name, held.status.allocation)
    assert 2 * 10**9 == use.consumed(device)["cap"]

    use.hold("one", None)
    assert 10**9 == use.consumed(device)["cap"]
    use.hold("two", None)

    left = (dict(use.consumed(device)), len(use.shares(device)), use.is_used(device), list(use.devices()))
    assert left == ({}, 0, False, [])


def _refused_after(world: World, old: TaintRuleBuilder | None, new: TaintRuleBuilder | None) -> set[str]:
    world.devices.put_rule("rule", *(rule.typed() if rule is not None else None for rule in (old, new)))
    return set(world.refusals(world.pod("c0")))


@pytest.mark.parametrize(("gates", "refused"), [
    pytest.param("DT TR", [{"n1"}, {"n2"}, {"n1", "n2"}, set()],
        id="246 a rule for one pool, for another, for all, and deleted"),
    pytest.param("DT", [set(), set(), set(), set()], id="248 rules have no effect while the gate is off"),
])  # fmt: skip
def test_taint_rules(gates: str, refused: list[set[str]]) -> None:
    case = given([on("n1", "p1", "d1"), on("n2", "p2", "d1")], f=gates)
    assert (TAINT_RULES in case.gates) is ("TR" in gates)
    world = case.world()
    rule = a_taint_rule("rule", "k")
    rules = [None, rule.pool("p1"), rule.pool("p2"), rule, None]

    assert refused == [_refused_after(world, old, new) for old, new in itertools.pairwise(rules)]


def test_33_a_search_that_takes_too_long_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same search finds its devices when there is time."""
    devices = [f"d{at}" for at in range(32)]
    slices = [on("n1", f"p{at}", *devices) for at in range(3)]
    case = given(slices, [claim_of("A*32") for _ in range(3)], f="TO")
    world = case.world()
    slow = SimpleNamespace(now=itertools.count(step=1000).__next__)
    monkeypatch.setattr(world.plugin._verdicts._searches, "_clock", slow)

    timed_out = {"n1": (Code.ERROR, "node n1: timed out trying to allocate devices")}
    assert timed_out == {"n1": world.refusals(case.pod(world))["n1"]}
    assert outcome(case).startswith("r0→p0/d0 ")


def test_34_a_search_leaves_nothing_for_the_search_of_the_next_node() -> None:
    case = given([on("n1", "p1", "d1 d2"), on("n2", "p2", "d1 d2")], [claim_of("A"), claim_of("A")])
    world = case.world()
    info, seen = case.pod(world), []
    for name in ("n1", "n2", "n1"):
        state, no = world.reserve(info, name)
        assert no is None
        known = world.known(state)
        seen.append(" | ".join(allocation(known.allocations[claim.uid], name) for claim in known.claims))
        world.plugin.unreserve(state, info, name)

    assert ["r0→p1/d1 | r0→p1/d2", "r0→p2/d1 | r0→p2/d2", "r0→p1/d1 | r0→p1/d2"] == seen
