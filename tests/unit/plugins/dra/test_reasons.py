"""`explain` counts why requests find no devices: docs/spec/dra.md §10.3.

The messages stay upstream's (`test_plugin`).
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.core.feature_gates import BINDING_CONDITIONS, DEVICE_GATES_ON, PARTITIONABLE
from scheduler.framework.interface import ExplainPlugin
from simulator.builders.claims import ClaimBuilder, a_claim, a_result, an_option
from simulator.builders.core import Builder
from simulator.builders.devices import a_device, a_slice
from tests.unit.plugins.dra.served import ASKING, SLICES, Served, using

ON = DEVICE_GATES_ON


def facts(world: Served, *claims: str) -> dict[str, Any]:
    found = world.plugin.explain(using(*claims))
    assert found is not None
    return dict(found)


def counts(world: Served, *claims: str) -> list[tuple[int, dict[str, int], int, int]]:
    """Return per request: all devices, rejected devices by reason, free devices, and the most free on one node."""
    rows = facts(world, *claims)["requests"]
    return [(row["devices"], row["out"], row["free"], row["mostOnOneNode"]) for row in rows]


def on_n1(*devices: Any) -> Any:
    return a_slice("n1", "a", *devices)


MIG = {"memory": "10Gi"}


@pytest.mark.parametrize(("things", "expected"), [
    pytest.param([*SLICES, ASKING], (4, {}, 4, 2), id="all devices are free"),
    pytest.param([*SLICES, ASKING, a_claim("o").allocated(a_result("r", "a/n1/d0"))], (4, {"in use": 1}, 3, 2),
        id="one device is in use"),
    pytest.param([*SLICES, a_claim("c").request("r", "A", admin=True),
        a_claim("o").allocated(a_result("r", "a/n1/d0"))], (4, {}, 4, 2), id="admin access ignores that a device is in use"),
    pytest.param([on_n1(a_device("d0").attr("x", 1), a_device("d1").attr("x", 2)), a_claim("c").request("r", "A",
        cel='device.attributes["a"].x == 2')], (2, {"selector #0": 1}, 1, 1), id="the selector of the request rejects a device"),
    pytest.param([on_n1(a_device("d0")), a_claim("c").request("r", "B")], (1, {"class selector #0": 1}, 0, 0),
        id="the selector of the class rejects a device"),
    pytest.param([on_n1(a_device("d0")), a_claim("c").request("r", "A", cel='device.attributes["a"].x == 2')],
        (1, {"broken selector": 1}, 0, 0), id="the selector fails"),
    pytest.param([on_n1(a_device("d0").taint("k"), a_device("d1")), ASKING], (2, {"taint": 1}, 1, 1), id="a device has a taint"),
    pytest.param([on_n1(a_device("d0").cap("mem", "4Gi").shared()),
        a_claim("c").request("r", "A", capacity={"mem": "8Gi"})], (1, {"capacity": 1}, 0, 0), id="a device has too little capacity"),
    pytest.param([on_n1(a_device("d0").attr("x", 1), a_device("d1")), a_claim("c").request("r", "A").match("a/x")],
        (2, {"constraint on a/x": 1}, 1, 1), id="a device lacks the attribute of a constraint"),
    pytest.param([on_n1(a_device("d0")).of(2), ASKING], (1, {"pools that are being updated": 1}, 0, 0),
        id="a pool is not complete"),
    pytest.param([on_n1(a_device("d0").consumes("s", MIG), a_device("d1").consumes("s", MIG)).of(2),
        a_slice("n1", "a").named("counters").counters("s", MIG).of(2), a_claim("o").allocated(a_result("r", "a/n1/d0")),
        ASKING], (2, {"counters": 1, "in use": 1}, 0, 0), id="another device has used up the shared counters"),
    pytest.param([a_slice("n1", "a", a_device("d0"), a_device("d1")).pool("everywhere").everywhere(), ASKING],
        (2, {}, 2, 2), id="devices that every node sees are counted once"),
    pytest.param([a_slice("n1", "a", a_device("d0")).pool("everywhere").everywhere(), a_slice("n1", "a",
        a_device("d1")).named("own"), ASKING], (2, {}, 2, 2), id="they are counted once where nodes have different devices too"),
    pytest.param([ASKING], (0, {}, 0, 0), id="there are no devices"),
])  # fmt: skip
def test_devices_are_counted_by_reason(things: list[Builder[Any]], expected: tuple[Any, ...]) -> None:
    """A device is counted under the first reason that rejects it."""
    assert [expected] == counts(Served(*things, bare=True), "c")


@pytest.mark.parametrize(("without", "device", "why"), [
    pytest.param(BINDING_CONDITIONS, a_device("d0").binding("Ready"), "binding conditions", id="the gate of binding conditions is off"),
    pytest.param(PARTITIONABLE, a_device("d0").consumes("s", MIG), "counters", id="the gate of partitionable devices is off"),
])  # fmt: skip
def test_devices_of_a_disabled_gate_are_counted(without: str, device: Any, why: str) -> None:
    """The count has the devices that need a disabled feature."""
    world = Served(on_n1(device), ASKING, bare=True, gates=ON - {without})

    assert [(1, {why: 1}, 0, 0)] == counts(world, "c")


def test_a_row_names_its_request() -> None:
    """A row has claim, request or alternative, class, selectors, wanted devices and number of nodes."""
    cel = 'device.driver == "a"'
    claim = a_claim("c").first_available("r", an_option("s", "A", cel=cel, count=3), an_option("t", "B", every=True))

    rows = facts(Served(claim), "c")["requests"]

    found = [
        (row["claim"], row["request"], row["class"], row["selectors"], row["wanted"], row["nodes"]) for row in rows
    ]
    assert [("default/c", "r/s", "A", [cel], 3, 2), ("default/c", "r/t", "B", [], "all", 2)] == found


def test_slices_that_cannot_be_read_are_named() -> None:
    """A slice that cannot be decoded counts as absent."""
    world = Served(ASKING, bare=True)
    metadata = Metadata(name="n1-a")
    world.devices.broken["ResourceSlice", "n1-a"] = Broken(
        "ResourceSlice", metadata, "spec.devices[3].name: expected str"
    )

    assert {"n1-a": "spec.devices[3].name: expected str"} == facts(world, "c")["unreadableSlices"]


@pytest.mark.parametrize(("claim", "expected"), [
    pytest.param(None, None, id="the pod has no claims"),
    pytest.param(a_claim("c").request("r", "C"), {"problem": "request r: device class C does not exist"},
        id="the class does not exist"),
    pytest.param(ASKING.allocated(a_result("r", "a/n1/d0")), {"requests": []}, id="the claim is already allocated"),
])  # fmt: skip
def test_pods_that_pre_filter_decides_have_no_counts(claim: ClaimBuilder | None, expected: object) -> None:
    """The explanation of these pods is the result of PreFilter."""
    world = Served(*([claim] if claim is not None else []))

    assert isinstance(world.plugin, ExplainPlugin)
    assert expected == world.plugin.explain(using(*(["c"] if claim is not None else [])))


def test_explain_changes_nothing() -> None:
    """`explain` may be called at any time."""
    world = Served(ASKING)
    before = (world.used, world.in_flight, world.writes, world.refusals(using("c")))

    facts(world, "c")

    assert before == (world.used, world.in_flight, world.writes, world.refusals(using("c")))


def numa(*values: int) -> Any:
    return on_n1(*(a_device(f"d{at}").attr("numa", value).attr("id", at) for at, value in enumerate(values)))


def claim_for(count: int = 3) -> ClaimBuilder:
    return a_claim("c").request("r", "A", count=count)


IN_USE = a_claim("o").allocated(a_result("r", "a/n1/d0"))
OTHER_NODE = a_slice("n2", "a", *(a_device(f"d{at}").attr("numa", 7) for at in range(3)))


@pytest.mark.parametrize(("things", "expected"), [
    pytest.param([numa(0, 0, 1, 1), claim_for()], [], id="the claim has no constraint"),
    pytest.param([numa(0, 0, 1, 1), claim_for().match("a/numa")], [("matchAttribute a/numa", 3, 2, 0)],
        id="two of three devices are alike"),
    pytest.param([numa(0, 0, 0, 1), claim_for().match("a/numa")], [("matchAttribute a/numa", 3, 3, 1)],
        id="three of three devices are alike"),
    pytest.param([numa(0, 0, 0, 1), claim_for().match("a/numa"), IN_USE], [("matchAttribute a/numa", 3, 2, 0)],
        id="one of the three is in use"),
    pytest.param([numa(0, 0, 1, 1), OTHER_NODE, claim_for().match("a/numa")], [("matchAttribute a/numa", 3, 3, 1)],
        id="another node has enough devices"),
    pytest.param([numa(0, 0, 1), claim_for().distinct("a/numa")], [("distinctAttribute a/numa", 3, 2, 0)],
        id="the devices have two of three values"),
    pytest.param([numa(0, 0, 1), claim_for().match("a/numa").distinct("a/id")],
        [("matchAttribute a/numa", 3, 2, 0), ("distinctAttribute a/id", 3, 3, 1)], id="each constraint is counted alone"),
    pytest.param([numa(0, 0, 1), a_claim("c").request("r", "A", count=2).request("s", "A").match("a/numa")],
        [("matchAttribute a/numa", 3, 2, 0)], id="the constraint covers two requests"),
    pytest.param([numa(0, 0, 1), a_claim("c").request("r", "A", count=2).request("s", "A").match("a/numa", "r")],
        [("matchAttribute a/numa", 2, 2, 1)], id="the constraint covers one of two requests"),
    pytest.param([numa(0, 0, 1), a_claim("c").first_available("f", an_option("x", "A", count=3), an_option("y", "A",
        count=2)).match("a/numa")], [("matchAttribute a/numa", 2, 2, 1)], id="an alternative wants fewer devices"),
    pytest.param([numa(0, 0, 1), a_claim("c").request("r", "A", every=True).match("a/numa")],
        [("matchAttribute a/numa", 3, 2, 0)], id="the request wants all devices"),
    pytest.param([claim_for().match("a/numa")], [("matchAttribute a/numa", 3, 0, 0)], id="there are no devices"),
])  # fmt: skip
def test_constraints_that_cannot_be_satisfied_are_named(
    things: list[Builder[Any]], expected: list[tuple[str, int, int, int]]
) -> None:
    """A row has the wanted devices, the free devices on the best node, and the number of nodes with enough."""
    rows = facts(Served(*things), "c").get("constraints", [])

    assert expected == [
        (row["constraint"], row["wanted"], row["mostOnOneNode"], row["nodesWithEnough"]) for row in rows
    ]
