"""What is in flight from capacity objects: volumes that are chosen for a node and do not show there yet.

A capacity object is old as soon as a volume is asked for. An entry stands for one claim, in one of three states:

* flying: the claim has a selected node and no volume, whoever selected the node, and is not being deleted;
* settling: its volume is new, and the capacity object has not been written since;
* stranded: it lost its node, and a sibling of the same pod cannot leave the nodes where it is.

A claim without a volume takes room for HOLD_S at most, counted from the moment that it took some: a volume that has not
come by then may never come. Of stranded claims only those take room that find it, pod by pod, the oldest claim first:
two pods of which one can be served must not lock each other out. Everything follows from what claims, volumes and
capacity objects say, but for the time that has passed; that starts again after a restart (docs/spec/volumes.md §12.1 B-1).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from scheduler.api.apps_and_policy import started_at
from scheduler.api.storage_v1 import PROVISIONED_BY, STORAGE_PROVISIONERS, PersistentVolume, PersistentVolumeClaim
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.capacity import Capacities, CapacityPool
from scheduler.cache.storage.persistent_volumes import PersistentVolumes
from scheduler.core import nodeset
from scheduler.core.clock import Clock
from scheduler.core.nodeset import EMPTY, NodeSet

SETTLE_S: Final = 120.0
"""How long a new volume is charged if its object is not written: drivers whose room does not shrink never write it."""
GRACE_S: Final = 2.0
"""An object written so shortly after a volume came to be may have been measured before."""
HOLD_S: Final = 600.0
"""How long a claim without a volume takes room: as long as VolumeBinding waits for one."""

_FLYING: Final = "flying"
_SETTLING: Final = "settling"
_STRANDED: Final = "stranded"


class ClaimsByKey(Protocol):
    """The claims as decisions see them."""

    def get(self, key: str) -> PersistentVolumeClaim | None: ...
    def get_api(self, key: str) -> PersistentVolumeClaim | None: ...


@dataclass(slots=True, eq=False)
class Reservation:
    """One volume in flight. `nodes` are those it can come to be on: one node, or those a sibling is tied to."""

    claim: PersistentVolumeClaim
    nodes: NodeSet
    node_name: str
    size: int
    state: str
    since: float
    until: float
    """When it takes no room any more."""
    pool: CapacityPool | None = None
    """Where it is booked; None if it takes no room."""
    wanted: str = ""
    """Of a stranded claim: key of the only pool that it can be made from."""
    version: str = ""
    """Of the pool's object when the volume came to be."""
    volume: PersistentVolume | None = None
    """Of a settling entry: the volume that its pool may not show yet, if it was known when the entry began to settle."""
    is_over: bool = False
    """Its time has passed: it takes no room until it has its volume."""
    is_written: bool = False
    """Of a flying claim: the server has shown the selected node."""

    @property
    def charges(self) -> object:
        """What decides about the pool it is drawn from; everything else may change under way."""
        return self.node_name, self.nodes, self.size, self.claim.storage_class


