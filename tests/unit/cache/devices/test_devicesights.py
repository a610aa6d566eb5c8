"""Shared pools: which nodes see them, and what is drawn from them (docs/spec/dra.md §4.3, §4.8, §4.9)."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.core_v1 import Node, NodeSelector, NodeSelectorRequirement as Requirement, NodeSelectorTerm as Term
from scheduler.api.meta import AnnotatedMetadata, Metadata
from scheduler.api.node_affinity import selector_matches, selector_problem
from scheduler.api.resource_v1 import (
    AllocationResult,
    CounterSet,
    Device,
    DeviceAllocationResult,
    DeviceId,
    DeviceRequestAllocationResult,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.node_kinds import DeviceNodes, usable
from scheduler.cache.devices.pools import PoolKey
from scheduler.cache.devices.shared_pools import PoolVisibility
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.feature_gates import PARTITIONABLE
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from tests.examples import examples
from tests.unit.cache.picture import leftovers

NAMES = ("n1", "n2", "n3", "n4", "n5")
POOLS = ("p1", "p2", "p3")
BROKEN = NodeSelector((Term(match_expressions=(Requirement("zone", "In", ()),)),))
FIELDS = Term(match_fields=(Requirement("metadata.name", "In", ("n1",)),))
BUT_FIELDS = Term(match_fields=(Requirement("metadata.name", "NotIn", ("n2",)),))
RULES: tuple[NodeSelector, ...] = (
    *(NodeSelector((Term(match_expressions=(Requirement("zone", "In", (zone,)),)),)) for zone in "abc"),
    NodeSelector((Term(match_expressions=(Requirement("zone", "In", ("a", "b")), Requirement("fast", "Exists"))),)),
    NodeSelector((Term(match_expressions=(Requirement("zone", "NotIn", ("a",)),)),)),
    NodeSelector((Term(match_expressions=(Requirement("fast", "DoesNotExist"),)), FIELDS)),
    NodeSelector((Term(match_expressions=(Requirement("size", "Gt", ("1",)),)),)),
    NodeSelector((FIELDS,)),
    NodeSelector((BUT_FIELDS,)),
    NodeSelector((Term(),)),
    NodeSelector(()),
    BROKEN,
)


def gates(partitionable: bool) -> frozenset[str]:
    return frozenset({PARTITIONABLE} if partitionable else ())


class World:
    """Nodes and shared pools, and what follows from them by the letter."""

    def __init__(self, rng: random.Random, *, partitionable: bool, generations: tuple[int, ...] = (1,)) -> None:
        self.rng = rng
        self.generations = generations
        self.held: dict[str, AllocationResult | None] = {}
        self.partitionable = partitionable
        self.nodes = Nodes(capacity=1)
        self.use = AllocationState()
        self.on_nodes = DeviceNodes(self.nodes, self.use, gates(partitionable))
        self.there: dict[str, Node] = {}
        self.slices: dict[str, ResourceSlice] = {}

    # -- what happens --------------------------------------------------------------------------------------------------

    def change_node(self) -> None:
        name = self.rng.choice(NAMES)
        if self.rng.randrange(4) == 0:
            self.there.pop(name, None)
            self.nodes.remove_node(name)
            return
        labels = {"zone": self.rng.choice("abcd"), "size": self.rng.choice("012")}
        labels |= {"fast": ""} if self.rng.randrange(2) else {}
        self.there[name] = Node(metadata=AnnotatedMetadata(name=name, labels=labels))
        self.nodes.set_node(self.there[name])

    def change_slice(self) -> None:
        pool, at = self.rng.choice(POOLS), self.rng.randrange(2)
        name = f"{pool}-{at}"
        if self.rng.randrange(4) == 0:
            self.slices.pop(name, None)
            self.on_nodes.remove_slice(name)
            return
        self.slices[name] = self._slice(name, pool, at)
        self.on_nodes.set_slice(self.slices[name])

    def use_device(self) -> None:
        pool = self.rng.choice(POOLS)
        result = DeviceRequestAllocationResult("r", "drv", pool, f"d{self.rng.randrange(2)}")
        held = AllocationResult(DeviceAllocationResult((result,))) if self.rng.randrange(2) else None
        self.held[f"claim of {pool}"] = held
        self.use.hold(f"claim of {pool}", held)

    def step(self) -> None:
        self.rng.choice((self.change_node, self.change_node, self.change_slice, self.use_device))()

    def _slice(self, name: str, pool: str, at: int) -> ResourceSlice:
        kind = self.rng.choice(("all", "selector", "selector", "name", "devices", "devices", "counters"))
        where: dict[str, Any] = {"all": {"all_nodes": True}, "devices": {"per_device_node_selection": True}}.get(
            kind, {}
        )
        if kind in {"selector", "counters"}:
            where = {"node_selector": self.rng.choice(RULES)}
        elif kind == "name":
            where = {"node_name": self.rng.choice(NAMES)}
        if kind == "counters":
            where["shared_counters"] = (CounterSet("set", {}),)
        devices = tuple(self._device(f"d{number}", own=kind == "devices") for number in range(2 * at, 2 * at + 2))
        spec = ResourceSliceSpec(driver="drv", pool=self._pool(pool), devices=devices, **where)
        return ResourceSlice(Metadata(name=name), spec)

    def _pool(self, name: str) -> ResourcePool:
        if len(self.generations) == 1:
            return ResourcePool(name, self.generations[0], 2)
        return ResourcePool(name, self.rng.choice(self.generations), self.rng.choice((1, 2, 2)))

    def _device(self, name: str, *, own: bool) -> Device:
        if not own:
            return Device(name=name)
        match self.rng.randrange(4):
            case 0:
                return Device(name=name, all_nodes=True)
            case 1:
                return Device(name=name, node_name=self.rng.choice(NAMES))
            case _:
                return Device(name=name, node_selector=self.rng.choice(RULES))

    # -- by the letter -------------------------------------------------------------------------------------------------

    def holds(self, of: ResourceSliceSpec | Device, node: Node) -> bool:
        name = node.metadata.name
        if of.node_name:
            return of.node_name == name
        selector = of.node_selector
        return bool(of.all_nodes) or (selector is not None and selector_matches(selector, name, node.metadata.labels))

    def sees(self, each: ResourceSlice, node: Node) -> bool:
        spec = each.spec
        if not self.partitionable and (spec.shared_counters or spec.per_device_node_selection is not None):
            return False
        own = spec.per_device_node_selection and any(self.holds(device, node) for device in spec.devices)
        return bool(own or self.holds(spec, node))

    def expected(self, node: Node) -> dict[str, set[str]]:
        """Shared pool → the devices that the node may use of it, of slices that it sees; nothing of what it does not see."""
        out: dict[str, set[str]] = {}
        for each in self.slices.values():
            if self.on_nodes.is_shared(DeviceId("drv", each.spec.pool.name, "")) and self.sees(each, node):
                usable_ = out.setdefault(each.spec.pool.name, set())
                if not each.spec.shared_counters:
                    own = each.spec.per_device_node_selection
                    usable_ |= {d.name for d in each.spec.devices if not own or self.holds(d, node)}
        return out

    def seen(self, slot: int) -> dict[str, set[str]]:
        """Return the devices by pool as the caches have them; pools with a problem have none."""
        kind = self.on_nodes.kind(slot)
        assert kind is not None
        views = kind.visible_pools.views
        return {view.key.name: {each.device.name for each in view.devices if usable(each, slot)} for view in views}


def as_the_rules_say(world: World) -> None:
    for slot in nodeset.each(world.nodes.present):
        node = world.nodes.node(slot)
        assert node is not None
        expected, seen = world.expected(node), world.seen(slot)
        assert set(seen) == set(expected)
        kind = world.on_nodes.kind(slot)
        assert kind is not None
        for view in kind.visible_pools.views:
            if view.devices:
                assert seen[view.key.name] == expected[view.key.name]


@settings(max_examples=examples(200))
@given(st.integers(0, 2**64), st.integers(1, 60), st.booleans())
def test_every_node_sees_what_the_rules_say(seed: int, length: int, partitionable: bool) -> None:
    world = World(random.Random(seed), partitionable=partitionable)
    for _ in range(length):
        world.step()
        if world.rng.randrange(2):
            world.on_nodes.catch_up()
        elif world.rng.randrange(2):
            world.on_nodes.work_ahead(1)
    world.on_nodes.catch_up()

    as_the_rules_say(world)
    fresh = DeviceNodes(world.nodes, AllocationState(), gates(partitionable))
    for each in world.slices.values():
        fresh.set_slice(each)
    fresh.catch_up()
    assert world.on_nodes.shared.problem == fresh.shared.problem
    is_shared = world.on_nodes.is_shared
    if any(
        is_shared(DeviceId("drv", each.spec.pool.name, "")) and each.spec.node_selector is BROKEN
        for each in world.slices.values()
        if partitionable or not each.spec.shared_counters
    ):
        assert selector_problem(BROKEN) in world.on_nodes.shared.problem


def whole(world: World, on_nodes: DeviceNodes, nodes: Nodes) -> dict[object, object]:
    """Node → everything that can be said of what it sees; and which nodes are alike."""
    out: dict[object, object] = {"problem": on_nodes.shared.problem, "shared": len(on_nodes.shared) > 0}
    alike: dict[int, set[str]] = {}
    for slot in nodeset.each(nodes.present):
        kind = on_nodes.kind(slot)
        assert kind is not None
        assert kind.nodes >> slot & 1
        alike.setdefault(id(kind), set()).add(nodes.name(slot))
        out[nodes.name(slot)] = (
            kind.free,
            [
                (
                    view.key,
                    view.state,
                    view.problem,
                    [(each.id, each.kind, usable(each, slot)) for each in view.devices],
                    [each.id for each in view.elsewhere],
                    view.counters,
                )
                for view in on_nodes.pools(slot)
            ],
        )
    for each in world.slices.values():
        pool = each.spec.pool.name
        out["is shared", pool] = on_nodes.is_shared(DeviceId("drv", pool, ""))
    out["alike"] = sorted(map(sorted, alike.values()))
    return out


@settings(max_examples=examples(300))
@given(st.integers(0, 2**64), st.integers(1, 60), st.booleans())
def test_after_any_history_the_caches_equal_new_ones(seed: int, length: int, partitionable: bool) -> None:
    world = World(random.Random(seed), partitionable=partitionable, generations=(1, 2, 3))
    for _ in range(length):
        world.step()
        if world.rng.randrange(3) == 0:
            world.on_nodes.catch_up()
    world.on_nodes.catch_up()

    nodes, use = Nodes(capacity=1), AllocationState()
    fresh = DeviceNodes(nodes, use, gates(partitionable))
    for node in world.there.values():
        nodes.set_node(node)
    for each in world.slices.values():
        fresh.set_slice(each)
    for uid, held in world.held.items():
        use.hold(uid, held)
    fresh.catch_up()
    assert whole(world, world.on_nodes, world.nodes) == whole(world, fresh, nodes)


@settings(max_examples=examples(200))
@given(st.integers(0, 2**64), st.integers(1, 40))
def test_a_changed_node_does_not_affect_other_nodes(seed: int, length: int) -> None:
    world = World(random.Random(seed), partitionable=True)
    for _ in range(length):
        world.step()
    world.on_nodes.catch_up()
    before = {slot: world.on_nodes.kind(slot) for slot in nodeset.each(world.nodes.present)}
    names = {slot: world.nodes.name(slot) for slot in before}
    objects = dict(world.there)
    stamp, position = world.on_nodes.shared.stamp, world.on_nodes.position

    world.change_node()
    world.on_nodes.catch_up()

    assert world.on_nodes.shared.stamp == stamp
    told = set(world.on_nodes.changed_since(position) or ())
    for slot in nodeset.each(world.nodes.present):
        name = world.nodes.name(slot)
        if names.get(slot) == name and objects.get(name) is world.there[name]:
            assert world.on_nodes.kind(slot) is before[slot]
            assert slot not in told
    as_the_rules_say(world)


@settings(max_examples=examples(100))
@given(st.integers(0, 2**64), st.integers(1, 40))
def test_nothing_is_kept_of_pools_that_are_gone(seed: int, length: int) -> None:
    world = World(random.Random(seed), partitionable=True)
    for _ in range(length):
        world.step()
        world.on_nodes.catch_up()
    for name in list(world.slices):
        world.on_nodes.remove_slice(name)
    world.slices.clear()
    world.on_nodes.catch_up()

    shared = world.on_nodes.shared
    assert not len(world.on_nodes.shared)
    assert all(world.seen(slot) == {} for slot in nodeset.each(world.nodes.present))
    assert leftovers(shared, spared=frozenset({"_names"})) == leftovers(shared.groups) == {}
    assert shared.problem == ""


def test_devices_that_no_node_sees_are_released() -> None:
    world = World(random.Random(0), partitionable=True)
    for name in NAMES:
        world.nodes.set_node(Node(metadata=AnnotatedMetadata(name=name)))
    seen: list[weakref.ref[PoolVisibility]] = []
    for generation in range(1, 10):
        devices = (Device(name=f"d{generation}"),)
        spec = ResourceSliceSpec("drv", ResourcePool("p1", generation, 1), devices=devices, all_nodes=True)
        world.on_nodes.set_slice(ResourceSlice(Metadata(name="p1"), spec))
        world.on_nodes.catch_up()
        for use in (AllocationState(), world.use):
            kind = world.on_nodes.kind_if(0, use)
            assert kind is not None
            seen.append(weakref.ref(kind.visible_pools))
    del kind

    gc.collect()
    assert 1 == len({id(visible_pools) for visible_pools in (each() for each in seen) if visible_pools is not None})


NANO = 10**9
KEY = PoolKey("d", "n1")
CARD = a_slice("n1", "d").named("card").counters("card", {"units": "4"}).of(2)
HALF = a_device("half").consumes("card", {"units": "2"})
PARTS = a_slice("n1", "d", HALF, a_device("m").shared().cap("memory", "8"), a_device("plain").cap("memory", "8")).of(2)


def of(*slices: SliceBuilder, partitionable: bool = True) -> DeviceNodes:
    nodes = DeviceNodes(Nodes(), AllocationState(), gates(partitionable))
    for each in slices:
        nodes.set_slice(each.typed())
    return nodes


def test_what_a_pool_has_to_share() -> None:
    draws = of(CARD, PARTS).draws(KEY)

    assert draws is not None
    half, shared = DeviceId("d", "n1", "half"), DeviceId("d", "n1", "m")
    assert {shared: {"memory": 8 * NANO}} == draws.capacities
    assert {"card": {"units": 4 * NANO}} == draws.counters
    assert ({half: {"card": {"units": 2 * NANO}}}, {"card": (half,)}) == (draws.drawn, draws.drawers)


def test_without_the_rules_of_partitions_nothing_draws() -> None:
    """Devices that would cannot be had then (§4.7)."""
    draws = of(CARD, PARTS, partitionable=False).draws(KEY)

    assert draws is not None
    assert ({}, {}, 1) == (draws.drawn, draws.drawers, len(draws.capacities))


@pytest.mark.parametrize(
    "slices",
    [
        pytest.param((), id="it is not there"),
        pytest.param((PARTS,), id="a slice is missing"),
        pytest.param((CARD, PARTS.generation(2)), id="a slice of another generation is still there"),
        pytest.param((CARD, PARTS.of(3)), id="its slices do not agree how many they are"),
        pytest.param((CARD, PARTS.device(a_device("plain"))), id="two devices of one name"),
        pytest.param((CARD.of(3), PARTS.of(3), CARD.of(3).named("again")), id="two counter sets of one name"),
        pytest.param((a_slice("n1", "d", HALF),), id="a counter set that is not there"),
        pytest.param((CARD, PARTS.device(a_device("wide").consumes("card", {"lanes": "1"}))), id="a missing counter"),
    ],
)
def test_nothing_can_be_said(slices: tuple[SliceBuilder, ...]) -> None:
    assert of(*slices).draws(KEY) is None


def test_plain_devices_may_contradict_each_other() -> None:
    draws = of(a_slice("n1", "d", a_device("plain"), a_device("plain"))).draws(KEY)

    assert draws is not None
    assert ({}, {}) == (draws.capacities, draws.drawn)


def test_it_is_followed_as_slices_come_and_go() -> None:
    nodes = of(CARD, PARTS)
    first = nodes.draws(KEY)
    assert first is nodes.draws(KEY)

    nodes.set_slice(CARD.counters("more", {"units": "1"}).typed())
    second = nodes.draws(KEY)
    assert second is not None
    assert {"card", "more"} == set(second.counters)

    nodes.remove_slice("card")
    assert nodes.draws(KEY) is None
