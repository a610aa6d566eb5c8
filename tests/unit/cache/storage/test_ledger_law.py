"""Whatever happens to claims, objects, volumes, nodes and plans, every byte in flight is charged once, and given back."""

from __future__ import annotations

import asyncio
import functools
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.api.meta import AnnotatedMetadata, Metadata
from scheduler.api.quantity import parse
from scheduler.api.selectors import LabelSelector
from scheduler.api.storage_v1 import (
    CSIStorageCapacity,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
    VolumeResources,
)
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.reservation import HOLD_S, SETTLE_S, Reservation
from scheduler.cache.storage.volumes import Volumes
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import NodeSet
from tests.support.clock import VirtualClock
from tests.unit.cache.nodes.labelled_nodes import NAMES, Step, affinities, node_steps, take, where
from tests.unit.cache.picture import leftovers
from tests.unit.cache.storage.storage_objects import at_version, capacities, mostly, with_selected_node
from tests.unit.wakeups.literal_volumes import affinity_admits, selector_admits

KEYS = [f"default/c{at}" for at in range(4)]
_keys = st.sampled_from(KEYS)


def _claim(key: str, again: str, size: str | None, *, name: str) -> PersistentVolumeClaim:
    metadata = AnnotatedMetadata(name=key[8:], namespace="default", uid=f"{key[8:]}{again}")
    resources = VolumeResources({} if size is None else {"storage": parse(size)})
    return PersistentVolumeClaim(metadata, PersistentVolumeClaimSpec(resources=resources, storage_class_name=name))


_claims = st.builds(
    lambda key, again, size, name: _claim(key, again, size, name=name),
    _keys,
    mostly("", " again"),
    st.sampled_from(["1Gi", "1Gi", "2Gi", "1.5", "9Ei", None]),
    mostly("x", "y", ""),
)
_picked = st.sampled_from(["n0", "n1", "n0", "n1", *NAMES, None, None, ""])
_plans = st.sampled_from([(KEYS[0], KEYS[1]), (KEYS[0], KEYS[1]), (KEYS[1], KEYS[2]), (KEYS[2], KEYS[2], KEYS[3])])
_volumes = st.tuples(_keys, affinities)
_history = st.lists(
    st.one_of(
        st.tuples(st.just("node"), node_steps),
        st.tuples(st.just("object"), capacities),
        st.tuples(st.just("object gone"), st.sampled_from(["default/o0", "other/o0", "default/o1"])),
        st.tuples(st.just("claim"), st.tuples(_claims, _picked)),
        st.tuples(st.just("pick"), st.tuples(_keys, _picked)),
        st.tuples(st.just("pick"), st.tuples(_keys, _picked)),
        st.tuples(st.just("assume"), st.tuples(_keys, _picked)),
        st.tuples(st.just("restore"), _keys),
        st.tuples(st.just("bind"), _keys),
        st.tuples(st.just("bind"), _keys),
        st.tuples(st.just("claim gone"), _keys),
        st.tuples(st.just("volume"), _volumes),
        st.tuples(st.just("plan"), _plans),
        st.tuples(st.just("end plan"), _plans),
        st.tuples(st.just("time"), st.sampled_from([1.0, 3.0, 60.0, 121.0, 601.0])),
        st.tuples(st.just("look"), st.none()),
    ),
    min_size=10,
    max_size=60,
)
_start: list[tuple[str, Any]] = [
    *(("node", (name, {"zone": zone})) for name, zone in (("n0", "a"), ("n1", "b"))),
    ("object", CSIStorageCapacity(Metadata(name="o0", namespace="default"), "x", LabelSelector(), parse("5Gi"))),
    *(
        ("claim", (_claim(key, "", "2Gi", name="x"), node_name))
        for key, node_name in zip(KEYS, ["n0", "n1", None, "n1"])
    ),
    ("plan", (KEYS[0], KEYS[1])),
]


