"""What is in flight from capacity objects: volumes that are chosen for a node and do not show there yet.

A capacity object is old as soon as a volume is asked for. An entry stands for each claim with a selected node and no
volume, whoever selected it, unless it is being deleted; it stays while the volume is new and the object has not been
written since; and while a claim lost its node although a sibling of the same pod cannot leave it. Everything follows
from what claims say, so nothing needs to be remembered over a restart (docs/spec/volumes.md §12.1 B-1).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from scheduler.cache.capacities import Capacities, Pool
from scheduler.cache.nodes import Nodes
from scheduler.cache.pvs import PersistentVolumes
from scheduler.core import nodeset
from scheduler.core.clock import Clock
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.volumes import STORAGE_PROVISIONERS, PersistentVolumeClaim

SETTLE_S: Final = 120.0
"""How long a new volume is charged if its object is not written: drivers whose room does not shrink never write it."""
GRACE_S: Final = 2.0
"""An object written so shortly after a volume came to be may have been measured before."""
HOLD_S: Final = 600.0
"""How long a claim that lost its node keeps its place beside its sibling."""

_FLYING: Final = "flying"
_SETTLING: Final = "settling"
_STRANDED: Final = "stranded"
_LIMITS_S: Final = {_SETTLING: SETTLE_S, _STRANDED: HOLD_S}


class ClaimsByKey(Protocol):
    """The claims as decisions see them."""

    def get(self, key: str) -> PersistentVolumeClaim | None: ...


@dataclass(slots=True, eq=False)
class Entry:
    """One volume in flight. `nodes` are those it can come to be on: one node, or those a sibling is tied to."""

    claim: PersistentVolumeClaim
    nodes: NodeSet
    node_name: str
    size: int
    state: str
    since: float
    pool: Pool | None = None
    version: str = ""
    """Of the pool's object when the volume came to be."""

    @property
    def charges(self) -> object:
        """What decides about the pool it is drawn from; everything else may change under way."""
        return self.node_name, self.nodes, self.size, self.claim.storage_class


