"""Which devices are in use, as they are and in hypothetical states (docs/spec/dra.md §1.1, §1.3, §1.4).

Which devices are in use, by claims that have them and by claims that are about to (docs/spec/dra.md §1.1, §1.3, §1.4).

Counted by claim: a claim in flight whose allocation then shows in the watch is one user, not two, and there is no moment
at which it is none. Nothing is ever summed up anew; a claim that changes costs its own devices.

Devices as if some claims had given theirs back, and others had some: what preemption asks about.

Nothing is changed for it, so nobody has to be told, and nothing has to be put back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from scheduler.api.resource_v1 import AllocationResult, DeviceId, DeviceRequestAllocationResult

Consumed = Mapping[str, int]
"""Capacity name → how much, in nano units."""


class SharedPart(NamedTuple):
    """One part of a device that several may use."""

    claim_uid: str
    share_id: str
    consumed: Consumed


_NO_SHARES: Final[tuple[SharedPart, ...]] = ()
_NOBODY: Final[frozenset[str]] = frozenset()
_NOTHING: Final[Consumed] = {}


class DeviceUse(Protocol):
    """What a search asks of it: as it is, or as it would be."""

    def is_exclusive(self, device: DeviceId) -> bool:
        """Somebody has the whole device."""

    def is_used(self, device: DeviceId) -> bool:
        """Somebody has it or a part of it."""

    def shares(self, device: DeviceId) -> tuple[SharedPart, ...]:
        """The parts of it that are taken."""

    def consumed(self, device: DeviceId) -> Consumed:
        """What those parts sum up to."""


class AllocationState:
    """Single owner: the scheduling loop. `shares_count` is whether shared allocations are told from others.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go allocatedDevices
    """

    def __init__(self, *, shares_count: bool = True) -> None:
        self.revision = 0
        """Grows with every change."""
        self._shares_count = shares_count
        self._held: dict[str, AllocationResult] = {}
        self._holders: dict[DeviceId, set[str]] = {}
        self._shares: dict[DeviceId, tuple[SharedPart, ...]] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._changed: dict[DeviceId, None] = {}
        self._is_still = False
        self._put_off: dict[str, AllocationResult | None] = {}

    # -- reading -------------------------------------------------------------------------------------------------------

    def is_exclusive(self, device: DeviceId) -> bool:
        """Somebody has the whole device."""
        return device in self._holders

    def is_used(self, device: DeviceId) -> bool:
        """Somebody has it or a part of it: this is what counts for shared counters (§1.1)."""
        return device in self._holders or device in self._shares

    def holders(self, device: DeviceId) -> set[str] | frozenset[str]:
        """Uids of the claims that have the whole device: more than one only if schedulers clashed."""
        return self._holders.get(device, _NOBODY)

    def shares(self, device: DeviceId) -> tuple[SharedPart, ...]:
        """The parts of it that are taken."""
        return self._shares.get(device, _NO_SHARES)

    def consumed(self, device: DeviceId) -> Consumed:
        """What those parts sum up to."""
        return self._consumed.get(device, _NOTHING)

    def counts(self) -> dict[str, int]:
        """Devices of which somebody has all, and those of which somebody has a part: for the gauge."""
        return {"whole": len(self._holders), "shared": len(self._shares)}

    def devices(self) -> Iterable[DeviceId]:
        """Those that somebody has wholly."""
        return self._holders.keys()

    def shared_devices(self) -> Iterable[DeviceId]:
        """Those of which somebody has a part."""
        return self._shares.keys()

    @property
    def backlog(self) -> int:
        """How many devices those are that nobody has asked for yet."""
        return len(self._changed)

    def take_changed(self) -> dict[DeviceId, None]:
        """The devices whose use changed since the last time this was asked."""
        changed, self._changed = self._changed, {}
        return changed

    # -- changing ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Until the block ends nothing changes here, and then all that was put off does: for an attempt that may rest.

        Bindings and errands take what the server answers into the cache of claims at once, and a search that saw both what
        was and what is would be remembered of nodes for which neither is true.
        """
        was_still, self._is_still = self._is_still, True
        try:
            yield
        finally:
            self._is_still = was_still
            if not was_still and self._put_off:
                put_off, self._put_off = self._put_off, {}
                for claim_uid, allocation in put_off.items():
                    self.hold(claim_uid, allocation)

    def hold(self, claim_uid: str, allocation: AllocationResult | None) -> None:
        """The claim has these devices now, in place of those it had; None: none any more."""
        if self._is_still:
            self._put_off[claim_uid] = allocation
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

    def _take(self, claim_uid: str, result: DeviceRequestAllocationResult) -> None:
        if result.admin_access:
            return
        device = result.id
        self._changed[device] = None
        if result.share_id is None or not self._shares_count:
            self._holders.setdefault(device, set()).add(claim_uid)
            return
        consumed = {name: amount.nano for name, amount in (result.consumed_capacity or {}).items()}
        self._shares[device] = (*self._shares.get(device, ()), SharedPart(claim_uid, result.share_id, consumed))
        _sum_up(self._consumed.setdefault(device, {}), consumed)

    def _drop(self, claim_uid: str, result: DeviceRequestAllocationResult) -> None:
        if result.admin_access:
            return
        device = result.id
        self._changed[device] = None
        if result.share_id is None or not self._shares_count:
            here = self._holders.get(device)
            if here is not None:
                here.discard(claim_uid)
                if not here:
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
    """What is nothing in sum is not named, or what is over would leave a trace."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount
        if not total[name]:
            del total[name]


class HypotheticalState:
    """`without` are uids of claims that give everything back; `besides` is what is taken in addition."""

    __slots__ = ("_besides", "_use", "_without")

    def __init__(self, use: AllocationState, without: frozenset[str], besides: AllocationState) -> None:
        self._use = use
        self._without = without
        self._besides = besides

    def is_exclusive(self, device: DeviceId) -> bool:
        """Somebody has the whole device."""
        holders = self._use.holders(device)
        return (holders and not self._without.issuperset(holders)) or self._besides.is_exclusive(device)

    def is_used(self, device: DeviceId) -> bool:
        """Somebody has it or a part of it."""
        return self.is_exclusive(device) or bool(self.shares(device))

    def shares(self, device: DeviceId) -> tuple[SharedPart, ...]:
        """The parts of it that are taken."""
        shares = self._use.shares(device)
        if shares:
            shares = tuple(share for share in shares if share.claim_uid not in self._without)
        return shares + self._besides.shares(device)

    def consumed(self, device: DeviceId) -> Consumed:
        """What those parts sum up to."""
        total: dict[str, int] = {}
        for share in self.shares(device):
            for name, amount in share.consumed.items():
                total[name] = total.get(name, 0) + amount
        return {name: amount for name, amount in total.items() if amount}
