"""DynamicResources at its extension points: docs/spec/dra.md §3, rows 262–302, 311–314. What acts is in `test_acting` and `test_writing`."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.config.args import DynamicResourcesArgs, KubestowArgs
from scheduler.core.decode import Broken
from scheduler.core.devicegates import (
    ADMIN_ACCESS,
    DEVICE_GATES_ON,
    DYNAMIC_RESOURCE_ALLOCATION,
    FILTER_TIMEOUT,
    PRIORITIZED_LIST,
    TAINTS,
)
from scheduler.core.meta import Metadata
from scheduler.core.podinfo import pod_info
from scheduler.core.resourceclaims import RESERVED_FOR_MAX, DeviceRequest
from scheduler.core.verdicts import SKIP, Code, Rejection, Skip
from scheduler.framework.state import CycleState
from scheduler.plugins.dra.pondering import LONGEST_ATTEMPT_S, LONGEST_HOLD_S, limits_of
from scheduler.plugins.dra.state import STATE
from scheduler.testing.builders import Builder, pod
from scheduler.testing.devicebuilders import a_device, a_device_class, a_slice
from scheduler.testing.deviceclaimbuilders import ClaimBuilder, a_claim, a_result, an_option
from tests.unit.plugins.dra.served import ASKING, PARITY, SLICES, Served, Slow, using
from tests.unit.plugins.dra.world import FIRST_FIT

UU, U, ERR = Code.UNRESOLVABLE, Code.UNSCHEDULABLE, Code.ERROR
NO_DEVICES = (UU, "cannot allocate all claims")
NOT_HERE = (UU, "resourceclaim not available on the node")
HELD = ASKING.allocated(a_result("r", "a/n1/d0"))
HELD_ON_N1 = ASKING.allocated(a_result("r", "a/n1/d0"), on="n1")
HELD_ON_N9 = ASKING.allocated(a_result("r", "a/n9/d0"), on="n9")
ALL_GATES = DEVICE_GATES_ON


def gates(*without: str) -> frozenset[str]:
    return ALL_GATES - set(without)


def said(no: Rejection | Skip | None) -> Any:
    """(code, text), Skip or None."""
    return (no.code, no.message) if isinstance(no, Rejection) else no


def asking_two(name: str = "c") -> ClaimBuilder:
    return a_claim(name).request("r", "A", count=2)


# -- PreEnqueue and PreFilter ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("things", "claims", "expected"),
    [
        pytest.param([], (), SKIP, id="262 no claims"),
        pytest.param([ASKING], ("c",), None, id="a claim to be allocated"),
        pytest.param([HELD], ("c",), None, id="264 a claim that is allocated"),
        pytest.param([], ("c",), (UU, 'could not find ResourceClaim "default/c"'), id="268 a claim that is not there"),
        pytest.param(
            [ASKING.deleting()], ("c",), (UU, 'resourceclaim "c" is being deleted'), id="269 one on its way out"
        ),
        pytest.param(
            [a_claim("c").request("r", "C")],
            ("c",),
            (UU, "request r: device class C does not exist"),
            id="283 a class that is not there",
        ),
        pytest.param(
            [a_claim("c").request("r", "")],
            ("c",),
            (ERR, "request r: unsupported request type"),
            id="§3.3 no class named",
        ),
        pytest.param(
            [a_claim("c").first_available("r", an_option("s", "A"), an_option("t", "C"))],
            ("c",),
            (UU, "request r/t: device class C does not exist"),
            id="285 the class of an alternative is not there",
        ),
        pytest.param(
            [a_claim("c").first_available("r", an_option("s", "A"))],
            ("c",),
            None,
            id="285 alternatives that can be asked for",
        ),
        pytest.param(
            [
                a_claim("c")
                .request("r", "A")
                .set(
                    {
                        "status": {
                            "allocation": {
                                "nodeSelector": {
                                    "nodeSelectorTerms": [
                                        {"matchExpressions": [{"key": "k", "operator": "Near", "values": ["x"]}]}
                                    ]
                                }
                            }
                        }
                    }
                )
            ],
            ("c",),
            (ERR, "matchExpressions[0].operator: 'Near' is not supported"),
            id="291 an allocation whose node selector cannot be parsed",
        ),
    ],
)
def test_pre_filter(things: list[Builder[Any]], claims: tuple[str, ...], expected: object) -> None:
    """What is wrong whatever the node; nothing is restricted."""
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


def test_alternatives_without_their_gate() -> None:
    """285."""
    world = Served(a_claim("c").first_available("r", an_option("s", "A")), gates=gates(PRIORITIZED_LIST))

    _, no = world.pre_filter(using("c"))

    text = "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled"
    assert (UU, text) == said(no)


def test_a_claim_in_flight_for_another_pod_is_waited_for() -> None:
    """277: and after it is written both use it."""
    world = Served(ASKING)
    under = world.reserved(using("c", name="first"))

    assert (UU, "resource claim default/c is in the process of being allocated") == said(
        world.pre_filter(using("c", name="second"))[1]
    )

    world.unreserve(under)

    assert said(world.pre_filter(using("c", name="second"))[1]) is None


def test_a_failed_pre_filter_leaves_no_claims_behind() -> None:
    """§3.3 step 8: what PostFilter says then."""
    world = Served(ASKING, a_claim("d").request("r", "C"))
    info = using("c", "d")
    state, no = world.pre_filter(info)

    assert isinstance(no, Rejection)
    assert (U, "no new claims to deallocate") == said(world.post_filter(state, info))


@pytest.mark.parametrize("what", ["ResourceClaim", "DeviceClass"])
def test_what_cannot_be_read_is_named(what: str) -> None:
    """Bad input: object and field, behind upstream's text."""
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


