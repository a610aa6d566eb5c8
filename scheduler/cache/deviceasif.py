"""Devices as if some claims had given theirs back, and others had some: what preemption asks about.

Nothing is changed for it, so nobody has to be told, and nothing has to be put back.
"""

from __future__ import annotations

from scheduler.cache.deviceuse import Consumed, DeviceUse, Share
from scheduler.core.devices import DeviceId


class UseAsIf:
    """`without` are uids of claims that give everything back; `besides` is what is taken in addition."""

    __slots__ = ("_besides", "_use", "_without")

    def __init__(self, use: DeviceUse, without: frozenset[str], besides: DeviceUse) -> None:
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

    def shares(self, device: DeviceId) -> tuple[Share, ...]:
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
