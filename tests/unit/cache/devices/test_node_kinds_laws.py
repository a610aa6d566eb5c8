"""After any history of slices, nodes and claims the caches equal freshly built ones."""

from __future__ import annotations

import random
from collections import Counter
from unittest import mock

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from scheduler.api.core_v1 import Node
from scheduler.api.meta import AnnotatedMetadata
from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import (
    AllocationResult,
    ClaimMetadata,
    DeviceAllocationResult,
    DeviceId,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from scheduler.cache.assume_cache import NotKnown, OutOfSync
from scheduler.cache.devices import node_kinds as devicenodes, pools as devicepools
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.claim_tracker import ClaimTracker
from scheduler.cache.devices.manager import DeviceClasses
from scheduler.cache.devices.node_kinds import DeviceNodes, usable
from scheduler.cache.devices.pools import DeviceKind, Limit, Memo
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.cooperative import Work, finish
from scheduler.core.feature_gates import DEVICE_GATES_ON, PARTITIONABLE
from scheduler.core.nodeset import NodeSet
from scheduler.plugins.dra.structured.allocator import AllocationError, Allocator, FailedOnNode
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures, NodeDevices
from scheduler.plugins.dra.structured.node_verdicts import NodeVerdicts, placeholders
from scheduler.plugins.dra.structured.requests import ClaimParser, ClaimsToAllocate, SelectorSets
from tests.examples import examples
from tests.support.clock import VirtualClock
from tests.unit.plugins.dra.random_devices import Maker, holds

NODES = ("n1", "n2", "n3", "n4")
SLICES = tuple(f"s{at}" for at in range(7))
CLAIMS = tuple(f"c{at}" for at in range(4))
histories = settings(max_examples=examples(250), suppress_health_check=[HealthCheck.too_slow])


class Caches:
    """All that is kept between pods."""

    def __init__(self, gates: frozenset[str], demands: list[list[ResourceClaim]]) -> None:
        self.gates = gates
        self.nodes = Nodes(capacity=1)
        self.use = AllocationState()
        self.claims = ClaimTracker(self.use)
        self.on_nodes = DeviceNodes(self.nodes, self.use, gates)
        self.rules = AllocatorFeatures.of(gates)
        self.boards = NodeVerdicts(self.on_nodes, self.use, VirtualClock(), self.rules)
        classes = DeviceClasses()
        for name, device_class in Maker(random.Random(0)).classes().items():
            classes.put(name, device_class)
        made = ClaimParser(classes, SelectorSets(_holding), gates)
        self.demands = [made.of(claims) for claims in demands]

    # -- what can be seen, in words that do not depend on where a node's number comes from ------------------------------

    def names(self, nodes: NodeSet) -> frozenset[str]:
        return frozenset(self.nodes.name(slot) for slot in nodeset.each(nodes))

    def pools(self) -> dict[str, object]:
        return {self.nodes.name(slot): self._pools_at(slot) for slot in nodeset.each(self.nodes.present)}

    def _pools_at(self, slot: int) -> object:
        return [
            (
                view.key,
                view.state,
                [(each.id, each.device, usable(each, slot)) for each in view.devices],
                {name: dict(counters) for name, counters in view.counters.items()},
                [each.id for each in view.elsewhere],
            )
            for view in self.on_nodes.pools(slot)
        ]

    def kinds(self) -> Counter[tuple[frozenset[str], int]]:
        return Counter((self.names(kind.nodes), kind.free) for kind in self.on_nodes.kinds())

    def verdicts(self, demand: ClaimsToAllocate) -> dict[str, str]:
        """Node → what the board says."""
        board = finish(self.boards.search_all(demand, self.nodes.present))
        said = dict.fromkeys(self.names(board.fit), "fits")
        for groups in (board.refused, board.failed):
            for text, nodes in groups.items():
                assert not said.keys() & self.names(nodes)
                said |= {
                    self.nodes.name(slot): self.boards.text_on(slot, text, placeholders(demand))
                    for slot in nodeset.each(nodes)
                }
        return said

    def searched(self, demand: ClaimsToAllocate) -> dict[str, str]:
        """Node → what a search of that very node says."""
        return {self.nodes.name(slot): self._searched_at(demand, slot) for slot in nodeset.each(self.nodes.present)}

    def _searched_at(self, demand: ClaimsToAllocate, slot: int) -> str:
        node_devices = NodeDevices(self.on_nodes, slot, self.use, rules=self.rules)
        try:
            picked = Allocator(demand, node_devices, placeholders(demand)).run()
        except (AllocationError, FailedOnNode) as error:
            return str(error)
        return "cannot allocate all claims" if picked is None else "fits"

    def used(self) -> dict[DeviceId, object]:
        wholly = {device: frozenset(self.use.holders(device)) for device in self.use.devices()}
        parts = {
            device: (
                Counter((s.claim_uid, s.share_id) for s in self.use.shares(device)),
                dict(self.use.consumed(device)),
            )
            for device in self.use._shares
        }
        return {device: (wholly.get(device), parts.get(device)) for device in {*wholly, *parts}}


def _holding(expression: str, kind: DeviceKind) -> Work[bool | str]:
    yield from ()
    return holds(expression, kind.driver, kind.device)


class History:
    """Does random things to the caches, and knows what should have come of them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.maker = Maker(rng)
        gates = DEVICE_GATES_ON - ({PARTITIONABLE} if rng.randrange(5) == 4 else set())
        asked = [[self.maker.claim_named(f"x{at}") for at in range(rng.choice((1, 1, 2)))] for _ in range(2)]
        asked += [[self.maker.easy_claim_named("easy")] for _ in range(2)]
        self.caches, self.asked, self.gates = Caches(gates, asked), asked, gates
        self.slices: dict[str, ResourceSlice] = {}
        self.node_objects: dict[str, Node] = {}
        self.version = 0
        self.watched: dict[str, ResourceClaim] = {}
        self.ours: dict[str, ResourceClaim] = {}
        self.flying: dict[str, tuple[AllocationResult, int]] = {}

    def step(self) -> None:
        self.version += 1
        self.rng.choice(
            (
                *(self._slice, self._slice, self._slice, self._node, self._claim, self._claim, self._look, self._look),
                self._work_ahead,
            )
        )()

    def _slice(self) -> None:
        name = self.rng.choice(SLICES)
        if self.rng.randrange(4) == 0:
            self.slices.pop(name, None)
            self.caches.on_nodes.remove_slice(name)
            return
        make = self.maker.shared_slice_named if self.rng.randrange(3) == 0 else self.maker.slice_named
        self.slices[name] = make(name)
        self.caches.on_nodes.set_slice(self.slices[name])

    def _node(self) -> None:
        name = self.rng.choice(NODES)
        if self.rng.randrange(3) == 0:
            self.node_objects.pop(name, None)
            self.caches.nodes.remove_node(name)
            return
        self.node_objects[name] = Node(metadata=AnnotatedMetadata(name=name, labels={"zone": self.rng.choice("ab")}))
        self.caches.nodes.set_node(self.node_objects[name])

    def _work_ahead(self) -> None:
        self.caches.on_nodes.work_ahead(self.rng.randrange(1, len(NODES)))

    def _look(self) -> None:
        self.caches.on_nodes.catch_up()
        for demand in self.caches.demands:
            assert self.caches.verdicts(demand) == self.caches.searched(demand)

    # -- claims --------------------------------------------------------------------------------------------------------

    def _allocation(self) -> AllocationResult:
        results: list[DeviceRequestAllocationResult] = []
        for at in range(self.rng.choice((1, 1, 2))):
            device = (
                ("a", self.rng.choice(SLICES), "d0")
                if self.rng.randrange(2)
                else (
                    self.rng.choice("aab"),
                    self.rng.choice(("n1", "n2", "n3", "net", *SLICES)),
                    self.rng.choice(("d0", "d1", "d2")),
                )
            )
            if any((r.driver, r.pool, r.device) == device for r in results):
                continue
            kind = self.rng.randrange(6)
            if kind < 3:
                results.append(DeviceRequestAllocationResult("r", *device, admin_access=True if kind == 2 else None))
            else:
                consumed = {"mem": parse(str(kind - 3))} if kind > 3 else None
                results.append(
                    DeviceRequestAllocationResult(
                        "r", *device, share_id=f"{self.version}.{at}", consumed_capacity=consumed
                    )
                )
        return AllocationResult(DeviceAllocationResult(tuple(results)))

    def _made(self, name: str, uid: str, allocation: AllocationResult | None) -> ResourceClaim:
        metadata = ClaimMetadata(name=name, namespace="default", uid=uid, resource_version=str(self.version))
        return ResourceClaim(metadata, status=ResourceClaimStatus(allocation))

    def _claim(self) -> None:
        name = self.rng.choice(CLAIMS)
        key = f"default/{name}"
        claims, now = self.caches.claims, self._now(key)
        match self.rng.choice(("seen", "seen", "stale", "signal", "signal", "drop", "assume", "restore", "gone")):
            case "seen":
                again = self.rng.randrange(6) == 0
                uid = f"{name}-{self.version}" if again or now is None else now.uid
                allocation = self._allocation() if self.rng.randrange(2) else None
                self.watched[key] = self._made(name, uid, allocation)
                self.ours.pop(key, None)
                claims.set(self.watched[key])
            case "stale" if now is not None:
                claims.set(msgspec.structs.replace(now, metadata=_at_version(now, "0"), status=ResourceClaimStatus()))
            case "signal":
                self._signal(name, now)
            case "drop" if self.flying:
                uid = self.rng.choice(sorted(self.flying))
                held, sharers = self.flying.pop(uid)
                if sharers > 1:
                    self.flying[uid] = held, sharers - 1
                assert claims.drop_pending(uid) == (sharers == 1)
            case "assume" if now is not None:
                self._assume(key, now)
            case "restore":
                self.ours.pop(key, None)
                claims.restore(key)
            case "gone":
                self.watched.pop(key, None)
                self.ours.pop(key, None)
                claims.remove(key)

    def _signal(self, name: str, now: ResourceClaim | None) -> None:
        allocation = self._allocation()
        if now is None:
            claim = self._made(name, "gone", allocation)
            with pytest.raises(NotKnown):
                self.caches.claims.signal("gone", claim)
            return
        self.caches.claims.signal(now.uid, msgspec.structs.replace(now, status=ResourceClaimStatus(allocation)))
        if not now.is_allocated:
            held, sharers = self.flying.get(now.uid, (allocation, 0))
            self.flying[now.uid] = held, sharers + 1

    def _assume(self, key: str, now: ResourceClaim) -> None:
        allocation = self._allocation() if self.rng.randrange(3) else None
        claim = self._made(now.metadata.name, now.uid, allocation)
        if self.rng.randrange(4) == 0:
            with pytest.raises(OutOfSync):
                self.caches.claims.assume(msgspec.structs.replace(claim, metadata=_at_version(claim, "0")))
            return
        self.ours[key] = claim
        self.caches.claims.assume(claim)

    def _now(self, key: str) -> ResourceClaim | None:
        return self.ours.get(key, self.watched.get(key))

    def held(self) -> dict[str, AllocationResult]:
        """Uid → what it has: its own allocation, else the one in flight."""
        out = {uid: held for uid, (held, _) in self.flying.items()}
        for key in {*self.watched, *self.ours}:
            claim = self._now(key)
            if claim is not None and claim.status.allocation is not None:
                out[claim.uid] = claim.status.allocation
        return out

    # -- the same, made in one go --------------------------------------------------------------------------------------

    def afresh(self) -> Caches:
        fresh = Caches(self.gates, self.asked)
        for uid, allocation in sorted(self.held().items()):
            fresh.use.hold(uid, allocation)
        for _, each in sorted(self.slices.items()):
            fresh.on_nodes.set_slice(each)
        for _, node in sorted(self.node_objects.items(), reverse=True):
            fresh.nodes.set_node(node)
        return fresh


def _at_version(claim: ResourceClaim, version: str) -> ClaimMetadata:
    return msgspec.structs.replace(claim.metadata, resource_version=version)


@histories
@given(st.integers(0, 2**64), st.integers(1, 60))
def test_a_history_leaves_no_trace(seed: int, length: int) -> None:
    history = History(random.Random(seed))
    for _ in range(length):
        history.step()
    old, new = history.caches, history.afresh()
    for caches in (old, new):
        caches.on_nodes.catch_up()

    assert old.used() == new.used()
    assert old.pools() == new.pools()
    assert old.kinds() == new.kinds()
    for before, after in zip(old.demands, new.demands, strict=True):
        assert old.verdicts(before) == new.verdicts(after) == old.searched(before)


@histories
@given(st.integers(0, 2**64), st.integers(1, 40))
def test_every_node_is_of_exactly_one_kind_and_the_log_has_each_change(seed: int, length: int) -> None:
    history = History(random.Random(seed))
    on_nodes, nodes = history.caches.on_nodes, history.caches.nodes
    known: dict[int, object] = {}
    for _ in range(length):
        position = on_nodes.position
        history.step()
        on_nodes.catch_up()

        kinds = list(on_nodes.kinds())
        assert sum(kind.nodes.bit_count() for kind in kinds) == nodes.present.bit_count()
        now = {slot: on_nodes.kind(slot) for slot in nodeset.each(nodes.present)}
        assert all(kind is not None and kind.nodes >> slot & 1 for slot, kind in now.items())
        changed = {slot for slot in {*now, *known} if now.get(slot) is not known.get(slot)}
        assert changed <= set(on_nodes.changed_since(position) or ())
        known = dict(now)


SIZE = 5
_steps = st.lists(
    st.tuples(st.sampled_from(("set", "get", "set", "get", "clear")), st.integers(0, 3), st.integers(0, 9)), max_size=80
)


@given(_steps)
def test_what_is_remembered_is_what_was_said_last(steps: list[tuple[str, int, int]]) -> None:
    limit = Limit(SIZE)
    memos, said = [Memo(limit) for _ in range(4)], [dict[int, int]() for _ in range(4)]
    for at, (what, which, asked) in enumerate(steps):
        if what == "set":
            memos[which][asked] = said[which][asked] = at
        elif what == "clear":
            memos[which].clear()
            said[which].clear()
        else:
            assert memos[which].get(asked) in {None, said[which].get(asked)}
        assert sum(map(len, memos)) <= len(limit) <= 2 * SIZE


@given(_steps)
def test_what_was_used_of_late_is_still_known(steps: list[tuple[str, int, int]]) -> None:
    limit = Limit(SIZE)
    memos, used = [Memo(limit) for _ in range(4)], list[tuple[int, int]]()
    for what, which, asked in steps:
        if what == "set":
            memos[which][asked] = 1
        if what == "clear" or memos[which].get(asked) is None:
            continue
        used = [each for each in used if each != (which, asked)] + [(which, asked)]
        for one, thing in used[-SIZE:]:
            assert memos[one]._young.get(thing) or memos[one]._old.get(thing)


def test_answers_of_a_dropped_memo_are_evicted() -> None:
    limit = Limit(SIZE)
    gone = Memo(limit)
    gone["question"] = "answer"
    other = Memo(limit)
    for asked in range(3 * SIZE):
        other[asked] = asked

    assert 0 == len(gone)
    assert not any(memo is gone for memo in (*limit._young, *limit._old))


@settings(max_examples=examples(60))
@given(st.integers(0, 2**64), st.integers(1, 40), st.integers(1, 4))
def test_verdicts_do_not_depend_on_the_size_of_memos(seed: int, length: int, size: int) -> None:
    with mock.patch.object(devicenodes, "_ANSWERS_MAX", size), mock.patch.object(devicepools, "_answers", Limit(size)):
        history = History(random.Random(seed))
        for _ in range(length):
            history.step()
        caches = history.caches
        caches.on_nodes.catch_up()

        for demand in caches.demands:
            assert caches.verdicts(demand) == caches.searched(demand)
        assert len(caches.on_nodes._answers) <= 2 * size


@histories
@given(st.integers(0, 2**64), st.integers(1, 30), st.integers(1, 3))
def test_work_ahead_leaves_nothing_to_the_next_decision(seed: int, length: int, most: int) -> None:
    history = History(random.Random(seed))
    for _ in range(length):
        history.step()
    on_nodes = history.caches.on_nodes
    position, turns = on_nodes.position, 0
    while on_nodes.work_ahead(most):
        turns += 1
        assert turns <= 2 * len(NODES)

    assert not on_nodes.pools_by_key or not on_nodes.behind
    if on_nodes.pools_by_key:
        placed = on_nodes.position
        on_nodes.catch_up()
        assert placed == on_nodes.position
    else:
        assert (position, 0) == (on_nodes.position, turns)
