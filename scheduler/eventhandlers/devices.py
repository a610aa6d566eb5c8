"""Apply deltas of claims, slices, classes and taint rules to the cache, then notify subscribers, then wake pods.

The caches show a change before any subscriber is notified of it. Changes of claims are
published as the claim tracker records them, so our own writes are published too, once (docs/spec/dra.md §1.2, §4.11, §7).
An object that could not be read counts as absent; messages of plugins can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from scheduler.api.decode import Broken, Delta
from scheduler.api.resource_v1 import ClaimMetadata, ResourceClaim, ResourceClaimStatus
from scheduler.cache.cluster import Cluster
from scheduler.cache.devices.claim_tracker import ClaimChange, gives_back
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.eventhandlers.deltas import Move, action_of, seen
from scheduler.framework.preemption_state import Preempting

DEVICES_GIVEN_BACK: Final = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE_OTHER, "DevicesGivenBack")
"""Our own event: an allocation in flight will never be written, or a hold of devices for a nominated pod has ended."""


class DeviceHandlers:
    """Handle the kinds that device allocation reads. `move` wakes the pods that an event can help."""

    def __init__(self, cluster: Cluster, move: Move, preempting: Preempting) -> None:
        self._devices = cluster.devices
        self._move = move
        self._nominated = preempting.nominated
        self._frees = partial(preempting.frees, cluster)

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        return {
            "ResourceClaim": self._claim,
            "ResourceSlice": self._slice,
            "DeviceClass": self._class,
            "DeviceTaintRule": self._rule,
        }

    def tick(self) -> None:
        """Publish, once per turn of the loop, the results of our own writes and the devices that were released."""
        self._publish_claims()
        self._devices.device_holds.end_stale(self._nominated, self._frees)
        given_back = self._devices.claims.given_back
        while given_back:
            self._move(DEVICES_GIVEN_BACK, *given_back.pop(0))
        self._devices.on_nodes.keep_up()

    # -- one kind each -------------------------------------------------------------------------------------------------

    def _claim(self, delta: Delta[Any]) -> None:
        """Keep the devices of a claim while it cannot be read, so that no other claim gets them."""
        key, _, new = seen(delta, self._devices.broken)
        claims = self._devices.claims
        had, kept = claims.get(key), claims.kept(key)
        if new is not None:
            claims.set(new)
        else:
            claims.remove(key)
        now = _as_seen_last(delta.new, had, kept)
        claims.keep(key, now)
        if kept is not None and gives_back(kept, now or new):
            claims.given_back.append(ClaimChange(kept, new))
        if key not in self._publish_claims():  # the watch shows our own write, or an older state
            self._devices.notify(key)

    def _slice(self, delta: Delta[Any]) -> None:
        """Publish the slice as decisions see it, with the taints of rules."""
        key, _, new = seen(delta, self._devices.broken)
        before = self._devices.slice(key)
        now = self._devices.set_slice(new) if new is not None else None
        if now is None:
            self._devices.remove_slice(key)
        self._publish(Resource.RESOURCE_SLICE, before, now)

    def _class(self, delta: Delta[Any]) -> None:
        key, old, new = seen(delta, self._devices.broken)
        self._devices.put_class(key, new)
        self._publish(Resource.DEVICE_CLASS, old, new)

    def _rule(self, delta: Delta[Any]) -> None:
        """Publish the slices that the rule changes. No pod waits for the rule itself."""
        key, old, new = seen(delta, self._devices.broken)
        for before, now in self._devices.put_rule(key, old, new):
            self._publish(Resource.RESOURCE_SLICE, before, now)

    def _publish_claims(self) -> set[str]:
        """Publish all changes of claims, including those that subscribers cause; return the keys of the claims.

        Subscribers come first, because a pod that is woken may need what a binding has written.
        """
        claims, published = self._devices.claims, set[str]()
        while claims.changes:
            before, now = claims.changes.pop(0)  # one by one: a failure loses one change only
            claim = now if now is not None else before
            assert claim is not None
            published.add(claim.key)
            self._devices.notify(claim.key)
            for owner in claim.metadata.owner_references:  # a pod does not know the names of generated claims
                if owner.controller:
                    self._devices.notify(owner.uid)
            self._publish(Resource.RESOURCE_CLAIM, before, now)
        return published

    def _publish(self, resource: Resource, before: object, now: object) -> None:
        action = action_of(before, now)
        if action is not None:
            self._move(ClusterEvent(resource, action), before, now)


def _as_seen_last(now: object, *before: ResourceClaim | None) -> ResourceClaim | None:
    """Return the last known state of an allocated claim that cannot be read now; None for all other claims.

    A readable allocation of the new object wins over the states before. States with another uid belong to another claim.
    """
    if not isinstance(now, Broken):
        return None
    same = [each for each in before if each is not None and now.metadata.uid in {"", each.uid}]
    if now.allocation is None:
        return next((each for each in same if each.is_allocated), None)
    if not now.allocation.devices.results:
        return None
    uid = now.metadata.uid or (same[0].uid if same else f"{now.kind} {now.key}")
    metadata = ClaimMetadata(name=now.metadata.name, namespace=now.metadata.namespace, uid=uid)
    return ResourceClaim(metadata, status=ResourceClaimStatus(allocation=now.allocation))
