"""Events that can help a pod whose volumes cannot be attached (docs/spec/volumes.md §7.2).

More events than upstream retry a pod ([B-11]): a limit is removed, a driver registers or is no longer required, and
a volume is detached for a pod with ephemeral volumes. A changed claim retries its pods, because its volume may be
attached already, or may not count.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from scheduler.api.csi_translation import TranslationError, translate_inline
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import CSIDriver, CSINode, PersistentVolumeClaim, VolumeAttachment
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint, Topics
from scheduler.framework.memo import all_alike

_CSI_NODE_CAME: Final = ClusterEvent(Resource.CSI_NODE, Action.ADD)
_CSI_NODE_CHANGED: Final = ClusterEvent(Resource.CSI_NODE, UPDATE)
_DRIVER: Final = ClusterEvent(Resource.CSI_DRIVER, UPDATE | Action.DELETE)
_POD_GONE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
_CLAIM_CAME: Final = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
_CLAIM_CHANGED: Final = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | UPDATE)
_DETACHED: Final = ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE)
_CLAIMS: Final = "pods with claims"


class NodeVolumeLimitsHints:
    """The hints of one profile.

    Upstream: pkg/scheduler/framework/plugins/nodevolumelimits/csi.go EventsToRegister
    """

    def __init__(self, *, is_scaling: bool, as_upstream: bool) -> None:
        self._is_scaling = is_scaling
        self._as_upstream = as_upstream

    def events(self) -> Sequence[EventHint]:
        """Return upstream's events, and those that upstream lacks."""
        hints = [
            EventHint(_CSI_NODE_CAME),
            EventHint(_CSI_NODE_CHANGED, self._after_csi_node, all_alike),
            EventHint(_POD_GONE, _after_pod_gone, all_alike),
            EventHint(
                _CLAIM_CAME if self._as_upstream else _CLAIM_CHANGED, _after_claim, _claims, Topics(_claims, _claim)
            ),
            EventHint(_DETACHED, self._after_detaching, self._waits_for, Topics(self._waits_for, _detached)),
        ]
        if self._is_scaling and not self._as_upstream:
            hints.append(EventHint(_DRIVER, _after_driver, all_alike))
        return hints

    def _after_csi_node(self, _pod: PodInfo, old: CSINode, new: CSINode) -> Hint:
        """Return QUEUE if a limit grew. Upstream treats a missing limit, and a missing driver, as a limit of 0."""
        before, now = old.limits, new.limits
        grew = any(limit > before.get(name, 0) for name, limit in now.items())
        if not grew and not self._as_upstream:
            registered = {driver.name for driver in old.spec.drivers}
            grew = bool(before.keys() - now.keys()) or any(d.name not in registered for d in new.spec.drivers)
        return Hint.QUEUE if grew else Hint.SKIP

    def _after_detaching(self, pod: PodInfo, old: VolumeAttachment, _new: VolumeAttachment | None) -> Hint:
        """Check the volumes in order; a volume that cannot be translated raises, which counts as QUEUE."""
        for volume in pod.pod.spec.volumes:
            if volume.persistent_volume_claim is not None or (volume.ephemeral is not None and not self._as_upstream):
                return Hint.QUEUE
            if volume not in pod.disks:
                continue
            try:
                driver = translate_inline(volume, pod.pod.metadata.namespace).driver
            except TranslationError as error:
                raise TranslationError(f"converting volume({volume.name}) from inline to csi: {error}") from error
            if driver == old.spec.attacher:
                return Hint.QUEUE
        return Hint.SKIP

    def _waits_for(self, pod: PodInfo) -> frozenset[Hashable] | None:
        """Return the topics that `_after_detaching` depends on; None for any."""
        topics: set[Hashable] = set()
        if any(not use.is_ephemeral or not self._as_upstream for use in pod.claims):
            topics.add(_CLAIMS)
        for volume in pod.disks:
            try:
                topics.add(translate_inline(volume, pod.pod.metadata.namespace).driver)
            except TranslationError:
                return None
        return frozenset(topics)


def _after_pod_gone(_pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
    """Return QUEUE if the deleted pod had volumes attached, or was about to."""
    if old is None or not (old.node_name or old.pod.status.nominated_node_name):
        return Hint.SKIP
    return Hint.QUEUE if old.claims or old.disks else Hint.SKIP


def _after_claim(pod: PodInfo, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> Hint:
    return Hint.QUEUE if any(use.key == new.key for use in pod.claims) else Hint.SKIP


def _after_driver(_pod: PodInfo, old: CSIDriver, new: CSIDriver | None) -> Hint:
    """Return QUEUE if the driver was required on the node and no longer is."""
    had_to, has_to = (d is not None and d.spec.prevent_pod_scheduling_if_missing for d in (old, new))
    return Hint.QUEUE if had_to and not has_to else Hint.SKIP


def _claims(pod: PodInfo) -> tuple[Hashable, ...]:
    return tuple(use.key for use in pod.claims)


def _claim(_old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> tuple[Hashable, ...]:
    return (new.key,)


def _detached(old: VolumeAttachment, _new: VolumeAttachment | None) -> Iterator[Hashable]:
    yield _CLAIMS
    yield old.spec.attacher
