"""What kube-scheduler 1.37 does with devices, row by row (docs/spec/changes-1.37-devices.md); rows of 1.36 are in `test_scenarios`."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.feature_gates import (
    COMPATIBILITY_GROUPS,
    DERIVED_ATTRIBUTES,
    DEVICE_CHANGES,
    FRACTIONAL_RANGE,
    NODE_OPERATIONS,
)
from simulator.builders.claims import ClaimBuilder, a_result
from simulator.builders.core import node
from simulator.builders.devices import DeviceBuilder, a_device
from tests.unit.plugins.dra import scenarios
from tests.unit.plugins.dra.scenarios import Given, claim_of, counters, dev, exactly, given, is_as, on, outcome, want


@pytest.fixture(autouse=True)
def _words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give rows of 1.37 their words: `37` its changes, and one for each gate."""
    monkeypatch.setitem(scenarios.GATES, "37", set(DEVICE_CHANGES))
    monkeypatch.setitem(scenarios.GATES, "FR", {FRACTIONAL_RANGE})
    monkeypatch.setitem(scenarios.GATES, "CG", {COMPATIBILITY_GROUPS})
    monkeypatch.setitem(scenarios.GATES, "DA", {DERIVED_ATTRIBUTES})
    monkeypatch.setitem(scenarios.GATES, "NO", {NODE_OPERATIONS})


TWO = on("n1", "p1", "d1 d2")
TENTHS = {"default": "100m", "validRange": {"min": "100m", "max": "900m", "step": "100m"}}
WHOLE = {"default": "1", "validRange": {"min": "1", "step": "1"}}
ABOUT = "claim default/c0"
REFUSED = "capacity request cannot be represented in the device's range arithmetic"


def shared(amount: str, policy: dict[str, Any] | None = None) -> Any:
    return on("n1", "p1", a_device("d1").shared().cap("mem", amount, policy))


def takes(amount: str, device_class: str = "A", *, every: bool = False) -> ClaimBuilder:
    return claim_of(want(device_class, capacity={"mem": amount}, every=every))


def grouped(name: str, groups: str = "") -> DeviceBuilder:
    """A device that draws 1 of the counter, with compatibility groups."""
    consumed = {"counterSet": "set", "counters": {"mem": {"value": "1"}}, "compatibilityGroups": groups.split()}
    return a_device(name).set({"consumesCounters": [consumed]})


def together(*devices: DeviceBuilder, count: int = 2, used: str = "", f: str = "PD CG") -> Given:
    return given([counters("p1", "9"), on("n1", "p1", *devices)], f"A*{count}", f=f, used=used)


LANES = on("n1", "p1", dev("d1", lane="a1"), dev("d2", lane="b1"), dev("d3", lane="a2"))
ROOT = 'device.attributes["a"].lane.substring(0, 1)'


def derived(
    expression: str, *, count: int = 2, constraint: str = "matchAttribute", f: str = "DA", every: bool = False
) -> Given:
    """A request whose constraint is on an attribute that it computes."""
    mode = {"allocationMode": "All"} if every else {"allocationMode": "ExactCount", "count": count}
    claim = exactly(**mode, derivedAttributes=[{"name": "x/y", "expression": expression}])
    spec = claim.obj()["spec"]["devices"] | {"constraints": [{constraint: "x/y"}]}
    return given([LANES], claim.set({"spec": {"devices": spec}}), f=f)


def configured(claim: ClaimBuilder, *configs: tuple[str, str], f: str = "37") -> Given:
    for value, requests in configs:
        claim = claim.config("a", {"is": value}, *requests.split())
    return given([TWO, on("n1", "b/p1", "d1")], claim, f=f)


