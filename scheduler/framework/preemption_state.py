"""Preemptions under way and what became of earlier ones: what the plugin reads, and the executor of evictions writes.

Rules: docs/spec/core.md §3.10 step 5, and §10.1 for the brake: a place that was made and then taken by another pod,
again and again, is not made a further time (#130429 upstream: 8000 evictions in two days).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster

LOST_BEFORE_BRAKE: Final = 2
"""So often may the place that was made for a pod on a node be lost before the node is left out."""
_BRAKE_S: Final = 60.0
_LONGEST_BRAKE_S: Final = 1800.0


def _nothing() -> None:
    pass


def _is_not(_uid: str) -> bool:
    return False


def _nobody() -> Iterable[tuple[str, PodInfo]]:
    return ()


@dataclass(slots=True)
class _Round:
    times: int = 0
    left_out_until: float = 0.0


@dataclass(slots=True)
class Preempting:
    """By uid of the preemptor. Single owner: the event loop.

    Upstream: pkg/scheduler/framework/preemption/executor.go IsPodRunningPreemption
    """

    attempted: Callable[[], None] = _nothing
    """Called for each run of a preemption plugin."""
    nominated: Callable[[], Iterable[tuple[str, PodInfo]]] = _nobody
    """All pods that are nominated, each with its node."""
    is_nominated: Callable[[str], bool] = _is_not
    """Whether the pod of this uid is one of them."""
    _last_victim: dict[str, str | None] = field(default_factory=dict)
    _preemptor_of: dict[str, str] = field(default_factory=dict)
    _doomed: set[str] = field(default_factory=set)
    _rounds: dict[str, dict[str, _Round]] = field(default_factory=dict)
    _last_failure: dict[str, str] = field(default_factory=dict)

    # -- one preemption --------------------------------------------------------------------------------------------------

    def begin(self, uid: str, victim_uids: Iterable[str]) -> None:
        """These are about to be evicted for this pod: it is not tried meanwhile."""
        self._last_victim[uid] = None
        self._preemptor_of.update(dict.fromkeys(victim_uids, uid))

    def last(self, uid: str, victim_uid: str) -> None:
        """All victims but this one have been evicted."""
        self._last_victim[uid] = victim_uid

    def end(self, uid: str, victim_uids: Iterable[str]) -> None:
        """Done, or given up."""
        self._last_victim.pop(uid, None)
        for victim_uid in victim_uids:
            if self._preemptor_of.get(victim_uid) == uid:
                del self._preemptor_of[victim_uid]

    def preemptor_of(self, victim_uid: str) -> str | None:
        """Whom this pod is being evicted for."""
        return self._preemptor_of.get(victim_uid)

    def holds_back(self, uid: str, cluster: Cluster) -> bool:
        """Whether the pod must wait; not once its last victim is gone or leaving: that event is what wakes it."""
        if uid not in self._last_victim:
            return False
        victim_uid = self._last_victim[uid]
        victim = cluster.get(victim_uid) if victim_uid is not None else None
        is_gone = victim is None or victim.pod.metadata.deletion_timestamp is not None
        return victim_uid is None or not is_gone

    def doom(self, victim_uid: str) -> None:
        """The API server has let this pod go; the watch will show it. To be called only while the pod is in the cache."""
        self._doomed.add(victim_uid)

    def is_doomed(self, victim_uid: str) -> bool:
        """Whether this pod is leaving for a preemptor, though the watch may not show it yet."""
        return victim_uid in self._doomed

    # -- what became of earlier ones -------------------------------------------------------------------------------------

    def made_room(self, uid: str, node_name: str, now: float) -> float:
        """All victims on the node were evicted for the pod. Answers with how long the node is left out for it now, if.

        Coming here again for the same pod and node means that somebody else had taken the place.
        """
        known = self._rounds.setdefault(uid, {}).setdefault(node_name, _Round())
        known.times += 1
        lost = known.times - 1
        if lost < LOST_BEFORE_BRAKE:
            return 0.0
        brake_s: float = min(_BRAKE_S * 2.0 ** (lost - LOST_BEFORE_BRAKE), _LONGEST_BRAKE_S)
        known.left_out_until = now + brake_s
        return brake_s

    def left_out(self, uid: str, now: float) -> list[str]:
        """Nodes on which no further room is made for the pod, for now."""
        return [name for name, known in self._rounds.get(uid, {}).items() if known.left_out_until > now]

    def is_news(self, uid: str, why: str) -> bool:
        """Whether the pod's last preemption ended otherwise: what goes wrong again and again is said once. "" is well."""
        before, self._last_failure[uid] = self._last_failure.get(uid, ""), why
        return before != why

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._last_failure.pop(uid, None)
        self._rounds.pop(uid, None)
        self._doomed.discard(uid)
