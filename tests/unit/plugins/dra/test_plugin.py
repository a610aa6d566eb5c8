"""DynamicResources at its extension points before PreBind: docs/spec/dra.md §2, §3. Scenarios of the allocator are in `test_scenarios`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.resource_v1 import RESERVED_FOR_MAX, DeviceRequest, ResourceClaim, claim_keys
from scheduler.cache.assume_cache import NotKnown
from scheduler.config.args import DynamicResourcesArgs, KubestowArgs
from scheduler.core.cooperative import answered, finish
from scheduler.core.feature_gates import DEVICE_GATES_ON, FILTER_TIMEOUT
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Rejection
from scheduler.plugins.dra.claims import Unresolved, claim_name, claims_of, not_owned
from scheduler.plugins.dra.scoring import has_alternatives
from scheduler.plugins.dra.structured.node_verdicts import LONGEST_ATTEMPT_S, LONGEST_HOLD_S, limits_of
from simulator.builders.claims import ClaimBuilder, a_claim, a_result, an_option
from simulator.builders.core import Builder, PodBuilder, pod
from simulator.builders.devices import a_device, a_device_class, a_node_selector, a_slice
from tests.unit.plugins.dra.served import (
    ASKING,
    ERR,
    HELD,
    NO_DEVICES,
    PARITY,
    SLICES,
    UU,
    Served,
    Slow,
    U,
    claim_for_two,
    said,
    using,
)
from tests.unit.plugins.dra.world import FIRST_FIT

# -- PreEnqueue and PreFilter ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("things", "claims", "expected"), [
    pytest.param([], (), SKIP, id="262 no claims"),
    pytest.param([ASKING.set({"status": {"allocation": {"nodeSelector": a_node_selector(("k", "Near", "x"))}}})], ("c",),
        (ERR, "matchExpressions[0].operator: 'Near' is not supported"),
        id="291 an allocation whose node selector cannot be parsed"),
])  # fmt: skip
def test_pre_filter(things: list[Builder[Any]], claims: tuple[str, ...], expected: object) -> None:
    """PreFilter reports errors that do not depend on the node, and it restricts no nodes."""
    _, no = Served(*things).pre_filter(using(*claims))

    assert expected == said(no)


def test_a_request_of_neither_kind() -> None:
    """284."""
    world = Served(ASKING)
    claim = world.cached("c")
    spec = replace(claim.spec.devices, requests=(DeviceRequest(name="r"),))
    world.put(replace(world.rewrite("c"), spec=replace(claim.spec, devices=spec)))
    world.relay()

    _, no = world.pre_filter(using("c"))

    assert (UU, "resource claim default/c, request r: unknown request type") == said(no)


def test_a_claim_in_flight_for_another_pod_is_waited_for() -> None:
    """277: the second pod waits until the first attempt ends."""
    world = Served(ASKING)
    under = world.reserved(using("c", name="first"))

    assert (UU, "resource claim default/c is in the process of being allocated") == said(
        world.pre_filter(using("c", name="second"))[1]
    )

    world.unreserve(under)

    assert said(world.pre_filter(using("c", name="second"))[1]) is None


def test_a_failed_pre_filter_leaves_no_claims_behind() -> None:
    """§3.3 step 8: PostFilter finds no claim to deallocate."""
    world = Served(ASKING, a_claim("d").request("r", "C"))
    info = using("c", "d")
    state, no = world.pre_filter(info)

    assert isinstance(no, Rejection)
    assert (U, "no new claims to deallocate") == said(world.post_filter(state, info))


@pytest.mark.parametrize("what", ["ResourceClaim", "DeviceClass"])
def test_what_cannot_be_read_is_named(what: str) -> None:
    """The message adds object and field to upstream's text."""
    world = Served(a_claim("c").request("r", "C")) if what == "DeviceClass" else Served()
    key = "C" if what == "DeviceClass" else "default/c"
    metadata = Metadata(name="C") if what == "DeviceClass" else Metadata(name="c", namespace="default")
    world.devices.broken[what, key] = Broken(kind=what, metadata=metadata, why="spec.x: expected int")

    _, no = world.pre_filter(using("c"))

    upstream = {
        "ResourceClaim": 'could not find ResourceClaim "default/c"',
        "DeviceClass": "request r: device class C does not exist",
    }[what]
    assert (UU, f"{upstream} ({what} {key} cannot be read: spec.x: expected int)") == said(no)