CASES = [
    # §1.9, §1.10
    pytest.param(configured(claim_of("A", "A", "B"), ("x", "r0 r1")),
        "r0→p1/d1 r1→p1/d2 r2→b/p1/d1 +FromClaim[r0 r1]=x", id="a configuration of two of three requests names these"),
    pytest.param(configured(claim_of("A", "B"), ("x", "r0 r1")),
        "r0→p1/d1 r1→b/p1/d1 +FromClaim[]=x", id="a configuration of all requests names none"),
    pytest.param(configured(claim_of(["B*2", "A"], "B"), ("x", "r0/s1 r1"), f="37 PL"),
        "r0/s1→p1/d1 r1→b/p1/d1 +FromClaim[]=x", id="a configuration of the chosen alternative and all other requests names none"),
    pytest.param(configured(claim_of(["B*2", "A"], "B"), ("x", "r0/s0 r1"), f="37 PL"),
        "r0/s1→p1/d1 r1→b/p1/d1 +FromClaim[r0/s0 r1]=x", id="a configuration of another alternative keeps its names"),
    # §1.12
    pytest.param(given([TWO], claim_of("A*30", "A*5"), f="37"),
        f"ERR {ABOUT}, request r1: adding 5 devices exceeds the claim limit of 32, with 30 already accounted for",
        id="the text for too many devices names the request that exceeds the limit"),
    pytest.param(given([TWO], claim_of("A*500"), f="37"),
        f"ERR {ABOUT}, request r0: adding 500 devices exceeds the claim limit of 32, with 0 already accounted for",
        id="one request exceeds the limit of devices"),
    # §1.6
    pytest.param(given([on("n1", "p1", a_device("d1").shared().cap("mem", "4"), a_device("d2").shared().cap("mem", "4"))],
        takes("3", every=True), f="CC", shares=[("p1/d1", {"mem": "2"})]), "nil",
        id="a request for all devices fails if one of them is used up"),
    pytest.param(given([on("n1", "p1", a_device("d1").shared().cap("mem", "2"), a_device("d2").shared().cap("mem", "4"))],
        takes("3", every=True), f="CC"), "r0→p1/d2{mem=3}",
        id="a device that never has the amount is none of all devices"),
    # §1.11
    pytest.param(given([on("n1", "p1", "d1"), on("n2", "b/p1", of=2).counters("set", {"mem": "8Gi"})], "A*all", f="PD"),
        "r0→p1/d1", id="counters of another node's pool, which is being updated, are no matter of this node"),
    pytest.param(given([on("n1", "p1", dev("d1", takes="4Gi"), of=2), on("n2", "p1", of=2).counters("set", {"mem": "8Gi"})],
        "A", f="PD"), "r0→p1/d1", id="counters of the node's pool are found in a slice for another node"),
    pytest.param(given([counters("p1"), on("n1", "p1", dev("d1", takes="4Gi"))], "A", f="PD"), "r0→p1/d1",
        id="counters and devices are in slices of one node"),
    # §1.14
    pytest.param(given([shared("1", TENTHS)], [takes("250m"), takes("700m")], f="CC FR"),
        "r0→p1/d1{mem=300m} | r0→p1/d1{mem=700m}", id="requests of fractions are rounded up to tenths"),
    pytest.param(given([shared("1", TENTHS)], takes("250m"), f="CC"), "nil",
        id="without the gate a step of a tenth is a step of one, which exceeds the range"),
    pytest.param(given([shared("1", TENTHS)], takes("950m"), f="CC FR"), "nil", id="a fraction above the range does not fit"),
    pytest.param(given([shared("4", WHOLE)], takes("1500m"), f="CC FR"), "r0→p1/d1{mem=2}",
        id="a fraction is rounded up in a range of whole numbers"),
    pytest.param(given([shared("1", TENTHS)], takes("100500u"), f="CC FR"),
        f'ERR {ABOUT}, request r0: checking capacity for device a/p1/d1: capacity "mem": {REFUSED}: '
        "request 100500u is not a representable milli value", id="less than a thousandth cannot be requested of a range"),
    pytest.param(given([shared("4", WHOLE)], takes("1000500u"), f="CC"), "r0→p1/d1{mem=2}",
        id="without the gate less than a thousandth is rounded up"),
    pytest.param(given([shared("1", TENTHS)], takes("100500u", every=True), f="CC FR"),
        f'ERR {ABOUT}, request r0: checking capacity for device d1: capacity "mem": {REFUSED}: '
        "request 100500u is not a representable milli value", id="the text for a request for all devices has the bare name of the device"),
    pytest.param(given([shared("4", WHOLE)], takes("9223372036854775807", every=False), f="CC FR"),
        f'ERR …capacity "mem": {REFUSED}: request … is not a representable milli value',
        id="more thousandths than int64 has cannot be requested of a range"),
    pytest.param(given([shared("4", {"default": "1", "validRange": {"min": "1", "step": "2"}})],
        takes("9223372036854775806"), f="CC"), "nil", id="without the gate an amount up to int64 does not fit"),
    pytest.param(given([shared("4", {"default": "1", "validRange": {"min": "1", "step": "4"}})],
        takes("9223372036854775807"), f="CC"),
        f'ERR …capacity "mem": {REFUSED}: rounding request … up to the next step passes MaxInt64',
        id="without the gate the next step may exceed int64"),
    pytest.param(given([shared("-1")], "A", f="CC"),
        f'ERR {ABOUT}, request r0: checking capacity for device a/p1/d1: capacity "mem": capacity value is negative',
        id="a negative capacity cannot be consumed"),
    # §2.1 to §2.4
    pytest.param(given([TWO], claim_of(want(cel='device.attributes["a"].x')), f="37"),
        f"ERR {ABOUT}: selector #0 on device a/p1/d1: CEL runtime error: no such key: x. consider using CEL optional "
        "chaining (.? followed by orValue()) or guarding the check with has() for optional fields",
        id="a selector that reads a missing key names the device and the remedy"),
    pytest.param(given([TWO], claim_of(want(cel="device.driver ==")), f="37"),
        f"ERR {ABOUT}: selector #0: CEL compile error: …", id="a selector that does not compile names no device"),
    pytest.param(given([on("n1", "p1", dev("d1", x=["v1", "v2"]))], claim_of(want(cel='"v2" in device.attributes["a"].x')), f="37"),
        "r0→p1/d1", id="a selector reads a list without the gate for lists"),
    pytest.param(given([on("n1", "p1", dev("d1", x=["v1", "v2"]))], claim_of(want(cel='device.driver == "a"'))),
        "ERR class A: selector #0: CEL runtime error: attribute x: unsupported attribute value",
        id="in 1.36 a selector fails on a device with a list"),
    pytest.param(given([on("n1", "p1", dev("d1", x=["v"]), dev("d2", x=["v"]))], claim_of("A", "A").match("a/x"), f="37"), "nil",
        id="without the gate for lists no list satisfies a constraint"),
    # §4.3
    pytest.param(together(grouped("d1", "x"), grouped("d2", "y"), grouped("d3", "x z")), "r0→p1/d1 r0→p1/d3",
        id="devices that draw from one counter set have a group in common"),
    pytest.param(together(grouped("d1", "x y"), grouped("d2", "y z"), grouped("d3", "z x"), count=3), "nil",
        id="groups in common by pairs are not enough for three devices"),
    pytest.param(together(grouped("d1"), grouped("d2", "x"), grouped("d3")), "r0→p1/d1 r0→p1/d3",
        id="a device without groups goes with devices without groups only"),
    pytest.param(together(grouped("d1"), grouped("d2", "x"), grouped("d3", "x")), "r0→p1/d2 r0→p1/d3",
        id="the search goes back to devices that have a group in common"),
    pytest.param(together(grouped("d1", "x"), grouped("d2", "y"), grouped("d3", "x"), count=1, used="p1/d1"), "r0→p1/d3",
        id="a device in use counts with its groups"),
    pytest.param(together(grouped("d1", "x"), a_device("d2"), a_device("d3"), used="p1/d1"), "r0→p1/d2 r0→p1/d3",
        id="devices that draw from no counter set need no group"),
    pytest.param(together(grouped("d1", "x"), a_device("d2"), count=1, f="PD"), "nil",
        id="with the gate off a pool with groups has no devices"),
    pytest.param(given([counters("p1"), on("n1", "p1", grouped("d1", "x"))], "A*all", f="PD"),
        f"ERR {ABOUT}, request r0: asks for all devices, but resource pool a/p1 is currently being updated",
        id="with the gate off a pool with groups is incomplete"),
    # §4.2
    pytest.param(given([TWO], exactly(derivedAttributes=[{"name": "a/x", "expression": "1"}])),
        f"ERR {ABOUT}, request r0: cannot handle request with derived attributes, the feature is disabled",
        id="with the gate off derived attributes are refused"),
    pytest.param(derived(ROOT), "r0→p1/d1 r0→p1/d3", id="a constraint compares attributes that the request computes"),
    pytest.param(derived(ROOT, constraint="distinctAttribute"), "r0→p1/d1 r0→p1/d2",
        id="a constraint keeps attributes apart that the request computes"),
    pytest.param(derived(ROOT, count=3), "nil", id="no three devices have the computed attribute in common"),
    pytest.param(derived(f"[{ROOT}]"), "nil", id="without the gate for lists no computed list satisfies a constraint"),
    pytest.param(derived('["a", ' + ROOT + "]", count=3, f="DA LT"), "r0→p1/d1 r0→p1/d2 r0→p1/d3",
        id="with the gate for lists computed lists have a value in common"),
    pytest.param(derived("1.5"), "ERR compile derived attribute x/y failed: must evaluate to a primitive scalar "
        "(string, integer, boolean, semver) or a list of these scalars, not double",
        id="a computed attribute of another type is an error"),
    pytest.param(derived("lane"), "ERR compile derived attribute x/y failed: compilation failed: …",
        id="an expression that does not compile is an error"),
    pytest.param(derived("dyn(1.5)"),
        "ERR evaluate derived attribute x/y on device a/p1/d1 failed: unsupported CEL return type: float64",
        id="a value of another type is an error that names the device"),
    pytest.param(derived('device.attributes["a"].none', every=True),
        "ERR evaluate derived attribute x/y on device a/p1/d1 failed: no such key: none",
        id="an expression that fails is an error that names the device"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "expected"), CASES)
