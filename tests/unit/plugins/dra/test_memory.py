"""What is kept of earlier attempts (verdicts of nodes, demands, results of selectors), and what `explain` counts (docs/spec/dra.md §10.3)."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.resource_v1 import Device
from scheduler.cache.devices import pools
from scheduler.cache.devices.manager import DeviceClasses
from scheduler.cache.devices.pools import DeviceKind, Limit
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, finish
from scheduler.core.feature_gates import BINDING_CONDITIONS, DEVICE_GATES_ON, PARTITIONABLE
from scheduler.core.nodeset import NodeSet
from scheduler.framework.interface import ExplainPlugin
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures
from scheduler.plugins.dra.structured.node_verdicts import CANNOT_ALLOCATE, NodeVerdicts
from scheduler.plugins.dra.structured.requests import ClaimParser, SelectorFault, Selectors, SelectorSets
from simulator.builders.claims import ClaimBuilder, a_claim, a_result, an_option
from simulator.builders.core import Builder, node
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.support.clock import VirtualClock
from tests.unit.plugins.dra.served import ASKING, SLICES, Served, Slow, using
from tests.unit.plugins.dra.world import World

NODES = tuple(f"n{at}" for at in range(1, 41))


def claims_for(**more: Any) -> list[Any]:
    """Return the claims of a pod that requests devices of class A."""
    return [a_claim("c").request("r", "A", **more).typed()]


class Looking:
    """The verdicts over a world in which every node has a device of a different kind."""

    def __init__(self, clock: Clock) -> None:
        self.evaluated: set[DeviceKind] = set()
        self.world = World(nodes=NODES)
        for at, name in enumerate(NODES):
            self.world.show(a_slice(name, "a", a_device("d").attr("uuid", f"uuid-{at}")))
        devices = self.world.devices
        self.boards = NodeVerdicts(devices.on_nodes, devices.use, clock, AllocatorFeatures())
        self.demand = ClaimParser(devices.classes, SelectorSets(self._holding), DEVICE_GATES_ON).of(claims_for())

    def look(self, nodes: NodeSet, *, everything: bool = False) -> NodeSet:
        if everything:
            return finish(self.boards.search_all(self.demand, nodes)).fit
        return finish(self.boards.search_some(self.demand, nodes)).fit

    def _holding(self, _expression: str, kind: DeviceKind) -> Work[bool | str]:
        yield from ()
        self.evaluated.add(kind)
        return True


@pytest.mark.parametrize("attempts", [1, 3])
def test_an_attempt_searches_no_more_than_its_time_allows(attempts):
    """Selectors are evaluated only for the node kinds that are searched."""
    looking = Looking(Slow(VirtualClock()))
    everywhere = looking.world.cluster.nodes.present

    for _ in range(attempts):
        looking.look(everywhere)

    assert attempts == len(looking.evaluated)


@pytest.mark.parametrize("everything", [True, False])
def test_an_attempt_with_enough_time_searches_all_nodes(everything):
    looking = Looking(VirtualClock())
    everywhere = looking.world.cluster.nodes.present

    assert everywhere == looking.look(everywhere, everything=everything)


def test_nodes_outside_the_first_look_are_searched_in_the_next_look():
    looking = Looking(VirtualClock())
    everywhere = looking.world.cluster.nodes.present
    some = everywhere & 0b1111

    assert some == looking.look(some)
    assert everywhere == looking.look(everywhere)


def test_a_node_that_lost_its_slice_is_searched_again():
    looking = Looking(VirtualClock())
    world = looking.world
    looking.look(world.cluster.nodes.present)

    world.devices.remove_slice("n7-a")

    assert world.cluster.nodes.present & ~world.cluster.nodes.by_name(("n7",)) == looking.look(
        world.cluster.nodes.present
    )


def test_demands_that_select_the_same_devices_share_one_memo_entry():
    """They differ only in the text of their selectors, so one search serves all of them."""
    world, searches = World(nodes=("n1",)), list[int]()
    world.show(a_slice("n1", "a", a_device("d")))
    devices = world.devices
    boards = NodeVerdicts(devices.on_nodes, devices.use, VirtualClock(), AllocatorFeatures(), searched=searches.append)
    demands = ClaimParser(devices.classes, SelectorSets(devices.selectors.holding), DEVICE_GATES_ON)

    for at in range(40):
        assert finish(boards.search_some(demands.of(claims_for(cel=f"{at} == {at}")), 1)).fit

    assert len(searches) == 1
    assert len(devices.on_nodes.kind(0).memo) == 1


class Puzzle:
    """One node whose devices consume counters in amounts that make a search try many devices."""

    def __init__(self, clock: Clock) -> None:
        rng = random.Random(2)
        self.world = world = World(nodes=("n1",))
        draws = [{f"k{at}": str(rng.randint(50, 150)) for at in range(4)} for _ in range(24)]
        devices = [a_device(f"d{at:02}").attr("u", at).consumes("c", each) for at, each in enumerate(draws)]
        world.show(a_slice("n1", "a", *devices).of(2))
        world.show(a_slice("n1", "a").named("c").counters("c", {f"k{at}": "500" for at in range(4)}).of(2))
        self.steps: list[int] = []
        on_nodes = world.devices.on_nodes
        self.boards = NodeVerdicts(on_nodes, world.devices.use, clock, AllocatorFeatures(), searched=self.steps.append)
        sets = SelectorSets(world.devices.selectors.holding)
        self.demand = ClaimParser(world.devices.classes, sets, DEVICE_GATES_ON).of(claims_for(count=6))
        on_nodes.catch_up()
        for _, _, ask in self.demand.request_data:
            assert ask.selectors is not None
            list(ask.selectors.evaluating(each.kind for view in on_nodes.pools(0) for each in view.devices))


def test_a_long_search_is_postponed_until_the_node_is_chosen():
    """The search is suspended, the next attempt does not repeat it, Verify goes on with it, and the result is cached."""
    puzzle = Puzzle(Slow(VirtualClock()))

    looks = [finish(puzzle.boards.search_some(puzzle.demand, 1)) for _ in range(2)]

    assert [1, 1] == [each.postponed for each in looks]
    assert not puzzle.steps
    verdict = finish(puzzle.boards.verdict(puzzle.demand, 0))
    now = finish(puzzle.boards.search_some(puzzle.demand, 1))
    assert (verdict.refusal == "", 0, 1) == (bool(now.fit), now.postponed, len(puzzle.steps))
    at_once = Puzzle(VirtualClock())
    finish(at_once.boards.verdict(at_once.demand, 0))
    assert puzzle.steps == at_once.steps


def test_a_search_that_was_postponed_starts_again_when_a_device_is_taken() -> None:
    """It would go on with the counters that it has read."""
    puzzle = Puzzle(Slow(VirtualClock()))
    finish(puzzle.boards.search_some(puzzle.demand, 1))
    everything = [a_result("r", f"a/n1/d{at:02}") for at in range(24)]
    puzzle.world.show(a_claim("other").request("r", "A", count=24).allocated(*everything))

    verdict = finish(puzzle.boards.verdict(puzzle.demand, 0))

    assert verdict.refusal == CANNOT_ALLOCATE
    assert len(puzzle.steps) == 2


def test_a_long_search_is_not_postponed_when_all_verdicts_are_needed():
    puzzle = Puzzle(Slow(VirtualClock()))
    finish(puzzle.boards.search_some(puzzle.demand, 1))

    known = finish(puzzle.boards.search_all(puzzle.demand, 1))

    assert not known.postponed
    assert known.fit or known.refused


def test_the_message_names_the_pool_that_is_being_updated():
    """The two nodes differ only in the name of their pool, which the message contains."""
    world = World()
    for name in ("n1", "n2"):
        world.show(a_slice(name, "a", a_device("d")).of(2))
    world.show(a_claim("c").request("r", "A", every=True))

    _, groups = world.filter(world.pod("c"))

    assert isinstance(groups, dict)
    assert {"a/n1": "n1", "a/n2": "n2"} == {
        name: world.cluster.nodes.name(nodes.bit_length() - 1)
        for no, nodes in groups.items()
        for name in ("a/n1", "a/n2")
        if name in no.message
    }


def test_the_error_of_a_node_that_is_gone_is_forgotten() -> None:
    """Each removed node has a different error text, because the text names its pool."""
    world = World(nodes=())
    devices = world.devices
    boards = NodeVerdicts(devices.on_nodes, devices.use, VirtualClock(), AllocatorFeatures())
    demand = ClaimParser(devices.classes, SelectorSets(devices.holding), DEVICE_GATES_ON).of(claims_for(every=True))
    texts = []
    for name in ("n1", "n2"):
        world.cluster.set_node(node(name).typed())
        world.show(a_slice(name, "a", a_device("d")).of(2))  # one of two slices: the pool is being updated
        texts.append(len(finish(boards.search_some(demand, world.cluster.nodes.present)).failed))
        devices.remove_slice(f"{name}-a")
        world.cluster.remove_node(name)
        texts.append(len(finish(boards.search_some(demand, world.cluster.nodes.present)).failed))

    assert texts == [1, 0, 1, 0]


# -- equal claims share one demand, which stays when a class changes that it does not use ------------------------------

CLAIM = a_claim("c").request("r", "gpu").first_available("f", an_option("s", "nic"), an_option("t", "missing")).typed()
GPU = a_device_class("gpu", "true").config("d.x", {"a": 1})
Change = Callable[[DeviceClasses], None]


def _never(*_: Any) -> Work[bool | str]:
    yield
    return False


def put(made: Any) -> Change:
    return lambda classes: classes.put(made.typed().key, made.typed())


def gone(name: str) -> Change:
    return lambda classes: classes.put(name, None)


@pytest.mark.parametrize(("changes", "is_kept"), [
    pytest.param([], True, id="nothing changes"),
    pytest.param([put(a_device_class("other")), gone("other")], True, id="another class is added and removed"),
    pytest.param([put(GPU.label("a", "b"))], True, id="a label of the class changes"),
    pytest.param([gone("gpu"), put(GPU)], True, id="the class is created again without a change"),
    pytest.param([put(a_device_class("gpu", "false"))], False, id="the selectors of the class change"),
    pytest.param([put(a_device_class("gpu", "true").config("d.x", {"a": 2}))], False, id="the parameters of the class change"),
    pytest.param([gone("gpu")], False, id="the class is removed"),
    pytest.param([gone("nic")], False, id="the class of an alternative is removed"),
    pytest.param([put(a_device_class("missing"))], False, id="a class that was missing is added"),
])  # fmt: skip
def test_which_changes_of_classes_discard_a_demand(changes: list[Change], is_kept: bool) -> None:
    """Only a change of a class that the demand uses discards it; the new demand has the new class."""
    classes = DeviceClasses()
    for each in (GPU, a_device_class("nic")):
        put(each)(classes)
    demands = ClaimParser(classes, SelectorSets(_never), DEVICE_GATES_ON)
    before = demands.of([CLAIM])
    for change in changes:
        change(classes)
    after = demands.of([CLAIM])

    assert (after is before) == is_kept
    assert demands.of([CLAIM]) is after
    for *_, ask in after.request_data:
        now = classes.get(ask.spec.device_class_name)
        assert (ask.device_class and ask.device_class.spec) == (now and now.spec)


# -- selectors are evaluated once per kind of device -------------------------------------------------------------------

SIZE = 50


class CountedEvaluations:
    """Evaluates selectors: a number holds for devices whose name it divides, and 7 fails. It counts the evaluations."""

    def __init__(self) -> None:
        self.count = 0
        self.kinds = tuple(DeviceKind("drv", Device(name=f"{number}")) for number in range(30))
        self.sets = SelectorSets(self)

    def __call__(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        yield from ()
        self.count += 1
        if expression == "7":
            return "CEL runtime error: seven"
        return int(kind.device.name) % int(expression) == 0

    def of(self, *expressions: int) -> Selectors:
        return self.sets.of(tuple((not at, at, str(each)) for at, each in enumerate(expressions)))


@pytest.fixture
def counted() -> CountedEvaluations:
    with mock.patch.object(pools, "_kind_answers", Limit(SIZE)):
        return CountedEvaluations()


def by_the_letter(expressions: tuple[int, ...], kind: DeviceKind) -> bool | SelectorFault:
    for at, each in enumerate(expressions):
        if each == 7:
            return SelectorFault(not at, at, "CEL runtime error: seven")
        if int(kind.device.name) % each:
            return False
    return True


def test_nothing_is_evaluated_twice_while_the_cache_is_not_full(counted: CountedEvaluations) -> None:
    """Another set with the same expression uses the cached result."""
    for each in (counted.of(2, 3), counted.of(2, 3), counted.of(2, 5)):
        finish(each.evaluating(counted.kinds[1:2]))
        each.of(counted.kinds[1])

    assert counted.count == 1


def test_the_number_of_cached_results_is_limited(counted: CountedEvaluations) -> None:
    """The result is the same with and without a cached one."""
    every = [expressions for a in range(1, 12) for expressions in ((a,), (1, a), (a, 7))]
    for _ in range(2):
        for expressions in every:
            for kind in counted.kinds:
                assert counted.of(*expressions).of(kind) == by_the_letter(expressions, kind)

    assert sum(len(kind.memo) for kind in counted.kinds) <= 2 * SIZE


def test_an_answer_does_not_keep_the_kind_of_a_device_that_is_gone(counted: CountedEvaluations) -> None:
    """In a cluster whose drivers publish unlike devices again and again, memory is bounded by the devices that exist."""
    kind = DeviceKind("drv", Device(name="6"))
    assert counted.of(2, 3).of(kind) is True
    alive = weakref.ref(kind)

    del kind
    gc.collect()

    assert alive() is None


def test_devices_that_were_published_again_are_dropped() -> None:
    """A node's kind without any node keeps its devices only until some more nodes have changed."""
    world = World()
    alive = weakref.WeakSet[DeviceKind]()
    for serial in range(300):
        world.show(a_slice("n1", "a", a_device("d").attr("a/serial", serial)))
        world.devices.on_nodes.catch_up()
        alive.update(device.kind for view in world.devices.on_nodes.pools(world.slot()) for device in view.devices)
    gc.collect()

    assert 1 <= len(alive) <= 70


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