def used_by(others: int) -> ClaimBuilder:
    claim = HELD
    for at in range(others):
        claim = claim.reserved_for(f"x{at}")
    return claim


FULL = (UU, "resource claim default/c has 256 users, the most it can have")


@pytest.mark.parametrize(("claim", "ours", "expected"), [
    pytest.param(used_by(RESERVED_FOR_MAX - 1), FIRST_FIT, None, id="§10.3 one more is allowed"),
    pytest.param(used_by(RESERVED_FOR_MAX), FIRST_FIT, FULL, id="§10.3 reported at once"),
    pytest.param(used_by(RESERVED_FOR_MAX - 1).reserved_for("p", "p"), FIRST_FIT, None, id="§10.3 this pod is one of them"),
    pytest.param(used_by(RESERVED_FOR_MAX), PARITY, None, id="§10.3 parity: the server says so, in PreBind"),
])  # fmt: skip
def test_a_claim_with_the_maximum_of_users(claim: ClaimBuilder, ours: KubestowArgs, expected: object) -> None:
    """The claim accepts no 257th user, so PreFilter rejects the pod."""
    assert expected == said(Served(claim, ours=ours).pre_filter(using("c"))[1])


# -- PreBindPreFlight, gates, prefer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("things", "claims", "expected"),
    [pytest.param([], (), SKIP, id="313 no claims"), pytest.param([ASKING], ("c",), None, id="313 claims")],
)
def test_pre_bind_pre_flight(things: list[Builder[Any]], claims: tuple[str, ...], expected: object) -> None:
    """PreBind may run in parallel with the PreBind of other plugins."""
    world = Served(*things)
    info = using(*claims)
    state, _ = world.pre_filter(info)

    assert expected == said(world.plugin.pre_bind_pre_flight(state, info, "n1"))
    assert world.plugin.pre_bind_parallel


def test_pre_flight_without_a_state() -> None:
    """§3.9."""
    world = Served()

    assert (ERR, "not found") == said(world.plugin.pre_bind_pre_flight(CycleState(), using("c"), "n1"))


def test_the_fuller_of_equal_nodes_is_preferred() -> None:
    """§10: a later request for many devices finds them on one node."""
    taken = a_claim("h").allocated(a_result("r", "a/n2/d0"))
    world = Served(taken, ASKING, ours=KubestowArgs(device_scoring="pack"))
    info, state = world.tried("c")
    nodes = world.cluster.nodes.present

    assert ["n2"] == [name for at, name in enumerate(("n1", "n2")) if world.plugin.prefer(state, info, nodes) >> at & 1]
    assert nodes == Served(taken, ASKING).plugin.prefer(state, info, nodes)


# -- Filter (§3.4, §4) and its time limits -----------------------------------------------------------------------------


def test_where_both_are_wrong_the_reason_of_the_allocator_is_reported() -> None:
    """§3.4: the devices of one claim are on n2, and the other claim finds none on n1."""
    world = Served(a_claim("g").allocated(a_result("r", "a/n1/d0"), on="n2"), claim_for_two())

    assert {"n1": NO_DEVICES} == world.refusals(using("g", "c"))


def test_devices_in_flight_are_taken() -> None:
    """276: until the attempt is undone."""
    world = Served(claim_for_two(), claim_for_two("d"))
    under = world.reserved(using("c", name="first"))

    assert {"n1": NO_DEVICES} == world.refusals(using("d"))

    world.unreserve(under)

    assert {} == world.refusals(using("d"))


BREAKS = 'device.attributes["a"].x == "1"'
HEALTHY = a_slice("n2", "a", a_device("d0").attr("x", "1"), a_device("d1").attr("x", "1"))


@pytest.mark.parametrize(("things", "text"), [
    pytest.param([a_claim("c").request("r", "A", cel=BREAKS)],
        "claim default/c: selector #0: CEL runtime error: no such key: x", id="281 the claim's selector"),
    pytest.param([a_device_class("C", BREAKS), a_claim("c").request("r", "C")],
        "class C: selector #0: CEL runtime error: no such key: x", id="281 the class's selector"),
])  # fmt: skip
def test_a_selector_that_breaks(things: list[Builder[Any]], text: str) -> None:
    """282: each node with such a device is in error. One event names the device."""
    world = Served(SLICES[0], HEALTHY, *things, bare=True)

    refusals = world.refusals(using("c"))
    world.refusals(using("c"))

    assert ["n1"] == list(refusals)
    code, message = refusals["n1"]
    assert (ERR, True) == (code, message.startswith(text))
    (event,) = world.recorder.events
    assert ("default/p", "Warning", "DeviceSelectorFailed") == (event.pod, event.type_, event.reason)
    assert "breaks on device a/n1/d0: CEL runtime error: no such key: x" in event.note


