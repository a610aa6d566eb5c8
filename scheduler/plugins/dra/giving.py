"""What a pod does not need, or cannot get to run with, is given back (docs/spec/dra.md §3.5, §3.8, §10.3).

What is in flight goes at once (the cache tells who waits for it); what is written is taken back in the background.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from scheduler.cache.cluster import Cluster
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import ResourceClaim
from scheduler.plugins.dra.claims import claim_keys, not_owned
from scheduler.plugins.dra.errands import Errands
from scheduler.plugins.dra.extended import own_claims
from scheduler.plugins.dra.making import ClaimMaker
from scheduler.plugins.dra.state import DeviceState
from scheduler.plugins.dra.writing import ClaimWriter

NOTHING_TO_FREE: Final = "no new claims to deallocate"
FREED: Final = "deallocation of ResourceClaim completed"
DELETED: Final = "deletion of ResourceClaim completed"
NOT_HELPED: Final = "still not schedulable"


class Giver:
    """Those of one profile. `is_thorough`: upstream frees one claim in each attempt, and leaves reservations as they are."""

    def __init__(self, cluster: Cluster, writer: ClaimWriter, maker: ClaimMaker, *, is_thorough: bool) -> None:
        self._cluster = cluster
        self._devices = cluster.devices
        self._writer = writer
        self._maker = maker
        self._is_thorough = is_thorough

    def free(self, known: DeviceState, pod: PodInfo, useless: Sequence[ResourceClaim], errands: Errands) -> str:
        """Devices of claims that keep the pod from running anywhere. Returns what upstream says of it.

        Several claims at once only if nobody else uses any of those that are in the way: the others would still be. What
        else is reserved for the pod a daemon that died has left so: given back, or pods that share a useless claim would
        each wait for the others to leave it.
        """
        if not known.claims:
            return NOTHING_TO_FREE
        idle = [claim for claim in useless if all(user.uid == pod.uid for user in claim.status.reserved_for)]
        freed = idle if self._is_thorough and len(idle) == len(useless) else idle[:1]
        for claim in freed:
            errands.run(
                partial(self._writer.deallocate, claim), f"deallocate claim {claim.key}", about=claim.key, uid=claim.uid
            )
        if self._is_thorough:
            self._release((claim for claim in known.claims if claim not in freed), pod, errands)
        if idle:
            return FREED
        if known.stale is not None:
            stale = known.stale
            errands.run(partial(self._maker.remove, stale), f"delete claim {stale.key}", about=stale.key, uid=stale.uid)
            return DELETED
        return NOT_HELPED

    def take_back(self, known: DeviceState, pod: PodInfo, errands: Errands) -> None:
        """Everything that the attempt has taken. Safe to repeat."""
        self.land(known)
        is_bound = self._is_bound(pod)  # by somebody else, meanwhile: it runs with what its claims have
        self._maker.unmake(pod.pod, known, errands, kept=self._named_made(pod) if is_bound else "")
        if is_bound:
            return
        useless = {claim.uid: claim for claim in self._useless(known, pod)}
        for claim in useless.values():
            errands.run(
                partial(self._writer.deallocate, claim), f"deallocate claim {claim.key}", about=claim.key, uid=claim.uid
            )
        known.claims = tuple(claim for claim in known.claims if claim.uid not in useless)
        self._release(known.claims, pod, errands)

    def _named_made(self, pod: PodInfo) -> str:
        """The claim for extended resources that the pod's status names."""
        newest = self._cluster.get(pod.uid)
        named = newest.pod.status.extended_resource_claim_status if newest is not None else None
        return named.resource_claim_name if named is not None else ""

    def _useless(self, known: DeviceState, pod: PodInfo) -> Iterator[ResourceClaim]:
        """Claims that were made for the pod, and which its status does not name any more: nobody else will ever use them."""
        newest = self._cluster.get(pod.uid)
        named = claim_keys(newest.pod) if newest is not None else ()
        for claim in own_claims(known) if newest is not None else ():
            latest = self._devices.claims.get(claim.key)
            if claim.key in named or latest is None or latest.uid != claim.uid or not latest.is_reserved_for(pod.uid):
                continue
            if not not_owned(pod.pod, latest) and len(latest.status.reserved_for) == 1:
                yield latest

    def _release(self, claims: Iterable[ResourceClaim], pod: PodInfo, errands: Errands) -> None:
        for claim in claims:
            latest = self._devices.claims.get(claim.key)
            if latest is None or latest.uid != claim.uid or not latest.is_reserved_for(pod.uid):
                continue
            what = f"release claim {claim.key} from pod {pod.key} ({pod.uid})"
            errands.run(partial(self._writer.release, latest, pod.uid), what, about=claim.key, uid=claim.uid)

    def land(self, known: DeviceState) -> None:
        """Nothing of the attempt is in flight any more: it is written, or it will never be."""
        signalled, known.signalled = known.signalled, ()
        for uid in signalled:
            self._devices.claims.drop_pending(uid)

    def _is_bound(self, pod: PodInfo) -> bool:
        return self._cluster.get(pod.uid) is not None and not self._cluster.is_assumed(pod.uid)