def full() -> ClaimBuilder:
    claim = HELD
    for at in range(RESERVED_FOR_MAX):
        claim = claim.reserved_for(f"x{at}")
    return claim


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        pytest.param(
            None, (UU, "resource claim default/c has 256 users, the most it can have"), id="§10.3 told at once"
        ),
        pytest.param(PARITY, None, id="§10.3 parity: the server says so, in PreBind"),
    ],
)
def test_a_claim_that_has_all_the_users_it_can_have(ours: Any, expected: object) -> None:
    """No use trying."""
    world = Served(full(), **({"ours": ours} if ours else {}))

    assert expected == said(world.pre_filter(using("c"))[1])


@pytest.mark.parametrize(
    ("things", "info", "expected"),
    [
        pytest.param([ASKING], using("c"), None, id="the claim is there"),
        pytest.param([], using("c"), (UU, 'could not find ResourceClaim "default/c"'), id="268 it is not"),
        pytest.param(
            [],
            pod_info(pod("p").uid("p").claim("e", template="t").typed()),
            (UU, 'pod "default/p": ResourceClaim not created yet'),
            id="266 it is not made yet",
        ),
        pytest.param([a_claim("c").request("r", "C")], using("c"), None, id="§3.2 classes are not looked at"),
        pytest.param([], using(), None, id="no claims"),
    ],
)
def test_pre_enqueue(things: list[Builder[Any]], info: Any, expected: object) -> None:
    """All claims must resolve."""
    assert expected == said(Served(*things).plugin.pre_enqueue(info))


# -- Filter ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("things", "claims", "expected"),
    [
        pytest.param([ASKING], ("c",), {}, id="devices on both nodes"),
        pytest.param([HELD], ("c",), {}, id="264 allocated, usable everywhere"),
        pytest.param([HELD_ON_N1], ("c",), {"n2": NOT_HERE}, id="286 allocated for the other node"),
        pytest.param(
            [
                a_claim("h").allocated(a_result("r", "a/n1/d0")),
                a_claim("g").allocated(a_result("r", "a/n1/d1")),
                ASKING,
            ],
            ("c",),
            {"n1": NO_DEVICES},
            id="276 all devices of a node are taken",
        ),
        pytest.param(
            [a_claim("g").allocated(a_result("r", "a/n1/d0", admin=True)), asking_two()],
            ("c",),
            {},
            id="280 a device that is held by admin access only",
        ),
        pytest.param(
            [a_claim("g").allocated(a_result("r", "a/n1/d0"), on="n2"), asking_two()],
            ("g", "c"),
            {"n1": NO_DEVICES},
            id="§3.4 where both are wrong, the allocator is told",
        ),
        pytest.param(
            [a_claim("c").request("r", "A", count=3)], ("c",), {"n1": NO_DEVICES, "n2": NO_DEVICES}, id="too many"
        ),
        pytest.param(
            [ASKING, asking_two("d")], ("c", "d"), {"n1": NO_DEVICES, "n2": NO_DEVICES}, id="two claims together"
        ),
        pytest.param([asking_two()], ("c", "c"), {}, id="§2.2 a claim that is listed twice is allocated once"),
    ],
)
def test_filter(things: list[Builder[Any]], claims: tuple[str, ...], expected: dict[str, Any]) -> None:
    """Which nodes are out, and why."""
    assert expected == Served(*things).refusals(using(*claims))


def test_no_slices() -> None:
    """271."""
    world = Served(ASKING, bare=True)
    info = using("c")
    state, _ = world.filter(info)

    assert {"n1": NO_DEVICES, "n2": NO_DEVICES} == world.refusals(info)
    assert (U, "still not schedulable") == said(world.post_filter(state, info))


