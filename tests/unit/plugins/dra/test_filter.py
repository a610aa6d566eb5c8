"""Filter of DynamicResources follows docs/spec/dra.md §3.4, §4 and its time limits. Scenarios of the allocator are in `test_scenarios`."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.config.args import DynamicResourcesArgs, KubestowArgs
from scheduler.core.cooperative import answered, finish
from scheduler.core.feature_gates import ADMIN_ACCESS, FILTER_TIMEOUT, TAINTS
from scheduler.framework.interface import CycleState
from scheduler.plugins.dra.structured.node_verdicts import LONGEST_ATTEMPT_S, LONGEST_HOLD_S, limits_of
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import Builder
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.plugins.dra.points import ERR, NO_DEVICES, U, claim_for_two, gates, said
from tests.unit.plugins.dra.served import ASKING, HELD, PARITY, SLICES, Served, Slow, using
from tests.unit.plugins.dra.world import FIRST_FIT


@pytest.mark.parametrize(("things", "claims", "expected"), [
    pytest.param([ASKING], ("c",), {}, id="devices on both nodes"),
    pytest.param([a_claim("g").allocated(a_result("r", "a/n1/d0"), on="n2"), claim_for_two()], ("g", "c"),
        {"n1": NO_DEVICES}, id="§3.4 where both are wrong, the allocator's reason is reported"),
])  # fmt: skip
def test_filter(things: list[Builder[Any]], claims: tuple[str, ...], expected: dict[str, Any]) -> None:
    """Filter rejects these nodes for these reasons."""
    assert expected == Served(*things).refusals(using(*claims))


def test_no_slices() -> None:
    """271."""
    world = Served(ASKING, bare=True)
    info, state = world.tried("c")

    assert {"n1": NO_DEVICES, "n2": NO_DEVICES} == world.refusals(info)
    assert (U, "still not schedulable") == said(world.post_filter(state, info))


def test_devices_in_flight_are_taken() -> None:
    """276: until the attempt is undone."""
    world = Served(claim_for_two(), claim_for_two("d"))
    under = world.reserved(using("c", name="first"))

    assert {"n1": NO_DEVICES} == world.refusals(using("d"))

    world.unreserve(under)

    assert {} == world.refusals(using("d"))


@pytest.mark.parametrize(("is_on", "expected"), [
    pytest.param(False, {}, id="278 gate off: taints say nothing"),
    pytest.param(True, {"n1": NO_DEVICES, "n2": NO_DEVICES}, id="278 gate on"),
])  # fmt: skip
def test_a_tainted_device(*, is_on: bool, expected: dict[str, Any]) -> None:
    """The device has a hard taint that no request tolerates."""
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
    pytest.param(1.0, (), PARITY, True, id="301 it takes longer, parity"),
    pytest.param(0.0, (), PARITY, False, id="302 no limit"),
    pytest.param(1.0, (FILTER_TIMEOUT,), PARITY, False, id="302 gate off"),
    pytest.param(0.0, (), FIRST_FIT, True, id="no limit, but the event loop does not run"),
])  # fmt: skip
def test_filter_timeout(timeout_s: float, without: tuple[str, ...], ours: KubestowArgs, *, is_late: bool) -> None:
    """The error names the node."""
    many = a_slice("n1", "a", *(a_device(f"d{at}") for at in range(100)))
    claims = [a_claim(name).request("r", "A", count=30) for name in ("c", "d", "e")]
    args = DynamicResourcesArgs(filter_timeout_s=timeout_s)
    world = Served(many, *claims, bare=True, ours=ours, args=args, gates=gates(*without))
    world.plugin._verdicts._searches._clock = Slow(world.clock)

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
