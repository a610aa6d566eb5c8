"""Rows of docs/spec/dra.md §9 and of docs/spec/changes-1.37-devices.md that no recorded scenario has.

`scenarios` has the notation. A gate that a row does not name is off. The recordings (tests/parity/scenarios/devices) have the same
rows with the default gates of kube-scheduler, and the laws of the allocator draw what one node decides.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.devices.selectors import DeviceSelectors
from scheduler.framework.status import Code
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Manifest, node
from simulator.builders.devices import (
    Attribute,
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

POOLS = [
    pytest.param(given([], []), "skip", id="1 a pod without claims in a cluster without devices is skipped"),
    pytest.param(given([ONE], []), "skip", id="2 a pod without claims is skipped"),
    pytest.param(given([ONE], "unknown"), "UU request r0: device class unknown does not exist",
        id="13 an unknown class is named"),
    pytest.param(given([ONE], ""), "ERR request r0: unsupported request type", id="14 a class without name is an error"),
    pytest.param(given([on("n1", "p1", "d1", of=1), on("n1", "p1", "d2", of=1)]), "nil",
        id="17 two slices of a pool of one"),
    pytest.param(given([on("", "p1", "d1")]), "nil", id="31 a slice without any node field is on no node"),
    pytest.param(given([on("", "p1", "d1").selecting(("region", "Likes", "r1")), on("n1", "p2", "d1")]),
        "ERR gather pool information: …Likes…", id="32 a node selector with an unknown operator is an error"),
    pytest.param(given([ONE], want("A*all", cel="noSuchVar")), f"{ABOUT}: selector #0: CEL compile error: …{UNDECLARED}…",
        id="48 a selector for all devices does not compile"),
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
]  # fmt: skip

# -- constraints -------------------------------------------------------------------------------------------------------

CONSTRAINTS = [
    pytest.param(given([ONE], claim_of("A").set({"spec": {"devices": {"constraints": [{}]}}})),
        f"{ABOUT}, constraint #0: empty constraint (unsupported constraint type?)", id="81 an empty constraint"),
]  # fmt: skip

# -- requests, configuration -------------------------------------------------------------------------------------------


def configured(requests: str, f: str) -> Given:
    """Return a claim with alternatives, of which the second is chosen, and a configuration of these requests."""
    return given([TWO, B], claim_of(["B*2", "A"], "B").config("a", {"is": "x"}, *requests.split()), f=f)


REQUESTS = [
    pytest.param(configured("r0/s1 r1", f="PL"),
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
    pytest.param(given([ONE], claim_of(["A", "A"])),
        "UU resource claim default/c0, request r0: has subrequests, but the DRAPrioritizedList feature is disabled",
        id="128 alternatives while the gate is off"),
    pytest.param(given([ONE], claim_of(["A", "unknown"]), f="PL"), "UU request r0/s1: device class unknown does not exist",
        id="136 an unknown class of a later alternative"),
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
    pytest.param(given([on("n1", "p1", dev("d1").consumes("x", {"mem": "4"}), dev("d2").consumes("y", {"mem": "1"}), "d3"),
        on("n1", "p1").counters("x", {"mem": "2"}), on("n1", "p1").counters("y", {"mem": "8"})], f="PD", used="p1/d1"),
        "r0→p1/d3", id="§4.8 an overdrawn counter blocks the devices that draw on other counters of the pool"),
]  # fmt: skip

# -- consumable capacity -----------------------------------------------------------------------------------------------

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
    pytest.param(given([on("n1", "p1", sh("d1", "2").attr("s", "cap"), dev("d2", s="other"))],
        [claim_of(some("2", cel=says("s", "cap"))),
        claim_of([some("2", "A*all", cel=says("s", "cap")), want(cel=says("s", "other"))]).match("a/s")], f="CC PL"),
        "r0→p1/d1{cap=2} | r0/s1→p1/d2", id="§4.7 a device without capacity left does not fix a constraint"),
    pytest.param(given([on("n1", "p1", sh("d1", "3", a_policy("1", minimum="1", step="1")))], some("1500m"), f="CC"),
        "r0→p1/d1{cap=2}", id="207 steps are whole numbers"),
    pytest.param(given([on("n1", "p1", sh("d1", "5", a_policy("5", "1", "2")))], some("5"), f="CC"), "r0→p1/d1{cap=5}",
        id="208 the default is valid although it is not in the list"),
]  # fmt: skip

# -- what kube-scheduler 1.37 does (docs/spec/changes-1.37-devices.md) ------------------------------------------------------------

TENTHS = {"default": "100m", "validRange": {"min": "100m", "max": "900m", "step": "100m"}}
WHOLE = {"default": "1", "validRange": {"min": "1", "step": "1"}}
REFUSED = "capacity request cannot be represented in the device's range arithmetic"


def sharing(amount: str, policy: dict[str, Any] | None = None) -> Any:
    return on("n1", "p1", a_device("d1").shared().cap("mem", amount, policy))


def takes(amount: str, device_class: str = "A", *, every: bool = False) -> ClaimBuilder:
    return claim_of(want(device_class, capacity={"mem": amount}, every=every))


def grouped(name: str, groups: str = "") -> DeviceBuilder:
    """A device that draws 1 of the counter, with compatibility groups."""
    consumed = {"counterSet": "set", "counters": {"mem": {"value": "1"}}, "compatibilityGroups": groups.split()}
    return a_device(name).set({"consumesCounters": [consumed]})


NEWER = [
    # §1.9, §1.10
    pytest.param(configured("r0/s1 r1", f="37 PL"),
        "r0/s1→p1/d1 r1→b/p1/d1 +FromClaim[]=x", id="a configuration of the chosen alternative and all other requests names none"),
    pytest.param(configured("r0/s0 r1", f="37 PL"),
        "r0/s1→p1/d1 r1→b/p1/d1 +FromClaim[r0/s0 r1]=x", id="a configuration of another alternative keeps its names"),
    # §1.11
    pytest.param(given([on("n1", "p1", "d1"), on("n2", "b/p1", of=2).counters("set", {"mem": "8Gi"})], "A*all", f="PD"),
        "r0→p1/d1", id="counters of another node's pool, which is being updated, are no matter of this node"),
    # §1.14
    pytest.param(given([sharing("1", TENTHS)], takes("250m"), f="CC"), "nil",
        id="without the gate a step of a tenth is a step of one, which exceeds the range"),
    pytest.param(given([sharing("1", TENTHS)], takes("100500u"), f="CC FR"),
        f'{ABOUT}, request r0: checking capacity for device a/p1/d1: capacity "mem": {REFUSED}: '
        "request 100500u is not a representable milli value", id="less than a thousandth cannot be requested of a range"),
    pytest.param(given([sharing("1", TENTHS)], takes("100500u", every=True), f="CC FR"),
        f'{ABOUT}, request r0: checking capacity for device d1: capacity "mem": {REFUSED}: '
        "request 100500u is not a representable milli value", id="the text for a request for all devices has the bare name of the device"),
    pytest.param(given([sharing("4", WHOLE)], takes("9223372036854775807", every=False), f="CC FR"),
        f'ERR …capacity "mem": {REFUSED}: request … is not a representable milli value',
        id="more thousandths than int64 has cannot be requested of a range"),
    pytest.param(given([sharing("4", {"default": "1", "validRange": {"min": "1", "step": "2"}})],
        takes("9223372036854775806"), f="CC"), "nil", id="without the gate an amount up to int64 does not fit"),
    pytest.param(given([sharing("4", {"default": "1", "validRange": {"min": "1", "step": "4"}})],
        takes("9223372036854775807"), f="CC"),
        f'ERR …capacity "mem": {REFUSED}: rounding request … up to the next step passes MaxInt64',
        id="without the gate the next step may exceed int64"),
    pytest.param(given([sharing("-1")], "A", f="CC"),
        f'{ABOUT}, request r0: checking capacity for device a/p1/d1: capacity "mem": capacity value is negative',
        id="a negative capacity cannot be consumed"),
    # §2.1 to §2.4
    pytest.param(given([TWO], claim_of(want(cel="device.driver ==")), f="37"),
        f"{ABOUT}: selector #0: CEL compile error: …", id="a selector that does not compile names no device"),
    pytest.param(given([on("n1", "p1", dev("d1", x=["v1", "v2"]))], claim_of(want(cel='"v2" in device.attributes["a"].x')), f="37"),
        "r0→p1/d1", id="a selector reads a list"),
    pytest.param(given([on("n1", "p1", dev("d1", x=["v1", "v2"]))], claim_of(want(cel='device.driver == "a"'))),
        "ERR class A: selector #0: CEL runtime error: attribute x: unsupported attribute value",
        id="in 1.36 a selector fails on a device with a list"),
    pytest.param(given([on("n1", "p1", dev("d1", x=["v"]), dev("d2", x=["v"]))], claim_of("A", "A").match("a/x"), f="37"), "nil",
        id="no list satisfies a constraint"),
    # §4.3
    pytest.param(given([counters("p1", "9"), on("n1", "p1", grouped("d1", "x"), a_device("d2"))], f="PD"), "nil",
        id="a pool with groups has no devices"),
    pytest.param(given([counters("p1"), on("n1", "p1", grouped("d1", "x"))], "A*all", f="PD"),
        f"{ABOUT}, request r0: asks for all devices, but resource pool a/p1 is currently being updated",
        id="a pool with groups is incomplete"),
    # §4.2
    pytest.param(given([TWO], exactly(derivedAttributes=[{"name": "a/x", "expression": "1"}])),
        f"{ABOUT}, request r0: cannot handle request with derived attributes, the feature is disabled",
        id="derived attributes are refused"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "expected"), [
    *POOLS, *PLACES, *CONSTRAINTS, *REQUESTS, *PARTITIONS, *CAPACITIES, *NEWER,
])  # fmt: skip
def test_scenario(case: Given, expected: str) -> None:
    """278, 279, 345: gates that are off, and which configuration goes with a device, are among the rows."""
    said = outcome(case)

    assert is_as(expected, said), said


def test_62_with_parity_a_selector_of_two_terms_is_an_error() -> None:
    assert outcome_under(given([by("p1", HERE_OR_THERE)]), PARITY) == TOO_MANY_TERMS


def _refused_after(world: World, old: TaintRuleBuilder | None, new: TaintRuleBuilder | None) -> set[str]:
    world.devices.put_rule("rule", *(rule.typed() if rule is not None else None for rule in (old, new)))
    return set(world.refusals(world.pod("c0")))


def test_246_a_rule_for_one_pool_for_another_for_all_and_deleted() -> None:
    world = given([on("n1", "p1", "d1"), on("n2", "p2", "d1")], f="DT TR").world()
    rule = a_taint_rule("rule", "k")
    rules = [None, rule.pool("p1"), rule.pool("p2"), rule, None]

    refused = [_refused_after(world, old, new) for old, new in itertools.pairwise(rules)]
    assert refused == [{"n1"}, {"n2"}, {"n1", "n2"}, set()]


def test_33_a_search_that_takes_too_long_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same search finds its devices when there is time."""
    devices = [f"d{at}" for at in range(32)]
    slices = [on("n1", f"p{at}", *devices) for at in range(3)]
    case = given(slices, [claim_of("A*32") for _ in range(3)], f="TO")
    world = case.world()
    slow = SimpleNamespace(now=itertools.count(step=1000).__next__)
    monkeypatch.setattr(world.plugin._verdicts, "_clock", slow)

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


