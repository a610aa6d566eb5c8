"""Check claims of devices, the devices in use, effective slices, and the kinds of devices and nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from scheduler.api.resource_v1 import AllocationResult, DeviceId
from scheduler.audit.findings import BEHIND, Check, Comparison, Steps, by_key, grouped
from scheduler.cache.devices.claim_tracker import pods_of
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.devices.pools import PoolKey
from scheduler.cache.devices.shared_pools import NO_SHARED_POOLS
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset


class DeviceChecks:
    """The checks of one cluster's devices."""

    def __init__(self, nodes: Nodes, devices: SharedDRAManager, groups: Callable[[], Steps]) -> None:
        """Create the checks; `groups` compares the node groups of shared pools."""
        self._nodes = nodes
        self._devices = devices
        self._claims = devices.claims
        self._use = devices.use
        self._on_nodes = devices.on_nodes
        self._groups = groups

    def checks(self) -> dict[str, Check]:
        """Return index → check, in the order in which values follow from each other."""
        return {
            "device-claims": self._all_claims,
            "device-allocations": self._allocations,
            "devices-in-use": self._all_devices,
            "device-classes": self._classes,
            "device-slices": self._slices,
            "device-pools": self._pools,
            "device-node-groups": self._groups,
            "shared-device-pools": self._shared,
            "device-kinds-of-nodes": self._kinds,
        }

    def _about(self, slot: int) -> str:
        return f"node {self._nodes.name(slot)}"

    # -- claims ------------------------------------------------------------------------------------------------------

    def _all_claims(self) -> Steps:
        """Compare the indexes of claims by uid and by pod with the claims."""
        claims, found = self._claims, Comparison("claims of devices by uid")

        def pods(key: str) -> Collection[str]:
            claim = claims.get(key)
            return pods_of(claim) if claim is not None else ()

        stored = {claim.uid: key for key, claim in claims.latest.items()}
        if found.compare(claims.keys_by_uid, stored):
            claims.keys_by_uid.clear()
            claims.keys_by_uid.update(stored)
        yield found
        yield from grouped("claim of devices", stored.values(), pods, claims.keys_by_pod)

    def _allocations(self) -> Steps:
        """Compare the devices of each claim with its allocation, written or pending."""
        claims, use, keys = self._claims, self._use, self._claims.uids()

        def stored(uid: str) -> AllocationResult | None:
            return claims.allocation(uid, keys.get(uid, ""))

        return by_key(
            dict.fromkeys((*use.uids(), *keys)),
            lambda uid: f"claim of devices {keys.get(uid, uid)}",
            lambda uid: {"allocation": use.held(uid)},
            lambda uid: {"allocation": stored(uid)},
            lambda uid: use.hold(uid, stored(uid)),
        )

    def _all_devices(self) -> Steps:
        """Compare the users of each device with the allocations, first by claim and then by device."""
        use = self._use

        def of(uid: str) -> dict[str, DeviceId]:
            held = use.held(uid)
            results = held.devices.results if held is not None else ()
            return {str(result.id): result.id for result in results if not result.admin_access}

        yield from by_key(
            use.uids(),
            lambda uid: f"devices of claim {uid}",
            lambda uid: {name: use.entries(device) for name, device in of(uid).items()},
            lambda uid: {name: use.recounted(device, uid) for name, device in of(uid).items()},
            lambda _: use.recount(),
        )
        yield from by_key(
            use.used(), lambda device: f"device {device}", use.entries, use.recounted, lambda _: use.recount()
        )

    # -- classes and slices ------------------------------------------------------------------------------------------

    def _classes(self) -> Steps:
        """Compare the classes of each extended resource with the classes."""
        classes = self._devices.classes

        def resources(name: str) -> Collection[str]:
            device_class = classes.get(name)
            resource = device_class.spec.extended_resource_name if device_class is not None else ""
            return (resource,) if resource else ()

        def healed(_: str) -> None:
            classes.generation += 1

        names = [each.metadata.name for each in classes]
        return grouped("device class", names, resources, classes.by_resource, healed=healed)

    def _slices(self) -> Steps:
        """Compare each effective slice with the published one and the taint rules."""
        devices = self._devices

        def heal(name: str) -> None:
            published = devices.published.get(name)
            if published is None:
                devices.remove_slice(name)
            else:
                devices.set_slice(published)

        return by_key(
            dict.fromkeys((*devices.published, *(each.key for each in devices.slices()))),
            lambda name: f"ResourceSlice {name}",
            lambda name: {"effective slice": devices.slice(name)},
            lambda name: {"effective slice": devices.published_now(name)},
            heal,
        )

    def _pools(self) -> Steps:
        """Compare the slices and the home of each pool, and what it shares, with the effective slices."""
        devices, on_nodes = self._devices, self._on_nodes

        def stored(name: str) -> Mapping[str, object]:
            each = devices.slice(name)
            key = PoolKey(each.spec.driver, each.spec.pool.name) if each is not None else None
            return {"pool": (key, each)}

        def heal(name: str) -> None:
            if (each := devices.slice(name)) is not None:
                on_nodes.set_slice(each)

        yield from by_key(
            [each.key for each in devices.slices()],
            lambda name: f"ResourceSlice {name}",
            lambda name: {"pool": on_nodes.pool_of(name)},
            stored,
            heal,
        )
        yield from by_key(
            on_nodes.pools_by_key,
            lambda key: f"device pool {key.driver}/{key.name}",
            lambda key: on_nodes.entries(key, on_nodes),
            lambda key: on_nodes.alone(key).entries(key, on_nodes),
            on_nodes.settle,
        )

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _shared(self) -> Steps:
        """Let each node look again which slices of shared pools it sees, and compare what it saw before."""
        on_nodes, shared = self._on_nodes, self._on_nodes.shared
        if on_nodes.behind > BEHIND:
            return
        for slot in range(self._nodes.capacity):
            on_nodes.catch_up()
            found, before = Comparison(self._about(slot)), shared.entries(slot)
            on_nodes.see_again(slot)
            found.compare(before, shared.entries(slot))
            yield found
        on_nodes.catch_up()
        found = Comparison("shared device pools")
        for each, count in Counter(map(shared.of, range(self._nodes.capacity))).items():
            if each is not NO_SHARED_POOLS and found.differs("nodes that see the same slices", each.count, count):
                each.count = count
        yield found

    def _kinds(self) -> Steps:
        """Compare the kind of each node with its devices and their use, and the nodes of each kind."""
        on_nodes = self._on_nodes
        if on_nodes.behind > BEHIND:
            return
        yield from by_key(
            range(self._nodes.capacity),
            self._about,
            on_nodes.placement,
            on_nodes.placement_now,
            on_nodes.place_again,
            ready=on_nodes.catch_up,
        )
        for kind in tuple(on_nodes.kinds()):
            on_nodes.catch_up()
            found = Comparison("nodes with equal devices")
            gone = [slot for slot in nodeset.members(kind.nodes) if on_nodes.kind(slot) is not kind]
            found.differs("nodes of another kind", [self._nodes.name(slot) for slot in gone], [])
            for slot in gone:
                on_nodes.place_again(slot)
            yield found