def test_devices_in_flight_are_taken() -> None:
    """276: until the attempt is undone."""
    world = Served(asking_two(), asking_two("d"))
    under = world.reserved(using("c", name="first"))

    assert {"n1": NO_DEVICES} == world.refusals(using("d"))

    world.unreserve(under)

    assert {} == world.refusals(using("d"))


@pytest.mark.parametrize(
    ("is_on", "expected"),
    [
        pytest.param(False, {}, id="278 gate off: taints say nothing"),
        pytest.param(True, {"n1": NO_DEVICES, "n2": NO_DEVICES}, id="278 gate on"),
    ],
)
def test_a_tainted_device(*, is_on: bool, expected: dict[str, Any]) -> None:
    """A hard taint that nobody tolerates."""
    tainted = a_slice("n1", "a", a_device("d0").taint("k"))

    world = Served(tainted, ASKING, bare=True, gates=gates() if is_on else gates(TAINTS))

    assert (expected if is_on else {"n2": NO_DEVICES}) == world.refusals(using("c"))


def test_admin_access_with_and_without_its_gate() -> None:
    """279: without it every node is in error, and so is the attempt."""
    claim = a_claim("c").request("r", "A", admin=True)

    assert {} == Served(claim).refusals(using("c"))
    without = Served(claim, gates=gates(ADMIN_ACCESS)).refusals(using("c"))
    text = "claim default/c, request r: admin access is requested, but the feature is disabled"
    assert {"n1": (ERR, text), "n2": (ERR, text)} == without


BREAKS = 'device.attributes["a"].x == "1"'
HEALTHY = a_slice("n2", "a", a_device("d0").attr("x", "1"), a_device("d1").attr("x", "1"))


@pytest.mark.parametrize(
    ("things", "text"),
    [
        pytest.param(
            [a_claim("c").request("r", "A", cel=BREAKS)],
            "claim default/c: selector #0: CEL runtime error: no such key: x",
            id="281 the claim's selector",
        ),
        pytest.param(
            [a_device_class("C", BREAKS), a_claim("c").request("r", "C")],
            "class C: selector #0: CEL runtime error: no such key: x",
            id="281 the class's selector",
        ),
    ],
)
def test_a_selector_that_breaks(things: list[Builder[Any]], text: str) -> None:
    """282: an error, of those nodes where it is met; the user is told once which device it is."""
    world = Served(SLICES[0], HEALTHY, *things, bare=True)

    refusals = world.refusals(using("c"))
    world.refusals(using("c"))

    assert ["n1"] == list(refusals)
    code, message = refusals["n1"]
    assert (ERR, True) == (code, message.startswith(text))
    (event,) = world.recorder.events
    assert ("default/p", "Warning", "DeviceSelectorFailed") == (event.pod, event.type_, event.reason)
    assert "breaks on device a/n1/d0: CEL runtime error: no such key: x" in event.note


def test_a_selector_that_does_not_compile_is_no_news_of_a_device() -> None:
    """281: no device is to blame."""
    world = Served(a_claim("c").request("r", "A", cel="device.driver =="))

    (refusal, _) = world.refusals(using("c")).values()

    assert ERR == refusal[0]
    assert [] == world.recorder.events


def test_after_reserve_the_pods_own_devices_are_not_taken_for_somebody_elses() -> None:
    """D7: a second look before Bind."""
    world = Served(asking_two())
    info, state = world.reserved(using("c"))
    slot = world.cluster.nodes.present_slot("n1")
    assert slot is not None

    assert {} == world.plugin.filter(state, info, 1 << slot)
    assert world.plugin.verify(state, info, slot) is None


@pytest.mark.parametrize(
    ("things", "claims", "expected"),
    [
        pytest.param([HELD], ("c",), True, id="nothing to allocate"),
        pytest.param([ASKING], ("c",), False, id="something to allocate"),
        pytest.param([], ("c",), True, id="PreFilter has refused"),
    ],
)
def test_what_filter_vouches_for(things: list[Builder[Any]], claims: tuple[str, ...], *, expected: bool) -> None:
    """Its law: where it does, Verify never says no."""
    world = Served(*things)
    info = using(*claims)
    state, _ = world.pre_filter(info)

    assert expected == world.plugin.vouches(state, info)
    assert not expected or world.plugin.verify(state, info, 0) is None


def test_without_a_state_filter_is_in_error_and_verify_has_nothing_to_say() -> None:
    """§3.4 step 1."""
    world = Served()
    info, nodes = using("c"), world.cluster.nodes.present

    (no,) = world.plugin.filter(CycleState(), info, nodes)

    assert (ERR, "not found") == said(no)
    assert world.plugin.verify(CycleState(), info, 0) is None


