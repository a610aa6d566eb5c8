"""What /debug/cache shows: nodes with what is on them, and of volumes and devices what the watch alone does not bring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from scheduler.cache.cluster import Cluster
from scheduler.cache.devicepools import PoolState
from scheduler.cache.devices import Devices
from scheduler.cache.nodes import Nodes
from scheduler.cache.resourceclaims import ResourceClaims
from scheduler.cache.volumes import Volumes
from scheduler.core import nodeset
from scheduler.core.decode import Broken
from scheduler.core.devices import DeviceId
from scheduler.core.partlyread import PartlyReadPod
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import ResourceClaim
from scheduler.insight.pages import PAUSE, Page, Parts

_LOOKED_AT: Final = 1000
"""In one go, where few of many are shown: a millisecond or two of the loop."""

T = TypeVar("T")


def cache_page(cluster: Cluster) -> Page:
    """Plain values, section by section; nodes one by one, those that are known when their turn comes."""
    return {
        "sizes": cluster.sizes,
        "healed": lambda: cluster.healed,
        "assumed": lambda: sorted(info.key for info in cluster.assumed()),
        "unreadable": lambda: _unread_pods(cluster),
        "volumes": lambda: _volumes(cluster.volumes),
        "devices": lambda: _devices(cluster.devices, cluster.nodes),
        "nodes": lambda: _nodes(cluster.nodes),
    }


def _unread_pods(cluster: Cluster) -> Iterator[object]:
    """Bound pods that cannot be read, or not in full."""
    for broken in cluster.broken():
        yield {"pod": broken.key, "node": broken.node_name, "why": broken.why}
    for info in _in_turns(tuple(cluster.pods())):
        if not isinstance(info, PodInfo):
            yield PAUSE
        elif isinstance(info.pod, PartlyReadPod):
            yield {"pod": info.key, "node": info.node_name, "why": info.pod.why}


def _nodes(nodes: Nodes) -> Iterator[dict[str, Any]]:
    for name in sorted(nodes.known_names()):
        slot = nodes.slot(name)
        if slot is None:  # gone since the first row was written
            continue
        yield {
            "node": name,
            "present": bool(nodes.present >> slot & 1),
            "pods": sorted(info.key for info in nodes.pods(slot).values()),
            "requested": {resource: nodes.requested_at(slot, resource) for resource in _named(nodes, slot)},
            "allocatable": {r: int(nodes.allocatable[row, slot]) for r, row in nodes.resources().items()},
        }


def _named(nodes: Nodes, slot: int) -> Iterable[str]:
    """Resources that nodes offer, then others that pods on this one ask for."""
    return dict.fromkeys((*nodes.resources(), *(name for info in nodes.pods(slot).values() for name in info.requests)))


def _volumes(volumes: Volumes) -> dict[str, Any]:
    """What of them is ours alone: what we are about to write, what is in flight from which pool, what nobody can read."""
    return {
        "assumedVolumes": sorted(key for key in volumes.volumes.assumed_keys() if volumes.volumes.is_assumed(key)),
        "assumedClaims": [
            {"claim": key, "node": claim.selected_node}
            for key in sorted(volumes.claims.assumed_keys())
            if volumes.claims.is_assumed(key) and (claim := volumes.claims.get(key)) is not None
        ],
        "inFlight": [
            {
                "claim": entry.claim.key,
                "class": entry.claim.storage_class,
                "node": entry.node_name,
                "bytes": entry.size,
                "state": entry.state,
                "pool": entry.pool.key if entry.pool is not None else None,
            }
            for entry in sorted(volumes.ledger, key=lambda entry: entry.claim.key)
        ],
        "unreadable": _unreadable(volumes.broken),
    }


def _devices(devices: Devices, nodes: Nodes) -> Parts:
    """What has been written and not been seen yet, what is about to be, and what is wrong with what was published.

    Pools are those that nodes saw when devices were looked for last.
    """
    return Parts(
        assumedClaims=lambda: _assumed(devices.claims),
        inFlight=lambda: _in_flight(devices.claims),
        heldTwice=lambda: _held_twice(devices),
        pools=lambda: _pools(devices, nodes),
        nodeSelection=lambda: devices.on_nodes.problem,
        unreadable=lambda: _unreadable(devices.broken),
    )


def _assumed(claims: ResourceClaims) -> Iterator[object]:
    keys = []
    for claim in _in_turns(tuple(claims)):
        if not isinstance(claim, ResourceClaim):
            yield PAUSE
        elif _is_newer(claim, claims.get_api(claim.key)):
            keys.append(claim.key)
    yield from sorted(keys)


def _in_flight(claims: ResourceClaims) -> Iterator[object]:
    for claim in sorted(claims.in_flight(), key=lambda claim: claim.key):
        if claim.status.allocation is not None:
            devices = [str(result.id) for result in claim.status.allocation.devices.results]
            yield {"claim": claim.key, "devices": devices}


def _held_twice(devices: Devices) -> Iterator[object]:
    use, twice = devices.use, []
    for device in _in_turns(tuple(use.devices())):
        if not isinstance(device, DeviceId):
            yield PAUSE
        elif len(use.holders(device)) > 1:
            twice.append(device)
    for device in sorted(twice):
        found = ((uid, devices.claims.by_uid(uid)) for uid in use.holders(device))
        yield {"device": str(device), "claims": sorted(uid if claim is None else claim.key for uid, claim in found)}


def _pools(devices: Devices, nodes: Nodes) -> Iterator[object]:
    wrong: set[tuple[str, str, str, str]] = set()
    for slot in _in_turns(tuple(nodeset.each(nodes.present))):
        if not isinstance(slot, int):
            yield PAUSE
            continue
        views = (view for view in devices.on_nodes.pools(slot) if view.state is not PoolState.GOOD)
        wrong.update((view.key.driver, view.key.name, view.state.value, view.problem) for view in views)
    for driver, name, state, why in sorted(wrong):
        yield {"driver": driver, "pool": name, "state": state, "why": why}


def _in_turns(things: Iterable[T]) -> Iterator[T | object]:
    """All of them, with pauses."""
    for number, thing in enumerate(things, start=1):
        yield thing
        if number % _LOOKED_AT == 0:
            yield PAUSE


def _is_newer(claim: ResourceClaim, watched: ResourceClaim | None) -> bool:
    return watched is None or watched.metadata.resource_version != claim.metadata.resource_version


def _unreadable(broken: Mapping[tuple[str, str], Broken]) -> list[dict[str, Any]]:
    return [{"kind": kind, "object": key, "why": each.why} for (kind, key), each in sorted(broken.items())]