class CapacityReservations:
    """Single owner: the scheduling loop. `freed` has the classes whose room grew, until somebody tells the waiting pods."""

    def __init__(
        self,
        nodes: Nodes,
        capacities: Capacities,
        *,
        claims: ClaimsByKey,
        volumes: PersistentVolumes,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._capacities = capacities
        self._claims = claims
        self._volumes = volumes
        self._clock = clock
        self._entries: dict[str, Reservation] = {}
        self._by_class: dict[str, dict[str, Reservation]] = {}
        self._by_pool: dict[str, dict[str, Reservation]] = {}
        self._waiting: dict[str, dict[str, Reservation]] = {}
        """Key of the pool → the stranded claims that can only be made from it, whether or not they have room there."""
        self._changed_pools: set[str] = set()
        """Pools whose stranded claims may have room now, or have none any more."""
        self._began: dict[str, float] = {}
        """Uid of a claim that lost its node → since when it took room for its volume; until it is bound, or gone."""
        self._promised: dict[str, dict[str, str]] = {}
        """Uid of a claim → the pods of ours whose plans select a node for it, and the node."""
        self._loose: set[str] = set()
        """Classes with entries that may find a pool by now."""
        self._lost: set[str] = set()
        """Claims that had a node and wait together with others: what those are tied to may be another set by now."""
        self._plans: dict[str, dict[tuple[str, ...], int]] = {}
        """Claim → the sets of claims that pods use it with, and how many pods use each."""
        self._position = -1
        self._due = math.inf
        self.freed: set[str] = set()
        self.expired: dict[str, int] = {_FLYING: 0, _SETTLING: 0, _STRANDED: 0}
        """How many were let go because it took too long, by state: for the counter."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._entries.values())

    def bytes_in_flight(self) -> dict[str, int]:
        """Return the bytes that are taken off published room, by class: for the gauge."""
        return {
            name: sum(entry.size for entry in entries.values() if _takes_room(entry))
            for name, entries in self._by_class.items()
        }

    def oldest_s(self) -> dict[str, float]:
        """By state, how long the oldest has been in it; 0 where there is none. For the gauge: O(in flight)."""
        now = self._clock.now()
        since = dict.fromkeys((_FLYING, _SETTLING, _STRANDED), now)
        for entry in self._entries.values():
            since[entry.state] = min(since[entry.state], entry.since)
        return {state: now - at for state, at in since.items()}

    def drift_bytes(self) -> int:
        """How far what was drawn from pools is from what is in flight from them: 0, or something is wrong here.

        For the gauge: O(pools + in flight).
        """
        booked = {key: sum(entry.size for entry in entries.values()) for key, entries in self._by_pool.items()}
        drift = sum(size for key, size in booked.items() if self._capacities.pool(key) is None)
        for pool in self._capacities:
            sharing = (booked.get(other.key, 0) for other in self._capacities.sharing_with(pool))
            drift += abs(pool.in_flight - booked.get(pool.key, 0) - sum(sharing))
        return drift

    # -- what changes it -----------------------------------------------------------------------------------------------

    def claim_changed(self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None) -> None:
        """A claim as decisions see it, our own assumptions included, came, changed or went."""
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._drop(before.metadata.uid)
            self._began.pop(before.metadata.uid, None)
            self._lost.discard(before.key)
        if now is not None:
            self._consider(now)
            if before is None:
                self._find_settling(now)
        changed = now or before
        if changed is not None and changed.key in self._plans:
            self._consider_all(self._siblings(changed.key))

    def promise(self, claim: PersistentVolumeClaim, pod_uid: str, node_name: str) -> None:
        """A pod's plan selects this node for the claim: it counts so until the plan ends, whatever else is written to it."""
        self._promised.setdefault(claim.metadata.uid, {})[pod_uid] = node_name
        self._consider_all((claim.key,))

    def end_promise(self, claim: PersistentVolumeClaim, pod_uid: str) -> None:
        """The plan is carried out, or given up."""
        here = self._promised.get(claim.metadata.uid)
        if here is not None and here.pop(pod_uid, None) is not None:
            if not here:
                del self._promised[claim.metadata.uid]
            self._consider_all((claim.key,))

    def plan(self, claim_keys: Iterable[str]) -> None:
        """A pod of ours waits that uses these claims together."""
        keys = tuple(dict.fromkeys(claim_keys))
        for key in keys:
            plans = self._plans.setdefault(key, {})
            plans[keys] = plans.get(keys, 0) + 1
        self._consider_all(keys)

    def end_plan(self, claim_keys: Iterable[str]) -> None:
        """It does not wait any more."""
        keys = tuple(dict.fromkeys(claim_keys))
        for key in keys:
            plans = self._plans.get(key, {})
            left = plans.pop(keys, 1) - 1
            if left:
                plans[keys] = left
            if not plans:
                self._plans.pop(key, None)
        self._consider_all(keys)

    def volume_came(self, claim_key: str, *, is_new: bool) -> None:
        """A volume of this claim is known now: its siblings may be tied to where it is."""
        self._consider_all(self._siblings(claim_key))
        claim = self._claims.get(claim_key) if is_new else None
        if claim is not None:
            self._find_settling(claim)

    def pool_changed(self, old: CapacityPool | None, new: CapacityPool | None) -> None:
        """An object came, was written, or went. What was measured after a volume came to be counts that volume."""
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and old.obj.storage_class_name != new.obj.storage_class_name:
            self.pool_changed(old, None)
            old = None
        self._changed_pools.add(changed.key)
        if new is None or old is None or old.group is not new.group:
            self._leave_pool(changed)
            if new is None:
                self._capacities.sharing.forget(changed.key)
            return
        for entry in self._by_pool.get(new.key, {}).values():
            entry.pool = new
        beside, now = self._capacities.beside(new), self._clock.now()
        if beside and self._capacities.sharing.learn(old, new, beside, now=now, grace_s=GRACE_S):
            self._sharing_changed()
        self._settle_all(old, new)

    def catch_up(self) -> None:
        """Before reading pools: let go what is too old, and find pools for what has none yet."""
        if self._clock.now() >= self._due:
            self._let_go()
        if self._position != self._nodes.relabelled.position:
            self._position = self._nodes.relabelled.position
            self._leave_moved()
            self._loose.update(self._by_class)
            lost, self._lost = self._lost, set()
            self._consider_all(lost)
        for storage_class in self._loose:
            for entry in list(self._by_class.get(storage_class, {}).values()):
                if entry.pool is None and not entry.wanted:
                    self._find_pool(entry)
        self._loose.clear()
        if self._changed_pools:
            self._hold(self._stranded_at(self._changed_pools))
            self._changed_pools.clear()

    def pools_share(self, mode: str) -> None:
        """Say which classes share rooms: those of which it was learned, all of a driver, or none (`cache.sharedpools`)."""
        if mode != self._capacities.sharing.mode:
            self._capacities.sharing.mode = mode
            self._sharing_changed()

    @contextlib.contextmanager
    def without(self, uids: Iterable[str]) -> Iterator[None]:
        """As if these claims had nothing in flight: what a pod has reserved for itself is not in its way."""
        own = [(entry.pool, entry) for uid in uids if (entry := self._entries.get(uid)) is not None]
        drawn = [(pool, entry) for pool, entry in own if pool is not None]
        for pool, entry in drawn:
            self._capacities.book(pool, -entry.size)
        try:
            yield
        finally:
            for pool, entry in drawn:
                self._capacities.book(pool, entry.size)

    # -- claims --------------------------------------------------------------------------------------------------------

    def _consider_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            claim = self._claims.get(key)
            if claim is not None:
                self._consider(claim)

    def _consider(self, claim: PersistentVolumeClaim) -> None:
        uid = claim.metadata.uid
        entry = self._entries.get(uid)
        self._lost.discard(claim.key)
        if claim.spec.volume_name:
            self._began.pop(uid, None)
            if entry is not None and entry.state is not _SETTLING:
                self._settle(entry, claim)
        elif claim.metadata.deletion_timestamp is not None:
            self._drop(uid)  # no volume is made for it any more
        elif node_name := claim.selected_node or next(iter(self._promised.get(uid, {}).values()), ""):
            slot = self._nodes.slot(node_name)
            self._charge(claim, EMPTY if slot is None else 1 << slot, node_name, _FLYING)
            stored = self._claims.get_api(claim.key)
            if stored is not None and stored.metadata.uid == uid and stored.selected_node:
                self._entries[uid].is_written = True
                self._promised.pop(uid, None)
        else:
            if entry is not None and entry.is_written:
                self._began.setdefault(uid, entry.until - HOLD_S)
            tied = self._tied_to(claim, entry)
            if tied is None:
                self._drop(uid)
            else:
                self._charge(claim, tied, "", _STRANDED)

    def _tied_to(self, claim: PersistentVolumeClaim, entry: Reservation | None) -> NodeSet | None:
        """Where siblings keep a claim that had a node before; None if nothing does."""
        if claim.key not in self._plans:
            return None
        if entry is None and not any(name in claim.metadata.annotations for name in STORAGE_PROVISIONERS):
            return None
        self._lost.add(claim.key)
        tied: NodeSet | None = None
        for key in self._siblings(claim.key):
            sibling = self._claims.get(key)
            if sibling is None:
                continue
            here: NodeSet | None = None
            if sibling.spec.volume_name:
                volume = self._volumes.get(sibling.spec.volume_name)
                here = self._volumes.where(volume.key).nodes if volume is not None else None
            elif sibling.selected_node:
                slot = self._nodes.slot(sibling.selected_node)
                here = 1 << slot if slot is not None else None
            if here is not None:
                tied = here if tied is None else tied & here
        return tied

    def _siblings(self, key: str) -> dict[str, None]:
        return {other: None for keys in self._plans.get(key, ()) for other in keys if other != key}

    def _charge(self, claim: PersistentVolumeClaim, nodes: NodeSet, node_name: str, state: str) -> None:
        """Make the entry of a claim without a volume, or leave it as it is if nothing about it changed."""
        uid, now = claim.metadata.uid, self._clock.now()
        known = self._entries.get(uid)
        if known is not None and known.state is _SETTLING:
            known = None
        size = claim.request.value if claim.request is not None else 0
        until = known.until if known is not None else now + HOLD_S
        if state is _STRANDED:
            self._began.setdefault(uid, until - HOLD_S)
        if uid in self._began:
            until = self._began[uid] + HOLD_S
        entry = Reservation(claim, nodes, node_name, size, state, now, until)
        if known is not None and known.state is state:
            if known.charges == entry.charges:
                known.claim = claim
                return
            entry.since = known.since
        self._drop(uid)
        entry.is_over = now >= until
        if entry.is_over and state is _STRANDED:
            return
        self._enter(entry)

    def _enter(self, entry: Reservation) -> None:
        uid = entry.claim.metadata.uid
        self._entries[uid] = entry
        self._by_class.setdefault(entry.claim.storage_class, {})[uid] = entry
        self._due = min(self._due, entry.until)
        self._find_pool(entry)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        now, self._due = self._clock.now(), math.inf
        for uid, entry in list(self._entries.items()):
            if entry.is_over:
                continue
            if now < entry.until:
                self._due = min(self._due, entry.until)
                continue
            self.expired[entry.state] += _takes_room(entry)
            if entry.state is _FLYING:
                self._release(entry)
                entry.is_over = True
            else:
                self._drop(uid)

    # -- pools ---------------------------------------------------------------------------------------------------------

    def _find_pool(self, entry: Reservation) -> None:
        """Book the entry on the pool that its volume will be made from, as far as that can be said."""
        pools = self._capacities.of(entry.claim.storage_class)
        if pools is None or entry.is_over:
            return
        if entry.state is _SETTLING:
            entry.nodes = self._where_made(entry)
        elif entry.node_name:
            slot = self._nodes.slot(entry.node_name)
            entry.nodes = EMPTY if slot is None else 1 << slot
        found = {pool for slot in nodeset.each(entry.nodes) for pool in pools.at(slot)}
        if entry.state is _STRANDED:
            if len(found) == 1:  # else it can still go to several places, or to none
                entry.wanted = found.pop().key
                self._waiting.setdefault(entry.wanted, {})[entry.claim.metadata.uid] = entry
                self._changed_pools.add(entry.wanted)
                self._hold_together([entry])  # until `catch_up` no decision is to take the room that it has just lost
            return
        here = sorted(found, key=lambda pool: pool.key)
        fitting = [pool for pool in here if pool.takes(entry.size)]
        pool = max(fitting or here, key=lambda pool: pool.room - pool.in_flight, default=None)
        if pool is None:
            return
        if entry.volume is not None:
            if _is_newer(pool.obj.metadata.resource_version, entry.volume.metadata.resource_version):
                self._drop(entry.claim.metadata.uid)
                return
            entry.version = pool.obj.metadata.resource_version
        self._book(entry, pool)

    def _book(self, entry: Reservation, pool: CapacityPool) -> None:
        entry.pool = pool
        self._by_pool.setdefault(pool.key, {})[entry.claim.metadata.uid] = entry
        self._capacities.book(pool, entry.size)
        self._note_changed(pool)

    def _release(self, entry: Reservation) -> None:
        """The entry takes no room any more; waiting pods are told."""
        pool = entry.pool
        if pool is not None:
            self._unbook(entry, pool)
            self._note_changed(pool)
            self._tell_freed(pool)
        if entry.wanted:
            _take_out(self._waiting, entry.wanted, entry.claim.metadata.uid)
            entry.wanted = ""

    def _tell_freed(self, pool: CapacityPool) -> None:
        self.freed.update(each.obj.storage_class_name for each in (pool, *self._capacities.sharing_with(pool)))

    def _note_changed(self, pool: CapacityPool) -> None:
        if self._waiting:
            self._changed_pools.update(each.key for each in (pool, *self._capacities.sharing_with(pool)))

    def _drop(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._release(entry)
            _take_out(self._by_class, entry.claim.storage_class, uid)

    def _leave_pool(self, pool: CapacityPool) -> None:
        """The pool is gone, or serves other nodes: what was booked on it looks for another one."""
        for entry in self._by_pool.pop(pool.key, {}).values():
            entry.pool = None
        for entry in self._waiting.pop(pool.key, {}).values():
            entry.wanted = ""
        self._loose.add(pool.obj.storage_class_name)

    def _leave_moved(self) -> None:
        """Nodes have other labels, or are gone: what was to be made on them is made elsewhere. A volume stays where it is."""
        for entry in self._entries.values():
            if entry.state is _FLYING:
                slot = self._nodes.slot(entry.node_name)
                entry.nodes = EMPTY if slot is None else 1 << slot
            elif entry.state is _SETTLING:
                continue
            pool = entry.pool or self._capacities.pool(entry.wanted)
            if pool is not None:
                pools = self._capacities.of(entry.claim.storage_class)
                serves = pools is not None and any(pool in pools.at(slot) for slot in nodeset.each(entry.nodes))
                if not serves:
                    self._release(entry)

    # -- settling ------------------------------------------------------------------------------------------------------

    def _settle(self, entry: Reservation, claim: PersistentVolumeClaim) -> None:
        """The claim has its volume. It is charged until the object has been written, or another object that is newer."""
        now = self._clock.now()
        if entry.is_over:
            entry.is_over = False
            self._find_pool(entry)
        pool = entry.pool
        if pool is None or entry.wanted:
            self._drop(entry.claim.metadata.uid)
            return
        self._capacities.sharing.made(pool, entry.size, now)
        entry.state, entry.since, entry.until = _SETTLING, now, now + SETTLE_S
        entry.version = pool.obj.metadata.resource_version
        entry.volume = self._volumes.get_api(claim.spec.volume_name)
        self._due = min(self._due, entry.until)

    def _settle_all(self, old: CapacityPool, new: CapacityPool) -> None:
        """The object was written: it counts the volumes that came to be before."""
        shrunk, now, young = old.room - new.room, self._clock.now(), []
        for uid, entry in list(self._by_pool.get(new.key, {}).items()):
            if entry.state is not _SETTLING or entry.version == new.obj.metadata.resource_version:
                continue
            if now - entry.since >= GRACE_S:
                shrunk -= entry.size
                self._drop(uid)
            else:
                young.append((entry.since, uid, entry.size))
        for _, uid, size in sorted(young):
            if size <= shrunk:  # it shrank by that volume: it was measured after, however soon that was
                shrunk -= size
                self._drop(uid)

    def _find_settling(self, claim: PersistentVolumeClaim) -> None:
        """Charge a volume that was new already when this process saw it first: after a restart."""
        volume = self._volumes.get_api(claim.spec.volume_name) if claim.spec.volume_name else None
        uid = claim.metadata.uid
        if volume is None or uid in self._entries or not claim.selected_node:
            return
        ref, age_s = volume.spec.claim_ref, self._clock.wall() - started_at(volume.metadata.creation_timestamp)
        if ref is None or ref.uid != uid or PROVISIONED_BY not in volume.metadata.annotations:
            return
        if -SETTLE_S < age_s < SETTLE_S:
            size, since = claim.request.value if claim.request is not None else 0, self._clock.now() - max(age_s, 0.0)
            until, node_name = since + SETTLE_S, claim.selected_node
            self._enter(Reservation(claim, EMPTY, node_name, size, _SETTLING, since, until, volume=volume))

    def _where_made(self, entry: Reservation) -> NodeSet:
        """The selected node if the volume can be used there; else, because that node is gone or has moved, all of its nodes."""
        slot = self._nodes.slot(entry.node_name)
        selected = EMPTY if slot is None else 1 << slot
        if entry.volume is None or self._volumes.get_api(entry.volume.key) is None:
            return selected
        usable = self._volumes.where(entry.volume.key).nodes
        return selected & usable or usable

    # -- stranded ------------------------------------------------------------------------------------------------------

    def _stranded_at(self, keys: Iterable[str]) -> dict[str, Reservation]:
        """The stranded claims that wait for these pools, and all that compete with them, directly or through a pod."""
        found: dict[str, Reservation] = {}
        todo = [key for key in keys if key in self._waiting]
        seen = set(todo)
        while todo:
            key = todo.pop()
            pool = self._capacities.pool(key)
            near = [other.key for other in self._capacities.sharing_with(pool)] if pool is not None else []
            for uid, entry in self._waiting.get(key, {}).items():
                found[uid] = entry
                near += [sibling.wanted for sibling in self._waiting_with(entry.claim.key)]
            todo += [other for other in dict.fromkeys(near) if other not in seen]
            seen.update(near)
        return found

    def _waiting_with(self, key: str) -> Iterator[Reservation]:
        for sibling in self._siblings(key):
            claim = self._claims.get(sibling)
            if claim is not None and (entry := self._entries.get(claim.metadata.uid)) is not None and entry.wanted:
                yield entry

    def _hold(self, stranded: dict[str, Reservation]) -> None:
        """Give room to the pods whose stranded claims all find some, the oldest claim first, and to no other pod.

        A pod that held a part of what it needs could keep another from its own part, and neither could go.
        """
        held = {uid: entry.pool for uid, entry in stranded.items() if entry.pool is not None}
        for uid, pool in held.items():
            self._unbook(stranded[uid], pool)
        by_key = {entry.claim.key: entry for entry in stranded.values()}
        plans = dict.fromkeys(plan for key in by_key for plan in self._plans.get(key, ()))

        def age(plan: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
            claims = (by_key[key].claim for key in plan if key in by_key)
            return min(claim.metadata.creation_timestamp or "" for claim in claims), plan

        for plan in sorted(plans, key=age):
            self._hold_together([by_key[key] for key in plan if key in by_key])
        for uid, pool in held.items():
            if stranded[uid].pool is None:
                self._tell_freed(pool)

    def _hold_together(self, entries: list[Reservation]) -> None:
        booked: list[tuple[Reservation, CapacityPool]] = []
        for entry in entries:
            pool = self._capacities.pool(entry.wanted)
            if entry.pool is not None:
                continue
            if pool is None or not pool.takes(entry.size):
                for taken, where in booked:
                    self._unbook(taken, where)
                return
            self._book(entry, pool)
            booked.append((entry, pool))

    def _unbook(self, entry: Reservation, pool: CapacityPool) -> None:
        entry.pool = None
        _take_out(self._by_pool, pool.key, entry.claim.metadata.uid)
        self._capacities.book(pool, -entry.size)

    def _sharing_changed(self) -> None:
        """Rooms may be smaller or larger now: stranded claims are looked at again, and waiting pods are told."""
        self.freed |= self._capacities.sharing_changed()
        self._changed_pools.update(self._waiting)


def _takes_room(entry: Reservation) -> bool:
    return not entry.is_over and (entry.state is not _STRANDED or entry.pool is not None)


def _is_newer(version: str, than: str) -> bool:
    """Whether an object was written after another one. Versions that are no numbers tell nothing."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def _take_out(filed: dict[str, dict[str, Reservation]], key: str, uid: str) -> None:
    entries = filed[key]
    del entries[uid]
    if not entries:
        del filed[key]
