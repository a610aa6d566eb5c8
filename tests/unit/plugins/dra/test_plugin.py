"""The extension points of DynamicResources except Filter follow docs/spec/dra.md §3, rows 262–302, 311–314. `test_acting` and `test_writing` have the writes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.resource_v1 import RESERVED_FOR_MAX, DeviceRequest
from scheduler.config.args import KubestowArgs
from scheduler.core.feature_gates import DYNAMIC_RESOURCE_ALLOCATION, PRIORITIZED_LIST
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Rejection
from scheduler.plugins.dra.state import STATE
from simulator.builders.claims import ClaimBuilder, a_claim, a_result, an_option
from simulator.builders.core import Builder
from tests.unit.plugins.dra.points import ERR, UU, U, gates, said
from tests.unit.plugins.dra.served import ASKING, HELD, PARITY, Served, using

# -- PreEnqueue and PreFilter ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("things", "claims", "expected"), [
    pytest.param([], (), SKIP, id="262 no claims"),
    pytest.param([ASKING], ("c",), None, id="a claim to be allocated"),
    pytest.param([a_claim("c").request("r", "")], ("c",), (ERR, "request r: unsupported request type"),
        id="§3.3 no class named"),
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


def test_alternatives_without_their_gate() -> None:
    """285."""
    world = Served(a_claim("c").first_available("r", an_option("s", "A")), gates=gates(PRIORITIZED_LIST))

    _, no = world.pre_filter(using("c"))

    text = "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled"
    assert (UU, text) == said(no)


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


def full() -> ClaimBuilder:
    claim = HELD
    for at in range(RESERVED_FOR_MAX):
        claim = claim.reserved_for(f"x{at}")
    return claim


@pytest.mark.parametrize(("ours", "expected"), [
    pytest.param(None, (UU, "resource claim default/c has 256 users, the most it can have"), id="§10.3 reported at once"),
    pytest.param(PARITY, None, id="§10.3 parity: the server says so, in PreBind"),
])  # fmt: skip
def test_a_claim_with_the_maximum_of_users(ours: Any, expected: object) -> None:
    """The claim accepts no further pod, so PreFilter rejects the pod."""
    world = Served(full(), **({"ours": ours} if ours else {}))

    assert expected == said(world.pre_filter(using("c"))[1])


@pytest.mark.parametrize(("things", "info", "expected"), [
    pytest.param([ASKING], using("c"), None, id="the claim is there"),
    pytest.param([a_claim("c").request("r", "C")], using("c"), None, id="§3.2 classes are not looked at"),
    pytest.param([], using(), None, id="no claims"),
])  # fmt: skip
def test_pre_enqueue(things: list[Builder[Any]], info: Any, expected: object) -> None:
    """All claims must resolve."""
    assert expected == said(Served(*things).plugin.pre_enqueue(info))


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
    """§10: a later request for many devices finds them on one node."""
    taken = a_claim("h").allocated(a_result("r", "a/n2/d0"))
    world = Served(taken, ASKING, ours=KubestowArgs(device_scoring="pack"))
    info, state = world.tried("c")
    nodes = world.cluster.nodes.present

    assert ["n2"] == [name for at, name in enumerate(("n1", "n2")) if world.plugin.prefer(state, info, nodes) >> at & 1]
    assert nodes == Served(taken, ASKING).plugin.prefer(state, info, nodes)


def test_two_pods_of_one_attempt_each_keep_their_states_apart() -> None:
    """§1.5: the plugin keeps no state of an attempt."""
    world = Served(ASKING, a_claim("d").request("r", "A"))
    first, _ = world.pre_filter(using("c", name="first"))
    second, _ = world.pre_filter(using("d", name="second"))

    assert ["c"] == [claim.metadata.name for claim in first.get(STATE).claims]
    assert ["d"] == [claim.metadata.name for claim in second.get(STATE).claims]