class Ledger:
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
        self._entries: dict[str, Entry] = {}
        self._by_class: dict[str, dict[str, Entry]] = {}
        self._by_pool: dict[str, dict[str, Entry]] = {}
        self._given_up: set[str] = set()
        self._loose: set[str] = set()
        """Classes with entries that may find a pool by now."""
        self._lost: set[str] = set()
        """Claims that had a node and wait together with others: what those are tied to may be another set by now."""
        self._plans: dict[str, dict[tuple[str, ...], int]] = {}
        """Claim → the sets of claims that pods use it with, and how many pods use each."""
        self._position = -1
        self._due = math.inf
        self.freed: set[str] = set()
        self.expired: dict[str, int] = {_SETTLING: 0, _STRANDED: 0}
        """How many were let go because it took too long, by state: for the counter."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def bytes_in_flight(self) -> dict[str, int]:
        """By class: for the gauge."""
        return {name: sum(entry.size for entry in entries.values()) for name, entries in self._by_class.items()}

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
        drawn = {pool.key: pool.in_flight for pool in self._capacities if pool.in_flight}
        return sum(abs(drawn.get(key, 0) - booked.get(key, 0)) for key in drawn.keys() | booked.keys())

    # -- what changes it -----------------------------------------------------------------------------------------------

    def claim_changed(self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None) -> None:
        """A claim as decisions see it, our own assumptions included, came, changed or went."""
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._drop(before.metadata.uid)
            self._given_up.discard(before.metadata.uid)
            self._lost.discard(before.key)
        if now is not None:
            self._consider(now)
        changed = now or before
        if changed is not None and changed.key in self._plans:
            self._consider_all(self._siblings(changed.key))

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

    def volume_came(self, claim_key: str) -> None:
        """A volume of this claim is known now: its siblings may be tied to where it is."""
        self._consider_all(self._siblings(claim_key))

    def pool_changed(self, old: Pool | None, new: Pool | None) -> None:
        """An object came, was written, or went. What was measured after a volume came to be counts that volume."""
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and old.obj.storage_class_name != new.obj.storage_class_name:
            self.pool_changed(old, None)
            old = None
        storage_class = changed.obj.storage_class_name
        if new is None or old is None or old.group is not new.group:
            for entry in self._by_pool.pop(changed.key, {}).values():
                entry.pool = None
            self._loose.add(storage_class)
            return
        shrunk, now, young = old.room - new.room, self._clock.now(), []
        for uid, entry in list(self._by_pool.get(new.key, {}).items()):
            entry.pool = new
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

    def catch_up(self) -> None:
        """Before reading pools: let go what is too old, and find pools for what has none yet."""
        if self._clock.now() >= self._due:
            self._let_go()
        if self._position != self._nodes.relabelled.position:
            self._position = self._nodes.relabelled.position
            self._loose.update(self._by_class)
            lost, self._lost = self._lost, set()
            self._consider_all(lost)
        for storage_class in self._loose:
            for entry in self._by_class.get(storage_class, {}).values():
                if entry.pool is None:
                    self._find_pool(entry)
        self._loose.clear()

    @contextlib.contextmanager
    def without(self, uids: Iterable[str]) -> Iterator[None]:
        """As if these claims had nothing in flight: what a pod has reserved for itself is not in its way."""
        own = [(entry.pool, entry) for uid in uids if (entry := self._entries.get(uid)) is not None]
        drawn = [(pool, entry) for pool, entry in own if pool is not None]
        for pool, entry in drawn:
            self._draw(entry, pool, -entry.size)
        try:
            yield
        finally:
            for pool, entry in drawn:
                self._draw(entry, pool, entry.size)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _draw(self, entry: Entry, pool: Pool, size: int) -> None:
        pools = self._capacities.of(entry.claim.storage_class)
        if pools is not None:
            pools.draw(pool, size)

    def _let_go(self) -> None:
        now, self._due = self._clock.now(), math.inf
        for uid, entry in list(self._entries.items()):
            limit_s = _LIMITS_S.get(entry.state)
            if limit_s is None:
                continue
            if now - entry.since < limit_s:
                self._due = min(self._due, entry.since + limit_s)
                continue
            if entry.state is _STRANDED:
                self._given_up.add(uid)
            self.expired[entry.state] += 1
            self._drop(uid)

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
            if entry is not None and entry.state is not _SETTLING:
                self._settle(entry)
        elif claim.metadata.deletion_timestamp is not None:
            self._drop(uid)  # no volume is made for it any more
        elif claim.selected_node:
            self._given_up.discard(uid)
            slot = self._nodes.slot(claim.selected_node)
            self._charge(claim, EMPTY if slot is None else 1 << slot, claim.selected_node, _FLYING)
        else:
            tied = self._tied_to(claim, entry)
            if tied is None:
                self._drop(uid)
            else:
                self._charge(claim, tied, "", _STRANDED)

    def _tied_to(self, claim: PersistentVolumeClaim, entry: Entry | None) -> NodeSet | None:
        """Where siblings keep a claim that had a node before; None if nothing does."""
        if claim.key not in self._plans or claim.metadata.uid in self._given_up:
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
        uid = claim.metadata.uid
        known = self._entries.get(uid)
        request = claim.request
        entry = Entry(claim, nodes, node_name, request.value if request is not None else 0, state, self._clock.now())
        if known is not None and known.state is state:
            if known.charges == entry.charges:
                known.claim = claim
                return
            entry.since = known.since
        self._drop(uid)
        self._entries[uid] = entry
        if state is _STRANDED:
            self._due = min(self._due, entry.since + HOLD_S)
        self._by_class.setdefault(claim.storage_class, {})[uid] = entry
        self._find_pool(entry)

    def _find_pool(self, entry: Entry) -> None:
        pools = self._capacities.of(entry.claim.storage_class)
        if pools is None:
            return
        if entry.node_name:
            slot = self._nodes.slot(entry.node_name)
            entry.nodes = EMPTY if slot is None else 1 << slot
        found = {pool for slot in nodeset.each(entry.nodes) for pool in pools.at(slot)}
        if entry.state is _STRANDED and len(found) > 1:
            return  # it can still go to several places
        here = sorted(found, key=lambda pool: pool.key)
        fitting = [pool for pool in here if pool.takes(entry.size)]
        entry.pool = max(fitting or here, key=lambda pool: pool.room - pool.in_flight, default=None)
        if entry.pool is not None:
            self._by_pool.setdefault(entry.pool.key, {})[entry.claim.metadata.uid] = entry
            pools.draw(entry.pool, entry.size)

    def _settle(self, entry: Entry) -> None:
        if entry.pool is None:
            self._drop(entry.claim.metadata.uid)
            return
        entry.state, entry.since = _SETTLING, self._clock.now()
        entry.version = entry.pool.obj.metadata.resource_version
        self._due = min(self._due, entry.since + SETTLE_S)

    def _drop(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        storage_class = entry.claim.storage_class
        _take_out(self._by_class, storage_class, uid)
        if entry.pool is not None:
            _take_out(self._by_pool, entry.pool.key, uid)
            self._draw(entry, entry.pool, -entry.size)
            self.freed.add(storage_class)


def _take_out(filed: dict[str, dict[str, Entry]], key: str, uid: str) -> None:
    entries = filed[key]
    del entries[uid]
    if not entries:
        del filed[key]