def test_a_selector_that_does_not_compile_records_no_event() -> None:
    """281: no device is to blame."""
    world = Served(a_claim("c").request("r", "A", cel="device.driver =="))

    (refusal, _) = world.refusals(using("c")).values()

    assert ERR == refusal[0]
    assert [] == world.recorder.events


def test_after_reserve_the_pods_own_devices_do_not_count_as_another_pods() -> None:
    """D7: the node is checked again before Bind."""
    world = Served(claim_for_two())
    info, state = world.reserved(using("c"))
    slot = world.slot()

    assert {} == world.plugin.filter(state, info, 1 << slot)
    assert finish(answered(world.plugin.verify(state, info, slot))) is None


@pytest.mark.parametrize(("things", "claims", "expected"), [
    pytest.param([HELD], ("c",), True, id="nothing to allocate"),
    pytest.param([ASKING], ("c",), False, id="something to allocate"),
    pytest.param([], ("c",), True, id="PreFilter has refused"),
])  # fmt: skip
def test_filter_is_exact(things: list[Builder[Any]], claims: tuple[str, ...], *, expected: bool) -> None:
    """Where Filter is exact, Verify never rejects the node."""
    world = Served(*things)
    info = using(*claims)
    state, _ = world.pre_filter(info)

    assert expected == world.plugin.filter_is_exact(state, info)
    assert not expected or world.plugin.verify(state, info, 0) is None


def test_without_a_state_filter_is_in_error_and_verify_accepts() -> None:
    """§3.4 step 1."""
    world = Served()
    info, nodes = using("c"), world.cluster.nodes.present

    (no,) = world.plugin.filter(CycleState(), info, nodes)

    assert (ERR, "not found") == said(no)
    assert world.plugin.verify(CycleState(), info, 0) is None


@pytest.mark.parametrize(("timeout_s", "without", "ours", "is_late"), [
    pytest.param(1.0, (), FIRST_FIT, True, id="301 it takes longer"),
    pytest.param(0.0, (), PARITY, False, id="302 no limit"),
    pytest.param(1.0, (FILTER_TIMEOUT,), PARITY, False, id="302 gate off"),
    pytest.param(0.0, (), FIRST_FIT, True, id="no limit, but the event loop does not run"),
])  # fmt: skip
def test_filter_timeout(timeout_s: float, without: tuple[str, ...], ours: KubestowArgs, *, is_late: bool) -> None:
    """The error names the node."""
    many = a_slice("n1", "a", *(a_device(f"d{at}") for at in range(100)))
    claims = [a_claim(name).request("r", "A", count=30) for name in ("c", "d", "e")]
    args = DynamicResourcesArgs(filter_timeout_s=timeout_s)
    world = Served(many, *claims, bare=True, ours=ours, args=args, gates=DEVICE_GATES_ON - set(without))
    world.plugin._verdicts._clock = Slow(world.clock)

    refusals = world.refusals(using("c", "d", "e"))

    late = (ERR, "node n1: timed out trying to allocate devices")
    assert (late if is_late else None) == refusals.get("n1")


@pytest.mark.parametrize(("timeout_s", "parity", "limits"), [
    pytest.param(10.0, False, (10.0, LONGEST_HOLD_S), id="upstream's default, but less where the event loop does not run"),
    pytest.param(0.5, False, (0.5, 0.5), id="less is less"),
    pytest.param(10.0, True, (10.0, 10.0), id="parity waits"),
    pytest.param(0.0, True, (0.0, 0.0), id="parity waits without a limit"),
    pytest.param(0.0, False, (LONGEST_ATTEMPT_S, LONGEST_HOLD_S), id="no limit of upstream's"),
    pytest.param(600.0, False, (LONGEST_ATTEMPT_S, LONGEST_HOLD_S), id="one pod may not block all other pods"),
])  # fmt: skip
def test_how_long_a_search_may_take(timeout_s: float, limits: tuple[float, float], *, parity: bool) -> None:
    """The first limit is for searches that yield to the event loop, the second for the other searches."""
    assert limits_of(timeout_s, parity=parity) == limits


