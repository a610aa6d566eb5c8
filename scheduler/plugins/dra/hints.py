"""Which events may help a pod that waits for devices (docs/spec/dra.md §7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.cache.resourceclaims import is_made_for
from scheduler.core.events import UPDATE, Action, ClusterEvent, Resource
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import ResourceClaim
from scheduler.framework.hints import EventHint, Hint
from scheduler.framework.ports import Handle
from scheduler.plugins.dra.claims import Unresolved, claims_of

_NODE: Final = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE


class Hints:
    """Those of one profile."""

    def __init__(self, handle: Handle) -> None:
        self._claims = handle.cluster.devices.claims

    def events(self) -> Sequence[EventHint]:
        """§7.1."""
        return (
            EventHint(ClusterEvent(Resource.NODE, _NODE)),
            EventHint(ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD | UPDATE | Action.DELETE), self._claim),
            EventHint(ClusterEvent(Resource.POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM), self._pod),
            EventHint(ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | UPDATE)),
            EventHint(ClusterEvent(Resource.RESOURCE_SLICE, Action.ADD | UPDATE)),
        )

    def _claim(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim | None) -> Hint:
        """§7.2, and a claim that goes: its devices are free, or it was what the pod itself had left (§3.12)."""
        try:
            claims = claims_of(pod.pod, self._claims.need)
        except Unresolved:
            return Hint.SKIP
        if old is not None and new is None and is_made_for(old, pod.pod):
            return Hint.QUEUE
        if old is not None and old.is_allocated and (new is None or not new.is_allocated):
            return Hint.QUEUE
        if new is None or all(claim.uid != new.uid for claim in claims):
            return Hint.SKIP
        return Hint.SKIP if old is not None and old.status == new.status else Hint.QUEUE

    def _pod(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        """§7.3."""
        if new is None or new.uid != pod.uid:
            return Hint.SKIP
        try:
            claims_of(new.pod, self._claims.need)
        except Unresolved:
            return Hint.SKIP
        return Hint.QUEUE
