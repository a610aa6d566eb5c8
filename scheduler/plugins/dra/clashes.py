"""Whether more has been given away than there is: a device to two claims, or too much of one that is shared (§4.8, §4.9, §10.5).

No API server keeps two schedulers from that. Looked at twice: before anything is written, by all that is known, and when the
watch shows what was written, by what it has shown until then. What is not published, or not completely, is not held
against anybody. Costs the claim's devices, with those who share them or draw on the same counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from scheduler.cache.devicepools import PoolKey
from scheduler.cache.devices import Devices
from scheduler.core.devices import DeviceId
from scheduler.core.resourceclaims import AllocationResult, DeviceRequestAllocationResult, ResourceClaim

_Results: TypeAlias = Sequence[DeviceRequestAllocationResult]
_Counts: TypeAlias = Callable[[str], bool]
"""Whether what the claim with this uid has is held against others."""
_NOTHING: Final[Mapping[str, Mapping[str, int]]] = {}
_NO_AMOUNTS: Final[Mapping[str, int]] = {}


class Clashes:
    """Single owner: the writer of claims, and who confirms what it has written."""

    def __init__(self, devices: Devices, *, runs: Callable[[str], bool]) -> None:
        """`runs`: whether the pod with this uid is bound."""
        self._devices = devices
        self._runs = runs

    def ahead(self, claim: ResourceClaim, allocation: AllocationResult) -> str:
        """What speaks against giving this to the claim, by all that others have and all that is in flight; "" if nothing."""
        return self._problem(claim, allocation, lambda _: True)

    def shown(self, claim: ResourceClaim) -> str:
        """What speaks against what the claim has, by what the watch has shown of others; "" if nothing.

        What we have written since comes later, and its own look is still to come.
        """
        return self._problem(claim, claim.status.allocation, self._is_shown)

    def somebody_runs(self, claim: ResourceClaim) -> bool:
        """Whether the claim has a user who will not give it back. Of who is no pod nothing is known."""
        return any(user.resource != "pods" or self._runs(user.uid) for user in claim.status.reserved_for)

    def _problem(self, claim: ResourceClaim, allocation: AllocationResult | None, counts: _Counts) -> str:
        given = allocation.devices.results if allocation is not None else ()
        results = [result for result in given if not result.admin_access]
        for result in results:
            if self._is_elsewhere(result, claim.uid):
                return f"claim {claim.key}: device {result.id} got allocated to another claim in the meantime"
        for overdrawn in (self._overdrawn_capacity, self._overdrawn_counter):
            what = overdrawn(claim.uid, results, counts)
            if what:
                return f"claim {claim.key}: {what} got allocated to other claims in the meantime"
        return ""

    def _is_elsewhere(self, result: DeviceRequestAllocationResult, uid: str) -> bool:
        """A part of a device is had beside other parts, a whole one by nobody else."""
        use = self._devices.use
        if any(holder != uid for holder in use.holders(result.id)):
            return True
        return result.share_id is None and any(share.claim_uid != uid for share in use.shares(result.id))

    def _overdrawn_capacity(self, uid: str, results: _Results, counts: _Counts) -> str:
        """The first capacity that our shares are too much for; ours of nothing never are."""
        taken: dict[DeviceId, dict[str, int]] = {}
        for result in results:
            own = taken.setdefault(result.id, {}) if result.share_id is not None else {}
            for name, consumed in (result.consumed_capacity or {}).items():
                own[name] = own.get(name, 0) + consumed.nano
        for device, own in taken.items():
            draws = self._devices.on_nodes.draws(PoolKey(device.driver, device.pool))
            there = draws.capacities.get(device, _NO_AMOUNTS) if draws is not None else _NO_AMOUNTS
            wanted = {name: amount for name, amount in own.items() if amount > 0 and name in there}
            if not wanted:
                continue
            shares = self._devices.use.shares(device)
            others = [share.consumed for share in shares if share.claim_uid != uid and counts(share.claim_uid)]
            for name, amount in wanted.items():
                if amount + sum(each.get(name, 0) for each in others) > there[name]:
                    return f"{name} of device {device}"
        return ""

    def _overdrawn_counter(self, uid: str, results: _Results, counts: _Counts) -> str:
        """The first counter that our devices draw too much of."""
        own = {result.id for result in results if not self._is_drawn_anyway(result, uid)}
        for (pool, of), names in self._drawn(own).items():
            draws = self._devices.on_nodes.draws(pool)
            assert draws is not None
            used = [each for each in draws.drawers[of] if each in own or self._is_had(each, uid, counts)]
            for name in names:
                if sum(draws.drawn[each][of].get(name, 0) for each in used) > draws.counters[of][name]:
                    return f"counter {name} of set {of} in pool {pool.driver}/{pool.name}"
        return ""

    def _drawn(self, devices: Iterable[DeviceId]) -> dict[tuple[PoolKey, str], dict[str, None]]:
        """Pool and counter set → the counters of it that any of these draws on."""
        out: dict[tuple[PoolKey, str], dict[str, None]] = {}
        for device in sorted(devices):
            pool = PoolKey(device.driver, device.pool)
            draws = self._devices.on_nodes.draws(pool)
            for of, amounts in draws.drawn.get(device, _NOTHING).items() if draws is not None else ():
                names = out.setdefault((pool, of), {})
                names.update((name, None) for name, amount in amounts.items() if amount > 0)
        return out

    def _is_drawn_anyway(self, result: DeviceRequestAllocationResult, uid: str) -> bool:
        """Whoever shares it with us runs: it draws no more for us, and a search would give it away (§4.7)."""
        if result.share_id is None:
            return False
        sharers = {share.claim_uid for share in self._devices.use.shares(result.id)} - {uid}
        claims = (self._devices.claims.by_uid(sharer) for sharer in sharers)
        return any(claim is not None and self.somebody_runs(claim) for claim in claims)

    def _is_had(self, device: DeviceId, uid: str, counts: _Counts) -> bool:
        """By somebody else, be it a part."""
        use = self._devices.use
        if not use.is_used(device):
            return False
        users = (*use.holders(device), *(share.claim_uid for share in use.shares(device)))
        return any(user != uid and counts(user) for user in users)

    def _is_shown(self, uid: str) -> bool:
        """A claim that cannot be read any more keeps what it was shown to have."""
        claims = self._devices.claims
        known = claims.by_uid(uid)
        if known is None:
            return claims.pending(uid) is None
        seen = claims.get_api(known.key)
        return seen is not None and seen.uid == uid and seen.is_allocated
