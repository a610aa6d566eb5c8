"""Check pools of storage capacity, their columns, and the reservations of volumes in flight."""

from __future__ import annotations

from collections.abc import Callable, Collection

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.audit.findings import Check, Comparison, Steps, by_key, grouped, in_parts
from scheduler.cache.nodes.node_groups import where_selector
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.capacity import ClassPools
from scheduler.cache.storage.reservation import STRANDED, Reservation
from scheduler.cache.storage.volumes import Volumes
from scheduler.context import UnboundPods


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
        """Let each claim reserve again, which changes nothing if its reservation is right, and compare with before.

        Claims that lost their node since the last decision are brought up to date first, as before a decision.
        """
        reservations, claims = self._reservations, self._volumes.claims
        for some in in_parts(claims.keys()):
            found = Comparison("")
            for each in filter(None, map(claims.get, some)):
                if each.selected_node and not each.spec.volume_name:
                    self._reserve(found, each)
            yield found
        for uid in tuple(reservations.entries):
            reservations.catch_up()
            if (entry := reservations.entries.get(uid)) is not None:
                claim, found = claims.get(entry.claim.key), Comparison(self._about(uid))
                if claim is not None and claim.metadata.uid == uid:
                    self._reserve(found, claim)
                elif not entry.is_gone or entry.state is STRANDED:
                    found.differs("reservation of a deleted claim", entry.state, None)
                    reservations.again(uid, entry.claim.key)
                yield found
        yield from self._grouped(reservations.by_class, lambda entry: (entry.claim.storage_class,))

    def _reserve(self, found: Comparison, claim: PersistentVolumeClaim) -> None:
        uid, reservations = claim.metadata.uid, self._reservations
        before = reservations.entries.get(uid)
        if before is not None and not before.is_counted and not reservations.is_used(claim.key):
            return
        shown = str(before)
        reservations.consider(claim)
        if shown != str(reservations.entries.get(uid)):
            found.about = f"claim {claim.key}"
            found.differs("reservation", shown, str(reservations.entries.get(uid)))

    def _about(self, uid: str) -> str:
        entry = self._reservations.entries.get(uid)
        return f"claim {entry.claim.key if entry is not None else f'with uid {uid}'}"

    def _by_pool(self) -> Steps:
        """Compare the reservations of each pool with all reservations."""
        reservations, pools = self._reservations, self._capacities

        def renew(uid: str) -> None:
            entry = reservations.entries[uid]
            entry.pool = pools.pool(entry.pool.key) if entry.pool is not None else None

        def pool(uid: str, *, newest: bool = False) -> dict[str, object]:
            entry = reservations.entries.get(uid)
            pool_of_entry = entry.pool if entry is not None else None
            return {"pool": pools.pool(pool_of_entry.key) if newest and pool_of_entry is not None else pool_of_entry}

        yield from by_key(reservations.entries, self._about, pool, lambda uid: pool(uid, newest=True), renew)
        yield from self._grouped(
            reservations.by_pool, lambda entry: (entry.pool.key,) if entry.pool is not None else ()
        )
        yield from self._grouped(reservations.waiting, lambda entry: (entry.wanted,) if entry.wanted else ())

    def _grouped(self, index: dict[str, dict[str, Reservation]], of: Callable[[Reservation], Collection[str]]) -> Steps:
        entries = self._reservations.entries
        return grouped(
            "reservation of claim with uid",
            entries,
            lambda uid: of(entries[uid]) if uid in entries else (),
            index,
            value=entries.get,
        )

    def _together(self) -> Steps:
        """Compare the sets of claims that waiting pods use together with the pods. A set costs O(waiting pods)."""
        together = self._reservations.together

        def pods(keys: tuple[str, ...]) -> int:
            return sum(
                len(info.claims) > 1 and info.claims[0].key == keys[0] and _keys(info) == keys for info in self._pending
            )

        def stored(keys: tuple[str, ...]) -> dict[str, object]:
            count = pods(keys)
            return {"waiting pods": count, "claims": list(keys) if count else [], "outdated at": []}

        def heal(keys: tuple[str, ...]) -> None:
            together.recount(keys, pods(keys))
            self._reservations.set_changed(keys)

        waiting = [_keys(info) for info in self._pending if len(info.claims) > 1]
        indexed = [each.keys for sets in together.by_claim.values() for each in sets]
        sets = dict.fromkeys((*waiting, *together.by_keys, *indexed))
        return by_key(sets, lambda keys: f"claims {', '.join(keys)}", together.entries, stored, heal)

    # -- pools -------------------------------------------------------------------------------------------------------

    def _pools(self) -> Steps:
        """Compare the sums of each pool with its reservations, and the indexes of pools."""
        capacities, reservations, volumes = self._capacities, self._reservations, self._volumes

        def of(key: str) -> dict[str, object]:
            pool = capacities.pool(key)
            if pool is None:
                return {}
            sums = {"bytes in flight of its class": pool.booked, "bytes in flight": pool.in_flight}
            of_class = capacities.of(pool.obj.storage_class_name)
            indexed = of_class.pools.get(key) if of_class is not None else None
            return {**sums, "nodes by its topology": pool.group.where, "known by its class": indexed}

        def stored(key: str) -> dict[str, object]:
            pool, booked = capacities.pool(key), reservations.booked()
            if pool is None:
                return {}
            sums = {
                "bytes in flight of its class": booked.get(key, 0),
                "bytes in flight": capacities.total(pool, booked),
            }
            return {**sums, "nodes by its topology": where_selector(pool.obj.node_topology), "known by its class": pool}

        def heal(key: str) -> None:
            pool = capacities.pool(key)
            assert pool is not None
            of_class = capacities.of(pool.obj.storage_class_name)
            if of_class is not None:
                of_class.pools[key] = pool
            if pool.group.where != where_selector(pool.obj.node_topology):
                volumes.set_capacity(key, None)
                volumes.set_capacity(key, pool.obj)
            capacities.recount(reservations.booked())
            reservations.freed.add(pool.obj.storage_class_name)
            reservations.catch_up()

        def segment(key: str) -> Collection[int]:
            pool = capacities.pool(key)
            return (pool.group.number,) if pool is not None else ()

        yield from grouped("capacity object", capacities.objects, segment, capacities.segments, value=capacities.pool)
        yield from by_key(capacities.objects, lambda key: f"capacity object {key}", of, stored, heal)

    def _columns(self) -> Steps:
        """Compare the columns of each class with its pools, node by node. Wrong columns are computed again."""
        for storage_class in dict.fromkeys(pool.obj.storage_class_name for pool in self._capacities):
            if (pools := self._capacities.of(storage_class)) is not None:
                yield from self._columns_of(storage_class, pools)

    def _columns_of(self, storage_class: str, pools: ClassPools) -> Steps:
        return by_key(
            range(self._nodes.capacity),
            lambda slot: f"class {storage_class} on node {self._nodes.name(slot)}",
            pools.entries,
            pools.expected,
            lambda _: pools.rebuild(),
            ready=pools.catch_up,
        )


def _keys(info: PodInfo) -> tuple[str, ...]:
    return tuple(dict.fromkeys(use.key for use in info.claims))
