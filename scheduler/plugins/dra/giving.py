"""What a pod does not need, or cannot get to run with, is given back (docs/spec/dra.md §3.5, §3.8, §10.3).

What is in flight goes at once, and whoever waits for it is told; what is written is taken back in the background.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec.structs import replace

from scheduler.cache.cluster import Cluster
from scheduler.cache.resourceclaims import Change
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import AllocationResult, ResourceClaim
from scheduler.plugins.dra.errands import Errands
from scheduler.plugins.dra.making import ClaimMaker
from scheduler.plugins.dra.state import DeviceState
from scheduler.plugins.dra.writing import ClaimWriter

NOTHING_TO_FREE: Final = "no new claims to deallocate"
FREED: Final = "deallocation of ResourceClaim completed"
DELETED: Final = "deletion of ResourceClaim completed"
NOT_HELPED: Final = "still not schedulable"


class Giver:
    """Those of one profile. `frees_several`: upstream frees one claim in each attempt."""

    def __init__(self, cluster: Cluster, writer: ClaimWriter, maker: ClaimMaker, *, frees_several: bool) -> None:
        self._cluster = cluster
        self._devices = cluster.devices
        self._writer = writer
        self._maker = maker
        self._frees_several = frees_several

    def free(self, known: DeviceState, pod: PodInfo, errands: Errands) -> str:
        """Devices that keep the pod from running anywhere. Returns what upstream says of it.

        Several claims at once only if nobody else uses any of those that are in the way: the others would still be.
        """
        if not known.claims:
            return NOTHING_TO_FREE
        useless = [known.claims[at] for at in sorted(known.unavailable)]
        idle = [claim for claim in useless if all(user.uid == pod.uid for user in claim.status.reserved_for)]
        for claim in idle if self._frees_several and len(idle) == len(useless) else idle[:1]:
            errands.run(partial(self._writer.deallocate, claim), f"deallocate claim {claim.key}", about=claim.key)
        if idle:
            return FREED
        if known.stale is not None:
            stale = known.stale
            errands.run(partial(self._maker.remove, stale), f"delete claim {stale.key}", about=stale.key)
            return DELETED
        return NOT_HELPED

    def take_back(self, known: DeviceState, pod: PodInfo, errands: Errands) -> None:
        """Everything that the attempt has taken. Safe to repeat."""
        concerned = [claim for claim in (*known.claims, known.special, known.made) if claim is not None]
        for uid in self.land(known):
            claim = next((claim for claim in concerned if claim.uid == uid), None)
            if claim is not None and uid in known.allocations:
                self._tell(claim, known.allocations[uid])
        self._maker.unmake(pod.pod, known, errands)
        if self._is_bound(pod):
            return  # by somebody else, meanwhile: it runs with these claims
        for claim in known.claims:
            latest = self._devices.claims.get(claim.key)
            if latest is None or latest.uid != claim.uid or not latest.is_reserved_for(pod.uid):
                continue
            what = f"release claim {claim.key} from pod {pod.key}"
            errands.run(partial(self._writer.release, latest, pod.uid), what, about=claim.key)

    def land(self, known: DeviceState) -> list[str]:
        """Nothing of the attempt is in flight any more: it is written, or it will never be. Returns the uids of what was."""
        signalled, known.signalled = known.signalled, ()
        return [uid for uid in signalled if self._devices.claims.drop_pending(uid)]

    def _tell(self, claim: ResourceClaim, allocation: AllocationResult) -> None:
        """Who waits for the claim, or for its devices, hears of it as if it had been written and given back."""
        now = self._devices.claims.get(claim.key)
        if now is not None and now.uid == claim.uid and now.is_allocated:
            return
        had = replace(claim, status=replace(claim.status, allocation=allocation))
        self._devices.claims.changes.append(Change(had, now if now is not None and now.uid == claim.uid else None))

    def _is_bound(self, pod: PodInfo) -> bool:
        return self._cluster.get(pod.uid) is not None and not self._cluster.is_assumed(pod.uid)
