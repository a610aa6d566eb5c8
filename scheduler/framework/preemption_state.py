"""Running preemptions and the results of earlier ones. The plugin reads them; the executor of evictions writes them.

Rules: docs/spec/core.md §3.10 step 5, and §10.1 for the brake. The brake stops repeated evictions on a node whose
freed capacity another pod takes each time (#130429 upstream: 8000 evictions in two days).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from scheduler.api.meta import OwnerReference
from scheduler.api.pod_group import GroupKey
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import ConsumerReference, ResourceClaim
from scheduler.cache.cluster import Cluster

LOST_BEFORE_BRAKE: Final = 2
"""The number of times that another pod may take the freed capacity before the node is excluded."""
_BRAKE_S: Final = 60.0
_LONGEST_BRAKE_S: Final = 1800.0


@dataclass(slots=True)
class _Round:
    times: int = 0
    excluded_until: float = 0.0


@dataclass(slots=True)
class Preempting:
    """Running preemptions by the uid of the preemptor. Only the event loop uses it.

    Upstream: pkg/scheduler/framework/preemption/executor.go IsPodRunningPreemption
    """

    attempted: Callable[[], None] = lambda: None
    """Called for each run of a preemption plugin."""
    nominated: Callable[[], Iterable[tuple[str, PodInfo]]] = tuple
    """Returns all nominated pods, each with its node."""
    unbound: Callable[[str], PodInfo | None] = lambda _key: None
    """Returns our unbound pod of this key."""
    _last_victim: dict[str, str | None] = field(default_factory=dict)
    _preemptor_of: dict[str, str] = field(default_factory=dict)
    _for_group: dict[GroupKey, str] = field(default_factory=dict)
    """Groups for which pods are being evicted, and the pod in whose name that is done."""
    _doomed: set[str] = field(default_factory=set)
    _rounds: dict[str, dict[str, _Round]] = field(default_factory=dict)
    _last_failure: dict[str, str] = field(default_factory=dict)
    _next_end: float = math.inf
    """No exclusion ends before this time."""

    def snapshot(self) -> set[str]:
        """Return the uids of preemptors and victims of which any state is kept."""
        return {*self._last_victim, *self._for_group.values(), *self._preemptor_of, *self._rounds, *self._doomed}

    # -- one preemption --------------------------------------------------------------------------------------------------

    def begin(self, uid: str, victim_uids: Iterable[str], group: GroupKey | None = None) -> None:
        """Record that these pods are being evicted for this pod, which is not tried until then, nor is its whole group."""
        self._last_victim[uid] = None
        if group is not None:
            self._for_group[group] = uid
        self._preemptor_of.update(dict.fromkeys(victim_uids, uid))

    def last(self, uid: str, victim_uid: str) -> None:
        """Record that all victims except this one have been evicted."""
        self._last_victim[uid] = victim_uid

    def end(self, uid: str, victim_uids: Iterable[str]) -> None:
        """Record that the preemption has ended, successfully or not."""
        self._last_victim.pop(uid, None)
        for group in [each for each, preemptor in self._for_group.items() if preemptor == uid]:
            del self._for_group[group]
        for victim_uid in victim_uids:
            if self._preemptor_of.get(victim_uid) == uid:
                del self._preemptor_of[victim_uid]

    def preemptor_of(self, victim_uid: str) -> str | None:
        """Return the uid of the pod for which this pod is being evicted."""
        return self._preemptor_of.get(victim_uid)

    def holds_back(self, uid: str, cluster: Cluster) -> bool:
        """Return whether the pod must wait: until its last victim is gone or terminating, an event that wakes it."""
        if uid not in self._last_victim:
            return False
        victim_uid = self._last_victim[uid]
        victim = cluster.get(victim_uid) if victim_uid is not None else None
        is_gone = victim is None or victim.pod.metadata.deletion_timestamp is not None
        return victim_uid is None or not is_gone

    def holds_back_group(self, group: GroupKey, cluster: Cluster) -> bool:
        """Return whether pods are being evicted for the whole group, so that none of its pods is tried."""
        return group in self._for_group and self.holds_back(self._for_group[group], cluster)

    def frees(self, cluster: Cluster, claim: ResourceClaim) -> bool:
        """Return whether the claim's devices become free without further preemption: all its users are leaving.

        Upstream: pkg/controller/resourceclaim/controller.go syncClaim
        """
        users, namespace = claim.status.reserved_for, claim.metadata.namespace
        if users:
            return all(_is_pod(user) and self._is_leaving(cluster, user, namespace) for user in users)
        # The claim controller deallocates when the last user goes. A claim without users keeps its devices until a pod
        # comes back for it. That pod may wait for the very preemptor that would wait for the claim.
        return claim.metadata.deletion_timestamp is not None or any(
            owner.controller and owner.kind == "Pod" and self._is_leaving(cluster, owner, namespace)
            for owner in claim.metadata.owner_references
        )

    def _is_leaving(self, cluster: Cluster, ref: ConsumerReference | OwnerReference, namespace: str) -> bool:
        if cluster.is_broken(ref.uid):
            return False
        pod = cluster.get(ref.uid) or self.unbound(f"{namespace}/{ref.name}")
        if pod is None or pod.uid != ref.uid or pod.pod.metadata.deletion_timestamp is not None:
            return True
        return self.is_doomed(ref.uid) or self.preemptor_of(ref.uid) is not None

    def doom(self, victim_uid: str) -> None:
        """Record that the API server accepted the eviction of a pod in the cache, before the watch shows it."""
        self._doomed.add(victim_uid)

    def is_doomed(self, victim_uid: str) -> bool:
        """Return whether this pod is being evicted for a preemptor, also if the watch does not show it yet."""
        return victim_uid in self._doomed

    # -- results of earlier preemptions --------------------------------------------------------------------------------

    def victims_evicted(self, uid: str, node_name: str, now: float) -> float:
        """Record that all victims on the node were evicted for the pod.

        Return for how many seconds the node is now excluded, or 0. A second call for the same pod and node means that
        another pod took the freed capacity.
        """
        node_round = self._rounds.setdefault(uid, {}).setdefault(node_name, _Round())
        node_round.times += 1
        lost = node_round.times - 1
        if lost < LOST_BEFORE_BRAKE:
            return 0.0
        excluded_s: float = min(_BRAKE_S * 2.0 ** (lost - LOST_BEFORE_BRAKE), _LONGEST_BRAKE_S)
        node_round.excluded_until = now + excluded_s
        self._next_end = min(self._next_end, node_round.excluded_until)
        return excluded_s

    def left_out(self, uid: str, now: float) -> list[str]:
        """Return the nodes that are excluded from preemption for the pod now."""
        return [name for name, node_round in self._rounds.get(uid, {}).items() if node_round.excluded_until > now]

    def included_again(self, now: float) -> list[str]:
        """Return the pods for which the exclusion of a node has ended since the last call; mostly one comparison."""
        if now < self._next_end:
            return []
        ended, self._next_end = [], math.inf
        for uid, rounds in self._rounds.items():
            for node_round in rounds.values():
                if 0.0 < node_round.excluded_until <= now:
                    node_round.excluded_until = 0.0
                    ended.append(uid)
                elif node_round.excluded_until:
                    self._next_end = min(self._next_end, node_round.excluded_until)
        return list(dict.fromkeys(ended))

    def is_news(self, uid: str, why: str) -> bool:
        """Return whether the last preemption ended differently ("": success), so that a failure is reported once."""
        before, self._last_failure[uid] = self._last_failure.get(uid, ""), why
        return before != why

    def forget(self, uid: str) -> None:
        """Drop the state of a pod that is bound or gone."""
        self._last_failure.pop(uid, None)
        self._rounds.pop(uid, None)
        self._doomed.discard(uid)


def _is_pod(user: ConsumerReference) -> bool:
    return not user.api_group and user.resource == "pods"
