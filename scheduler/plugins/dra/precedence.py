"""Which of two claims got its devices first, by the API server's own history (docs/spec/dra.md §10.5).

All schedulers must come to the same answer, or two of them give way to each other, or neither does. What a watch has shown does
not suffice: after a new list a claim has the version of its last write, and a daemon that was restarted has seen no write at
all. Versions of one cluster can be compared, and the server tells what a claim was at a version. So a claim that had no
devices at a version at which the other one had them got them later.
"""

from __future__ import annotations

from scheduler.core.clock import Clock
from scheduler.core.decode import Broken
from scheduler.core.errors import Ambiguous, ApiError, Unavailable
from scheduler.core.resourceclaims import ResourceClaim
from scheduler.core.retry import Retry
from scheduler.framework.ports import ClaimWrites

UNKNOWN = 0
"""A version that nobody has noted."""
_READS_MAX = 16


class Precedence:
    """Asks the server; changes nothing."""

    def __init__(self, writer: ClaimWrites, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def was_first(self, other: ResourceClaim, ours: ResourceClaim, *, allocated_at: int) -> bool:
        """Whether `other` has had its devices for longer than `ours`. Costs no request if its last write was before `allocated_at`.

        `allocated_at`: the version of the write that gave `ours` its devices; UNKNOWN if that is not known. True if it
        cannot be found out: then giving way is safe.
        """
        if not other.is_allocated:
            return False
        theirs, mine = other.version, allocated_at or ours.version
        if not theirs or not mine:
            return True
        try:
            for _ in range(_READS_MAX):
                if theirs > mine:
                    then = await self._version_at(other, mine)
                    if then is None:
                        return False
                    theirs = then
                elif allocated_at:
                    return True
                else:
                    then = await self._version_at(ours, theirs)
                    if then is None:
                        return True
                    mine = then
        except ApiError:
            pass  # the history is forgotten, or the server says nothing
        return True

    async def _version_at(self, claim: ResourceClaim, version: int) -> int | None:
        """Of its last write until then, if it had these very devices by then; else None. Raises ApiError."""
        then = await self._read(claim, version)
        if then is None or isinstance(then, Broken) or then.uid != claim.uid or not _is_same(then, claim):
            return None
        return then.version or version

    async def _read(self, claim: ResourceClaim, version: int) -> ResourceClaim | Broken | None:
        namespace, name = claim.metadata.namespace, claim.metadata.name
        retry = Retry(self._clock, first_s=0.1, factor=5.0, tries=4)
        while True:
            try:
                return await self._writer.read_resource_claim_at(namespace, name, version)
            except (Ambiguous, Unavailable) as error:
                await retry.pause(error)


def _is_same(left: ResourceClaim, right: ResourceClaim) -> bool:
    """The same allocation, not another one of the same devices: its time tells them apart where it has one."""
    one, two = left.status.allocation, right.status.allocation
    if one is None or two is None:
        return False
    parts = [[(r.request, r.id, r.share_id) for r in each.devices.results] for each in (one, two)]
    return parts[0] == parts[1] and one.allocation_timestamp == two.allocation_timestamp
