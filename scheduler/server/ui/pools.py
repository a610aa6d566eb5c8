"""Devices and storage on the page /ui: what each pool has, and what of it is in use or promised.

Everything is computed from the scheduler's cache, in steps: O(devices) and O(capacity objects + nodes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.api.quantity import Quantity, text
from scheduler.api.resource_v1 import DeviceId, ResourceSlice, bare_name
from scheduler.cache.cluster import Cluster
from scheduler.cache.storage.attach_limits import NO_LIMIT
from scheduler.explain.fixes import Steps
from scheduler.server.ui.answers import CapacityUse, ClassUse, DriverAttachUse, DriverUse, PoolUse, SharedUse
from scheduler.server.ui.nodes import is_device
from scheduler.server.ui.shortened import shortened

SUMS_MAX: Final = 50
"""Drivers and classes in an answer: users can create as many as they like."""
_STEP_DEVICES: Final = 512
_STEP_POOLS: Final = 256


@dataclass(frozen=True, slots=True)
class DeviceUses:
    """All pools of devices, by driver and name, and the sums by driver."""

    drivers: tuple[DriverUse, ...]
    pools: list[PoolUse]


@dataclass(frozen=True, slots=True)
class StorageUses:
    """All capacity objects, by class and name, and the sums by class and by driver."""

    classes: tuple[ClassUse, ...]
    drivers: tuple[DriverAttachUse, ...]
    pools: list[CapacityUse]


def device_uses(cluster: Cluster) -> Steps[DeviceUses]:
    """Return the use of all devices. Only the newest slices of a pool count."""
    pools = yield from device_pools(cluster)
    sums: dict[str, list[int]] = {}
    for pool in pools:
        of = sums.setdefault(pool.driver, [0, 0, 0, 0])
        for at, more in enumerate((1, pool.free <= 0, pool.devices, pool.used)):
            of[at] += more
    drivers = [DriverUse(shortened(name), False, *found) for name, found in sorted(sums.items())]
    yield True
    nodes = cluster.nodes
    for name in sorted(filter(is_device, nodes.resources())):
        row = nodes.resources()[name]
        offered, used = nodes.allocatable[row], nodes.requested[row]
        if count := int(np.count_nonzero(offered)):
            full = int(np.count_nonzero((offered > 0) & (used >= offered)))
            drivers.append(DriverUse(shortened(name), True, count, full, int(offered.sum()), int(used.sum())))
    return DeviceUses(tuple(drivers[:SUMS_MAX]), pools)


def device_pools(cluster: Cluster) -> Steps[list[PoolUse]]:
    """Return all pools, by driver and name."""
    slices: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in cluster.devices.slices():
        slices.setdefault((each.spec.driver, each.spec.pool.name), []).append(each)
    yield True
    found: list[PoolUse] = []
    devices = 0
    for _, of_pool in sorted(slices.items()):
        newest = max(each.spec.pool.generation for each in of_pool)
        found.append(_pool(cluster, [each for each in of_pool if each.spec.pool.generation == newest]))
        devices += found[-1].devices + 1
        if devices >= _STEP_DEVICES:
            devices = 0
            yield True
    return found


def _pool(cluster: Cluster, slices: list[ResourceSlice]) -> PoolUse:
    spec, nodes = slices[0].spec, {each.spec.node_name or "" for each in slices}
    devices, used, shared = 0, 0, list[SharedUse]()
    for each in sorted(slices, key=lambda each: each.metadata.name):
        for device in each.spec.devices:
            id_ = DeviceId(spec.driver, spec.pool.name, device.name)
            devices += 1
            used += cluster.devices.use.is_used(id_)
            if device.allow_multiple_allocations:
                consumed = cluster.devices.use.consumed(id_)
                shared += [
                    SharedUse(
                        device.name, name, text(Quantity(consumed.get(bare_name(spec.driver, name), 0))), text(of.value)
                    )
                    for name, of in sorted(device.capacity.items())
                ]
    node = nodes.pop() if len(nodes) == 1 else ""
    return PoolUse(spec.driver, spec.pool.name, node, devices, used, tuple(shared))


def storage_uses(cluster: Cluster) -> Steps[StorageUses]:
    """Return the capacity for new volumes, and the attach slots."""
    volumes, pools = cluster.volumes, list[CapacityUse]()
    volumes.groups.catch_up()
    objects = sorted(volumes.capacities, key=lambda each: (each.obj.storage_class_name, each.key))
    yield True
    for count, pool in enumerate(objects, 1):
        on = pool.group.nodes
        pools.append(
            CapacityUse(
                pool=pool.key,
                storage_class=pool.obj.storage_class_name,
                nodes=on.bit_count(),
                node=cluster.nodes.name(on.bit_length() - 1) if on else "",
                reserved=pool.in_flight,
                free=None if pool.obj.capacity is None else max(pool.spare, 0),
                largest=None if pool.limit < 0 else pool.limit,
            )
        )
        if count % _STEP_POOLS == 0:
            yield True
    sums: dict[str, list[int]] = {}
    for each in pools:
        of = sums.setdefault(each.storage_class, [0, 0, 0])
        for at, more in enumerate((1, each.reserved, each.free or 0)):
            of[at] += more
    yield True
    classes = [
        ClassUse(shortened(name), shortened(each.provisioner), each.volume_binding_mode or "Immediate", *found)
        for name, known_class in sorted(volumes.classes.items())[:SUMS_MAX]
        for each, found in [(known_class.obj, sums.get(name, [0, 0, 0]))]
    ]
    drivers = yield from _attach_uses(cluster)
    return StorageUses(tuple(classes), tuple(drivers), pools)


def _attach_uses(cluster: Cluster) -> Steps[list[DriverAttachUse]]:
    attached, found = cluster.volumes.attached, list[DriverAttachUse]()
    attached.catch_up()
    yield True
    for driver in sorted(attached.drivers())[:SUMS_MAX]:
        used, limits = attached.columns(driver)
        has_limit = limits != NO_LIMIT
        if nodes := int(np.count_nonzero(has_limit)):
            full = int(np.count_nonzero(has_limit & (used >= limits)))
            found.append(
                DriverAttachUse(
                    shortened(driver), nodes, full, int(used[has_limit].sum()), int(limits[has_limit].sum())
                )
            )
        yield True
    return found
