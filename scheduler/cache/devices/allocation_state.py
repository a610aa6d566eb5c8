"""The allocated devices, now and in hypothetical states (docs/spec/dra.md §1.1, §1.3, §1.4).

Devices are counted by claim, both of allocated claims and of claims whose allocation is being written. When the watch
shows such an allocation, it stays one user, without an interruption. A claim that changes costs only its own devices;
nothing is summed up again.

A hypothetical state is one in which some claims have released their devices and other claims have allocated some.
Preemption uses it. The real state is not changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.api.resource_v1 import AllocationResult, DeviceId, DeviceRequestAllocationResult, by_bare_name

Consumed = Mapping[str, int]
"""Capacity, by its name without the driver's own domain → amount in nano units."""


class SharedPart(NamedTuple):
    """One allocated part of a device that several claims may share."""

    claim_uid: str
    share_id: str
    consumed: Consumed


_NO_SHARES: Final[tuple[SharedPart, ...]] = ()
_NO_HOLDERS: Final[frozenset[str]] = frozenset()
_NOTHING: Final[Consumed] = {}


class AllocationState:
    """The real state. Only the scheduling loop uses it.

    Without `shares_count`, shared allocations count as whole devices.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go allocatedDevices
    """

    def __init__(self, *, shares_count: bool = True) -> None:
        self.revision = 0
        """A number that grows with every change."""
        self._shares_count = shares_count
        self._held: dict[str, AllocationResult] = {}
        self._holders: dict[DeviceId, set[str]] = {}
        self._shares: dict[DeviceId, tuple[SharedPart, ...]] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._changed: dict[DeviceId, None] = {}
        self._is_deferring = False
        self._deferred: dict[str, AllocationResult | None] = {}

    # -- reading -------------------------------------------------------------------------------------------------------

    def is_exclusive(self, device: DeviceId) -> bool:
        """Return whether a claim has the whole device."""
        return device in self._holders

    def is_used(self, device: DeviceId) -> bool:
        """Return whether a claim has the device or a part of it, which is what counts for shared counters (§1.1)."""
        return device in self._holders or device in self._shares

    def holders(self, device: DeviceId) -> set[str] | frozenset[str]:
        """Return the uids of the claims that have the whole device.

        There is more than one only after a conflict between schedulers.
        """
        return self._holders.get(device, _NO_HOLDERS)

    def shares(self, device: DeviceId) -> tuple[SharedPart, ...]:
        """Return the allocated parts of the device."""
        return self._shares.get(device, _NO_SHARES)

    def consumed(self, device: DeviceId) -> Consumed:
        """Return the sum of the allocated parts."""
        return self._consumed.get(device, _NOTHING)

    def users(self, device: DeviceId) -> Iterator[str]:
        """Return the uids of the claims that have the device or parts of it."""
        yield from self.holders(device)
        yield from (part.claim_uid for part in self.shares(device))

    def held(self, claim_uid: str) -> AllocationResult | None:
        """Return the allocation of the claim, also if it is not written yet."""
        return self._held.get(claim_uid)

    def counts(self) -> dict[str, int]:
        """Return the numbers of wholly and of partly allocated devices, for the gauge."""
        return {"whole": len(self._holders), "shared": len(self._shares)}

    def devices(self) -> Iterable[DeviceId]:
        """Return the wholly allocated devices."""
        return self._holders.keys()

    def uids(self) -> tuple[str, ...]:
        """Return the uids of the claims that have devices."""
        return tuple(self._held)

    def used(self) -> dict[DeviceId, None]:
        """Return the devices of which anything is counted."""
        return dict.fromkeys((*self._holders, *self._shares, *self._consumed))

    def entries(self, device: DeviceId) -> dict[str, object]:
        """Return what is counted for a device, for comparisons."""
        parts = sorted((part.claim_uid, part.share_id, sorted(part.consumed.items())) for part in self.shares(device))
        consumed = dict(self.consumed(device))
        return {"claims": sorted(self.holders(device)), "shares": parts, "consumed capacity": consumed}

    def recounted(self, device: DeviceId, uid: str = "") -> dict[str, object]:
        """Return `entries` as they follow from the allocations of the device's known users and of the claim `uid`."""
        alone = AllocationState(shares_count=self._shares_count)
        for user in dict.fromkeys((*self.users(device), uid)):
            held = self._held.get(user)
            for result in held.devices.results if held is not None else ():
                if result.id == device:
                    alone._take(user, result)
        return alone.entries(device)

    @property
    def backlog(self) -> int:
        """The number of changed devices since the last `take_changed`."""
        return len(self._changed)

    def take_changed(self) -> dict[DeviceId, None]:
        """Return the devices whose allocation changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    # -- changing ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Defer all changes until the block ends, for an attempt that yields to the event loop.

        Bindings and background writes put the API server's responses into the claim cache at once. A search that saw
        both the old and the new state would cache results for nodes that are true in neither.
        """
        was_still, self._is_deferring = self._is_deferring, True
        try:
            yield
        finally:
            self._is_deferring = was_still
            if not was_still and self._deferred:
                deferred, self._deferred = self._deferred, {}
                for claim_uid, allocation in deferred.items():
                    self.hold(claim_uid, allocation)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Make changes at once until the block ends, also within `still`: a plan takes its own ones back and repeats them."""
        was_still, self._is_deferring = self._is_deferring, False
        try:
            yield
        finally:
            self._is_deferring = was_still

    def hold(self, claim_uid: str, allocation: AllocationResult | None) -> None:
        """Set the devices that the claim has now; None if it has none."""
        if self._is_deferring:
            self._deferred[claim_uid] = allocation
            return
        before = self._held.get(claim_uid)
        if before == allocation:
            return
        if before is not None:
            for result in before.devices.results:
                self._drop(claim_uid, result)
            del self._held[claim_uid]
        if allocation is not None:
            for result in allocation.devices.results:
                self._take(claim_uid, result)
            self._held[claim_uid] = allocation
        self.revision += 1

    def recount(self) -> None:
        """Count all devices again from the allocations. O(allocated devices)."""
        self._changed |= self.used()
        self._holders.clear()
        self._shares.clear()
        self._consumed.clear()
        for uid, allocation in self._held.items():
            for result in allocation.devices.results:
                self._take(uid, result)
        self.revision += 1

    def _take(self, claim_uid: str, result: DeviceRequestAllocationResult) -> None:
        if result.admin_access:
            return
        device = result.id
        self._changed[device] = None
        if result.share_id is None or not self._shares_count:
            self._holders.setdefault(device, set()).add(claim_uid)
            return
        named = by_bare_name(result.driver, result.consumed_capacity or {})
        consumed = {name: amount.nano for name, amount in named.items()}
        self._shares[device] = (*self._shares.get(device, ()), SharedPart(claim_uid, result.share_id, consumed))
        _sum_up(self._consumed.setdefault(device, {}), consumed)

    def _drop(self, claim_uid: str, result: DeviceRequestAllocationResult) -> None:
        if result.admin_access:
            return
        device = result.id
        self._changed[device] = None
        if result.share_id is None or not self._shares_count:
            holders = self._holders.get(device)
            if holders is not None:
                holders.discard(claim_uid)
                if not holders:
                    del self._holders[device]
            return
        shares = list(self._shares.get(device, ()))
        gone = next((s for s in shares if (s.claim_uid, s.share_id) == (claim_uid, result.share_id)), None)
        if gone is None:
            return
        shares.remove(gone)
        if not shares:
            del self._shares[device], self._consumed[device]
            return
        self._shares[device] = tuple(shares)
        _sum_up(self._consumed[device], {name: -amount for name, amount in gone.consumed.items()})


def _sum_up(total: dict[str, int], amounts: Consumed) -> None:
    """Add the amounts to the total. Zero sums are removed, so that a release leaves no trace."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount
        if not total[name]:
            del total[name]


class HypotheticalState(msgspec.Struct, frozen=True, eq=False):
    """A state in which the claims `without` (uids) have released everything and `besides` is allocated in addition."""

    use: AllocationState
    without: frozenset[str]
    besides: AllocationState

    def is_exclusive(self, device: DeviceId) -> bool:
        """Return whether a claim has the whole device."""
        holders = self.use.holders(device)
        return (holders and not self.without.issuperset(holders)) or self.besides.is_exclusive(device)

    def is_used(self, device: DeviceId) -> bool:
        """Return whether a claim has the device or a part of it."""
        return self.is_exclusive(device) or bool(self.shares(device))

    def shares(self, device: DeviceId) -> tuple[SharedPart, ...]:
        """Return the allocated parts of the device."""
        shares = self.use.shares(device)
        if shares:
            shares = tuple(share for share in shares if share.claim_uid not in self.without)
        return shares + self.besides.shares(device)

    def consumed(self, device: DeviceId) -> Consumed:
        """Return the sum of the allocated parts."""
        total: dict[str, int] = {}
        for share in self.shares(device):
            _sum_up(total, share.consumed)
        return total


DeviceUse: TypeAlias = AllocationState | HypotheticalState
