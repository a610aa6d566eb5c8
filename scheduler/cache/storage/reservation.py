"""One reservation of storage, and its states (docs/spec/volumes.md §12.1 B-1).

A reservation is for one claim, in one of three states:

* flying: the claim has a selected node, chosen by any scheduler, and no volume. A pod uses it, or did before;
* settling: its volume is new, and the capacity object has not been written since;
* stranded: it lost its node, and another claim of the same pod is tied to certain nodes.

Provisioners do not stop when a claim is deleted, so that its reservation stays until the volume has come and settled.
A flying claim that is larger than its pool reserves nothing, because no volume can be made for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.api.apps_and_policy import started_at
from scheduler.api.storage_v1 import PROVISIONED_BY, PersistentVolume, PersistentVolumeClaim
from scheduler.cache.storage.capacity_pools import CapacityPool
from scheduler.core.nodeset import EMPTY, NodeSet

SETTLE_S: Final = 120.0
"""How long a new volume is reserved if its object is not written. Drivers without shrinking capacity never write it."""
GRACE_S: Final = 2.0
"""An object that was written within this time after the creation of a volume may have been measured before it."""
HOLD_S: Final = 600.0
"""How long a claim without a volume reserves storage: as long as VolumeBinding waits for the volume."""

FLYING: Final = "flying"
SETTLING: Final = "settling"
STRANDED: Final = "stranded"


@dataclass(slots=True, eq=False)
class Reservation:
    """One volume in flight. `nodes` is its possible location: one node, or the nodes to which another claim is tied."""

    claim: PersistentVolumeClaim
    nodes: NodeSet
    node_name: str
    size: int
    state: str
    since: float
    until: float
    """When the reservation ends."""
    pool: CapacityPool | None = None
    """The pool on which it is booked; None if it reserves no storage."""
    wanted: str = ""
    """The key of the only possible pool of a stranded claim."""
    version: str = ""
    """The resourceVersion of the pool's object when the volume was created."""
    volume: PersistentVolume | None = None
    """The volume of a settling entry that its pool may not include yet, if it was known when settling began."""
    is_over: bool = False
    """Whether its time has passed. It reserves no storage until it has its volume."""
    is_written: bool = False
    """Whether the API server has shown the selected node of a flying claim."""
    is_counted: bool = True
    """Whether Kubestow selected the node of a flying claim, or a pod has used the claim. Else it reserves no storage."""
    is_gone: bool = False
    """Whether the claim is deleted. Its provisioner may have the request, and does not end it."""

    def __str__(self) -> str:
        return f"{self.size} bytes, {self.state}, node {self.node_name or 'not selected'}"

    def may_come_from(self, pool: CapacityPool) -> bool:
        """Return whether an empty pool could provide the volume. A volume that exists was made somewhere."""
        # A claim that is larger than the whole pool will get no volume there, and must not block the pool until it
        # expires.
        return self.state is not FLYING or self.size <= min(pool.limit, pool.capacity)


def is_reserving(entry: Reservation) -> bool:
    return not entry.is_over and entry.is_counted and (entry.state is not STRANDED or entry.pool is not None)


def included(entries: Iterable[Reservation], old: CapacityPool, new: CapacityPool, *, now: float) -> list[Reservation]:
    """Return the settling reservations of a pool whose volumes its written object includes."""
    shrunk = old.capacity - new.capacity
    found: list[Reservation] = []
    young: list[Reservation] = []
    for entry in entries:
        if entry.state is not SETTLING or entry.version == new.obj.metadata.resource_version:
            continue
        if now - entry.since < GRACE_S:
            young.append(entry)
        else:
            shrunk -= entry.size
            found.append(entry)
    # The driver may have measured before it made a young volume. Only a fall by that size proves the contrary.
    for entry in sorted(young, key=lambda each: (each.since, each.claim.metadata.uid)):
        if entry.size <= shrunk:
            shrunk -= entry.size
            found.append(entry)
    return found


def settling_since(
    claim: PersistentVolumeClaim, volume: PersistentVolume, *, now: float, wall: float
) -> Reservation | None:
    """Return the reservation of a volume that was made for the claim shortly before; None for any other volume."""
    ref, age_s = volume.spec.claim_ref, wall - started_at(volume.metadata.creation_timestamp)
    if ref is None or ref.uid != claim.metadata.uid or PROVISIONED_BY not in volume.metadata.annotations:
        return None
    # The clocks of the server and of this machine differ, so that a new volume may come from the future.
    if not -SETTLE_S < age_s < SETTLE_S:
        return None
    since, node_name = now - max(age_s, 0.0), claim.selected_node or ""
    return Reservation(claim, EMPTY, node_name, claim.size_bytes, SETTLING, since, since + SETTLE_S, volume=volume)


def oldest_claim(keys: Iterable[str], by_key: Mapping[str, Reservation]) -> tuple[str, tuple[str, ...]]:
    """Return the sort key of claims that are used together: the creation of the oldest one with a reservation."""
    all_keys = tuple(keys)
    claims = (by_key[key].claim for key in all_keys if key in by_key)
    return min(claim.metadata.creation_timestamp or "" for claim in claims), all_keys


def drop_from(index: dict[str, dict[str, Reservation]], key: str, uid: str) -> None:
    """Remove an entry from an index."""
    entries = index[key]
    del entries[uid]
    if not entries:
        del index[key]