def test_the_operations_that_a_slice_skips_are_not_read() -> None:
    """§4.4: the gate is off, so the device goes to any node."""
    assert outcome(given([TWO.set({"spec": {"skipNodeOperations": ["*"]}})])) == "r0→p1/d1"


def test_a_claim_whose_devices_skip_operations_needs_a_node_that_declares_it() -> None:
    """§3.12: because another scheduler may have allocated the claim."""
    result = a_result("r0", "a/p1/d1") | {"skipNodeOperations": ["*"]}
    case = given([TWO], claim_of("A").allocated(result))
    world = case.world()
    world.cluster.set_node(node("n2").set({"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}).typed())

    assert world.refusals(case.pod(world)).keys() == {"n1"}


# -- selectors (§9.11); in expressions `D` stands for the driver ----------------------------------------------------------

DRIVER = "dra.example.com"
PLAIN, WITH_LISTS = (DeviceSelectors(list_attributes=each) for each in (False, True))
NAME = "device.attributes[D].name"
BREAKS = "CEL runtime error: "


def named(value: Attribute) -> DeviceBuilder:
    return a_device("d").attr("name", value)


def verdict(expression: str, device: DeviceBuilder, *, selectors: DeviceSelectors, driver: str = DRIVER) -> str:
    """Return `true`, `false`, or the error text."""
    quoted = f'"{DRIVER}"'
    text = expression.replace("[D]", f"[{quoted}]").replace(" D)", f" {quoted})")
    holds = selectors.holds(text, DeviceKind(driver, device.typed()))
    return holds if isinstance(holds, str) else str(holds).lower()


NOTHING = a_device("d")
VERSION = a_device("d").version("name", "1.0.0")
MEM = a_device("d").cap("name", "1Mi")
DIGITS = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
SEVEN_DEEP = "".join(f"{DIGITS}.all(x{at}, " for at in range(7)) + "true" + ")" * 7
EVERYTHING = a_device("d").attr("b", True).attr("i", 1).attr("s", "fish").version("v", "1.0.0").cap("q", "1Mi")
OF_ALL_TYPES = """device.capacity[D].q.isGreaterThan(quantity("1Ki")) && device.attributes[D].b &&
device.attributes[D].i > 0 && device.attributes[D].s == "fish" &&
device.attributes[D]["v"].isGreaterThan(semver("0.0.1"))"""


@pytest.mark.parametrize("selectors", [PLAIN, WITH_LISTS], ids=["lists are off", "lists are on"])
@pytest.mark.parametrize(("expression", "device", "expected"), [
    pytest.param("?!", NOTHING, "CEL compile error: compilation failed: …Syntax error…", id="212 a broken one"),
    pytest.param("true", NOTHING, "true", id="211 true"),
    pytest.param("1", NOTHING, "CEL compile error: must evaluate to bool or the unknown type, not int",
        id="213 a number"),
    pytest.param(NAME, named(True), "true", id="217 a bare name"),
    pytest.param("cel.bind(dra, device.attributes[D], dra.name)", named(True), "true", id="219 with a short name"),
    pytest.param(f"{NAME} > 0", named(1), "true", id="220 a number"),
    pytest.param(f'{NAME}.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)', VERSION, "true",
        id="221 versions that begin with v"),
    pytest.param('device.capacity[D].name.isGreaterThan(quantity("1Ki"))', MEM, "true", id="222 a quantity"),
    pytest.param('!("name" in device.capacity[D]) || device.capacity[D].name.isGreaterThan(quantity("1Ki"))', NOTHING,
        "true", id="223 or if it is not"),
    pytest.param(OF_ALL_TYPES, EVERYTHING, "true", id="224 a long one"),
    pytest.param(f'{NAME}.split("example").size() >= 2', named("some_example_value"), "true", id="226 parts"),
    pytest.param(SEVEN_DEEP, NOTHING, f"{BREAKS}…actual cost limit exceeded", id="227 one that would take ages"),
    pytest.param("true", a_device("d").version("broken", "1.2"),
        f"{BREAKS}attribute broken: parse semantic version: No Major.Minor.Patch elements found",
        id="238 a malformed version in an attribute that the selector does not use"),
    pytest.param("device.allowMultipleAllocations", NOTHING.shared(), "true", id="235 shared"),
])  # fmt: skip
def test_selectors(expression: str, device: DeviceBuilder, expected: str, *, selectors: DeviceSelectors) -> None:
    assert is_as(expected, verdict(expression, device, selectors=selectors))


def test_216_a_driver_without_name() -> None:
    assert "true" == verdict('device.driver == ""', NOTHING, selectors=PLAIN, driver="")


FISH = ["fish", "bird"]
VERSIONS = a_device("d").versions("name", "1.0.0", "2.0.0")


def values(count: int) -> list[str]:
    return [f"v{at}" for at in range(count)]


@pytest.mark.parametrize(("expression", "device", "expected"), [
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
])  # fmt: skip
def test_lists(expression: str, device: DeviceBuilder, expected: str) -> None:
    assert expected == verdict(expression, device, selectors=WITH_LISTS)


@pytest.mark.parametrize(("expression", "device"), [
    pytest.param(f'{NAME}.includes("fish")', named("fish"), id="234 includes"),
    pytest.param("!device.allowMultipleAllocations", NOTHING, id="234 sharing"),
])  # fmt: skip
def test_what_a_gate_hides_from_new_objects_is_there_in_stored_ones(expression: str, device: DeviceBuilder) -> None:
    """An API server rejects these selectors while their gate is off; a scheduler reads only stored objects (§5.2)."""
    assert "true" == verdict(expression, device, selectors=PLAIN)


def test_236_an_evaluation_that_reaches_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation ends with the error of the cost limit."""
    monkeypatch.setattr("scheduler.cel.eval.running.processor_nanos", itertools.count(step=1_000_000).__next__)

    said = verdict("lists.range(3000).all(x, true)", NOTHING, selectors=PLAIN)
    assert said == f"{BREAKS}operation cancelled: actual cost limit exceeded"


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
