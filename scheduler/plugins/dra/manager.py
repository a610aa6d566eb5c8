"""The door to what devices are allocated by, as simulators and autoscalers know it (docs/spec/dra.md §1).

The plugin reads the indexes of `cluster.devices` themselves, because nothing may be gathered anew for each pod. Whoever
runs it over a snapshot fills a `Cluster` of its own, runs PreFilter, Filter and Reserve, and reads here what was decided:
no state survives in the plugin between attempts, and what it remembers is keyed by content, so any number of clusters can
take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from scheduler.cache.devices import Devices
from scheduler.core.devices import DeviceId, ResourceSlice
from scheduler.core.resourceclaims import AllocationResult, DeviceClass, ResourceClaim


@dataclass(frozen=True, slots=True)
class AllocatedState:
    """What is in use, by claims that have it and by claims that are about to."""

    devices: frozenset[DeviceId]
    """Had as a whole."""
    shared: frozenset[tuple[DeviceId, str]]
    """Parts: the device, and the id of the share."""
    capacity: Mapping[DeviceId, Mapping[str, int]]
    """What those parts sum up to, in nano units by capacity."""


class ClaimTracker(Protocol):
    """Claims, and what has been decided about them (§1.1, §1.2, §1.4)."""

    def list(self) -> Iterable[ResourceClaim]:
        """The newest that is known of each, our own writes included."""

    def get(self, namespace: str, name: str) -> ResourceClaim:
        """As `list`. Raises NotKnown."""

    def gather_allocated_state(self) -> AllocatedState:
        """A copy. O(devices in use)."""

    def signal_pending_allocation(self, uid: str, claim: ResourceClaim) -> None:
        """The claim is about to be written like this. Raises NotKnown."""

    def pending_allocation(self, uid: str) -> AllocationResult | None:
        """Of a claim that is not written yet."""

    def drop_pending_allocation(self, uid: str, *, force: bool = False) -> bool:
        """It is written, or will not be; whether none of those who share it is left."""

    def assume_after_api_call(self, claim: ResourceClaim) -> None:
        """What the server answered stands until something newer is seen. Raises NotKnown, OutOfSync."""

    def restore(self, namespace: str, name: str) -> None:
        """Back to what was seen. Safe to repeat."""


class SharedDRAManager(Protocol):
    """Everything that DynamicResources may know of devices."""

    @property
    def claims(self) -> ClaimTracker: ...

    def slices_with_taints(self) -> Iterable[ResourceSlice]:
        """All slices, with the taints that rules add."""

    def device_class(self, name: str) -> DeviceClass | None:
        """By name."""

    def device_class_for(self, resource: str) -> DeviceClass | None:
        """The class behind an extended resource (§3.12)."""


class _CachedClaims:
    """The cache's."""

    def __init__(self, devices: Devices) -> None:
        self._claims = devices.claims
        self._use = devices.use

    def list(self) -> Iterable[ResourceClaim]:
        return tuple(self._claims)

    def get(self, namespace: str, name: str) -> ResourceClaim:
        return self._claims.need(f"{namespace}/{name}")

    def gather_allocated_state(self) -> AllocatedState:
        """In one go: nothing can change in between, so there is no revision to compare."""
        use = self._use
        shared = tuple(use.shared_devices())
        return AllocatedState(
            frozenset(use.devices()),
            frozenset((device, share.share_id) for device in shared for share in use.shares(device)),
            {device: dict(use.consumed(device)) for device in shared},
        )

    def signal_pending_allocation(self, uid: str, claim: ResourceClaim) -> None:
        self._claims.signal(uid, claim)

    def pending_allocation(self, uid: str) -> AllocationResult | None:
        return self._claims.pending(uid)

    def drop_pending_allocation(self, uid: str, *, force: bool = False) -> bool:
        return self._claims.drop_pending(uid, force=force)

    def assume_after_api_call(self, claim: ResourceClaim) -> None:
        self._claims.assume(claim)

    def restore(self, namespace: str, name: str) -> None:
        self._claims.restore(f"{namespace}/{name}")


class CacheManager:
    """Over the caches of one cluster, the daemon's or a simulator's."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._claims = _CachedClaims(devices)

    @property
    def claims(self) -> ClaimTracker:
        """Claims, and what has been decided about them."""
        return self._claims

    def slices_with_taints(self) -> Iterable[ResourceSlice]:
        """As they count."""
        return tuple(self._devices.slices())

    def device_class(self, name: str) -> DeviceClass | None:
        """By name."""
        return self._devices.classes.get(name)

    def device_class_for(self, resource: str) -> DeviceClass | None:
        """The class behind an extended resource."""
        return self._devices.classes.for_resource(resource)
