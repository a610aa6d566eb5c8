"""VolumeRestrictions: disks for one pod per node, and claims for one pod (docs/spec/volumes.md §7.4, §9.3).

Both use counts that are updated as pods come and leave, also in dry runs. The counts are per namespace (B-13).
Users of a claim include pods that have it by an ephemeral volume.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from scheduler.api.csi_translation import InlineDisk, do_conflict
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from scheduler.cache.storage.volumes import CLAIM
from scheduler.core.cluster_events import NODE_ADD, Action, ClusterEvent, Resource
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Hint, StateKey, Tally, Topics
from scheduler.framework.memo import on_common_topic
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip

_NAME: Final = "VolumeRestrictions"
_EXCLUSIVE: Final[StateKey[frozenset[str]]] = StateKey(f"PreFilter{_NAME}")
_ONE_POD: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_DISK_TAKEN: Final = Rejection(_NAME, Code.UNSCHEDULABLE, ("node(s) had no available disk",))
_CLAIM_TAKEN: Final = Rejection(_NAME, Code.UNSCHEDULABLE, (_ONE_POD,))
_NO_STATE: Final = Rejection(_NAME, Code.ERROR, (f'cannot read "{_EXCLUSIVE.name}" from cycleState',))


class VolumeRestrictions:
    """PreFilter, Filter.

    Upstream: pkg/scheduler/framework/plugins/volumerestrictions/volume_restrictions.go VolumeRestrictions
    """

    name: Final = _NAME
    reads: Final = ("PersistentVolumeClaim",)

    def __init__(self, args: object, handle: Handle) -> None:
        self._nodes = handle.cluster.nodes
        self._volumes = handle.cluster.volumes
        self._users = self._nodes.claim_users

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Rejection | Skip | None:
        """Skip pods without exclusive disks, if no other pod uses their ReadWriteOncePod claims."""
        found = self._exclusive(pod)
        if isinstance(found, Rejection):
            return found
        if not pod.exclusive_disks and not self._is_taken(found):
            return SKIP
        state.set(_EXCLUSIVE, found)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes where a disk is in use, and all nodes while a claim is in use: its user may be preempted."""
        groups: Groups = {}
        taken = nodes & self._nodes.disk_conflicts.of(pod.exclusive_disks) if pod.exclusive_disks else EMPTY
        if taken:
            groups[_DISK_TAKEN] = taken
        rest = nodes & ~taken
        claims = state.get(_EXCLUSIVE) if state.has(_EXCLUSIVE) else None
        if rest and claims is None:
            groups[_NO_STATE] = rest
        elif rest and claims and self._is_taken(claims):
            groups[_CLAIM_TAKEN] = rest
        return groups

    def tally(self, state: CycleState, pod: PodInfo, slot: int) -> Tally:
        """Count the pods on this node that use the pod's disks and claims."""
        claims = state.get(_EXCLUSIVE)
        is_taken_elsewhere = any(other != slot for key in claims for other in self._users_of(key))
        return _Held(self._nodes.pods(slot).values(), pod, claims, is_taken_elsewhere=is_taken_elsewhere)

    def tally_shape(self, pod: PodInfo) -> Hashable:
        """Return the disks, and the users of each exclusive claim on all nodes, which one node's pods do not show."""
        found = self._exclusive(pod)
        claims = () if isinstance(found, Rejection) else sorted(found)
        return pod.exclusive_disks, tuple((key, frozenset(self._users_of(key).items())) for key in claims)

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of a deleted pod with a needed disk or claim, of a new node, and of a new claim."""
        pod_gone = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
        claim_added = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
        return (
            EventHint(pod_gone, _after_pod_gone, _shape, Topics(_wanted, _given_back)),
            EventHint(NODE_ADD),
            on_common_topic(claim_added, _shape, Topics(_wanted, _added)),
        )

    def _exclusive(self, pod: PodInfo) -> frozenset[str] | Rejection:
        """Return the pod's ReadWriteOncePod claims, or a rejection if a claim does not exist."""
        found = []
        for use in pod.claims:
            if use.is_ephemeral:
                continue
            claim = self._volumes.claims.get_api(use.key)
            if claim is None:
                return Rejection(
                    _NAME, Code.UNRESOLVABLE, (self._volumes.absent(CLAIM, use.key),), cause="ClaimUnusable"
                )
            if READ_WRITE_ONCE_POD in claim.spec.access_modes:
                found.append(use.key)
        return frozenset(found)

    def _is_taken(self, claims: Iterable[str]) -> bool:
        return any(self._users_of(key) for key in claims)

    def _users_of(self, key: str) -> dict[int, int]:
        """Return slot → number of pods that use the claim; pods on deleted nodes do not count, as in upstream."""
        present = self._nodes.present
        return {slot: count for slot, count in self._users.users.slots(key).items() if present >> slot & 1}


class _Held:
    """The number of pods on one node that use a needed disk or claim."""

    __slots__ = ("_claims", "_disks", "_is_taken_elsewhere", "_wanted", "_with_claims", "_with_disks")

    def __init__(
        self, pods: Iterable[PodInfo], pod: PodInfo, claims: frozenset[str], *, is_taken_elsewhere: bool
    ) -> None:
        self._wanted = pod.exclusive_disks
        self._claims = claims
        self._is_taken_elsewhere = is_taken_elsewhere
        self._with_disks = self._with_claims = 0
        for other in pods:
            self.add(other)

    def add(self, other: PodInfo) -> None:
        self._with_disks += self._has_disk(other)
        self._with_claims += self._has_claim(other)

    def remove(self, other: PodInfo) -> None:
        self._with_disks -= self._has_disk(other)
        self._with_claims -= self._has_claim(other)

    def verdict(self) -> Rejection | None:
        """Return a rejection while a pod on the node uses a disk, or a pod anywhere uses a claim."""
        if self._with_disks:
            return _DISK_TAKEN
        return _CLAIM_TAKEN if self._with_claims or self._is_taken_elsewhere else None

    def _has_disk(self, other: PodInfo) -> bool:
        return bool(other.exclusive_disks) and do_conflict(self._wanted, other.exclusive_disks)

    def _has_claim(self, other: PodInfo) -> bool:
        return bool(self._claims) and any(use.key in self._claims for use in other.claims)


# -- events ------------------------------------------------------------------------------------------------------------


def _claim_keys(pod: PodInfo) -> tuple[str, ...]:
    return tuple(use.key for use in pod.claims if not use.is_ephemeral)


def _shape(pod: PodInfo) -> Hashable:
    return pod.exclusive_disks, _claim_keys(pod)


def _after_pod_gone(pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
    # Upstream checks only pods of the same namespace, but a disk has no namespace.
    if old is None:
        return Hint.SKIP
    wanted = set(_claim_keys(pod))
    had_claim = any(use.key in wanted for use in old.claims)
    return Hint.QUEUE if had_claim or do_conflict(pod.exclusive_disks, old.exclusive_disks) else Hint.SKIP


def _wanted(pod: PodInfo) -> Iterator[Hashable]:
    yield from _claim_keys(pod)
    yield from _ids(pod.exclusive_disks)


def _given_back(old: PodInfo | None, _new: PodInfo | None) -> Iterator[Hashable]:
    if old is not None:
        yield from (use.key for use in old.claims)
        yield from _ids(old.exclusive_disks)


def _added(_old: object, new: PersistentVolumeClaim | None) -> Iterator[Hashable]:
    if new is not None:
        yield new.key


def _ids(disks: tuple[InlineDisk, ...]) -> Iterator[Hashable]:
    return (disk.id for disk in disks)
