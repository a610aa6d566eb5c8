"""Who has the devices of a node: claims, as they are written, and the pods that use these (docs/spec/dra.md §1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scheduler.cache.cluster import Cluster
from scheduler.cache.devicepools import PoolView
from scheduler.core.resourceclaims import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.framework.preempting import Preempting


@dataclass(slots=True, eq=False)
class AsIf:
    """One node in a trial."""

    slot: int
    claims: Sequence[ResourceClaim]
    """Those with devices that the node sees."""
    gone: set[str] = field(default_factory=set)
    """Uids of pods that have left it."""
    kept: tuple[AllocationResult, ...] = ()

    def clone(self) -> AsIf:
        """For a trial within."""
        return AsIf(self.slot, self.claims, set(self.gone), self.kept)

    @property
    def freed(self) -> frozenset[str]:
        """Claims of which nobody is left."""
        gone = self.gone
        return frozenset(
            claim.uid
            for claim in self.claims
            if (users := claim.status.reserved_for) and gone.issuperset([user.uid for user in users])
        )


class Holders:
    """Looks at the cache; keeps nothing."""

    def __init__(self, cluster: Cluster, preempting: Preempting) -> None:
        self._cluster = cluster
        self._devices = cluster.devices
        self._preempting = preempting

    def at(self, slot: int, known: dict[int, dict[str, ResourceClaim]]) -> tuple[ResourceClaim, ...]:
        """Those with devices that the node sees. `known` has those of pools that have been looked at."""
        found: dict[str, ResourceClaim] = {}
        for view in self._devices.on_nodes.pools(slot):
            if id(view) not in known:
                known[id(view)] = dict(self._claims_of(view))
            found |= known[id(view)]
        return tuple(found.values())

    def _claims_of(self, pool: PoolView) -> Iterator[tuple[str, ResourceClaim]]:
        """As they are written; what is still in flight is nobody's to be evicted."""
        use = self._devices.use
        for each in (*pool.devices, *pool.elsewhere):
            for uid in (*use.holders(each.id), *(share.claim_uid for share in use.shares(each.id))):
                claim = self._devices.claims.by_uid(uid)
                if claim is not None and claim.is_allocated:
                    yield uid, claim

    def leaving(self, as_if: AsIf) -> frozenset[str]:
        """Claims that are given back without anybody's doing: all their users go, or have gone."""
        return frozenset(
            claim.uid for claim in as_if.claims if all(self._goes(user) for user in claim.status.reserved_for)
        )

    def _goes(self, user: ConsumerReference) -> bool:
        if user.api_group or user.resource != "pods":
            return False
        if self._cluster.is_broken(user.uid):
            return False
        pod = self._cluster.get(user.uid)
        if pod is None and self._preempting.is_nominated(user.uid):
            return False  # on its way to its node, and the claim with it
        if pod is None or pod.pod.metadata.deletion_timestamp is not None:
            return True
        return self._preempting.is_doomed(user.uid) or self._preempting.preemptor_of(user.uid) is not None
