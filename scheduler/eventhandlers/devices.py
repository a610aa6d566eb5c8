"""Deltas of claims, slices, classes and taint rules → cache, then whoever waits for them, then the pods that they may help.

Called through `intake`; the caches show a change before anybody is told of it. What is told of claims is what the cache
of claims makes of them, so what we wrote ourselves is told too, once (docs/spec/dra.md §1.2, §4.11, §7). An object that could
not be read counts as absent, and can be named by whom it concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from scheduler.api.decode import Broken, Delta
from scheduler.api.resource_v1 import ClaimMetadata, ResourceClaim, ResourceClaimStatus
from scheduler.cache.cluster import Cluster
from scheduler.cache.devices.claim_tracker import ClaimChange, gives_back
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.eventhandlers.workloads import ObjectChange, action_of, seen

Move: TypeAlias = Callable[[ClusterEvent, object, object], None]
DEVICES_GIVEN_BACK: Final = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE_OTHER, "DevicesGivenBack")
"""Ours: what was in flight will never be written. The pod that it was for may have left before."""


class DeviceHandlers:
    """The kinds that devices are allocated by. `move` wakes the pods that an event can help."""

    def __init__(self, cluster: Cluster, move: Move) -> None:
        self._devices = cluster.devices
        self._move = move

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        """Kind → what to do with one change of it."""
        return {
            "ResourceClaim": self._claim,
            "ResourceSlice": self._slice,
            "DeviceClass": self._class,
            "DeviceTaintRule": self._rule,
        }

    def tick(self) -> None:
        """Once per turn of the loop: who waits for what has become of our own writes, or of our plans, hears of it."""
        self._tell_claims()
        given_back = self._devices.claims.given_back
        while given_back:
            self._move(DEVICES_GIVEN_BACK, *given_back.pop(0))
        self._devices.on_nodes.keep_up()

    # -- one kind each -------------------------------------------------------------------------------------------------

    def _claim(self, delta: Delta[Any]) -> None:
        """What a claim has been seen to have it keeps while it cannot be read: nobody else may get it."""
        key, _, new = self._seen(delta)
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
        if key not in self._tell_claims():  # nothing changed here: the watch shows what we wrote ourselves, or older
            self._devices.notify(key)

    def _slice(self, delta: Delta[Any]) -> None:
        """Told as it counts, with the taints of rules."""
        key, _, new = self._seen(delta)
        before = self._devices.slice(key)
        now = self._devices.set_slice(new) if new is not None else None
        if now is None:
            self._devices.remove_slice(key)
        self._tell(Resource.RESOURCE_SLICE, before, now)

    def _class(self, delta: Delta[Any]) -> None:
        key, old, new = self._seen(delta)
        self._devices.put_class(key, new)
        self._tell(Resource.DEVICE_CLASS, old, new)

    def _rule(self, delta: Delta[Any]) -> None:
        """Nobody waits for a rule: it is told as the slices that it changes."""
        key, old, new = self._seen(delta)
        for before, now in self._devices.put_rule(key, old, new):
            self._tell(Resource.RESOURCE_SLICE, before, now)

    # -- what they share -----------------------------------------------------------------------------------------------

    def _seen(self, delta: Delta[Any]) -> ObjectChange:
        return seen(delta, self._devices.broken)

    def _tell_claims(self) -> set[str]:
        """Waits first: a pod that is woken may need what a binding has written. What they change in turn is told as well.

        Returns the claims that were told of.
        """
        claims, told = self._devices.claims, set[str]()
        while claims.changes:
            before, now = claims.changes.pop(0)  # one by one: whoever fails costs itself alone
            known = now if now is not None else before
            assert known is not None
            told.add(known.key)
            self._devices.notify(known.key)
            for owner in known.metadata.owner_references:  # a pod does not know the names of claims made for it
                if owner.controller:
                    self._devices.notify(owner.uid)
            self._tell(Resource.RESOURCE_CLAIM, before, now)
        return told

    def _tell(self, resource: Resource, before: object, now: object) -> None:
        action = action_of(before, now)
        if action is not None:
            self._move(ClusterEvent(resource, action), before, now)


def _as_seen_last(now: object, *before: ResourceClaim | None) -> ResourceClaim | None:
    """A claim that has devices and cannot be read; None for all others. One of its name with another uid is another claim.

    What can be seen of it now comes before what was known, which has its uid where that is not to be seen.
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
