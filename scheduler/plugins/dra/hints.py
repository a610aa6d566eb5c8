"""Events that can help a pod that DynamicResources rejected, by what its claims wait for (docs/spec/dra.md §7).

Upstream retries pods for every slice, class and node, and whenever any claim loses its devices.
Here an event concerns only pods whose claims depend on the changed object. A pod with missing claims depends only
on these claims.
Further events retry a pod that waits for the flush in upstream: a deleted claim or slice, an allocation in flight
that is released, and a new owner of a claim. Where devices take resources of their nodes, a pod that leaves its node
or needs less of it retries pods with claims.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

import msgspec

from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import (
    ALL,
    EXTENDED_RESOURCE_CLAIM,
    IMPLICIT_EXTENDED_RESOURCE,
    DeviceClass,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
    claim_keys,
)
from scheduler.cache.devices.claim_tracker import gives_back, is_made_for
from scheduler.cache.devices.manager import may_be_devices
from scheduler.cache.devices.pools import PoolKey
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.core.feature_gates import EXTENDED_RESOURCE
from scheduler.framework.handle import Handle
from scheduler.framework.interface import EventHint, Hint, Topics
from scheduler.plugins.dra.claims import Unresolved, claim_name, claims_of

_ANY: Final = Action.ADD | UPDATE | Action.DELETE
_NODE: Final = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
_GENERATED: Final = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
_WHERE: Final = "labels of nodes"
_OWN: Final = "resources of nodes"
FREED: Final = "freed devices"
"""The topic of all events after which a pod may get devices that another pod had, or was to have."""
_OFFERED: Final = "new devices"
_SLICES: Final = "changes of slices"


class DynamicResourcesHints:
    """Topics of waiting pods and of events, for one profile. Except for claims, a hint only compares topics.

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go EventsToRegister
    """

    def __init__(self, handle: Handle) -> None:
        self._serves_resources = EXTENDED_RESOURCE in handle.feature_gates
        self._claims = handle.cluster.devices.claims
        self._pools = handle.cluster.devices.on_nodes

    def events(self) -> Sequence[EventHint]:
        claims = ClusterEvent(Resource.RESOURCE_CLAIM, _ANY)
        return (
            self._registered(ClusterEvent(Resource.NODE, _NODE), _node_changed),
            # The hint for claims is exact, because claims change more often than anything else here: with each
            # binding and each pod that ends.
            EventHint(claims, self._claim, self._shape, Topics(self._topics, _claim_changed)),
            EventHint(_GENERATED, self._pod),
            self._registered(ClusterEvent(Resource.DEVICE_CLASS, _ANY), _class_changed),
            self._registered(ClusterEvent(Resource.RESOURCE_SLICE, _ANY), self._slice_changed),
        )

    def _registered(self, event: ClusterEvent, of_event: Callable[[Any, Any], Iterator[Hashable]]) -> EventHint:
        # The queue calls `meets` for each waiting pod with the same two objects. The last answer is kept for these
        # calls.
        seen: tuple[Any, Any, frozenset[Hashable]] = (None, None, frozenset())

        def about(old: Any, new: Any) -> frozenset[Hashable]:
            """Compute the topics of an event once for all waiting pods, because a slice has many devices."""
            nonlocal seen
            seen = old, new, frozenset(of_event(old, new))
            return seen[2]

        def meets(pod: PodInfo, old: Any, new: Any) -> Hint:
            topics = seen[2] if old is seen[0] and new is seen[1] else about(old, new)
            return Hint.QUEUE if any(topic in topics for topic in self._topics(pod)) else Hint.SKIP

        return EventHint(event, meets, self._shape, Topics(self._topics, about))

    # -- claims, and the pod itself ------------------------------------------------------------------------------------

    def _claim(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim | None) -> Hint:
        """Return QUEUE as in §7.2, and for a claim that an earlier attempt of the pod has left (§3.12).

        That claim was deleted, or could not be deleted.
        """
        try:
            claims = claims_of(pod.pod, self._claims.need)
        # A pod whose claims do not exist waits for these claims alone. PreEnqueue decides again when one appears.
        except Unresolved:
            return Hint.SKIP
        extended = self._extended(pod)
        # Devices are free again. Every pod that still has claims to allocate may profit, whichever devices it needs:
        # whether they match is for Filter.
        if gives_back(old, new) and (extended or any(not claim.is_allocated for claim in claims)):
            return Hint.QUEUE
        created_or_deleted = old if new is None else new if old is None else None
        if extended and created_or_deleted is not None and is_made_for(created_or_deleted, pod.pod):
            return Hint.QUEUE
        if new is None or all(claim.uid != new.uid for claim in claims):
            return Hint.SKIP
        return Hint.QUEUE if _is_news(old, new) else Hint.SKIP

    def _pod(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        """Return QUEUE if the pod's claims exist now (§7.3)."""
        if new is None or new.uid != pod.uid:
            return Hint.SKIP
        try:
            claims_of(new.pod, self._claims.need)
        except Unresolved:
            return Hint.SKIP
        return Hint.QUEUE

    # -- what a pod waits for ------------------------------------------------------------------------------------------

    def _topics(self, pod: PodInfo) -> Iterator[Hashable]:
        for key in claim_keys(pod.pod):
            yield "claim", key
        try:
            claims = claims_of(pod.pod, self._claims.need)
        except Unresolved:
            return
        # Allocated claims are usable on nodes with certain labels, so labels of nodes matter to each pod with claims.
        yield _WHERE
        extended = self._extended(pod)
        if extended:
            yield _OWN
            yield "made for", pod.uid
            for name in extended:
                yield "resource", name
        requests = [request for claim in claims if not claim.is_allocated for request in _exact_requests(claim)]
        if extended or any(not claim.is_allocated for claim in claims):
            yield FREED
            # A request for all devices can be satisfied by fewer devices: a device that is in use may go away. Other
            # requests only by more.
            yield _SLICES if any(request.allocation_mode == ALL for request in requests) else _OFFERED
        for request in requests:
            yield "class", request.device_class_name

    def _shape(self, pod: PodInfo) -> Hashable:
        """Return the claims' names, and the pod's uid if the pod must own a claim."""
        names, is_personal = [], False
        for entry in pod.pod.spec.resource_claims:
            try:
                name, must_own = claim_name(pod.pod, entry)
            except Unresolved:
                name, must_own = "", False
            names.append(name)
            is_personal = is_personal or must_own
        extended = self._extended(pod)
        uid = pod.uid if is_personal or extended else ""
        return pod.pod.metadata.namespace, tuple(names), extended, uid

    def _extended(self, pod: PodInfo) -> tuple[str, ...]:
        """Return the pod's resources that classes may serve."""
        if not self._serves_resources:
            return ()
        return tuple(name for name, amount in pod.requests.items() if amount > 0 and may_be_devices(name))

    # -- what events are about -----------------------------------------------------------------------------------------

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> Iterator[Hashable]:
        """Yield the topics of a slice. Fewer devices may also help a request for all devices."""
        if old is not None and new is not None and old.spec == new.spec:
            return
        yield _SLICES
        if self._may_offer(old, new):
            yield _OFFERED

    def _may_offer(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        """Return whether the slice may offer new devices.

        It does not if it only has more taints, was the last of its pool, or belongs to a pool that is still
        incomplete (§4.3).
        """
        if new is None:
            return old is not None and any(self._pool(old))
        if old is not None:
            if _differs_in_place(old, new):
                return True
            # More taints exclude devices. Drivers taint devices often, and a retry of all pods for each taint would
            # be in vain.
            if _is_only_tainted(old, new):
                return False
        # The devices of a pool count only when all its slices are there. Until the last one arrives, a retry would
        # find nothing new.
        newest = new.spec.pool.generation
        equal = [each.spec.pool.resource_slice_count for each in self._pool(new) if each.spec.pool.generation == newest]
        return len(equal) >= min(equal, default=0)

    def _pool(self, of: ResourceSlice) -> Iterator[ResourceSlice]:
        return iter(self._pools.published(PoolKey(of.spec.driver, of.spec.pool.name)))


def _exact_requests(claim: ResourceClaim) -> Iterator[ExactDeviceRequest]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly
        yield from request.first_available


def _is_news(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    """Return whether the claim is another one of the same name, or has changed its status or owners."""
    return (
        old is None
        or old.uid != new.uid
        or old.status != new.status
        or old.metadata.owner_references != new.metadata.owner_references
    )


def _differs_in_place(old: ResourceSlice, new: ResourceSlice) -> bool:
    """Return whether pool or nodes differ, or the generation is older, so that hidden devices may appear."""
    before, now = old.spec, new.spec
    return (
        (before.driver, before.pool.name) != (now.driver, now.pool.name)
        or before.pool.generation > now.pool.generation
        or (before.node_name, before.node_selector, before.all_nodes)
        != (now.node_name, now.node_selector, now.all_nodes)
        or bool(before.per_device_node_selection or now.per_device_node_selection)
    )


def _is_only_tainted(old: ResourceSlice, new: ResourceSlice) -> bool:
    replace = msgspec.structs.replace
    if len(old.spec.devices) != len(new.spec.devices) or old.spec != replace(new.spec, devices=old.spec.devices):
        return False
    return all(
        set(was.taints) <= set(now.taints) and replace(was, taints=()) == replace(now, taints=())
        for was, now in zip(old.spec.devices, new.spec.devices)
    )


def _node_changed(old: Node | None, new: Node | None) -> Iterator[Hashable]:
    if new is None:
        return
    if old is None or old.metadata.labels != new.metadata.labels:
        yield _WHERE
    if old is None or old.status.allocatable != new.status.allocatable:
        yield _OWN


def _claim_changed(old: ResourceClaim | None, new: ResourceClaim | None) -> Iterator[Hashable]:
    for claim in (old, new):
        if claim is not None:
            yield "claim", claim.key
            if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
                yield from (("made for", owner.uid) for owner in claim.metadata.owner_references)
    if gives_back(old, new):
        yield FREED


def _class_changed(old: DeviceClass | None, new: DeviceClass | None) -> Iterator[Hashable]:
    """Yield the topics of a class. After its deletion another class may serve its resource."""
    if old is not None and new is not None and old.spec == new.spec:
        return
    for each in (old, new):
        if each is not None:
            yield "resource", each.spec.extended_resource_name or ""
            yield "resource", f"{IMPLICIT_EXTENDED_RESOURCE}{each.key}"
    if new is not None:
        yield "class", new.key
