"""Storage capacity reservations: volumes for a selected node that capacity objects do not include yet.

A worked example, with one capacity object of 10Gi for node n1 (`reservation` explains the states):

    1. claim a, 6Gi, has selected node n1       a is flying: 6Gi are booked, 4Gi remain
    2. claim b of 6Gi is checked                no node takes it: 6 + 6 > 10, although the object still says 10Gi
    3. the volume of a is made, a is bound      a is settling: 6Gi stay booked, as the object is older than the volume
    4. GRACE_S later the object says 4Gi        it includes the volume: nothing is booked, 4Gi remain
    5. claim d, 3Gi, has selected node n1       d is flying: 3Gi are booked
    6. no volume comes within HOLD_S            d expires: nothing is booked, and pods that wait for storage are woken

The state follows from claims, volumes and capacity objects, except for the elapsed times. They start again after a
restart (docs/spec/volumes.md §12.1 B-1).
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator

from scheduler.api.storage_v1 import (
    STORAGE_PROVISIONERS,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
)
from scheduler.cache.assume_cache import AssumeCache
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.capacity import Capacities
from scheduler.cache.storage.capacity_pools import CapacityPool
from scheduler.cache.storage.claims_together import ClaimSet, ClaimsTogether, ClaimTies, PendingUsers, place_of
from scheduler.cache.storage.persistent_volumes import PersistentVolumes
from scheduler.cache.storage.reservation import (
    FLYING,
    GRACE_S,
    HOLD_S,
    SETTLE_S,
    SETTLING,
    STRANDED,
    Reservation,
    drop_from,
    included,
    is_reserving,
    oldest_claim,
    settling_since,
)
from scheduler.core.clock import Clock
from scheduler.core.nodeset import NodeSet


class CapacityReservations:
    """All reservations. Only the scheduling loop uses it. `freed` has the classes with more storage, for waking pods."""

    def __init__(
        self,
        nodes: Nodes,
        capacities: Capacities,
        *,
        claims: AssumeCache[PersistentVolumeClaim],
        volumes: PersistentVolumes,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._capacities = capacities
        self._claims = claims
        self._volumes = volumes
        self._clock = clock
        self.entries: dict[str, Reservation] = {}
        self.by_class: dict[str, dict[str, Reservation]] = {}
        self.by_pool: dict[str, dict[str, Reservation]] = {}
        self.waiting: dict[str, dict[str, Reservation]] = {}
        """Key of the pool → the stranded claims for which it is the only possible pool, booked or not."""
        self._changed_pools: set[str] = set()
        """Pools whose stranded claims must be checked again."""
        self._began: dict[str, float] = {}
        """Uid of a claim that lost its node → start of its first reservation, until the claim is bound or gone."""
        self._promised: dict[str, dict[str, str]] = {}
        """Uid of a claim → our pods whose plans select a node for it, and the node."""
        self._without_pool: set[str] = set()
        """Classes with entries that may have a pool now."""
        self._lost: dict[str, bool] = {}
        """Claims that lost their node and wait together with other claims, which may tie them to certain nodes."""
        self._moved: dict[str, float] = {}
        """Claims whose node or volume changed since `catch_up`, and when: they may tie other claims to other nodes."""
        self.together = ClaimsTogether()
        """The sets of claims of our waiting pods."""
        self.users = PendingUsers()
        self._position = -1
        self._due = math.inf
        self.freed: set[str] = set()
        self.expired: dict[str, int] = {FLYING: 0, SETTLING: 0, STRANDED: 0}
        """Number of expired reservations by state, for the counter."""

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self.entries.values())

    def bytes_in_flight(self) -> dict[str, int]:
        """Return the bytes in flight by class, for the gauge."""
        return {name: sum(e.size for e in of.values() if is_reserving(e)) for name, of in self.by_class.items()}

    def oldest_s(self) -> dict[str, float]:
        """Return by state the age of the oldest entry in seconds; 0 if there is none. For the gauge: O(in flight)."""
        since = dict.fromkeys(self.expired, now := self._clock.now())
        for entry in self:
            since[entry.state] = min(since[entry.state], entry.since)
        return {state: now - at for state, at in since.items()}

    def drift_bytes(self) -> int:
        """Return 0, unless the booked bytes differ between pools and entries. For the gauge: O(pools + in flight)."""
        # The two sides are maintained by different code. A difference means that storage is refused, or promised twice,
        # until the self-audit corrects it.
        booked, capacities = self.booked(), self._capacities
        lost = sum(size for key, size in booked.items() if capacities.pool(key) is None)
        return lost + sum(abs(pool.in_flight - capacities.total(pool, booked)) for pool in capacities)

    # -- what changes it -----------------------------------------------------------------------------------------------

    def claim_changed(self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None) -> None:
        """Process a claim that was added, changed or removed, with our own assumptions."""
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._end_claim(before.metadata.uid)
            self._began.pop(before.metadata.uid, None)
            self._lost.pop(before.key, False)
        if now is not None:
            if (entry := self.entries.get(now.metadata.uid)) is not None:
                entry.is_gone = False  # a list from an older server can miss a claim that a newer list has
            self.consider(now)
            if before is None:
                self._find_settling(now)
        changed = now or before
        if changed is not None and place_of(before) != place_of(now):
            self._note_moved(changed.key)

    def promise(self, claim: PersistentVolumeClaim, pod_uid: str, node_name: str) -> None:
        """Record that a pod's plan selects this node for the claim, until the plan ends and whatever else is written."""
        self._promised.setdefault(claim.metadata.uid, {})[pod_uid] = node_name
        self._consider_all((claim.key,))

    def end_promise(self, claim: PersistentVolumeClaim, pod_uid: str) -> None:
        """Record that the plan was executed or cancelled."""
        nodes_by_pod = self._promised.get(claim.metadata.uid)
        if nodes_by_pod is not None and nodes_by_pod.pop(pod_uid, None) is not None:
            if not nodes_by_pod:
                del self._promised[claim.metadata.uid]
            self._consider_all((claim.key,))

    def plan(self, claim_keys: Iterable[str]) -> None:
        """Record that a pod of this scheduler waits and uses these claims together."""
        self.set_changed(self.together.add(claim_keys))

    def end_plan(self, claim_keys: Iterable[str]) -> None:
        """Undo `plan`."""
        self.set_changed(self.together.remove(claim_keys))

    def volume_came(self, volume: PersistentVolume, ref: ObjectRef, *, is_new: bool) -> None:
        """Record a volume of the claim `ref`; other claims of the pod may be tied to its nodes."""
        self._note_moved(ref.key)
        claim = self._claims.get(ref.key) if is_new else None
        if claim is not None:
            self._find_settling(claim)
        entry = self.entries.get(ref.uid)
        # A deleted claim gets no update with the name of its volume, so the volume itself starts the settling.
        if entry is not None and entry.is_gone and entry.state is FLYING:
            self._settle(entry, volume)

    def claim_used(self, key: str) -> None:
        """Reserve storage for a claim that a pod uses from now on."""
        if (claim := self._claims.get(key)) is not None and claim.selected_node:
            self.consider(claim)

    def is_used(self, key: str) -> bool:
        """Return whether a pod uses the claim, on a node or without one."""
        return self.users.has(key) or bool(self._nodes.claim_users.users.slots(key))

    def pool_changed(self, old: CapacityPool | None, new: CapacityPool | None) -> None:
        """Process an object that was added, written or removed.

        An object that was measured after the creation of a volume includes the volume.
        """
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
        # An update keeps the pool's nodes and class. The reservations stay booked, on the new object.
        for entry in self.by_pool.get(new.key, {}).values():
            entry.pool = new
        other_pools, now = self._capacities.other_classes(new), self._clock.now()
        if other_pools and self._capacities.sharing.learn(old, new, other_pools, now=now, grace_s=GRACE_S):
            self._sharing_changed()
        for entry in included(self.by_pool.get(new.key, {}).values(), old, new, now=now):
            self._drop(entry.claim.metadata.uid)
        for entry in list(self.by_pool.get(new.key, {}).values()):
            if not entry.may_come_from(new):
                self._release(entry)
        if (old.limit, old.capacity) != (new.limit, new.capacity):
            self._without_pool.add(new.obj.storage_class_name)

    def catch_up(self) -> None:
        """Drop expired reservations, and find pools for entries without one. Call it before reading pools.

        All changes since the last call are one batch. It considers each claim once, in O(claims of the changed sets).
        """
        if self._clock.now() >= self._due:
            self._expire()
        if self._position != self._nodes.relabelled.position:
            self._position = self._nodes.relabelled.position
            self._leave_moved()
            self._without_pool.update(self.by_class)
            self._moved = dict.fromkeys(self._lost, self._clock.now()) | self._moved
        # The order matters. Claims that moved create or drop entries, these find pools, and only then do the stranded
        # claims share what remains.
        if self._moved:
            self._consider_lost()
        for storage_class in self._without_pool:
            for entry in list(self.by_class.get(storage_class, {}).values()):
                if entry.pool is None and not entry.wanted:
                    self._find_pool(entry)
        self._without_pool.clear()
        if self._changed_pools:
            self._hold(self._stranded_at(self._changed_pools))
            self._changed_pools.clear()

    def again(self, uid: str, key: str) -> None:
        """Drop a reservation, whatever is wrong with it, and consider its claim again. For the self-audit."""
        self.entries.pop(uid, None)
        for index in (self.by_class, self.by_pool, self.waiting):
            for group in [group for group, entries in index.items() if uid in entries]:
                drop_from(index, group, uid)
        # A pool whose sum was wrong gets the sum of its reservations, of which this one is no more.
        self._capacities.recount(self.booked())
        if self._claims.get(key) is not None:
            self._consider_all((key,))
            self._note_moved(key)

    def booked(self) -> dict[str, int]:
        """Return the sums of the reservations by key of the pool."""
        return {key: sum(entry.size for entry in entries.values()) for key, entries in self.by_pool.items()}

    def set_changed(self, keys: tuple[str, ...]) -> None:
        """Process a set of claims that began or ended to be used together."""
        self._consider_all(keys)
        for key in filter(self._lost.__contains__, keys):
            self._note_moved(key)

    def pools_share(self, mode: str) -> None:
        """Set which classes share storage: the learned ones, all of a driver, or none (`SharedPools`)."""
        if mode != self._capacities.sharing.mode:
            self._capacities.sharing.mode = mode
            self._sharing_changed()

    @contextlib.contextmanager
    def without(self, uids: Iterable[str]) -> Iterator[None]:
        """Ignore the reservations of these claims until the block ends, so that a pod can use its own reservations."""
        drawn = Counter[CapacityPool]()
        for entry in filter(None, map(self.entries.get, uids)):
            if entry.pool is not None:
                drawn[entry.pool] += entry.size
        for pool, size in drawn.items():
            self._capacities.book(pool, -size)
        try:
            yield
        finally:
            for pool, size in drawn.items():
                self._capacities.book(pool, size)

    # -- claims --------------------------------------------------------------------------------------------------------

    def _consider_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            claim = self._claims.get(key)
            if claim is not None:
                self.consider(claim)

    def consider(self, claim: PersistentVolumeClaim) -> None:
        """Update the reservation of a claim from its own state, in O(1). `_consider_lost` follows the pod's other claims."""
        uid = claim.metadata.uid
        entry = self.entries.get(uid)
        was_lost = self._lost.pop(claim.key, False)
        # A claim is in one of three situations, and the assumptions of this process count: it has its volume, it has
        # a node, or it lost its node.
        if claim.spec.volume_name:
            self._began.pop(uid, None)
            if entry is not None and entry.state is not SETTLING:
                self._settle(entry, self._volumes.get_api(claim.spec.volume_name))
        elif node_name := claim.selected_node or next(iter(self._promised.get(uid, {}).values()), ""):
            self._charge(claim, self._nodes.by_name((node_name,)), node_name, FLYING, self._clock.now())
            stored = self._claims.get_api(claim.key)
            if stored is not None and stored.metadata.uid == uid and stored.selected_node:
                self.entries[uid].is_written = True
                self._promised.pop(uid, None)
        else:
            if entry is not None and entry.is_written:
                self._began.setdefault(uid, entry.until - HOLD_S)
            if not self._may_be_tied(claim):
                self._drop(uid)
                return
            self._lost[claim.key] = True
            if not was_lost:  # until `catch_up` it keeps the storage that it reserved on its node
                self._moved[claim.key] = self._clock.now()
            elif entry is not None and entry.state is STRANDED:
                self._charge(claim, entry.nodes, "", STRANDED, self._clock.now())

    def _may_be_tied(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether the claim had a node before, and a pod waits for it together with other claims.

        A node that was only planned, by a question or by an attempt that failed before its write, does not count.
        """
        if not self.together.has(claim.key) or claim.metadata.deletion_timestamp is not None:
            return False
        had_node = claim.metadata.uid in self._began
        return had_node or any(name in claim.metadata.annotations for name in STORAGE_PROVISIONERS)

    def _note_moved(self, key: str) -> None:
        if self.together.has(key):
            self._moved.setdefault(key, self._clock.now())

    def _consider_lost(self) -> None:
        """Update the claims without a node that wait with a claim that moved. The nodes of each set are found once."""
        moved, self._moved = self._moved, {}
        lost = {key: at for key, at in moved.items() if key in self._lost}
        changed: dict[ClaimSet, float] = {}
        for key, at in moved.items():
            for together in self.together.sets(key):
                changed.setdefault(together, at)
        for together, at in changed.items():
            for key in together.keys:
                if key in self._lost:
                    lost.setdefault(key, at)
        ties = ClaimTies(self._nodes, self._claims, self._volumes)
        for key, at in lost.items():
            claim = self._claims.get(key)
            if claim is None or not self._may_be_tied(claim):
                del self._lost[key]
                continue
            tied = ties.of(self.together.sets(key))
            if tied is None:
                self._drop(claim.metadata.uid)
            else:
                self._charge(claim, tied, "", STRANDED, at)

    def _charge(self, claim: PersistentVolumeClaim, nodes: NodeSet, node_name: str, state: str, now: float) -> None:
        """Create the entry of a claim without a volume, or keep it if nothing relevant changed."""
        uid = claim.metadata.uid
        previous = self.entries.get(uid)
        if previous is not None and (previous.state is SETTLING or not previous.is_counted):
            previous = None
        # Otherwise any user could block a pool with claims that no pod uses, by writing the annotation of a selected
        # node.
        is_counted = previous is not None or state is STRANDED or uid in self._promised or self.is_used(claim.key)
        size = claim.size_bytes
        until = previous.until if previous is not None else now + HOLD_S
        if state is STRANDED:
            self._began.setdefault(uid, until - HOLD_S)
        # A claim that loses and gets nodes again and again keeps the start of its first reservation. Without it
        # HOLD_S would never end.
        if uid in self._began:
            until = self._began[uid] + HOLD_S
        entry = Reservation(claim, nodes, node_name, size, state, now, until, is_counted=is_counted)
        if previous is not None and previous.state is state:
            is_same_pool = previous.claim.storage_class == claim.storage_class and previous.nodes == nodes
            if is_same_pool and (previous.node_name, previous.size) == (node_name, size):
                previous.claim = claim
                return
            entry.since = previous.since
        self._drop(uid)
        entry.is_over = self._clock.now() >= until
        if entry.is_over and state is STRANDED:
            return
        self._enter(entry)

    def _enter(self, entry: Reservation) -> None:
        uid = entry.claim.metadata.uid
        self.entries[uid] = entry
        self.by_class.setdefault(entry.claim.storage_class, {})[uid] = entry
        self._due = min(self._due, entry.until)
        self._find_pool(entry)

    def _expire(self) -> None:
        now, self._due = self._clock.now(), math.inf
        for uid, entry in [(uid, each) for uid, each in self.entries.items() if not each.is_over]:
            if now < entry.until:
                self._due = min(self._due, entry.until)
                continue
            self.expired[entry.state] += is_reserving(entry)
            if entry.state is FLYING and not entry.is_gone:
                self._release(entry)
                entry.is_over = True
            else:
                self._drop(uid)

    # -- pools ---------------------------------------------------------------------------------------------------------

    def _find_pool(self, entry: Reservation) -> None:
        """Book the entry on the pool of its volume, if the pool can be determined."""
        pools = self._capacities.of(entry.claim.storage_class)
        if pools is None or entry.is_over or not entry.is_counted:
            return
        if entry.state is SETTLING:
            entry.nodes = self._where_made(entry)
        elif entry.node_name:
            entry.nodes = self._nodes.by_name((entry.node_name,))
        found = pools.within(entry.nodes, most=2 if entry.state is STRANDED else None)
        if entry.state is STRANDED:
            if len(found) == 1:  # else there are several possible pools, or none
                entry.wanted = found.pop().key
                self.waiting.setdefault(entry.wanted, {})[entry.claim.metadata.uid] = entry
                self._changed_pools.add(entry.wanted)
                self._hold_together([entry])  # until `catch_up`, no decision may use the storage that it just lost
            return
        possible = sorted((pool for pool in found if entry.may_come_from(pool)), key=lambda pool: pool.key)
        fitting = [pool for pool in possible if pool.takes(entry.size)]
        pool = max(fitting or possible, key=lambda pool: pool.capacity - pool.in_flight, default=None)
        if pool is None:
            return
        if entry.volume is not None:
            if 0 < entry.volume.metadata.version < pool.obj.metadata.version:
                self._drop(entry.claim.metadata.uid)
                return
            entry.version = pool.obj.metadata.resource_version
        self._book(entry, pool)

    def _book(self, entry: Reservation, pool: CapacityPool) -> None:
        entry.pool = pool
        self.by_pool.setdefault(pool.key, {})[entry.claim.metadata.uid] = entry
        self._capacities.book(pool, entry.size)
        self._note_changed(pool)

    def _release(self, entry: Reservation) -> None:
        """End the entry's reservation; waiting pods are woken."""
        pool = entry.pool
        if pool is not None:
            self._unbook(entry, pool)
            self._note_changed(pool)
            self._add_freed(pool)
        if entry.wanted:
            drop_from(self.waiting, entry.wanted, entry.claim.metadata.uid)
            entry.wanted = ""

    def _add_freed(self, pool: CapacityPool) -> None:
        self.freed.update(each.obj.storage_class_name for each in self._capacities.on_storage_of(pool))

    def _note_changed(self, pool: CapacityPool) -> None:
        if self.waiting:
            self._changed_pools.update(each.key for each in self._capacities.on_storage_of(pool))

    def _drop(self, uid: str) -> None:
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._release(entry)
            drop_from(self.by_class, entry.claim.storage_class, uid)

    def _end_claim(self, uid: str) -> None:
        """Keep the reservation of a deleted claim if its provisioner may make its volume, or has just made it."""
        entry = self.entries.get(uid)
        if entry is None:
            return
        is_asked = entry.is_written and entry.is_counted and entry.claim.key not in self._lost
        entry.is_gone = entry.state is SETTLING or (entry.state is FLYING and is_asked and not entry.is_over)
        if not entry.is_gone:
            self._drop(uid)

    def _leave_pool(self, pool: CapacityPool) -> None:
        """Move the reservations of a pool that is gone or has other nodes to another pool."""
        # The bytes need not be given back: the pool is gone with its sums. `catch_up` books the entries on another
        # pool.
        for entry in self.by_pool.pop(pool.key, {}).values():
            entry.pool = None
        for entry in self.waiting.pop(pool.key, {}).values():
            entry.wanted = ""
        self._without_pool.add(pool.obj.storage_class_name)

    def _leave_moved(self) -> None:
        """Update the nodes of entries after changes of nodes. Claims without a volume move; a volume keeps its nodes."""
        for entry in self.entries.values():
            if entry.state is FLYING:
                entry.nodes = self._nodes.by_name((entry.node_name,))
            elif entry.state is SETTLING:
                continue
            pool = entry.pool or self._capacities.pool(entry.wanted)
            if pool is not None:
                pools = self._capacities.of(entry.claim.storage_class)
                if pools is None or not pools.serves(pool, entry.nodes):
                    self._release(entry)

    # -- settling ------------------------------------------------------------------------------------------------------

    def _settle(self, entry: Reservation, volume: PersistentVolume | None) -> None:
        """Start settling: the claim has its volume. It stays reserved until a newer capacity object is written."""
        now = self._clock.now()
        # The volume exists after all, late or without a pod. The storage is used, so it is reserved until the object
        # says so.
        if entry.is_over or not entry.is_counted:
            entry.is_over, entry.is_counted = False, True
            self._find_pool(entry)
        pool = entry.pool
        if pool is None or entry.wanted:
            self._drop(entry.claim.metadata.uid)
            return
        self._capacities.sharing.made(pool, entry.size, now)
        entry.state, entry.since, entry.until = SETTLING, now, now + SETTLE_S
        entry.version = pool.obj.metadata.resource_version
        entry.volume = volume
        self._due = min(self._due, entry.until)

    def _find_settling(self, claim: PersistentVolumeClaim) -> None:
        """Reserve a volume that was already new when this process first saw it, after a restart."""
        volume = self._volumes.get_api(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is None or claim.metadata.uid in self.entries or not claim.selected_node:
            return
        if (entry := settling_since(claim, volume, now=self._clock.now(), wall=self._clock.wall())) is not None:
            self._enter(entry)

    def _where_made(self, entry: Reservation) -> NodeSet:
        """Return the selected node if it can use the volume; else, after a change of that node, all nodes that can."""
        selected = self._nodes.by_name((entry.node_name,))
        if entry.volume is None or self._volumes.get_api(entry.volume.key) is None:
            return selected
        usable = self._volumes.where(entry.volume.key).nodes
        return selected & usable or usable

    # -- stranded ------------------------------------------------------------------------------------------------------

    def _stranded_at(self, keys: Iterable[str]) -> dict[str, Reservation]:
        """Return the stranded claims of these pools, and all that compete with them, directly or through a pod."""
        found: dict[str, Reservation] = {}
        seen_sets: set[ClaimSet] = set()
        todo = [key for key in keys if key in self.waiting]
        seen = set(todo)
        while todo:
            key = todo.pop()
            pool = self._capacities.pool(key)
            near = [other.key for other in self._capacities.sharing_with(pool)] if pool is not None else []
            for uid, entry in self.waiting.get(key, {}).items():
                found[uid] = entry
                for together in self.together.sets(entry.claim.key):
                    if together not in seen_sets:
                        seen_sets.add(together)
                        claims = filter(None, map(self._claims.get, together.keys))
                        siblings = filter(None, (self.entries.get(claim.metadata.uid) for claim in claims))
                        near += [sibling.wanted for sibling in siblings if sibling.wanted]
            todo += [other for other in dict.fromkeys(near) if other not in seen]
            seen.update(near)
        return found

    def _hold(self, stranded: dict[str, Reservation]) -> None:
        """Reserve storage for the pods whose stranded claims all fit, the oldest claim first, and for no other pod.

        If a pod held only a part of its storage, it could block another pod while neither can be scheduled.
        """
        # All stranded claims of these pools give back their storage first. So an older claim that was stranded later
        # comes before the claim that holds the storage now.
        held = {uid: entry.pool for uid, entry in stranded.items() if entry.pool is not None}
        for uid, pool in held.items():
            self._unbook(stranded[uid], pool)
        by_key = {entry.claim.key: entry for entry in stranded.values()}
        plans = dict.fromkeys(plan for key in by_key for plan in self.together.sets(key))
        for plan in sorted(plans, key=lambda plan: oldest_claim(plan.keys, by_key)):
            self._hold_together([by_key[key] for key in plan.keys if key in by_key])
        for uid, pool in held.items():
            if stranded[uid].pool is None:
                self._add_freed(pool)

    def _hold_together(self, entries: list[Reservation]) -> None:
        booked: list[tuple[Reservation, CapacityPool]] = []
        for entry in entries:
            pool = self._capacities.pool(entry.wanted)
            if entry.pool is not None:
                continue
            # One claim of the pod finds no storage, so the pod cannot run, and its other claims must not keep storage
            # from a pod that can.
            if pool is None or not pool.takes(entry.size):
                for taken, where in booked:
                    self._unbook(taken, where)
                return
            self._book(entry, pool)
            booked.append((entry, pool))

    def _unbook(self, entry: Reservation, pool: CapacityPool) -> None:
        entry.pool = None
        drop_from(self.by_pool, pool.key, entry.claim.metadata.uid)
        self._capacities.book(pool, -entry.size)

    def _sharing_changed(self) -> None:
        """Check stranded claims again, and wake waiting pods, because storage may have become smaller or larger."""
        self.freed |= self._capacities.sharing_changed()
        self._changed_pools.update(self.waiting)
