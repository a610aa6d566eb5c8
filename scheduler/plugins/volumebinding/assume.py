"""Volumes and claims that are assumed from Reserve on, as if they were written (docs/spec/volumes.md §5).

Pods that share a claim assume it together: it stays assumed until the last of them reverts it (B-15).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
    is_for,
)
from scheduler.cache.assume_cache import NotKnown, OutOfSync
from scheduler.cache.storage.volumes import CLAIM, VOLUME, Volumes
from scheduler.core.errors import VolumeError
from scheduler.plugins.volumebinding.pod_volumes import BindingPlan, DynamicStep, PodVolumes, StaticStep

Assumed: TypeAlias = PersistentVolume | PersistentVolumeClaim


class AssumedVolumes:
    """The pods that assume each object, for all profiles. `under_way`: claims that a plan is binding.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go AssumePodVolumes, RevertAssumedPodVolumes
    """

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self._holders = volumes.holders
        self.under_way = volumes.under_way

    def assume(self, pod: PodInfo, node_name: str, volumes: PodVolumes) -> BindingPlan | None:
        """Implement `VolumeBinder.assume_pod_volumes`."""
        claims = [self._volumes.claims.get(use.key) for use in pod.claims]
        if all(claim is not None and claim.is_fully_bound for claim in claims):
            return None
        plan = BindingPlan(pod, node_name, followed=list(volumes.followed))
        try:
            for binding in volumes.static:
                plan.static.append(self._pre_bind(plan, binding.claim, binding.volume))
            for provision in volumes.dynamic:
                plan.dynamic.append(self._select(plan, provision.claim))
        except (NotKnown, OutOfSync) as error:
            self.revert(plan)
            raise VolumeError(str(error)) from error
        for claim in plan.claims():
            self.under_way.setdefault(claim.key, {})[pod.uid] = None
        return plan

    def revert(self, plan: BindingPlan) -> None:
        """Implement `VolumeBinder.revert_assumed_pod_volumes`.

        A written object stays assumed until the watch shows it (B-17).
        """
        uid = plan.pod.uid
        for static in plan.static:
            if self._drop_holder(VOLUME, static.volume, uid, is_written=static.written is not None):
                self._volumes.volumes.restore(static.volume)
                self._volumes.given_back[VOLUME, static.volume.key] = None
        for dynamic in plan.dynamic:
            if self._drop_holder(CLAIM, dynamic.claim, uid, is_written=dynamic.written is not None):
                self._volumes.claims.restore(dynamic.claim)
                self._volumes.given_back[CLAIM, dynamic.claim.key] = None
        self.done(plan)

    def done(self, plan: BindingPlan) -> None:
        """End the plan: other plans no longer wait for it."""
        for dynamic in plan.dynamic:
            self._volumes.reservations.end_promise(dynamic.claim, plan.pod.uid)
        for claim in plan.claims():
            _remove(self._volumes.binding, claim.key, plan.pod.uid)
            if _remove(self.under_way, claim.key, plan.pod.uid):
                self._volumes.notify(CLAIM, claim.key)

    def finish(self, plan: BindingPlan) -> None:
        """End a plan whose claims are all bound."""
        for static in plan.static:
            self._drop_holder(VOLUME, static.volume, plan.pod.uid, is_written=True)
        for dynamic in plan.dynamic:
            self._drop_holder(CLAIM, dynamic.claim, plan.pod.uid, is_written=True)
        self.done(plan)

    def begin(self, plan: BindingPlan) -> None:
        """Start writing the plan: it writes the claims that no other plan is writing."""
        for claim in plan.claims():
            self._volumes.binding.setdefault(claim.key, {})[plan.pod.uid] = None

    def is_led(self, claim_key: str, uid: str) -> bool:
        """Return whether another pod's plan was the first to begin for the claim.

        Plans that have not begun do not count.
        """
        return next(iter(self._volumes.binding.get(claim_key, ())), uid) != uid

    def _pre_bind(self, plan: BindingPlan, claim: PersistentVolumeClaim, volume: PersistentVolume) -> StaticStep:
        changed, marks = pre_bound(volume, claim)
        is_dirty = changed is not volume
        if is_dirty:
            self._volumes.volumes.assume(changed)
        if self._volumes.volumes.is_assumed(volume.key):
            self._hold(VOLUME, changed, plan.pod.uid)
        return StaticStep(claim, changed, is_dirty, marks)

    def _select(self, plan: BindingPlan, claim: PersistentVolumeClaim) -> DynamicStep:
        changed = with_selected_node(claim, plan.node_name)
        self._volumes.claims.assume(changed)
        self._hold(CLAIM, changed, plan.pod.uid)
        self._volumes.reservations.promise(changed, plan.pod.uid, plan.node_name)
        return DynamicStep(changed)

    def _hold(self, kind: str, obj: Assumed, uid: str) -> None:
        self._holders.setdefault(_version(kind, obj), {})[uid] = None

    def _drop_holder(self, kind: str, obj: Assumed, uid: str, *, is_written: bool) -> bool:
        """Return whether this pod was the last to assume the object and it is not written: no server will have it."""
        key = _version(kind, obj)
        if is_written:
            self._holders.pop(key, None)
            return False
        pods = self._holders.get(key)
        if pods is None or uid not in pods:
            return False
        del pods[uid]
        if pods:
            return False
        del self._holders[key]
        return True


def _remove(holders: dict[str, dict[str, None]], key: str, uid: str) -> bool:
    """Return whether the key was present."""
    pods = holders.get(key)
    if pods is None:
        return False
    pods.pop(uid, None)
    if not pods:
        del holders[key]
    return True


def _version(kind: str, obj: Assumed) -> tuple[str, str, str]:
    return kind, obj.key, obj.metadata.resource_version


def pre_bound(volume: PersistentVolume, claim: PersistentVolumeClaim) -> tuple[PersistentVolume, bool]:
    """Return the volume with its claimRef for this claim, and whether to mark it as bound by a controller (§5.3).

    Returns the same volume if nothing changes. A volume that its owner pre-bound to the claim gets the uid, but no
    mark.

    Upstream: staging/src/k8s.io/component-helpers/storage/volume/pv_helpers.go GetBindVolumeToClaim
    """
    marks = not is_for(volume, claim) and BOUND_BY_CONTROLLER not in volume.metadata.annotations
    ref = ObjectRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
    if not marks and volume.spec.claim_ref == ref:
        return volume, False
    spec = msgspec.structs.replace(volume.spec, claim_ref=ref)
    metadata = volume.metadata
    if marks:
        metadata = msgspec.structs.replace(metadata, annotations=metadata.annotations | {BOUND_BY_CONTROLLER: "yes"})
    return msgspec.structs.replace(volume, spec=spec, metadata=metadata), marks


def with_selected_node(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """Return the claim with the annotation that provisioners read."""
    annotations = claim.metadata.annotations | {SELECTED_NODE: node_name}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))