def test_a_row(case: Given, expected: str) -> None:
    said = outcome(case)

    assert is_as(expected, said), said


def test_a_claim_whose_devices_skip_operations_needs_a_node_that_declares_it() -> None:
    """§3.12: whatever the gate is, because another scheduler may have allocated the claim."""
    result = a_result("r0", "a/p1/d1") | {"skipNodeOperations": ["*"]}
    case = given([TWO], claim_of("A").allocated(result))
    world = case.world()
    world.cluster.set_node(node("n2").set({"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}).typed())

    assert world.refusals(case.pod(world)).keys() == {"n1"}


def test_a_device_that_skips_operations_goes_to_a_node_that_declares_it_from_now_on() -> None:
    """§4.4: with the gate on. The allocation says what the kubelet skips."""
    skips = {"spec": {"skipNodeOperations": ["*"]}}
    slices = [on(name, f"p-{name}", "d1").set(skips) for name in ("n1", "n2")]
    case = given(slices, "A", f="NO", at="n2")
    world = case.world()
    able = node("n2").set({"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}).typed()
    before = world.refusals(case.pod(world)).keys()

    world.cluster.set_node(able)
    after = world.refusals(case.pod(world)).keys()
    pod = case.pod(world)
    state, _ = world.filter(pod)
    world.plugin.reserve(state, pod, "n2")
    (given_away,) = world.known(state).allocations.values()

    assert before == {"n1", "n2"}
    assert after == {"n1"}
    assert [result.skip_node_operations for result in given_away.devices.results] == [("*",)]


@pytest.mark.parametrize(("gates", "expected"), [("", "r0→p1/d1"), ("LT", "nil"), ("NO", "nil")])
def test_a_node_that_does_not_declare_it_skips_no_operations(gates: str, expected: str) -> None:
    """§4.4: kube-scheduler's variants for older gates do not read the field."""
    case = given([TWO.set({"spec": {"skipNodeOperations": ["*"]}})], "A", f=gates)

    assert outcome(case) == expected