# -- the claims of a pod (§2), rows 264–270, 342–344 -------------------------------------------------------------------

P = pod("p").uid("p")


def made(name: str = "c") -> ClaimBuilder:
    return a_claim(name).uid(name)


def resolved(builder: PodBuilder, *claims: ClaimBuilder) -> list[str] | str:
    """Return the names of the claims, or the reason why there are none."""
    there = {claim.key: claim for claim in (each.typed() for each in claims)}

    def need(key: str) -> ResourceClaim:
        if key not in there:
            raise NotKnown(f'could not find ResourceClaim "{key}"')
        return there[key]

    try:
        return [claim.metadata.name for claim in claims_of(builder.typed(), need)]
    except Unresolved as error:
        return str(error)


TEMPLATE = P.claim("e", template="t")
GENERATED = TEMPLATE.claim_made("e", "c")


@pytest.mark.parametrize(("builder", "claims", "expected"), [
    pytest.param(GENERATED, [made().owned_by("p", "other").deleting()], 'resourceclaim "c" is being deleted',
        id="§2.2 deletion is reported before a wrong owner"),
    pytest.param(P.claim("e"), [], 'pod "default/p", spec.resourceClaim "e": none of the supported fields are set',
        id="342 neither name nor template"),
    pytest.param(P.claim("e", claim="c").claim("f", claim="gone").claim("g", template="t"), [made()],
        'could not find ResourceClaim "default/gone"', id="§2.2 the first problem is reported"),
])  # fmt: skip
def test_claims_of_a_pod(builder: PodBuilder, claims: list[ClaimBuilder], expected: list[str] | str) -> None:
    """A pod's claims in the order of its entries, or the first reason why it has to wait."""
    assert expected == resolved(builder, *claims)


def test_an_entry_that_has_both_is_taken_by_its_name() -> None:
    """342 §2.1: a name goes before a template, and the owner of a named claim is not checked."""
    both: Pod = P.claim("e", claim="c", template="t").typed()

    assert ("c", False) == claim_name(both, both.spec.resource_claims[0])


def test_keys_of_claims_are_known_as_far_as_their_names_are() -> None:
    """A waiting pod depends on each claim once, and on no entry that has no claim name yet."""
    builder = P.claim("e", claim="c").claim("f", template="t").claim("g", template="u").claim("h", claim="c")
    builder = builder.claim_made("g", "made").claim_made("h", None)

    assert ("default/c", "default/made") == claim_keys(builder.typed())


def test_a_claim_of_another_namespace_is_not_the_pods() -> None:
    """343: the owner of the claim does not matter."""
    claim = a_claim("c", ns="elsewhere").owned_by("p", "p").typed()

    assert "ResourceClaim elsewhere/c is not in the same namespace as Pod default/p" == not_owned(P.typed(), claim)


@pytest.mark.parametrize(("claim", "expected"), [
    pytest.param(made().reserved_for("x").reserved_for("p", "p"), True, id="344 the pod and another pod"),
    pytest.param(made().reserved_for("p", "earlier"), False, id="344 a namesake"),
])  # fmt: skip
def test_reserved_for_a_pod(claim: ClaimBuilder, *, expected: bool) -> None:
    """Only the uid counts."""
    assert expected == claim.typed().is_reserved_for("p")


# -- Score of prioritized lists (§3.6), rows 309, 310 ------------------------------------------------------------------


def test_only_candidates_count_for_the_best_score() -> None:
    """310: slots outside the candidates may hold any value."""
    world = Served()
    state, _ = world.pre_filter(using())

    found = world.plugin.normalize_score(state, using(), np.array([4, 99, 8]), np.array([0, 2]))

    assert [50, 100] == found[[0, 2]].tolist()


@pytest.mark.parametrize(("claim", "expected"), [
    pytest.param(a_claim("c").first_available("r", an_option("s", "A"), an_option("t", "B")), False, id="a claim with a list is scored"),
    pytest.param(a_claim("c").request("r", "A"), True, id="a claim without a list skips Score, and Verify may wait"),
])  # fmt: skip
def test_when_score_is_skipped(claim: ClaimBuilder, *, expected: bool) -> None:
    """D3: a plugin that reads the results of Verify requires Verify first."""
    world = Served(claim)

    state, _ = world.pre_filter(using("c"))

    assert expected == ("DynamicResources" in state.skip_score)
    assert expected != has_alternatives([claim.typed()])