class World:
    """The caches, fed as `scheduler.eventhandlers.storage` feeds them."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.nodes = Nodes(capacity=1)
        self.clock = clock or VirtualClock()
        self.volumes = Volumes(self.nodes, self.clock)
        self.reservations = self.volumes.reservations
        self.reservations.users.add("pod", KEYS)
        self.plans: list[tuple[str, ...]] = []
        self.at = 0

    def take(self, what: str, more: Any) -> None:
        self.at += 1
        match what:
            case "node":
                take(self.nodes, more)
            case "object":
                self.put(at_version(more, self.at))
            case "object gone":
                old = self.volumes.capacities.remove(more)
                if old is not None:
                    self.reservations.pool_changed(old, None)
            case "volume":
                self.volume(*more)
            case "plan":
                self.plans.append(more)
                self.reservations.plan(more)
            case "end plan":
                if more in self.plans:
                    self.plans.remove(more)
                    self.reservations.end_plan(more)
            case "time":
                asyncio.run(self.clock.advance(more))
            case "look":
                self.reservations.catch_up()
            case _:
                self.change_claim(what, more)

    def change_claim(self, what: str, more: Any) -> None:
        claims = self.volumes.claims
        key = more if isinstance(more, str) else more[0] if isinstance(more[0], str) else more[0].key
        stored = claims.get_api(key)
        if what == "claim":
            claims.set(at_version(with_selected_node(*more), self.at))
        elif stored is None:
            return
        elif what == "pick":
            claims.set(at_version(with_selected_node(bind(stored, ""), more[1]), self.at))
        elif what == "assume":
            claims.assume(with_selected_node(stored, more[1]))
        elif what == "restore":
            claims.restore(stored)
        elif what == "bind":
            claims.set(at_version(bind(stored, f"v-{stored.metadata.name}"), self.at))
        else:
            claims.remove(key)

    def put(self, obj: CSIStorageCapacity) -> None:
        old = self.volumes.capacities.pool(obj.key)
        self.reservations.pool_changed(old, self.volumes.capacities.put(obj))

    def volume(self, key: str, required: Any) -> None:
        name = key.removeprefix("default/")
        affinity = None if required is None else VolumeNodeAffinity(required)
        spec = PersistentVolumeSpec(claim_ref=ObjectRef("default", name), node_affinity=affinity)
        self.volumes.set_volume(
            PersistentVolume(AnnotatedMetadata(name=f"v-{name}", resource_version=str(self.at)), spec)
        )

    # -- what it should be ---------------------------------------------------------------------------------------------

    def flying(self) -> dict[str, PersistentVolumeClaim]:
        """By uid: claims with a node and no volume, as decisions see them."""
        seen = [self.volumes.claims.need(claim.key) for claim in self.volumes.claims]
        return {c.metadata.uid: c for c in seen if c.selected_node and not c.spec.volume_name}

    def is_large_enough(self, key: str, size: int) -> bool:
        """Return whether a volume of this size can be made from the pool."""
        pool = self.volumes.capacities.pool(key)
        return pool is not None and size <= min(pool.limit, pool.capacity)

    def serving(self, storage_class: str, nodes: NodeSet) -> set[str]:
        """Keys of objects that some of these nodes can draw from."""
        objects = [pool.obj for pool in self.volumes.capacities]
        return {
            obj.key
            for obj in objects
            if obj.storage_class_name == storage_class
            and nodes & where(self.nodes, functools.partial(selector_admits, obj.node_topology))
        }

    def node(self, name: str | None) -> NodeSet:
        slot = self.nodes.present_slot(name) if name else None
        return 0 if slot is None else 1 << slot

    def tied(self, claim: PersistentVolumeClaim) -> NodeSet | None:
        """Where the siblings of a claim keep it; None if none does."""
        out: NodeSet | None = None
        for key in {other for plan in self.plans if claim.key in plan for other in plan} - {claim.key}:
            sibling = self.volumes.claims.get(key)
            here: NodeSet | None = None
            if sibling is not None and sibling.spec.volume_name:
                volume = self.volumes.volumes.get(sibling.spec.volume_name)
                if volume is not None:
                    affinity = volume.spec.node_affinity
                    required = affinity.required if affinity is not None else None
                    here = where(self.nodes, functools.partial(affinity_admits, required))
            elif sibling is not None and self.node(sibling.selected_node):
                here = self.node(sibling.selected_node)
            if here is not None:
                out = here if out is None else out & here
        return out

    # -- laws ----------------------------------------------------------------------------------------------------------

    def check_sums(self) -> None:
        """At every moment."""
        charged = Counter[str]()
        for entry in self.reservations:
            if entry.pool is not None:
                assert self.volumes.capacities.pool(entry.pool.key) is entry.pool
                assert entry.claim.storage_class == entry.pool.obj.storage_class_name
                charged[entry.pool.key] += entry.size
        in_flight = {pool.key: pool.in_flight for pool in self.volumes.capacities}
        assert not any(amount < 0 for amount in in_flight.values())
        assert {key: charged[key] for key in in_flight} == in_flight
        assert self.reservations.drift_bytes() == 0

    def check_entries(self) -> None:
        """Whenever pools are about to be read."""
        self.reservations.catch_up()
        self.check_sums()
        by_state: dict[str, dict[str, Reservation]] = {"flying": {}, "settling": {}, "stranded": {}}
        for entry in self.reservations:
            by_state[entry.state][entry.claim.metadata.uid] = entry
        now = self.clock.now()
        flying = self.flying()
        assert set(flying) == {uid for uid, entry in by_state["flying"].items() if not entry.is_gone}
        for uid, entry in by_state["flying"].items():
            request = flying[uid].request if not entry.is_gone else entry.claim.request
            assert entry.size == (0 if request is None else request.value)
            serving = self.serving(entry.claim.storage_class, self.node(entry.node_name))
            served = {key for key in serving if self.is_large_enough(key, entry.size)}
            assert (entry.pool is not None) is (bool(served) and not entry.is_over)
            assert entry.pool is None or entry.pool.key in served
            assert entry.is_over or now < entry.until
        for entry in by_state["settling"].values():
            kept = self.volumes.claims.get(entry.claim.key)
            assert now - entry.since < SETTLE_S
            if entry.is_gone:
                assert kept is None or kept.metadata.uid != entry.claim.metadata.uid
                continue
            assert kept is not None
            assert (kept.metadata.uid, bool(kept.spec.volume_name)) == (entry.claim.metadata.uid, True)
        for entry in by_state["stranded"].values():
            assert any(entry.claim.key in plan for plan in self.plans)
            assert now < entry.until <= entry.since + HOLD_S
            assert entry.pool is None or entry.pool.key == entry.wanted

    def check_restart(self, turn: random.Random) -> None:
        """Check that a new cache charges the same reservations, in whatever order it gets the objects."""
        fresh = World(self.clock)
        steps: list[tuple[str, Any]] = [("plan", plan) for plan in self.plans]
        for name in NAMES:
            slot = self.nodes.present_slot(name)
            node = self.nodes.node(slot) if slot is not None else None
            if node is not None:
                step: Step = (name, dict(node.metadata.labels))
                steps.append(("node", step))
        objects: list[Any] = [*self.volumes.claims, *self.volumes.volumes]
        objects += [pool.obj for pool in self.volumes.capacities]
        for step_or_object in turn.sample([*steps, *objects], len(steps) + len(objects)):
            fresh.feed(step_or_object)
        fresh.check_entries()
        for claim in fresh.volumes.claims:
            entry = next((e for e in fresh.reservations if e.claim.metadata.uid == claim.metadata.uid), None)
            if claim.spec.volume_name or claim.selected_node:
                continue
            tied = fresh.tied(claim)
            assert (tied is not None) is (entry is not None)
            serving = fresh.serving(claim.storage_class, tied or 0)
            wanted = {entry.wanted} if entry is not None and entry.wanted else set()
            assert wanted <= serving
            assert wanted or len(serving) != 1

    def feed(self, thing: Any) -> None:
        if isinstance(thing, tuple):
            self.take(*thing)
        elif isinstance(thing, PersistentVolumeClaim):
            self.volumes.claims.set(thing)
        elif isinstance(thing, PersistentVolume):
            self.volumes.set_volume(thing)
        else:
            self.put(thing)

    def close(self) -> None:
        """When nothing is claimed nothing is in flight, and nothing is remembered."""
        for claim in list(self.volumes.claims):
            self.volumes.claims.remove(claim.key)
        for plan in self.plans:
            self.reservations.end_plan(plan)
        self.plans.clear()
        self.reservations.users.remove("pod", KEYS)
        asyncio.run(self.clock.advance(HOLD_S))
        assert not self.reservations._lost
        take(self.nodes, (NAMES[0], {"zone": "c"}))
        self.check_entries()
        assert leftovers(self.reservations, spared=frozenset({"expired", "freed"})) == {}


def bind(claim: PersistentVolumeClaim, volume_name: str) -> PersistentVolumeClaim:
    spec = PersistentVolumeClaimSpec(
        resources=claim.spec.resources, storage_class_name=claim.spec.storage_class_name, volume_name=volume_name
    )
    return PersistentVolumeClaim(claim.metadata, spec)


_OBJECTS_MOVE = {"object", "object gone"}


@given(
    some=st.sampled_from([len(_start), 0]),
    first=st.lists(capacities, max_size=2),
    history=_history,
    log_max=st.sampled_from([1, 65_536]),
    turn=st.randoms(use_true_random=False),
    eager=st.booleans(),
)
def test_every_byte_is_charged_once_and_given_back(
    some: int,
    first: list[CSIStorageCapacity],
    history: list[tuple[str, Any]],
    log_max: int,
    turn: random.Random,
    eager: bool,
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ChangeLog, "log_max", log_max)
        world = World()
        for what, more in _start[:some] + [("object", obj) for obj in first] + history:
            before = {pool.key: pool.in_flight for pool in world.volumes.capacities}
            world.reservations.freed.clear()
            world.take(what, more)
            world.check_sums()
            if what not in _OBJECTS_MOVE:
                for pool in world.volumes.capacities:
                    assert pool.in_flight >= before[pool.key] or pool.obj.storage_class_name in world.reservations.freed
            if eager:
                world.check_entries()
        world.check_entries()
        world.check_restart(turn)
        world.close()
