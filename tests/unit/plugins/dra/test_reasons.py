"""Why requests find no devices, in numbers: docs/spec/dra.md §10.3. Messages stay upstream's (`test_plugin`)."""

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
    """Per request: devices, those that will not do by reason, those that will, and how many of them on one node."""
    rows = facts(world, *claims)["requests"]
    return [(row["devices"], row["out"], row["free"], row["mostOnOneNode"]) for row in rows]


def on_n1(*devices: Any) -> Any:
    return a_slice("n1", "a", *devices)


MIG = {"memory": "10Gi"}


@pytest.mark.parametrize(("things", "expected"), [
    pytest.param([*SLICES, ASKING], (4, {}, 4, 2), id="all are free"),
    pytest.param([*SLICES, ASKING, a_claim("o").allocated(a_result("r", "a/n1/d0"))], (4, {"in use": 1}, 3, 2),
        id="in use"),
    pytest.param([*SLICES, a_claim("c").request("r", "A", admin=True),
        a_claim("o").allocated(a_result("r", "a/n1/d0"))], (4, {}, 4, 2), id="in use does not matter to admin access"),
    pytest.param([on_n1(a_device("d0").attr("x", 1), a_device("d1").attr("x", 2)), a_claim("c").request("r", "A",
        cel='device.attributes["a"].x == 2')], (2, {"selector #0": 1}, 1, 1), id="the request's selector"),
    pytest.param([on_n1(a_device("d0")), a_claim("c").request("r", "B")], (1, {"class selector #0": 1}, 0, 0),
        id="the class's"),
    pytest.param([on_n1(a_device("d0")), a_claim("c").request("r", "A", cel='device.attributes["a"].x == 2')],
        (1, {"broken selector": 1}, 0, 0), id="a selector that breaks"),
    pytest.param([on_n1(a_device("d0").taint("k"), a_device("d1")), ASKING], (2, {"taint": 1}, 1, 1), id="taint"),
    pytest.param([on_n1(a_device("d0").cap("mem", "4Gi").shared()),
        a_claim("c").request("r", "A", capacity={"mem": "8Gi"})], (1, {"capacity": 1}, 0, 0), id="capacity"),
    pytest.param([on_n1(a_device("d0").attr("x", 1), a_device("d1")), a_claim("c").request("r", "A").match("a/x")],
        (2, {"constraint on a/x": 1}, 1, 1), id="an attribute that a constraint is about, and that a device lacks"),
    pytest.param([on_n1(a_device("d0")).of(2), ASKING], (1, {"pools that are being updated": 1}, 0, 0),
        id="a pool that is not complete"),
    pytest.param([on_n1(a_device("d0").consumes("s", MIG), a_device("d1").consumes("s", MIG)).of(2),
        a_slice("n1", "a").named("counters").counters("s", MIG).of(2), a_claim("o").allocated(a_result("r", "a/n1/d0")),
        ASKING], (2, {"counters": 1, "in use": 1}, 0, 0), id="shared counters that others have drawn on"),
    pytest.param([a_slice("n1", "a", a_device("d0"), a_device("d1")).pool("everywhere").everywhere(), ASKING],
        (2, {}, 2, 2), id="devices that every node sees are counted once"),
    pytest.param([a_slice("n1", "a", a_device("d0")).pool("everywhere").everywhere(), a_slice("n1", "a",
        a_device("d1")).named("own"), ASKING], (2, {}, 2, 2), id="also where nodes differ in others"),
    pytest.param([ASKING], (0, {}, 0, 0), id="no devices at all"),
])  # fmt: skip
def test_counts(things: list[Builder[Any]], expected: tuple[Any, ...]) -> None:
    """A device is counted under the first thing that is wrong with it."""
    assert [expected] == counts(Served(*things, bare=True), "c")


@pytest.mark.parametrize(("without", "device", "why"), [
    pytest.param(BINDING_CONDITIONS, a_device("d0").binding("Ready"), "binding conditions", id="binding conditions"),
    pytest.param(PARTITIONABLE, a_device("d0").consumes("s", MIG), "counters", id="partitions"),
])  # fmt: skip
def test_what_a_gate_leaves_out(without: str, device: Any, why: str) -> None:
    """Devices that need a feature that is off."""
    world = Served(on_n1(device), ASKING, bare=True, gates=ON - {without})

    assert [(1, {why: 1}, 0, 0)] == counts(world, "c")


def test_a_row_names_its_request() -> None:
    """Claim, request or alternative, class and selectors, and how many are wanted of how many nodes."""
    cel = 'device.driver == "a"'
    claim = a_claim("c").first_available("r", an_option("s", "A", cel=cel, count=3), an_option("t", "B", every=True))

    rows = facts(Served(claim), "c")["requests"]

    told = [(row["claim"], row["request"], row["class"], row["selectors"], row["wanted"], row["nodes"]) for row in rows]
    assert [("default/c", "r/s", "A", [cel], 3, 2), ("default/c", "r/t", "B", [], "all", 2)] == told