@pytest.mark.parametrize(
    ("timeout_s", "without", "ours", "is_late"),
    [
        pytest.param(1.0, (), FIRST_FIT, True, id="301 it takes longer"),
        pytest.param(1.0, (), PARITY, True, id="301 it takes longer, parity"),
        pytest.param(0.0, (), PARITY, False, id="302 no limit"),
        pytest.param(1.0, (FILTER_TIMEOUT,), PARITY, False, id="302 gate off"),
        pytest.param(0.0, (), FIRST_FIT, True, id="no limit, but nobody else has a turn"),
    ],
)
def test_filter_timeout(timeout_s: float, without: tuple[str, ...], ours: KubestowArgs, *, is_late: bool) -> None:
    """An error that names the node."""
    many = a_slice("n1", "a", *(a_device(f"d{at}") for at in range(100)))
    claims = [a_claim(name).request("r", "A", count=30) for name in ("c", "d", "e")]
    args = DynamicResourcesArgs(filter_timeout_s=timeout_s)
    world = Served(many, *claims, bare=True, ours=ours, args=args, gates=gates(*without))
    world.plugin._boards._searches._clock = Slow(world.clock)

    refusals = world.refusals(using("c", "d", "e"))

    late = (ERR, "node n1: timed out trying to allocate devices")
    assert (late if is_late else None) == refusals.get("n1")


@pytest.mark.parametrize(
    ("timeout_s", "parity", "limits"),
    [
        pytest.param(
            10.0, False, (10.0, LONGEST_HOLD_S), id="upstream's default, but not where nobody else has a turn"
        ),
        pytest.param(0.5, False, (0.5, 0.5), id="less is less"),
        pytest.param(10.0, True, (10.0, 10.0), id="parity waits"),
        pytest.param(0.0, True, (0.0, 0.0), id="parity waits for ever"),
        pytest.param(0.0, False, (LONGEST_ATTEMPT_S, LONGEST_HOLD_S), id="no limit of upstream's"),
        pytest.param(600.0, False, (LONGEST_ATTEMPT_S, LONGEST_HOLD_S), id="one pod may not stop all others"),
    ],
)
def test_how_long_a_search_may_take(timeout_s: float, limits: tuple[float, float], *, parity: bool) -> None:
    """With turns for others, and without."""
    assert limits_of(timeout_s, parity=parity) == limits


# -- PreBindPreFlight, gates, prefer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("things", "claims", "expected"),
    [pytest.param([], (), SKIP, id="313 no claims"), pytest.param([ASKING], ("c",), None, id="313 claims")],
)
def test_pre_bind_pre_flight(things: list[Builder[Any]], claims: tuple[str, ...], expected: object) -> None:
    """And PreBind may run beside that of others."""
    world = Served(*things)
    info = using(*claims)
    state, _ = world.pre_filter(info)

    assert expected == said(world.plugin.pre_bind_pre_flight(state, info, "n1"))
    assert world.plugin.pre_bind_parallel


def test_pre_flight_without_a_state() -> None:
    """§3.9."""
    world = Served()

    assert (ERR, "not found") == said(world.plugin.pre_bind_pre_flight(CycleState(), using("c"), "n1"))


def test_everything_is_off() -> None:
    """299."""
    world = Served(ASKING, gates=frozenset())
    info, state = using("c"), CycleState()
    plugin, nodes = world.plugin, world.cluster.nodes.present

    assert DYNAMIC_RESOURCE_ALLOCATION not in world.gates
    assert plugin.pre_enqueue(using("gone")) is None
    assert SKIP is plugin.pre_filter(state, info, nodes)
    assert {} == plugin.filter(state, info, nodes)
    assert (U, "plugin disabled") == said(world.post_filter(state, info))
    assert plugin.reserve(state, info, "n1") is None
    assert SKIP is plugin.pre_bind_pre_flight(state, info, "n1")
    plugin.unreserve(state, info, "n1")


def test_the_fuller_of_equal_nodes_is_preferred() -> None:
    """§10: what asks for many devices finds them together."""
    taken = a_claim("h").allocated(a_result("r", "a/n2/d0"))
    world = Served(taken, ASKING, ours=KubestowArgs(device_scoring="pack"))
    info = using("c")
    state, _ = world.filter(info)
    nodes = world.cluster.nodes.present

    assert ["n2"] == [name for at, name in enumerate(("n1", "n2")) if world.plugin.prefer(state, info, nodes) >> at & 1]
    assert nodes == Served(taken, ASKING).plugin.prefer(state, info, nodes)


def test_two_pods_of_one_attempt_each_keep_their_states_apart() -> None:
    """§1.5: nothing of an attempt survives in the plugin."""
    world = Served(ASKING, a_claim("d").request("r", "A"))
    first, _ = world.pre_filter(using("c", name="first"))
    second, _ = world.pre_filter(using("d", name="second"))

    assert ["c"] == [claim.metadata.name for claim in first.get(STATE).claims]
    assert ["d"] == [claim.metadata.name for claim in second.get(STATE).claims]
