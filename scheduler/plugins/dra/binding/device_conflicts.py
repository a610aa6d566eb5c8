"""Conflicts between claims over devices, and which claim had its devices first (docs/spec/dra.md §4.8, §4.9, §10.5).

`DeviceConflicts` finds a device that two claims have, and shared capacities and counters that are exceeded. It runs
twice: before the first write with everything that is known, and when the watch shows the written claim, with what
the watch has shown until then. Devices that are not published, or not completely, cause no conflict. The cost grows
with the claim's devices and the claims that share them or use the same counters.

`Precedence` reads the API server's history, so that all schedulers come to the same answer; otherwise two of them
yield to each other, or neither does. The watch does not suffice: after a new list a claim has the version of its
last write, and a restarted daemon has seen no write. Versions of one cluster can be compared, and the server
returns a claim at a version. A claim without devices at a version at which the other one had them got them later.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from scheduler.api.decode import Broken
from scheduler.api.resource_v1 import (
    AllocationResult,
    DeviceId,
    DeviceRequestAllocationResult,
    ResourceClaim,
    by_bare_name,
)
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.devices.pools import PoolKey
from scheduler.core.clock import Clock
from scheduler.core.errors import Ambiguous, ApiError, Unavailable
from scheduler.core.retry import Retry
from scheduler.framework.handle import ClaimWrites

_Results: TypeAlias = Sequence[DeviceRequestAllocationResult]
_Counts: TypeAlias = Callable[[str], bool]
"""Whether the devices of the claim with this uid count."""


class DeviceConflict(NamedTuple):
    """A conflict of an allocation, and the uids of the other claims."""

    problem: str
    others: frozenset[str]


class DeviceConflicts:
    """Single owner: the claim writer and the double check."""

    def __init__(self, devices: SharedDRAManager, *, runs: Callable[[str], bool]) -> None:
        """Take the devices; `runs` returns whether the pod with this uid is bound."""
        self._devices = devices
        self._runs = runs

    def ahead(self, claim: ResourceClaim, allocation: AllocationResult) -> str:
        """Return the conflict of a new allocation with all other claims, also those in flight; "" if there is none."""
        conflict = self._conflict(claim, allocation, is_there=lambda _: True, counts=lambda _: True)
        return conflict.problem if conflict is not None else ""

    def shown(self, claim: ResourceClaim, *, but: Container[str] = ()) -> DeviceConflict | None:
        """Return the conflict of the claim's devices with other claims, except `but`.

        Shared capacity and counters count only for claims that the watch has shown. Later writes of this scheduler
        have their own check.
        """
        return self._conflict(
            claim,
            claim.status.allocation,
            is_there=lambda uid: uid not in but,
            counts=lambda uid: uid not in but and self._is_shown(uid),
        )

    def has_running_user(self, claim: ResourceClaim) -> bool:
        """Return whether the claim has a user that keeps it: a bound pod, or a user that is not a pod."""
        return any(user.resource != "pods" or self._runs(user.uid) for user in claim.status.reserved_for)

    def _conflict(
        self, claim: ResourceClaim, allocation: AllocationResult | None, *, is_there: _Counts, counts: _Counts
    ) -> DeviceConflict | None:
        # Admin access takes nothing from other claims, so it conflicts with none.
        given = allocation.devices.results if allocation is not None else ()
        results = [result for result in given if not result.admin_access]
        for result in results:
            others = frozenset(uid for uid in self._elsewhere(result, claim.uid) if is_there(uid))
            if others:
                text = f"claim {claim.key}: device {result.id} got allocated to another claim in the meantime"
                return DeviceConflict(text, others)
        # Whole devices come first: this is the common case, and the index of users answers it without any sum.
        for overdrawn in (self._overdrawn_capacity, self._overdrawn_counter):
            found = overdrawn(claim.uid, results, counts)
            if found is not None:
                text = f"claim {claim.key}: {found.problem} got allocated to other claims in the meantime"
                return DeviceConflict(text, found.others)
        return None

    def _elsewhere(self, result: DeviceRequestAllocationResult, uid: str) -> set[str]:
        """Return the other claims that have the device; shares conflict only with claims for the whole device."""
        use = self._devices.use
        return set(use.users(result.id) if result.share_id is None else use.holders(result.id)) - {uid}

    def _overdrawn_capacity(self, uid: str, results: _Results, counts: _Counts) -> DeviceConflict | None:
        """Return the first capacity that the claim's shares exceed; shares with amount 0 never do."""
        taken: dict[DeviceId, dict[str, int]] = {}
        for result in results:
            own = taken.setdefault(result.id, {}) if result.share_id is not None else {}
            for name, consumed in by_bare_name(result.driver, result.consumed_capacity or {}).items():
                own[name] = own.get(name, 0) + consumed.nano
        for device, own in taken.items():
            draws = self._devices.on_nodes.draws(PoolKey(device.driver, device.pool))
            there = draws.capacities.get(device, {}) if draws is not None else {}
            wanted = {name: amount for name, amount in own.items() if amount > 0 and name in there}
            if not wanted:
                continue
            # Each scheduler sees its own share fit. The sum of the shares of both is what may be too large.
            shares = self._devices.use.shares(device)
            others = [share for share in shares if share.claim_uid != uid and counts(share.claim_uid)]
            for name, amount in wanted.items():
                if amount + sum(each.consumed.get(name, 0) for each in others) > there[name]:
                    return DeviceConflict(f"{name} of device {device}", frozenset(each.claim_uid for each in others))
        return None

    def _overdrawn_counter(self, uid: str, results: _Results, counts: _Counts) -> DeviceConflict | None:
        """Return the first counter that the claim's devices exceed."""
        own = {result.id for result in results if not self._is_drawn_anyway(result, uid)}
        for (pool, of), names in self._drawn(own).items():
            draws = self._devices.on_nodes.draws(pool)
            assert draws is not None
            users = {each: self._users(each, uid, counts) for each in draws.drawers[of]}
            used = [each for each, others in users.items() if each in own or others]
            for name in names:
                if sum(draws.drawn[each][of].get(name, 0) for each in used) > draws.counters[of][name]:
                    others = frozenset(other for each in users.values() for other in each)
                    return DeviceConflict(f"counter {name} of set {of} in pool {pool.driver}/{pool.name}", others)
        return None

    def _drawn(self, devices: Iterable[DeviceId]) -> dict[tuple[PoolKey, str], dict[str, None]]:
        """Return (pool, counter set) → its counters that any of these devices uses."""
        counters: dict[tuple[PoolKey, str], dict[str, None]] = {}
        for device in sorted(devices):
            pool = PoolKey(device.driver, device.pool)
            draws = self._devices.on_nodes.draws(pool)
            for of, amounts in draws.drawn.get(device, {}).items() if draws is not None else ():
                names = counters.setdefault((pool, of), {})
                names.update((name, None) for name, amount in amounts.items() if amount > 0)
        return counters

    def _is_drawn_anyway(self, result: DeviceRequestAllocationResult, uid: str) -> bool:
        """Return whether a pod runs with another share of the device: then our share uses no more counters (§4.7)."""
        # A device that is given as a whole draws its counters itself.
        if result.share_id is None:
            return False
        sharers = {share.claim_uid for share in self._devices.use.shares(result.id)} - {uid}
        claims = (self._devices.claims.by_uid(sharer) for sharer in sharers)
        return any(claim is not None and self.has_running_user(claim) for claim in claims)

    def _users(self, device: DeviceId, uid: str, counts: _Counts) -> set[str]:
        """Return the other claims that have the device or a part of it."""
        return {user for user in self._devices.use.users(device) if user != uid and counts(user)}

    def _is_shown(self, uid: str) -> bool:
        """Return whether the watch has shown the claim with devices; an unreadable claim keeps what it had."""
        claims = self._devices.claims
        cached = claims.by_uid(uid)
        if cached is None:
            return claims.pending(uid) is None
        seen = claims.get_api(cached.key)
        return seen is not None and seen.uid == uid and seen.is_allocated


