"""Check pools of storage capacity, their columns, and the reservations of volumes in flight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.audit.findings import Check, Comparison, Steps, in_parts
from scheduler.cache.nodes.node_groups import where_selector
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.capacity import CapacityPool, ClassPools
from scheduler.cache.storage.claims_together import ClaimSet
from scheduler.cache.storage.reservation import FLYING, SETTLING, STRANDED, Reservation
from scheduler.cache.storage.volumes import Volumes
from scheduler.context import UnboundPods

_MANY: Final = 50


class CapacityChecks:
    """The checks of one cluster's capacity. `pending` are the unbound pods of this scheduler."""

    def __init__(self, nodes: Nodes, volumes: Volumes, pending: UnboundPods) -> None:
        self._nodes = nodes
        self._volumes = volumes
        self._capacities = volumes.capacities
        self._reservations = volumes.reservations
        self._pending = pending

    def checks(self) -> dict[str, Check]:
        """Return index → check. Reservations come first, because the sums of pools follow from them."""
        return {
            "reservations": self._all_reservations,
            "reservations-by-pool": self._by_pool,
            "claims-together": self._together,
            "capacity-pools": self._pools,
            "capacity-columns": self._columns,
        }

    # -- reservations ------------------------------------------------------------------------------------------------

    def _all_reservations(self) -> Steps:
        """Compare each claim with its reservation, and each reservation with its claim.

        Claims that lost their node since the last decision are brought up to date first, as before a decision.
        """
        for some in in_parts(self._volumes.claims._store, _MANY):
            found = Comparison("")
            for key in some:
                claim = self._volumes.claims.get(key)
                if claim is not None:
                    self._claim(found, claim)
            yield found
        for uid in tuple(self._reservations._entries):
            self._reservations.catch_up()
            entry = self._reservations._entries.get(uid)
            if entry is not None:
                yield self._entry(uid, entry)

    def _claim(self, found: Comparison, claim: PersistentVolumeClaim) -> None:
        """Compare a claim that has a selected node and no volume. Other states depend on the time."""
        if claim.spec.volume_name or not claim.selected_node:
            return
        found.about = f"claim {claim.key}"
        entry = self._reservations._entries.get(claim.metadata.uid)
        size = claim.request.value if claim.request is not None else 0
        known = (entry.state, entry.node_name, entry.size) if entry is not None else None
        if found.differs("reservation", known, (FLYING, claim.selected_node, size)):
            self._drop(claim.metadata.uid)
            self._reservations._consider(claim)
        elif entry is not None and not entry.is_counted:
            found.differs("reserved for a pod that uses the claim", False, self._reservations.is_used(claim.key))
            self._reservations.claim_used(claim.key)

    def _entry(self, uid: str, entry: Reservation) -> Comparison:
        reservations, claim = self._reservations, self._volumes.claims.get(entry.claim.key)
        found = Comparison(f"claim {entry.claim.key}")
        if claim is None or claim.metadata.uid != uid:
            found.differs("reservation of a deleted claim", entry.is_gone and entry.state is not STRANDED, True)
        else:
            found.differs("reservation", entry.state, self._state_of(claim))
        if found:
            self._drop(uid)
            if claim is not None:
                reservations._consider(claim)
                reservations._note_moved(claim.key)
        elif found.differs("indexed by class", self._is_indexed(uid, entry), True):
            reservations._by_class.setdefault(entry.claim.storage_class, {})[uid] = entry
        return found

    def _state_of(self, claim: PersistentVolumeClaim) -> str:
        if claim.spec.volume_name:
            return SETTLING
        if claim.selected_node or self._reservations._promised.get(claim.metadata.uid):
            return FLYING
        return STRANDED

    def _is_indexed(self, uid: str, entry: Reservation) -> bool:
        return self._reservations._by_class.get(entry.claim.storage_class, {}).get(uid) is entry

    def _drop(self, uid: str) -> None:
        """End a reservation, whatever is wrong with it. Sums of pools are compared later in the pass."""
        reservations = self._reservations
        reservations._entries.pop(uid, None)
        for index in (reservations._by_class, reservations._by_pool, reservations._waiting):
            for key, entries in tuple(index.items()):
                entries.pop(uid, None)
                if not entries:
                    del index[key]
        for pool in self._capacities:
            self._book(Comparison(""), pool)

    def _by_pool(self) -> Steps:
        """Compare the reservations of each pool with all reservations."""
        reservations = self._reservations
        for uid in tuple(reservations._entries):
            entry = reservations._entries.get(uid)
            if entry is not None:
                yield self._pool_of(uid, entry)
        for name, index in (
            ("pool", reservations._by_pool),
            ("class", reservations._by_class),
            ("awaited pool", reservations._waiting),
        ):
            for key, entries in tuple(index.items()):
                found = Comparison(f"{name} {key}")
                for uid, entry in tuple(entries.items()):
                    known = reservations._entries.get(uid)
                    of = entry.pool.key if entry.pool is not None else ""
                    where = {"pool": of, "class": entry.claim.storage_class, "awaited pool": entry.wanted}[name]
                    if found.differs(f"reservation of {entry.claim.key}", key, where if known is entry else "none"):
                        del entries[uid]
                if not entries:
                    index.pop(key, None)
                yield found

    def _pool_of(self, uid: str, entry: Reservation) -> Comparison:
        reservations, found = self._reservations, Comparison(f"claim {entry.claim.key}")
        pool = entry.pool
        newest = self._capacities.pool(pool.key) if pool is not None else None
        if found.differs("its pool is the newest", newest is pool, True):
            entry.pool = pool = newest
        if pool is not None:
            here = reservations._by_pool.get(pool.key, {}).get(uid)
            if found.differs(f"reservation in pool {pool.key}", here is entry, True):
                reservations._by_pool.setdefault(pool.key, {})[uid] = entry
        if entry.wanted:
            here = reservations._waiting.get(entry.wanted, {}).get(uid)
            if found.differs(f"awaits pool {entry.wanted}", here is entry, True):
                reservations._waiting.setdefault(entry.wanted, {})[uid] = entry
        return found

    def _together(self) -> Steps:
        """Compare the sets of claims that waiting pods use together with the pods."""
        together = self._reservations.together
        for info in tuple(self._pending):
            newest = self._pending.get(info.key)
            if newest is not None and len(newest.claims) > 1:
                yield self._set(_keys(newest))
        indexed = dict.fromkeys(each for sets in together._by_claim.values() for each in sets)
        for each in dict.fromkeys((*together._sets.values(), *indexed)):
            yield self._set(each.keys)
            yield self._stale_set(each)

    def _stale_set(self, each: ClaimSet) -> Comparison:
        """Look for a set in the index that is not the one that counts the pods."""
        together, found = self._reservations.together, Comparison(f"claims {', '.join(each.keys)}")
        if together._sets.get(each.keys) is not each:
            for key in each.keys:
                sets = together._by_claim.get(key, {})
                if found.differs(f"counted by the index of {key}", each in sets, False):
                    del sets[each]
                    if not sets:
                        del together._by_claim[key]
        return found

    def _set(self, keys: tuple[str, ...]) -> Comparison:
        """Compare the number of pods with exactly these claims. O(waiting pods + claims)."""
        together, found = self._reservations.together, Comparison(f"claims {', '.join(keys)}")
        count = sum(len(info.claims) > 1 and _has_keys(info, keys) for info in self._pending)
        known = together._sets.get(keys)
        found.differs("waiting pods", known.pods if known is not None else 0, count)
        for key in keys:
            is_indexed = known is not None and known in together._by_claim.get(key, ())
            found.differs(f"indexed by {key}", is_indexed, count > 0)
        if found:
            for key in keys:
                others = {each: None for each in together._by_claim.pop(key, ()) if each.keys != keys}
                if others:
                    together._by_claim[key] = others
            together._sets.pop(keys, None)
            for _ in range(count):
                together.add(keys)
            self._reservations._set_changed(keys)
        return found

    # -- pools -------------------------------------------------------------------------------------------------------

    def _pools(self) -> Steps:
        """Compare the sums of each pool with its reservations, and the indexes of pools."""
        capacities = self._capacities
        for pool in tuple(capacities):
            if capacities.pool(pool.key) is not pool:
                continue
            found = Comparison(f"capacity object {pool.key}")
            rule = where_selector(pool.obj.node_topology)
            found.differs("nodes by its topology", pool.group.where == rule, True)
            of_class = capacities.of(pool.obj.storage_class_name)
            found.differs("known by its class", of_class is not None and of_class.pools.get(pool.key) is pool, True)
            segment = capacities._segments.get(pool.group.number, {})
            found.differs("known by its nodes", segment.get(pool.key) is pool, True)
            if found:
                if of_class is not None:
                    of_class.pools[pool.key] = pool
                capacities._segments.setdefault(pool.group.number, {})[pool.key] = pool
                self._volumes.set_capacity(pool.key, None)
                self._volumes.set_capacity(pool.key, pool.obj)
                self._reservations.catch_up()
            self._book(found, capacities.pool(pool.key) or pool)
            yield found

    def _book(self, found: Comparison, pool: CapacityPool) -> None:
        capacities = self._capacities
        booked = self._booked(pool)
        shared = sum(self._booked(other) for other in capacities.sharing_with(pool))
        if found.differs("bytes in flight of its class", pool.booked, booked):
            capacities.book(pool, booked - pool.booked)
            self._reservations.freed.add(pool.obj.storage_class_name)
        of_class = capacities.of(pool.obj.storage_class_name)
        if found.differs("bytes in flight", pool.in_flight, booked + shared) and of_class is not None:
            of_class.set_in_flight(pool, booked + shared)
            self._reservations.freed.add(pool.obj.storage_class_name)

    def _booked(self, pool: CapacityPool) -> int:
        return sum(entry.size for entry in self._reservations._by_pool.get(pool.key, {}).values())

    def _columns(self) -> Steps:
        """Compare the columns of each class with its pools, node by node. Wrong columns are computed again."""
        for storage_class, pools in tuple(self._capacities._classes.items()):
            pools.catch_up()
            for some in in_parts(range(self._nodes.capacity), _MANY):
                pools.catch_up()
                found = Comparison(f"class {storage_class}")
                for slot in some:
                    self._column(found, pools, slot)
                if found:
                    pools._by_group = _grouped(pools.pools.values())
                    pools._rebuild()
                yield found

    def _column(self, found: Comparison, pools: ClassPools, slot: int) -> None:
        name, here = self._nodes.name(slot), pools._at.get(slot, [])
        groups = self._volumes.groups.of(slot)
        stored = sorted(
            (pool for group in groups for pool in pools._by_group.get(group.number, ())), key=lambda pool: pool.key
        )
        if found.differs(f"pools of {name}", [pool.key for pool in here], [pool.key for pool in stored]):
            return
        found.differs(f"several pools on {name}", bool(pools.crowded >> slot & 1), len(stored) > 1)
        if len(stored) > 1:
            return
        limit = stored[0].limit if stored else -1
        found.differs(f"largest volume on {name}", pools.limit.item(slot), limit)
        if stored:
            found.differs(f"bytes left on {name}", pools.spare.item(slot), stored[0].spare)
            found.differs(f"in use on {name}", bool(pools.is_used[slot]), stored[0].in_flight > 0)


def _has_keys(info: PodInfo, keys: tuple[str, ...]) -> bool:
    return info.claims[0].key == keys[0] and _keys(info) == keys


def _keys(info: PodInfo) -> tuple[str, ...]:
    return tuple(dict.fromkeys(use.key for use in info.claims))


def _grouped(pools: Iterable[CapacityPool]) -> dict[int, list[CapacityPool]]:
    grouped: dict[int, list[CapacityPool]] = {}
    for pool in pools:
        grouped.setdefault(pool.group.number, []).append(pool)
    return grouped
