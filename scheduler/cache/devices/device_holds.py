"""Devices that are held for nominated pods (docs/adr/0010).

A hold is not an allocation: its devices count as taken only for other pods of equal or lower priority. It begins when
an attempt first has to respect the nomination, and ends with the nomination, or when the pod cannot get the devices
any more. Its end wakes the pods that wait for devices (`ClaimTracker.given_back`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import AllocationResult, DeviceId, ResourceClaim
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.claim_tracker import ClaimChange, ClaimTracker
from scheduler.cache.devices.node_kinds import DeviceNodes
from scheduler.cache.devices.pools import PoolKey
from scheduler.cache.nodes.nodes import Nodes


class DeviceHold(NamedTuple):
    """The devices that a nominated pod will have on its node."""

    pod: PodInfo
    slot: int
    claims: tuple[ResourceClaim, ...]
    """The claims to allocate, as they will be allocated."""
    pod_claims: tuple[str, ...]
    """Keys of all claims that the pod uses."""
    released: frozenset[str]
    """Uids of claims that counted as deallocated, because all their users are leaving."""
    users: frozenset[str] = frozenset()
    """Uids of the claims that had the devices, parts of them or their counters when the hold began."""
    basis: object = None
    """All else that the choice of the devices depends on."""

    @property
    def allocations(self) -> Iterator[AllocationResult]:
        """The devices, per claim."""
        return (claim.status.allocation for claim in self.claims if claim.status.allocation is not None)

    @property
    def devices(self) -> frozenset[DeviceId]:
        """The devices, without those for administrators."""
        return frozenset(device for device, _ in _parts(self.allocations))


@dataclass(slots=True, eq=False)
class DeviceHolds:
    """The holds, by the uid of the nominated pod. Only the scheduling loop uses it."""

    _nodes: Nodes
    _claims: ClaimTracker
    _use: AllocationState
    _on_nodes: DeviceNodes
    _class_generation: Callable[[], int]
    """Returns a number that grows with every change of a device class."""
    _holds: dict[str, DeviceHold] = field(default_factory=dict)

    def __iter__(self) -> Iterator[DeviceHold]:
        return iter(self._holds.values())

    def get(self, uid: str) -> DeviceHold | None:
        """Return what is held for the pod."""
        return self._holds.get(uid)

    def saved(self) -> Mapping[str, DeviceHold]:
        """Return all holds, for `restore`."""
        return dict(self._holds)

    def restore(self, saved: Mapping[str, DeviceHold]) -> None:
        """Return to these holds without waking pods."""
        self._holds = dict(saved)

    def put(self, hold: DeviceHold) -> None:
        """Begin a hold. Holds of lower priority in the same pools end, because their pods have to choose again."""
        pools = _pools(hold)
        for other in [each for each in self if each.pod.priority < hold.pod.priority]:
            if not pools.isdisjoint(_pools(other)):
                self.end(other.pod.uid)
        self._holds[hold.pod.uid] = hold._replace(users=self._users(hold), basis=self._basis(hold, hold.pod))

    def end(self, uid: str) -> None:
        """End the hold, and wake the pods that wait for devices unless the pod has got the same ones."""
        hold = self._holds.pop(uid)
        keys = {*hold.pod_claims, *(claim.key for claim in self._claims.all_made_for(hold.pod.pod))}
        own = (self._use.held(claim.uid) for key in keys if (claim := self._claims.get(key)) is not None)
        remaining = _parts(hold.allocations) - _parts(filter(None, own))
        for device, amounts in remaining:
            if not (self._use.is_exclusive(device) or (amounts is None and self._use.is_used(device))):
                self._claims.given_back.append(ClaimChange(hold.claims[0], None))
                return

    def end_stale(
        self, nominated: Callable[[], Iterable[tuple[str, PodInfo]]], frees: Callable[[ResourceClaim], bool]
    ) -> None:
        """End the holds of pods that are no longer nominated, or that cannot get their devices any more.

        `nominated` returns the nominated pods with their nodes, and `frees` whether all users of a claim are leaving.
        O(nominated pods), if there are holds.
        """
        if not self._holds:
            return
        self._on_nodes.catch_up()
        where = {pod.uid: (self._nodes.present_slot(name), pod) for name, pod in nominated()}
        for uid, hold in list(self._holds.items()):
            slot, pod = where.get(uid, (None, hold.pod))
            if slot != hold.slot or self._basis(hold, pod) != hold.basis or not self._can_have(hold, frees):
                self.end(uid)

    def _can_have(self, hold: DeviceHold, frees: Callable[[ResourceClaim], bool]) -> bool:
        """Return whether no other claim has taken the devices, and those to be deallocated still will be."""
        users = self._users(hold)
        released = (self._claims.by_uid(uid) for uid in users & hold.released)
        return users <= hold.users and all(
            frees(claim) for claim in released if claim is not None and claim.is_allocated
        )

    def _users(self, hold: DeviceHold) -> frozenset[str]:
        """Return the claims that have these devices, parts of them, or devices that consume the same counters."""
        devices = set(hold.devices)
        for device in hold.devices:
            if (draws := self._on_nodes.draws(PoolKey(device.driver, device.pool))) is not None:
                devices.update(*(draws.drawers[name] for name in draws.drawn.get(device, ())))
        return frozenset(uid for each in devices for uid in self._use.users(each))

    def _basis(self, hold: DeviceHold, pod: PodInfo) -> object:
        """Return the state of the pod's claims and of the devices that its node sees."""
        states = [
            (claim.uid, claim.is_allocated, claim.metadata.deletion_timestamp)
            for claim in (*map(self._claims.get, hold.pod_claims), *self._claims.all_made_for(pod.pod))
            if claim is not None
        ]
        kind = self._on_nodes.kind(hold.slot)
        seen = self._on_nodes.own_pools(hold.slot), kind.visible_pools if kind is not None else None
        node = self._nodes.node(hold.slot)
        amounts = [node.status.allocatable.get(name) for name in pod.requests if "/" in name] if node else []
        return pod.pod.status.resource_claim_statuses, states, seen, amounts, self._class_generation()


def _pools(hold: DeviceHold) -> set[PoolKey]:
    return {PoolKey(device.driver, device.pool) for device in hold.devices}


def _parts(allocations: Iterable[AllocationResult]) -> Counter[tuple[DeviceId, frozenset[tuple[str, int]] | None]]:
    """Count the devices, and for parts of devices their amounts."""
    return Counter(
        (
            result.id,
            frozenset((name, amount.nano) for name, amount in (result.consumed_capacity or {}).items())
            if result.share_id is not None
            else None,
        )
        for each in allocations
        for result in each.devices.results
        if not result.admin_access
    )
