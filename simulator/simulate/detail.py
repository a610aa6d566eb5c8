"""Where the volumes and devices of placed pods are, why a pod is on its node, and how full nodes and pools are.

Everything is read from the scheduler's cache and its records when it has come to rest, so it is what the scheduler
decided with. Numbers of capacity are those of the CSIStorageCapacity objects, minus what is promised to claims. The
types are those of the JSON (`answer`) where both have the same fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from scheduler.api.core_v1 import Pod
from scheduler.api.quantity import Quantity, text
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.nodes import PODS
from scheduler.core import nodeset
from scheduler.core.cooperative import finish
from scheduler.core.decision_record import NodeScore
from scheduler.explain.changes import quantity
from scheduler.scheduler import Scheduler
from scheduler.server.ui.answers import PlacedDevice, PlacedVolume
from scheduler.server.ui.placed import placed_devices, placed_volumes
from scheduler.server.ui.pools import device_pools

_NANO: Final = 10**9

Count = Annotated[int, Meta(ge=0)]
Named = Annotated[str, Meta(min_length=1)]
PodName = Annotated[str, Meta(pattern="^[^/]+/[^/]+$", description="Namespace and name.")]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An object of the JSON answer: its fields are those of the schema, without additional ones."""


@dataclass(frozen=True, slots=True)
class PodDetail:
    """What a placed pod uses, and how its node was chosen."""

    volumes: tuple[PlacedVolume, ...] = ()
    devices: tuple[PlacedDevice, ...] = ()
    chosen: NodeScore | None = None
    """None if no other node was possible."""
    runner_up: NodeScore | None = None
    """The best of the other nodes; None if there was none."""


class ResourceUseAnswer(Part, frozen=True):
    """Requests of all pods on a node, and its allocatable amount, as quantities."""

    resource: Named
    requested: str
    allocatable: str


class AttachAnswer(Part, frozen=True):
    """Attached volumes of a driver, and the limit of its CSINode."""

    driver: Named
    used: Count
    limit: Count


class StorageAnswer(Part, frozen=True):
    """Capacity for new volumes of a class."""

    storage_class: Named
    pool: Annotated[Named, Meta(description="The CSIStorageCapacity, `namespace/name`.")]
    free: Annotated[str, Meta(description="A quantity, without what is promised to claims.")]


class SharedAnswer(Part, frozen=True):
    """A capacity of a device that several claims share, as quantities."""

    device: Named
    capacity: Named
    used: str
    of: str


class PoolAnswer(Part, frozen=True):
    """Devices of a pool."""

    driver: Named
    pool: Named
    devices: Count
    used: Annotated[Count, Meta(description="Devices that are allocated, also in part.")]
    free: Annotated[Count, Meta(description="The rest. Counters that devices share may exclude some of it.")]
    shared: list[SharedAnswer]


class NodeUse(Part, frozen=True):
    """How full a node is."""

    node: Named
    resources: list[ResourceUseAnswer]
    attachments: Annotated[list[AttachAnswer], Meta(description="Of drivers with a limit.")]
    storage: list[StorageAnswer]
    pools: Annotated[list[PoolAnswer], Meta(description="Pools of devices that belong to this node.")] = msgspec.field(
        name="devicePools"
    )


@dataclass(frozen=True, slots=True)
class Detail:
    """The detail of a whole outcome."""

    pods: Mapping[str, PodDetail]
    """Placed pods by `namespace/name`."""
    nodes: tuple[NodeUse, ...]
    """By name."""
    pools: tuple[PoolAnswer, ...]
    """Pools of devices that belong to no single node, by driver and name."""


def detail(scheduler: Scheduler, pods: Iterable[Pod]) -> Detail:
    """Return the detail of these pods and of all nodes. O(pods + nodes · resources + devices)."""
    cluster = scheduler.cluster
    cluster.volumes.attached.catch_up()
    pools = _pools(cluster)
    names = sorted((cluster.nodes.name(slot), slot) for slot in nodeset.each(cluster.nodes.present))
    return Detail(
        pods={pod.key: _pod(scheduler, pod) for pod in pods if pod.spec.node_name},
        nodes=tuple(_node(cluster, name, slot, pools) for name, slot in names),
        pools=tuple(pools.get("", ())),
    )


# -- pods ----------------------------------------------------------------------------------------------------------------


def _pod(scheduler: Scheduler, pod: Pod) -> PodDetail:
    node = pod.spec.node_name
    scores: tuple[NodeScore, ...] = ()
    for record in scheduler.records.of(pod.key):  # the last one counts
        if record.uid == pod.metadata.uid and record.node == node:
            scores = record.scores
    chosen, runner_up = (*scores, None, None)[:2]
    return PodDetail(
        volumes=tuple(placed_volumes(scheduler.cluster, pod)),
        devices=tuple(placed_devices(scheduler.cluster, pod)),
        chosen=chosen,
        runner_up=runner_up,
    )


# -- nodes and pools -----------------------------------------------------------------------------------------------------


def _node(cluster: Cluster, name: str, slot: int, pools: Mapping[str, list[PoolAnswer]]) -> NodeUse:
    return NodeUse(
        node=name,
        resources=list(_resources(cluster, slot)),
        attachments=list(_attachments(cluster, slot)),
        storage=[
            StorageAnswer(storage_class, pool.key, text(Quantity(max(pool.spare, 0) * _NANO)))
            for storage_class in sorted(cluster.volumes.classes)
            if (of_class := cluster.volumes.capacities.of(storage_class)) is not None
            for pool in of_class.at(slot)
        ],
        pools=pools.get(name, []),
    )


def _resources(cluster: Cluster, slot: int) -> Iterator[ResourceUseAnswer]:
    nodes = cluster.nodes
    for name, row in nodes.resources().items():
        requested, allocatable = int(nodes.requested[row, slot]), int(nodes.allocatable[row, slot])
        if requested or allocatable:
            yield ResourceUseAnswer(name, quantity(name, requested), quantity(name, allocatable))
    yield ResourceUseAnswer(PODS, str(int(nodes.pod_count[slot])), str(int(nodes.allowed_pods[slot])))


def _attachments(cluster: Cluster, slot: int) -> Iterator[AttachAnswer]:
    attached = cluster.volumes.attached
    for driver in sorted(attached.drivers()):
        used, free = attached.used(driver, slot), attached.free(driver, slot)
        if free is not None:
            yield AttachAnswer(driver, used, used + free)


def _pools(cluster: Cluster) -> dict[str, list[PoolAnswer]]:
    """Return the pools by node, "" for none, each list by driver and name."""
    found: dict[str, list[PoolAnswer]] = {}
    for pool in finish(device_pools(cluster)):
        shared = [SharedAnswer(each.device, each.capacity, each.used, each.of) for each in pool.shared]
        found.setdefault(pool.node, []).append(
            PoolAnswer(pool.driver, pool.pool, pool.devices, pool.used, pool.free, shared)
        )
    return found
