"""Device allocation of kube-scheduler 1.37 and 1.38 side by side: docs/spec/changes-1.38-devices.md.

`scenarios` has the notation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.cache.devices.selectors import DeviceSelectors
from scheduler.config.args import KubestowArgs
from scheduler.core.cooperative import finish
from scheduler.core.feature_gates import NEGATIVE_CONSUMPTION, defaults
from scheduler.cycle import Scheduled
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Builder, Manifest
from simulator.builders.devices import DeviceBuilder, a_device, a_device_class, a_policy, a_slice
from tests.unit.plugins.dra.scenarios import (
    Given,
    claim_of,
    dev,
    given,
    is_as,
    on,
    outcome,
    outcome_under,
    want,
)
from tests.unit.plugins.dra.served import PARITY, Served, said, using
from tests.unit.plugins.dra.test_scenarios import verdict
from tests.unit.plugins.dra.trying import Trying, result_of
from tests.unit.plugins.dra.world import FIRST_FIT

ABOUT = "ERR claim default/c0, request r0: "
CAPACITY = f"{ABOUT}checking capacity for device a/p1/d1: capacity"
SLOT = {"default": "1", "validRange": {"min": "1", "step": "1"}}
LIST = on("n1", "p1", dev("d1", x=["v"]), dev("d2", x="v"))
TOO_LARGE = f"{2**64}.0.0"
ALL = [a_device_class("A")]


def sharing(*names: str, device: DeviceBuilder | None = None) -> Any:
    """Return a slice with a device that several claims may share, and 4 of each capacity."""
    device = (device or a_device("d1")).shared()
    for name in names:
        device = device.cap(name, "4")
    return on("n1", "p1", device)


def takes(**amounts: str) -> ClaimBuilder:
    """Return a claim; `a_mem` is the name `a/mem`."""
    return claim_of(want(capacity={name.replace("_", "/"): amount for name, amount in amounts.items()}))


def versions(*all_versions: str) -> Any:
    return on("n1", "p1", *(a_device(f"d{at}").version("v", each) for at, each in enumerate(all_versions)))


def two(constraint: str) -> ClaimBuilder:
    claim = claim_of("A*2")
    return claim.match("a/v") if constraint == "match" else claim.distinct("a/v")


BOTH = [
    # §1.3
    pytest.param(given([versions("1.2.3+a", "1.2.3+b")], two("match")), "r0→p1/d0 r0→p1/d1",
        id="versions that differ in their build metadata match"),
    pytest.param(given([versions("1.2.3+a", "1.2.3+b")], two("distinct")), "nil",
        id="versions that differ in their build metadata are not distinct"),
    pytest.param(given([versions("1.2.3-rc.1+a", "1.2.3-rc.1")], two("match")), "r0→p1/d0 r0→p1/d1",
        id="a version without build metadata matches one with it"),
    pytest.param(given([versions("1.2.3-rc.1", "1.2.3-rc.2")], two("match")), "nil", id="pre-releases are different versions"),
    pytest.param(given([on("n1", "p1", a_device("d0").version("v", "1.2.3"), dev("d1", v="1.2.3"))], two("distinct")),
        "r0→p1/d0 r0→p1/d1", id="values of different types are distinct"),
    # §1.5
    pytest.param(given([sharing("mem")], takes(a_mem="1"), f="CC"), "r0→p1/d1{mem=1}",
        id="a request with the driver's domain finds the capacity without it"),
    pytest.param(given([sharing("a/mem")], takes(mem="1"), f="CC"), "r0→p1/d1{a/mem=1}",
        id="a request without the domain finds the capacity with the driver's domain"),
    pytest.param(given([sharing("b/mem")], takes(b_mem="1"), f="CC"), "r0→p1/d1{b/mem=1}", id="another domain is kept"),
    pytest.param(given([sharing("b/mem")], takes(mem="1"), f="CC"), "nil", id="another domain does not match"),
    pytest.param(given([sharing("mem")], takes(b_mem="1"), f="CC"), "nil", id="a request with another domain does not match"),
    pytest.param(given([sharing("mem", device=a_device("d1").cap("a/mem", "2"))], takes(mem="3"), f="CC"), "nil",
        id="of two names that a device publishes the one with the domain counts"),
    pytest.param(given([sharing("mem", device=a_device("d1").cap("a/mem", "2"))], takes(mem="1"), f="CC"),
        "r0→p1/d1{a/mem=1}", id="and the result has one of them"),
    pytest.param(given([sharing("mem")], takes(mem="2"), f="CC", shares=[("p1/d1", {"a/mem": "3"})]), "nil",
        id="a stored amount with the driver's domain counts"),
    pytest.param(given([sharing("a/mem")], takes(mem="2"), f="CC", shares=[("p1/d1", {"mem": "3"})]), "nil",
        id="a stored amount without the domain counts"),
    pytest.param(given([sharing("mem")], takes(mem="2"), f="CC", shares=[("p1/d1", {"mem": "4", "a/mem": "2"})]),
        "r0→p1/d1{mem=2}", id="of two stored names the one with the domain counts"),
    pytest.param(given([sharing("mem")], takes(mem="2"), f="CC", shares=[("p1/d1", {"b/mem": "3"})]), "r0→p1/d1{mem=2}",
        id="a stored amount of another domain does not count"),
    pytest.param(given([sharing("mem")], takes(mem="1", a_mem="1"), f="CC"),
        f'{CAPACITY} "mem" requested both as "mem" and as "a/mem"', id="a request with both names is an error"),
    pytest.param(given([sharing("mem")], takes(mem="1", a_mem="1", other="1"), f="CC"), "nil",
        id="a device without a requested capacity is passed over first"),
    # §1.4
    pytest.param(given([on("n1", "p1", "d1")], f="CC", shares=[("p1/d1", {})]), "nil",
        id="a device that is no longer shared and has an old share is in use"),
    pytest.param(given([on("n1", "p1", "d1")], want(admin=True), f="CC AA", shares=[("p1/d1", {})]), "r0→p1/d1(admin)",
        id="admin access may have a device with an old share"),
    pytest.param(given([on("n1", "p1", "d1")], want("A*all"), f="CC", shares=[("p1/d1", {})]), "nil",
        id="a request for all devices fails at an old share"),
    pytest.param(given([on("n1", "p1", "d1")], want(cel='device.attributes["a"].x'), f="CC", shares=[("p1/d1", {})]),
        "ERR claim default/c0: selector #0…", id="the selector of a device with an old share is evaluated first"),
]  # fmt: skip


@pytest.mark.parametrize("version", ["", " 37", " 38"], ids=["1.36", "1.37", "1.38"])
@pytest.mark.parametrize(("case", "expected"), BOTH)
def test_in_all_versions(case: Given, expected: str, version: str) -> None:
    under = replace(case, f=case.f + version)

    assert is_as(expected, outcome(under)), outcome(under)
    assert is_as(expected, outcome_under(under, PARITY))


UNSUPPORTED = f"{ABOUT}device a/p1/d1: unsupported attribute value for a/x"
BAD = ("asks for all devices, but resource pool a/p1 is currently ", "being updated", "invalid")
TWICE = on("n1", "p1", "d1 d1")
NEWER = [
    # §1.1
    pytest.param(given([on("n1", "p1", "d1", of=2)], "A*all"), f"{ABOUT}{BAD[0]}{BAD[1]}",
        f"UU claim default/c0, request r0: {BAD[0]}{BAD[1]}", id="all devices of a pool that is being updated"),
    pytest.param(given([TWICE], "A*all"), f"{ABOUT}{BAD[0]}{BAD[2]}", f"UU claim default/c0, request r0: {BAD[0]}{BAD[2]}",
        id="all devices of an invalid pool"),
    pytest.param(given([TWICE], [claim_of("A*all"), claim_of("unknown")]), "UU request r0: device class unknown does not exist",
        "UU request r0: device class unknown does not exist", id="PreFilter comes before the pools"),
    pytest.param(given([on("n1", "p1", "d1", of=2)], [claim_of(["A*all", "A"])], f="PL"), "ERR claim default/c0, request s0: …",
        "UU claim default/c0, request s0: …", id="an alternative that is not needed fails, too"),
    # §1.2
    pytest.param(given([LIST], claim_of("A").match("a/x")), "r0→p1/d1", UNSUPPORTED, id="a match of lists"),
    pytest.param(given([LIST], claim_of("A").distinct("a/x")), "r0→p1/d1", UNSUPPORTED, id="distinct lists"),
    pytest.param(given([LIST], claim_of("A").match("a/y")), "nil", "nil", id="a list that the constraint does not read"),
    pytest.param(given([LIST], claim_of("A").match("a/x"), used="p1/d1"), "r0→p1/d2", "r0→p1/d2", id="a list of a device in use"),
    pytest.param(given([LIST], claim_of("A", want(cel="false")).match("a/x", "r1")), "nil", "nil",
        id="a list of a device of another request"),
    pytest.param(given([on("n1", "p1", dev("d0", x="v"), dev("d1", x=["v"]))], claim_of("A").match("a/x")), "r0→p1/d0", "r0→p1/d0",
        id="a list of a device that the search does not reach"),
    pytest.param(given([on("n1", "p1", dev("d0", x="v"), dev("d1", x=["v"]), dev("d2", x="v"))], claim_of("A*2").match("a/x")),
        "r0→p1/d0 r0→p1/d2", UNSUPPORTED, id="a list between two values that match"),
    pytest.param(given([on("n1", "p1", dev("d1", x=["v"]))], claim_of("A*all").match("a/x")), "r0→p1/d1", UNSUPPORTED,
        id="a list and all devices"),
    pytest.param(given([on("n1", "p1", a_device("d1").set({"attributes": {"x": {}}}))], claim_of("A").match("a/x"), also=ALL), "r0→p1/d1", UNSUPPORTED,
        id="an attribute of an unknown type"),
    pytest.param(given([on("n1", "p1", a_device("d1").version("x", TOO_LARGE))], claim_of("A").match("a/x"), also=ALL), "r0→p1/d1", UNSUPPORTED,
        id="a version that cannot be parsed"),
    # §1.6
    pytest.param(given([sharing("mem")], takes(mem="-1"), f="CC"), f'{CAPACITY} "mem": capacity value is negative',
        f'{CAPACITY} "a/mem": capacity value is negative: request -1', id="a negative request"),
    pytest.param(given([on("n1", "p1", a_device("d1").shared().cap("mem", "4", a_policy("1", minimum="1", step="1")))], takes(mem="-1"), f="CC"),
        "r0→p1/d1{mem=1}", f'{CAPACITY} "a/mem": capacity value is negative: request -1',
        id="a negative request that the policy would round up"),
    pytest.param(given([on("n1", "p1", a_device("d1").shared().cap("mem", "-4"))], "A", f="CC"), f'{CAPACITY} "mem": capacity value is negative',
        f'{CAPACITY} "a/mem": capacity value is negative', id="a negative capacity"),
    pytest.param(given([on("n1", "p1", a_device("d1").shared().cap("b/mem", "-4"))], "A", f="CC"), f'{CAPACITY} "b/mem": capacity value is negative',
        f'{CAPACITY} "b/mem": capacity value is negative', id="a negative capacity of another domain"),
    pytest.param(given([on("n1", "p1", a_device("d1").shared().cap("mem", "4", SLOT))], takes(mem="9223372036854775808"), f="CC"),
        f'{CAPACITY} "mem": capacity request cannot…', f'{CAPACITY} "a/mem": capacity request cannot…', id="a request beyond int64"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "in_1_37", "in_1_38"), NEWER)
def test_in_1_37_and_1_38(case: Given, in_1_37: str, in_1_38: str) -> None:
    for version, expected in ((" 37", in_1_37), (" 38", in_1_38)):
        under = replace(case, f=case.f + version)

        assert is_as(expected, outcome(under)), (version, outcome(under))


# -- selectors (§2) ----------------------------------------------------------------------------------------------------

PLAIN = {"1.37": DeviceSelectors(list_attributes=True), "1.38": DeviceSelectors(list_attributes=True, when_read=True)}
BREAKS = "CEL runtime error: attribute "
INVALID = f"{BREAKS}bad: value is invalid or its type is not supported by this version"
BAD_VERSION = f"{BREAKS}bad: parse semantic version: No Major.Minor.Patch elements found"
NO_VALUE = f"{BREAKS}bad: unsupported attribute value"
MALFORMED = a_device("d").attr("good", 1).version("bad", "1.2")
UNKNOWN = a_device("d").attr("good", 1).set({"attributes": {"bad": {}}})
EMPTY = a_device("d").attr("good", 1).set({"attributes": {"bad": {"strings": []}}})
BOTH_NAMES = a_device("d").attr("dra.example.com/x", 1).attr("x", 2).cap("dra.example.com/q", "1").cap("q", "2")


@pytest.mark.parametrize(("expression", "device", "in_1_37", "in_1_38"), [
    pytest.param("true", MALFORMED, BAD_VERSION, "true", id="an invalid version that is not read"),
    pytest.param("device.attributes[D].good == 1", UNKNOWN, NO_VALUE, "true", id="a value of an unknown type that is not read"),
    pytest.param("device.attributes[D].bad == 1", MALFORMED, BAD_VERSION, INVALID, id="an invalid version"),
    pytest.param("device.attributes[D].bad == 1", UNKNOWN, NO_VALUE, INVALID, id="a value of an unknown type"),
    pytest.param("device.attributes[D].bad.size() == 0", EMPTY, "true", INVALID, id="an empty list"),
    pytest.param("has(device.attributes[D].bad)", UNKNOWN, NO_VALUE, INVALID, id="has"),
    pytest.param('"bad" in device.attributes[D]', UNKNOWN, NO_VALUE, "false", id="in"),
    pytest.param("device.attributes[D].size() == 2", UNKNOWN, NO_VALUE, "true", id="the number of attributes"),
    pytest.param("device.attributes[D].?bad.orValue(1) == 1", UNKNOWN, NO_VALUE, INVALID, id="an optional"),
    pytest.param('device.attributes[D].exists(name, name == "bad")', UNKNOWN, NO_VALUE, "true", id="names"),
    pytest.param("device.attributes[D].all(name, value, value == 1)", UNKNOWN, NO_VALUE, INVALID, id="names and values"),
    pytest.param("device.attributes[D] == device.attributes[D]", UNKNOWN, NO_VALUE, INVALID, id="a comparison of all attributes"),
    pytest.param("device.attributes[D].good == 1 || device.attributes[D].bad == 1", UNKNOWN, NO_VALUE, "true", id="or"),
    pytest.param("device.attributes[D].none == 1", UNKNOWN, NO_VALUE, "CEL runtime error: no such key: none", id="a missing one"),
    pytest.param("device.attributes[D].x == 1", BOTH_NAMES, "true", "true", id="of two names the one with the domain"),
    pytest.param('device.capacity[D].q.isLessThan(quantity("2"))', BOTH_NAMES, "true", "true", id="also of capacities"),
])  # fmt: skip
def test_selectors(expression: str, device: DeviceBuilder, in_1_37: str, in_1_38: str) -> None:
    found = {version: verdict(expression, device, selectors=selectors) for version, selectors in PLAIN.items()}

    assert found == {"1.37": in_1_37, "1.38": in_1_38}


# -- whole attempts ----------------------------------------------------------------------------------------------------

VERSIONS = ("1.36", "1.37", "1.38")
OF_ALL = a_claim("c").request("r", "A", every=True)
UPDATED = "claim default/c, request r: asks for all devices, but resource pool a/n1 is currently being updated"
ERROR = f'running "DynamicResources" filter plugin: {UPDATED}'


def attempted(
    version: str, *things: Builder[Any], ours: KubestowArgs = FIRST_FIT, nodes: tuple[str, ...] = ("n1", "n2")
) -> Any:
    world = Trying(*things, nodes=nodes, gates=defaults(version), ours=ours)
    return result_of(finish(world.attempt("c")))


@pytest.mark.parametrize("ours", [FIRST_FIT, PARITY, KubestowArgs()], ids=["first fit", "parity", "defaults"])
def test_a_pool_that_is_being_updated_rejects_its_node_alone(ours: KubestowArgs) -> None:
    """The pool of n1 has one of two slices, and the pool of n2 is complete."""
    things = (a_slice("n1", "a", a_device("d")).of(2), a_slice("n2", "a", a_device("d")), OF_ALL)

    for version in ("1.36", "1.37"):
        assert attempted(version, *things, ours=ours) == ERROR
    node_name, devices = attempted("1.38", *things, ours=ours)
    assert node_name == "n2"
    assert [str(each) for some in devices.values() for each in some] == ["a/n2/d"]


def test_the_message_has_the_text_of_the_bad_pool() -> None:
    things = (a_slice("n1", "a", a_device("d")).of(2), OF_ALL)

    message = attempted("1.38", *things, nodes=("n1", "n2", "n3"))

    assert message.startswith(f"0/3 nodes are available: 1 {UPDATED}, 2 cannot allocate all claims.")


def test_the_node_is_tried_again_when_its_pool_is_complete() -> None:
    world = Trying(a_slice("n1", "a", a_device("d")).of(2), OF_ALL, gates=defaults("1.38"))
    assert UPDATED in str(result_of(finish(world.attempt("c"))))

    world.show(a_slice("n1", "a", a_device("e")).named("more").pool("n1").of(2))

    assert isinstance(finish(world.attempt("c")), Scheduled)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("device", "claim", "consumed"), [
    pytest.param(a_device("d").shared().cap("mem", "4"), {"a/mem": "1"}, {"mem": "1"}, id="the request has the domain"),
    pytest.param(a_device("d").shared().cap("a/mem", "4"), {"mem": "1"}, {"a/mem": "1"}, id="the device has the domain"),
])  # fmt: skip
def test_names_of_capacities(version: str, device: DeviceBuilder, claim: Manifest, consumed: Manifest) -> None:
    world = Served(
        a_slice("n1", "a", device), a_claim("c").request("r", "A", capacity=claim), gates=defaults(version), bare=True
    )

    allocated = world.allocate("c")

    (result,) = allocated.results[0].devices.results  # type: ignore[union-attr]
    assert {name: amount.value for name, amount in (result.consumed_capacity or {}).items()} == {
        name: int(amount) for name, amount in consumed.items()
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_match_without_build_metadata(version: str) -> None:
    devices = [a_device(name).version("v", f"1.2.3+{name}") for name in "ab"]
    claim = a_claim("c").request("r", "A", count=2).match("a/v")

    node_name, devices_given = attempted(version, a_slice("n1", "a", *devices), claim)

    assert node_name == "n1"
    assert [each.device for some in devices_given.values() for each in some] == ["a", "b"]


# -- negative amounts of allocated claims (§3.1) -----------------------------------------------------------------------

SHARED = a_slice("n1", "a", a_device("d").shared().cap("mem", "4"))
TAKES = a_claim("c").request("r", "A", capacity={"mem": "1"})
NEGATIVE = {"mem": "-5Gi"}


def holder(name: str, consumed: Manifest) -> ClaimBuilder:
    return a_claim(name).request("r", "A").allocated(a_result("r", "a/n1/d", share=f"s-{name}", consumed=consumed))


def refusal(name: str, more: str = "") -> str:
    text = f'claim default/{name}, device a/n1/d: consumed capacity "mem" must not be negative, got -5Gi{more}'
    return f'running PreFilter plugin "DynamicResources": gather allocation state: {text}'


def test_a_negative_amount_of_any_claim_stops_all_pods_with_claims_to_allocate() -> None:
    things = (SHARED, TAKES, holder("bad", NEGATIVE))

    for version in ("1.36", "1.37"):
        assert attempted(version, *things)[0] == "n1"
    assert attempted("1.38", *things) == refusal("bad")
    assert attempted("1.38", *things, holder("bad2", NEGATIVE), holder("z", {"mem": "1"})) == refusal(
        "bad", " (and 1 more claims with invalid consumed capacity)"
    )


def test_pods_without_claims_to_allocate_are_not_concerned() -> None:
    held = a_claim("c").request("r", "A").allocated(a_result("r", "a/n1/d", share="s", consumed={"mem": "1"}), on="n1")

    assert attempted("1.38", SHARED, held, holder("bad", NEGATIVE))[0] == "n1"


def test_it_ends_with_the_claim() -> None:
    world = Trying(SHARED, TAKES, holder("bad", NEGATIVE), holder("bad2", NEGATIVE), gates=defaults("1.38"))
    assert "(and 1 more" in str(result_of(finish(world.attempt("c"))))

    world.show(holder("bad", {"mem": "1"}))
    assert result_of(finish(world.attempt("c"))) == refusal("bad2")
    world.devices.claims.remove("default/bad2")

    assert isinstance(finish(world.attempt("c")), Scheduled)


def test_explain_names_the_claim() -> None:
    world = Served(SHARED, TAKES, holder("bad", NEGATIVE), gates=defaults("1.38"), bare=True)

    assert "claim default/bad" in str(world.plugin.explain(using("c")))


def test_the_gate_of_consumable_capacity() -> None:
    """Without it shares count as whole devices, and no amount is read."""
    world = Served(
        SHARED,
        TAKES,
        holder("bad", NEGATIVE),
        gates=frozenset({*defaults("1.38")} - {"DRAConsumableCapacity"}),
        bare=True,
    )

    assert "gather" not in str(said(world.pre_filter(using("c"))[1]))


def test_no_claim_is_read_for_it_per_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand claims with shares cost a pod nothing: the problem is found when a claim changes."""
    world = Served(
        SHARED, TAKES, *(holder(f"h{at}", {"mem": "0"}) for at in range(1000)), gates=defaults("1.38"), bare=True
    )
    read: list[object] = []

    def reading(*args: object) -> str:
        read.append(args)
        return ""

    monkeypatch.setattr("scheduler.cache.devices.claim_tracker._negative", reading)

    for _ in range(3):
        world.pre_filter(using("c"))

    assert read == []
    assert NEGATIVE_CONSUMPTION in world.gates