UNKNOWN = 0
"""A version that was not recorded."""
_READS_MAX = 16


class Precedence(msgspec.Struct, frozen=True):
    """Reads the API server; changes nothing."""

    _writer: ClaimWrites
    _clock: Clock

    async def was_first(self, other: ResourceClaim, ours: ResourceClaim, *, allocated_at: int) -> bool:
        """Return whether `other` had its devices before `ours`; True if that is unknown, because yielding is safe.

        `allocated_at`: the version of the write that gave `ours` its devices, or UNKNOWN. Costs no request if the
        last write of `other` was before it.
        """
        if not other.is_allocated:
            return False
        other_version, our_version = other.version, allocated_at or ours.version
        if not other_version or not our_version:
            return True
        try:
            for _ in range(_READS_MAX):
                # The later write may only have added a user. The server's history says whether the devices were there
                # before; each read goes back in time, so the loop ends.
                if other_version > our_version:
                    then = await self._version_at(other, our_version)
                    if then is None:
                        return False
                    other_version = then
                elif allocated_at:
                    return True
                else:
                    then = await self._version_at(ours, other_version)
                    if then is None:
                        return True
                    our_version = then
        except ApiError:
            pass  # the server has compacted its history, or does not answer
        return True

    async def _version_at(self, claim: ResourceClaim, version: int) -> int | None:
        """Return the version of the claim's last write until then if it had the same devices; else None.

        Raises ApiError.
        """
        namespace, name = claim.metadata.namespace, claim.metadata.name
        retry = Retry(self._clock, first_s=0.1, factor=5.0, tries=4)
        while True:
            try:
                then = await self._writer.read_resource_claim_at(namespace, name, version)
                break
            except (Ambiguous, Unavailable) as error:
                await retry.pause(error)
        if then is None or isinstance(then, Broken) or then.uid != claim.uid:
            return None
        past, now = then.status.allocation, claim.status.allocation
        if past is None or now is None or not same_devices(past, now):
            return None
        if past.allocation_timestamp != now.allocation_timestamp:
            return None  # equal devices, allocated again
        return then.version or version


def same_devices(left: AllocationResult | None, right: AllocationResult | None) -> bool:
    """Return whether both are the same decision: times and tolerations added by a server do not count."""
    if left is None or right is None:
        return left is right
    parts = [[(r.request, r.id, r.share_id) for r in each.devices.results] for each in (left, right)]
    return parts[0] == parts[1]
