"""What is kept of earlier attempts: verdicts of nodes, demands, and results of selectors."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from scheduler.api.resource_v1 import Device
from scheduler.cache.devices import pools
from scheduler.cache.devices.manager import DeviceClasses
from scheduler.cache.devices.memos import Limit
from scheduler.cache.devices.pools import DeviceKind
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, finish
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.core.nodeset import NodeSet
from scheduler.plugins.dra.structured import node_verdicts as searching
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures
from scheduler.plugins.dra.structured.node_verdicts import NodeVerdicts
from scheduler.plugins.dra.structured.requests import ClaimParser
from scheduler.plugins.dra.structured.selectors import SelectorFault, Selectors, SelectorSets
from simulator.builders.claims import a_claim, an_option
from simulator.builders.core import node
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.support.clock import VirtualClock
from tests.unit.plugins.dra.served import Slow
from tests.unit.plugins.dra.trying import no_derived
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
        self.demand = ClaimParser(devices.classes, SelectorSets(self._holding), DEVICE_GATES_ON, no_derived).of(
            claims_for()
        )

    def look(self, nodes: NodeSet, *, everything: bool = False) -> NodeSet:
        if everything:
            return finish(self.boards.look_at_all(self.demand, nodes)).fit
        return self.boards.look(self.demand, nodes).fit

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


def test_the_memo_of_a_node_kind_is_limited(monkeypatch):
    """Demands that differ only in the text of their selectors need no search, but each takes a memo entry."""
    monkeypatch.setattr(searching, "_MEMO_MAX", 8)
    world, searches = World(nodes=("n1",)), list[int]()
    world.show(a_slice("n1", "a", a_device("d")))
    devices = world.devices
    boards = NodeVerdicts(devices.on_nodes, devices.use, VirtualClock(), AllocatorFeatures(), searched=searches.append)
    demands = ClaimParser(devices.classes, SelectorSets(devices.selectors.holding), DEVICE_GATES_ON, no_derived)

    for at in range(40):
        assert boards.look(demands.of(claims_for(cel=f"{at} == {at}")), 1).fit

    assert len(searches) < 40
    assert len(devices.on_nodes.kind(0).memo) <= 8


class Puzzle:
    """One node whose devices consume counters in amounts that make a search try many devices."""

    def __init__(self, clock: Clock) -> None:
        chance = random.Random(2)
        world = World(nodes=("n1",))
        draws = [{f"k{at}": str(chance.randint(50, 150)) for at in range(4)} for _ in range(24)]
        devices = [a_device(f"d{at:02}").attr("u", at).consumes("c", each) for at, each in enumerate(draws)]
        world.show(a_slice("n1", "a", *devices).of(2))
        world.show(a_slice("n1", "a").named("c").counters("c", {f"k{at}": "500" for at in range(4)}).of(2))
        self.steps: list[int] = []
        on_nodes = world.devices.on_nodes
        self.boards = NodeVerdicts(on_nodes, world.devices.use, clock, AllocatorFeatures(), searched=self.steps.append)
        sets = SelectorSets(world.devices.selectors.holding)
        self.demand = ClaimParser(world.devices.classes, sets, DEVICE_GATES_ON, no_derived).of(claims_for(count=6))
        on_nodes.catch_up()
        for _, _, ask in self.demand.request_data:
            assert ask.selectors is not None
            list(ask.selectors.evaluating(each.kind for view in on_nodes.pools(0) for each in view.devices))


def test_a_long_search_is_put_off_until_the_node_is_chosen():
    """The search is cut short, the next attempt does not repeat it, and the result of Verify is cached."""
    puzzle = Puzzle(Slow(VirtualClock()))

    looks = [puzzle.boards.look(puzzle.demand, 1) for _ in range(2)]

    assert [1, 1] == [each.put_off for each in looks]
    assert len(puzzle.steps) == 1
    verdict = finish(puzzle.boards.verdict(puzzle.demand, 0))
    now = puzzle.boards.look(puzzle.demand, 1)
    assert (verdict.refusal == "", 0, 2) == (bool(now.fit), now.put_off, len(puzzle.steps))
    assert puzzle.steps[1] > puzzle.steps[0]


def test_a_long_search_is_not_put_off_when_all_verdicts_are_needed():
    puzzle = Puzzle(Slow(VirtualClock()))
    puzzle.boards.look(puzzle.demand, 1)

    known = finish(puzzle.boards.look_at_all(puzzle.demand, 1))

    assert not known.put_off
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
    demand = ClaimParser(devices.classes, SelectorSets(devices.holding), DEVICE_GATES_ON, no_derived).of(
        claims_for(every=True)
    )
    texts = []
    for name in ("n1", "n2"):
        world.cluster.set_node(node(name).typed())
        world.show(a_slice(name, "a", a_device("d")).of(2))  # one of two slices: the pool is being updated
        texts.append(len(boards.look(demand, world.cluster.nodes.present).failed))
        devices.remove_slice(f"{name}-a")
        world.cluster.remove_node(name)
        texts.append(len(boards.look(demand, world.cluster.nodes.present).failed))

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
    demands = ClaimParser(classes, SelectorSets(_never), DEVICE_GATES_ON, no_derived)
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
