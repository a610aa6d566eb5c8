"""VolumeZone: nodes must be in the zone and region that the volumes' labels name (docs/spec/volumes.md §7.3, §9.2).

Claims of ephemeral volumes are checked as well (B-14), unless `parity` is set. Results are sets from the
label index. Upstream retries pods for every new volume and class; here an event concerns only pods whose claims
name the object.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from scheduler.api.csi_translation import TOPOLOGY_LABELS, Confined, confined
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import (
    WAIT_FOR_FIRST_CONSUMER,
    ClaimUse,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    not_owned,
)
from scheduler.cache.storage.volumes import CLAIM, CLASS, VOLUME
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, StateKey, Topics
from scheduler.framework.memo import on_common_topic
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip

_CONFINED: Final[StateKey[tuple[Confined, ...]]] = StateKey("PreFilterVolumeZone")


class VolumeZone:
    """PreFilter, Filter.

    Upstream: pkg/scheduler/framework/plugins/volumezone/volume_zone.go VolumeZone
    """

    name: Final = "VolumeZone"
    depends_on_pods: Final = False
    reads: Final = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
    _rejection: Final = Rejection(name, Code.UNRESOLVABLE, ("node(s) had no available volume zone",))

    def __init__(self, args: object, handle: Handle) -> None:
        self._labels = handle.cluster.nodes.labels
        self._volumes = handle.cluster.volumes
        self._checks_ephemeral = handle.ours.zone_ephemeral == "on"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Rejection | Skip | None:
        """Skip pods whose volumes have no zone or region."""
        found = self._confined(pod)
        if isinstance(found, Rejection):
            return found
        if not found:
            return SKIP
        state.set(_CONFINED, found)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes outside a volume's zone or region; nodes without such labels pass, as in upstream."""
        found = state.get(_CONFINED) if state.has(_CONFINED) else self._confined(pod)
        if isinstance(found, Rejection):
            return {found: nodes} if nodes else {}
        if not found:
            return {}
        zoned = EMPTY
        for key in TOPOLOGY_LABELS:
            zoned |= self._labels.having(key)
        fitting = nodes
        for one in found:
            fitting &= self._within(one)
        refused = nodes & zoned & ~fitting
        return {self._rejection: refused} if refused else {}

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of nodes, of the pod's claims, and of the volumes and classes that these name."""
        changed = Action.ADD | UPDATE
        class_added = ClusterEvent(Resource.STORAGE_CLASS, Action.ADD)
        claim = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, changed)
        volume = ClusterEvent(Resource.PERSISTENT_VOLUME, changed)
        return (
            on_common_topic(class_added, self._shape, Topics(self._topics, _class_added)),
            EventHint(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
            on_common_topic(claim, self._shape, Topics(self._topics, _claim_changed)),
            on_common_topic(volume, self._shape, Topics(self._topics, _volume_changed)),
        )

    # -- where the volumes are ---------------------------------------------------------------------------------------

    def _uses(self, pod: PodInfo) -> tuple[ClaimUse, ...]:
        return pod.claims if self._checks_ephemeral else tuple(use for use in pod.claims if not use.is_ephemeral)

    def _confined(self, pod: PodInfo) -> tuple[Confined, ...] | Rejection:
        """Return all zone labels of all bound volumes, or a rejection. Claims that wait for the pod have none."""
        found: tuple[Confined, ...] = ()
        for use in self._uses(pod):
            if not use.name:
                return _unresolvable("PersistentVolumeClaim had no name")
            claim = self._volumes.claims.get_api(use.key)
            if claim is None:
                return _unresolvable(self._volumes.absent(CLAIM, use.key))
            foreign = not_owned(pod.pod, claim) if use.is_ephemeral else ""
            if foreign:
                return _unresolvable(foreign)
            name = claim.spec.volume_name
            if not name:
                problem = self._unbound(claim)
                if problem:
                    return _unresolvable(problem)
                continue
            volume = self._volumes.volumes.get_api(name)
            if volume is None:
                return _unresolvable(self._volumes.absent(VOLUME, name), "VolumeMissing")
            found += confined(volume.metadata.labels)
        return found

    def _unbound(self, claim: PersistentVolumeClaim) -> str:
        """Return why a claim without a volume cannot be used; "" if it waits for the pod."""
        name = claim.storage_class
        if not name:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class = self._volumes.classes.get(name)
        if storage_class is None:
            return self._volumes.absent(CLASS, name)
        mode = storage_class.obj.volume_binding_mode
        if mode is None:
            return f'VolumeBindingMode not set for StorageClass "{name}"'
        return "" if mode == WAIT_FOR_FIRST_CONSUMER else "PersistentVolume had no name"

    def _within(self, one: Confined) -> NodeSet:
        """Return nodes with one of the values under the label's key; without that label, under its current key."""
        matching = self._any(one.key, one.values)
        if one.key_today != one.key:
            matching |= self._any(one.key_today, one.values) & ~self._labels.having(one.key)
        return matching

    def _any(self, key: str, values: frozenset[str]) -> NodeSet:
        matching = EMPTY
        for value in values:
            matching |= self._labels.equal(key, value)
        return matching

    # -- events ------------------------------------------------------------------------------------------------------

    def _shape(self, pod: PodInfo) -> Hashable:
        return tuple(use.key for use in self._uses(pod))

    def _topics(self, pod: PodInfo) -> Iterator[Hashable]:
        """Yield the pod's claims and the objects they name.

        If a claim names another object, that is an event itself.
        """
        for use in self._uses(pod):
            yield "claim", use.key
            claim = self._volumes.claims.get_api(use.key)
            if claim is None:
                continue
            if claim.spec.volume_name:
                yield "volume", claim.spec.volume_name
            else:
                yield "class", claim.storage_class


def _unresolvable(reason: str, cause: str = "ClaimUnusable") -> Rejection:
    return Rejection(VolumeZone.name, Code.UNRESOLVABLE, (reason,), cause=cause)


def _claim_changed(_old: object, new: PersistentVolumeClaim | None) -> Iterator[Hashable]:
    if new is not None:
        yield "claim", new.key


def _volume_changed(old: PersistentVolume | None, new: PersistentVolume | None) -> Iterator[Hashable]:
    """Yield the topic of a new volume, or of a volume whose zone labels changed."""
    if new is not None and (old is None or confined(old.metadata.labels) != confined(new.metadata.labels)):
        yield "volume", new.key


def _class_added(_old: object, new: StorageClass | None) -> Iterator[Hashable]:
    """Yield the topic of a new class that waits for pods: claims of other classes fail here."""
    if new is not None and new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        yield "class", new.key
