"""What a pod does not need, or cannot get to run with, is given back (docs/spec/dra.md §3.5, §3.8, §10.3).

What is in flight goes at once (the cache tells who waits for it); what is written is taken back in the background.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from scheduler.cache.cluster import Cluster
from scheduler.core.podinfo import PodInfo
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
        self.land(known)
        self._maker.unmake(pod.pod, known, errands)
        if self._is_bound(pod):
            return  # by somebody else, meanwhile: it runs with these claims
        for claim in known.claims:
            latest = self._devices.claims.get(claim.key)
            if latest is None or latest.uid != claim.uid or not latest.is_reserved_for(pod.uid):
                continue
            what = f"release claim {claim.key} from pod {pod.key}"
            errands.run(partial(self._writer.release, latest, pod.uid), what, about=claim.key)

    def land(self, known: DeviceState) -> None:
        """Nothing of the attempt is in flight any more: it is written, or it will never be."""
        signalled, known.signalled = known.signalled, ()
        for uid in signalled:
            self._devices.claims.drop_pending(uid)

    def _is_bound(self, pod: PodInfo) -> bool:
        return self._cluster.get(pod.uid) is not None and not self._cluster.is_assumed(pod.uid)