def test_slices_that_cannot_be_read_are_named() -> None:
    """Bad input: they count as absent."""
    world = Served(ASKING, bare=True)
    metadata = Metadata(name="n1-a")
    world.devices.broken["ResourceSlice", "n1-a"] = Broken(
        "ResourceSlice", metadata, "spec.devices[3].name: expected str"
    )

    assert {"n1-a": "spec.devices[3].name: expected str"} == facts(world, "c")["unreadableSlices"]


@pytest.mark.parametrize(("claim", "expected"), [
    pytest.param(None, None, id="a pod without claims"),
    pytest.param(a_claim("c").request("r", "C"), {"problem": "request r: device class C does not exist"},
        id="no class"),
    pytest.param(ASKING.allocated(a_result("r", "a/n1/d0")), {"requests": []}, id="nothing to allocate"),
])  # fmt: skip
def test_other_pods(claim: ClaimBuilder | None, expected: object) -> None:
    """What PreFilter says is all there is to say."""
    world = Served(*([claim] if claim is not None else []))

    assert isinstance(world.plugin, ExplainPlugin)
    assert expected == world.plugin.explain(using(*(["c"] if claim is not None else [])))


def test_asking_changes_nothing() -> None:
    """It may be asked at any time."""
    world = Served(ASKING)
    before = (world.used, world.in_flight, world.writes, world.refusals(using("c")))

    facts(world, "c")

    assert before == (world.used, world.in_flight, world.writes, world.refusals(using("c")))


def numa(*values: int) -> Any:
    return on_n1(*(a_device(f"d{at}").attr("numa", value).attr("id", at) for at, value in enumerate(values)))


def asking(count: int = 3) -> ClaimBuilder:
    return a_claim("c").request("r", "A", count=count)


IN_USE = a_claim("o").allocated(a_result("r", "a/n1/d0"))
OTHER_NODE = a_slice("n2", "a", *(a_device(f"d{at}").attr("numa", 7) for at in range(3)))


@pytest.mark.parametrize(("things", "expected"), [
    pytest.param([numa(0, 0, 1, 1), asking()], [], id="no constraint"),
    pytest.param([numa(0, 0, 1, 1), asking().match("a/numa")], [("matchAttribute a/numa", 3, 2, 0)],
        id="two of three alike"),
    pytest.param([numa(0, 0, 0, 1), asking().match("a/numa")], [("matchAttribute a/numa", 3, 3, 1)],
        id="three of three alike"),
    pytest.param([numa(0, 0, 0, 1), asking().match("a/numa"), IN_USE], [("matchAttribute a/numa", 3, 2, 0)],
        id="one of the three is in use"),
    pytest.param([numa(0, 0, 1, 1), OTHER_NODE, asking().match("a/numa")], [("matchAttribute a/numa", 3, 3, 1)],
        id="enough on another node"),
    pytest.param([numa(0, 0, 1), asking().distinct("a/numa")], [("distinctAttribute a/numa", 3, 2, 0)],
        id="two values of three"),
    pytest.param([numa(0, 0, 1), asking().match("a/numa").distinct("a/id")],
        [("matchAttribute a/numa", 3, 2, 0), ("distinctAttribute a/id", 3, 3, 1)], id="each constraint alone"),
    pytest.param([numa(0, 0, 1), a_claim("c").request("r", "A", count=2).request("s", "A").match("a/numa")],
        [("matchAttribute a/numa", 3, 2, 0)], id="two requests together"),
    pytest.param([numa(0, 0, 1), a_claim("c").request("r", "A", count=2).request("s", "A").match("a/numa", "r")],
        [("matchAttribute a/numa", 2, 2, 1)], id="one of two requests"),
    pytest.param([numa(0, 0, 1), a_claim("c").first_available("f", an_option("x", "A", count=3), an_option("y", "A",
        count=2)).match("a/numa")], [("matchAttribute a/numa", 2, 2, 1)], id="an alternative that wants fewer"),
    pytest.param([numa(0, 0, 1), a_claim("c").request("r", "A", every=True).match("a/numa")],
        [("matchAttribute a/numa", 3, 2, 0)], id="all devices"),
    pytest.param([asking().match("a/numa")], [("matchAttribute a/numa", 3, 0, 0)], id="no devices at all"),
])  # fmt: skip
def test_constraints_that_cannot_be_satisfied_are_named(
    things: list[Builder[Any]], expected: list[tuple[str, int, int, int]]
) -> None:
    """How many free devices are wanted together, how many there are on the best node, and on how many nodes enough."""
    rows = facts(Served(*things), "c").get("constraints", [])

    assert expected == [
        (row["constraint"], row["wanted"], row["mostOnOneNode"], row["nodesWithEnough"]) for row in rows
    ]
