"""`NodeVerdicts` limits the searches of one attempt, and names the right pool when pools differ only by name."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler.cache.devices.pools import DeviceKind
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, finish
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.core.nodeset import NodeSet
from scheduler.plugins.dra.structured import node_verdicts as searching
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures
from scheduler.plugins.dra.structured.node_verdicts import NodeVerdicts
from scheduler.plugins.dra.structured.requests import ClaimParser
from scheduler.plugins.dra.structured.selectors import SelectorSets
from simulator.builders.claims import a_claim
from simulator.builders.core import node
from simulator.builders.devices import a_device, a_slice
from tests.support.clock import VirtualClock
from tests.unit.plugins.dra.standins import no_derived
from tests.unit.plugins.dra.world import World

NODES = tuple(f"n{at}" for at in range(1, 41))


class Slow(VirtualClock):
    """A clock that advances by one second on every reading."""

    def now(self) -> float:
        self._passed = getattr(self, "_passed", 0.0) + 1.0
        return super().now() + self._passed


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
    looking = Looking(Slow())
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
    puzzle = Puzzle(Slow())

    looks = [puzzle.boards.look(puzzle.demand, 1) for _ in range(2)]

    assert [1, 1] == [each.put_off for each in looks]
    assert len(puzzle.steps) == 1
    verdict = finish(puzzle.boards.verdict(puzzle.demand, 0))
    now = puzzle.boards.look(puzzle.demand, 1)
    assert (verdict.refusal == "", 0, 2) == (bool(now.fit), now.put_off, len(puzzle.steps))
    assert puzzle.steps[1] > puzzle.steps[0]


def test_a_long_search_is_not_put_off_when_all_verdicts_are_needed():
    puzzle = Puzzle(Slow())
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
